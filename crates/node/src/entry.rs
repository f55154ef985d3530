//! Entry into a field: all bootstrap addresses are tried at once, again and again, until one
//! answers or the node's patience ends.
//!
//! Called once, at a node's start. Afterwards the core calls the addresses that did not answer
//! ([`vfield_core::node::Input::Bootstrap`]).

use crate::bootstrap;
use crate::driver::Driver;
use crate::event::Event;
use crate::greet::GreetError;
use crate::interview::Guest;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The pause before the second try, and the longest: a machine that boots is joined a second after
/// it can be.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// Shortest interval between log lines with the same error of the same address.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// A member that answered, and its address as configured.
pub type Met = (SocketAddr, Guest);
/// Addresses that did not answer as members, each with the reason.
pub type Tried = Vec<(SocketAddr, GreetError)>;

/// Until when a node waits for others.
#[derive(Debug, Clone, Copy)]
pub struct Patience(Option<Instant>);

impl Patience {
    /// Patience for this time from now on; `None`: for ever.
    pub fn of(time: Option<Duration>) -> Self {
        Self(time.map(|time| Instant::now() + time))
    }

    /// True once it is over.
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Enters the field through any of the addresses, and returns the member that answered first; none
/// without an address. Returns the last errors if none answered. A node that is starting is waited
/// for as long as it says so, unless there is no patience at all.
pub async fn enter(
    driver: &Arc<Driver>,
    addrs: &[SocketAddr],
    patience: Option<Duration>,
) -> Result<Option<Met>, Tried> {
    let waits = patience != Some(Duration::ZERO);
    let patience = Patience::of(patience);
    let (mut pause, mut said) = (PAUSES.0, Said::default());
    loop {
        let tried = match knock(driver, addrs).await {
            Ok(met) => return Ok(met),
            Err(tried) => tried,
        };
        if tried.iter().any(|(_, error)| matches!(error, GreetError::Twin(_))) {
            return Err(tried);
        }
        let opens = waits && tried.iter().any(|(_, error)| error.is_starting());
        let may_open = tried.iter().any(|(_, error)| error.may_pass());
        if !opens && (patience.is_over() || !may_open) {
            return Err(tried);
        }
        for (addr, error) in &tried {
            said.say(driver, *addr, error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Tries all addresses at once; one answer is enough, and no address delays the others.
async fn knock(driver: &Arc<Driver>, addrs: &[SocketAddr]) -> Result<Option<Met>, Tried> {
    let mut meetings = JoinSet::new();
    for &addr in addrs {
        let driver = Arc::clone(driver);
        meetings.spawn(async move { (addr, bootstrap::meet(&driver, addr).await) });
    }
    let mut tried = Tried::new();
    while let Some(met) = meetings.join_next().await {
        match met.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            (addr, Ok(guest)) => {
                let driver = Arc::clone(driver);
                tokio::spawn(async move {
                    let rest = meetings.join_all().await.into_iter();
                    let rest = rest.filter_map(|(addr, met)| met.err().map(|error| (addr, error)));
                    for (addr, error) in tried.into_iter().chain(rest) {
                        driver.event(Event::BootstrapFailed { addr, why: error.to_string() });
                    }
                });
                return Ok(Some((addr, guest)));
            }
            // Whom the others met does not count: this node is not to be a member.
            (addr, Err(error @ GreetError::Twin(_))) => return Err(vec![(addr, error)]),
            (addr, Err(error)) => tried.push((addr, error)),
        }
    }
    if addrs.is_empty() {
        return Ok(None);
    }
    tried.sort_by_key(|(addr, _)| addrs.iter().position(|other| other == addr));
    Err(tried)
}

/// The last log line about each address, and when.
#[derive(Default)]
struct Said(BTreeMap<SocketAddr, (std::mem::Discriminant<GreetError>, Instant)>);

impl Said {
    fn say(&mut self, driver: &Driver, addr: SocketAddr, error: &GreetError) {
        let (kind, now) = (std::mem::discriminant(error), Instant::now());
        if self.0.get(&addr).is_none_or(|(said, at)| *said != kind || now - *at >= SAY_EVERY) {
            self.0.insert(addr, (kind, now));
            driver.event(Event::BootstrapFailed { addr, why: error.to_string() });
        }
    }
}

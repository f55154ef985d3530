//! Entering a field: all doors are tried at once, again and again, until one opens or the node's patience is over.
//!
//! Called once, at a node's start; afterwards the core calls the doors that did not open ([`vfield_core::node::Input::Doors`]).

use crate::bootstrap;
use crate::driver::Driver;
use crate::event::Event;
use crate::greet::GreetError;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The pause before the second try, and the longest: a machine that boots is joined a second after it can be.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// The same about the same door is said this often.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Doors that did not open, each with the reason.
pub type Tried = Vec<(SocketAddr, GreetError)>;

/// Until when a node waits for others.
#[derive(Debug, Clone, Copy)]
pub struct Patience(Option<Instant>);

impl Patience {
    /// For so long from now on; `None`: for ever.
    pub fn of(time: Option<Duration>) -> Self {
        Self(time.map(|time| Instant::now() + time))
    }

    /// True once it is over.
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Meets whoever is behind one of the doors; returns how those did not open that were tried last. A node that is about to open is
/// waited for as long as it says so, unless there is no patience at all.
pub async fn enter(driver: &Arc<Driver>, doors: &[SocketAddr], patience: Option<Duration>) -> Result<(), Tried> {
    let waits = patience != Some(Duration::ZERO);
    let patience = Patience::of(patience);
    let (mut pause, mut said) = (PAUSES.0, Said::default());
    loop {
        let Err(tried) = knock(driver, doors).await else { return Ok(()) };
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

/// Tries all doors at once; one that opens is enough, and nobody waits for the others.
async fn knock(driver: &Arc<Driver>, doors: &[SocketAddr]) -> Result<(), Tried> {
    let mut meetings = JoinSet::new();
    for &addr in doors {
        let driver = Arc::clone(driver);
        meetings.spawn(async move { (addr, bootstrap::meet(&driver, addr).await) });
    }
    let mut tried = Tried::new();
    while let Some(met) = meetings.join_next().await {
        match met.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            (_, Ok(())) => {
                let driver = Arc::clone(driver);
                tokio::spawn(async move {
                    let rest = meetings.join_all().await.into_iter();
                    let rest = rest.filter_map(|(addr, met)| met.err().map(|error| (addr, error)));
                    for (addr, error) in tried.into_iter().chain(rest) {
                        driver.event(Event::BootstrapFailed { addr, why: error.to_string() });
                    }
                });
                return Ok(());
            }
            (addr, Err(error)) => tried.push((addr, error)),
        }
    }
    if doors.is_empty() {
        return Ok(());
    }
    tried.sort_by_key(|(addr, _)| doors.iter().position(|door| door == addr));
    Err(tried)
}

/// What was said of doors, and when.
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

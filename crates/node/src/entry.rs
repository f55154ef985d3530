//! Entry into a field: all bootstrap addresses are tried at once, again and again, until one
//! answers or the node's patience ends.
//!
//! Called once, at a node's start. Afterwards the core calls the addresses that did not answer
//! ([`vfield_core::node::Input::Bootstrap`]).

use crate::bootstrap;
use crate::bootstrap_addrs::BootstrapAddrs;
use crate::driver::Driver;
use crate::event::Event;
use crate::greet::GreetError;
use crate::interview::Guest;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use vfield_core::doubling::Doubling;

/// The pause before the second try, and the longest: a machine that boots is joined a second after
/// it can be.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// Intervals between log lines with the same error of the same address. A machine that waits for a
/// weekend says so some hundred times.
const SAYINGS: Doubling = Doubling { first: Duration::from_secs(30), longest: Duration::from_secs(600) };

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
        self.ended_by(Instant::now())
    }

    fn ended_by(self, now: Instant) -> bool {
        self.0.is_some_and(|end| now >= end)
    }
}

/// Enters the field through any of the addresses, and returns the member that answered first; none
/// without an address. Returns the last errors if none answered. A node that is starting is waited
/// for as long as it says so, unless there is no patience at all.
pub async fn enter(
    driver: &Arc<Driver>,
    addrs: &BootstrapAddrs,
    patience: Option<Duration>,
) -> Result<Option<Met>, Tried> {
    let (mut waiting, mut said) = (Waiting::of(patience), Said::default());
    loop {
        let tried = match knock(driver, &addrs.all()).await {
            Ok(met) => return Ok(met),
            Err(tried) => tried,
        };
        let Some(pause) = waiting.pause_after(&tried, Instant::now()) else { return Err(tried) };
        for (addr, error) in &tried {
            said.say(driver, *addr, error);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Whether another try is worth it, and when.
struct Waiting {
    patience: Option<Duration>,
    end: Patience,
    pause: Duration,
    /// Addresses of nodes that said that they are starting: whoever hangs up there is still one.
    starting: BTreeSet<SocketAddr>,
}

impl Waiting {
    fn of(patience: Option<Duration>) -> Self {
        Self { patience, end: Patience::of(patience), pause: PAUSES.0, starting: BTreeSet::new() }
    }

    /// The pause before the next try; `None` if these errors are the last ones.
    fn pause_after(&mut self, tried: &[(SocketAddr, GreetError)], now: Instant) -> Option<Duration> {
        if tried.iter().any(|(_, error)| matches!(error, GreetError::Twin(_))) {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSES.1);
        for (addr, _) in tried.iter().filter(|(_, error)| error.is_starting()) {
            self.starting.insert(*addr);
            if self.patience != Some(Duration::ZERO) {
                // Patience begins anew with the next try.
                self.end = Patience(self.patience.map(|patience| now + pause + patience));
            }
        }
        let may_open = |(addr, error): &(SocketAddr, GreetError)| {
            error.may_pass() || (matches!(error, GreetError::HungUp { .. }) && self.starting.contains(addr))
        };
        (!self.end.ended_by(now) && tried.iter().any(may_open)).then_some(pause)
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
                        driver.event(Event::BootstrapFailed { addr, why: error.to_string(), is_news: true });
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
    tried.sort_unstable_by_key(|(addr, _)| addrs.iter().position(|other| other == addr));
    Err(tried)
}

/// When each reason of each address is news again, and how often it was.
///
/// Two of them may take turns: a machine that is off is silent until its neighbours know that it is
/// out of reach, again and again.
#[derive(Default)]
struct Said(HashMap<(SocketAddr, Kind), (Instant, u32)>);

/// Which error it is, without what changes from try to try.
type Kind = (std::mem::Discriminant<GreetError>, Option<std::io::ErrorKind>);

fn kind(error: &GreetError) -> Kind {
    let of_io = if let GreetError::Io(error) = error { Some(error.kind()) } else { None };
    (std::mem::discriminant(error), of_io)
}

impl Said {
    fn say(&mut self, driver: &Driver, addr: SocketAddr, error: &GreetError) {
        let is_news = self.is_news(addr, error, Instant::now());
        driver.event(Event::BootstrapFailed { addr, why: error.to_string(), is_news });
    }

    /// True for a new reason, and now and then for an old one. It counts as said.
    fn is_news(&mut self, addr: SocketAddr, error: &GreetError, now: Instant) -> bool {
        let (due, times) = self.0.entry((addr, kind(error))).or_insert((now, 0));
        let is_news = now >= *due;
        if is_news {
            *due = now + SAYINGS.pause(*times);
            *times = times.saturating_add(1);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
    const PATIENCES: [Option<Duration>; 2] = [None, Some(Duration::from_secs(1))];

    fn starting() -> Tried {
        vec![(DOOR, GreetError::Starting(0))]
    }

    fn hung_up(addr: SocketAddr) -> Tried {
        vec![(addr, GreetError::HungUp { with_key: false })]
    }

    #[test]
    fn who_hangs_up_at_once_is_no_node() {
        for patience in PATIENCES {
            assert_eq!(Waiting::of(patience).pause_after(&hung_up(DOOR), Instant::now()), None);
        }
    }

    #[test]
    fn who_said_that_it_is_starting_may_hang_up() {
        let now = Instant::now();
        for patience in PATIENCES {
            let mut waiting = Waiting::of(patience);
            assert_eq!(waiting.pause_after(&starting(), now), Some(PAUSES.0));
            assert_eq!(waiting.pause_after(&hung_up(DOOR), now), Some(PAUSES.0 * 2));
            let other = SocketAddr::new(DOOR.ip(), 2);
            assert_eq!(waiting.pause_after(&hung_up(other), now), None);
        }
    }

    #[test]
    fn patience_begins_anew_after_whoever_is_starting() {
        let (mut waiting, mut now) = (Waiting::of(Some(Duration::from_secs(1))), Instant::now());
        for _ in 0..20 {
            now += waiting.pause_after(&starting(), now).expect("it is waited for");
        }
        now += waiting.pause_after(&hung_up(DOOR), now).expect("patience has begun anew");
        assert_eq!(waiting.pause_after(&hung_up(DOOR), now), None);
    }

    #[test]
    fn reasons_that_take_turns_are_said_now_and_then() {
        let (start, mut said) = (Instant::now(), Said::default());
        // A machine that is off, for an hour.
        let says = |second: &u64| {
            let off = std::io::Error::from(std::io::ErrorKind::HostUnreachable);
            let error = if second.is_multiple_of(4) { GreetError::Io(off) } else { GreetError::TimedOut };
            said.is_news(DOOR, &error, start + Duration::from_secs(*second))
        };
        let seconds: Vec<u64> = (0..3600).step_by(2).filter(says).collect();
        assert_eq!(
            seconds,
            [0, 2, 32, 34, 92, 94, 212, 214, 452, 454, 932, 934, 1532, 1534, 2132, 2134, 2732, 2734, 3332, 3334]
        );
    }

    #[test]
    fn without_patience_nobody_is_waited_for() {
        assert_eq!(Waiting::of(Some(Duration::ZERO)).pause_after(&starting(), Instant::now()), None);
    }
}

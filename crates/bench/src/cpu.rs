//! Who used the processors: readings of `/proc`, and the shares between two of them.
//!
//! All shares are of all processors of the machine together, 0 to 1, so that they can be compared
//! and added. In a container `/proc/stat` may be the whole host's.

use serde::Serialize;
use std::time::{Duration, Instant};

/// The kernel counts in ticks of some 10 ms: the shares of shorter times would be
/// noise.
const SHORTEST: Duration = Duration::from_millis(100);

/// Counters at one moment.
#[derive(Debug, Clone)]
pub struct Reading {
    at: Instant,
    machine: Option<Machine>,
    /// Clock ticks of a daemon, if there is one to look at.
    node: Option<u64>,
    /// Clock ticks of this program.
    bench: Option<u64>,
}

/// The first line of `/proc/stat`, in clock ticks summed over all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Machine {
    busy: u64,
    softirq: u64,
    stolen: u64,
    total: u64,
}

/// Shares of all processors between two readings, 0 to 1; `None` for what could not be read, and
/// for less than [`SHORTEST`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Number of processors.
    pub processors: u64,
    /// All that was not idle.
    pub machine: Option<f64>,
    /// The daemon's own.
    pub node: Option<f64>,
    /// This program's own: the reader's part, in place of an application's.
    pub bench: Option<f64>,
    /// Packets and timers in soft interrupts, whoever they were for.
    pub softirq: Option<f64>,
    /// Taken by the machine's own host; only virtual machines have it.
    pub stolen: Option<f64>,
}

impl Reading {
    /// Now; `node` is the daemon's process id.
    pub fn take(node: Option<u32>) -> Self {
        let stat = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).ok();
        Self {
            at: Instant::now(),
            machine: stat("stat").as_deref().and_then(machine),
            node: node.and_then(|pid| stat(&format!("{pid}/stat"))).as_deref().and_then(process),
            bench: stat("self/stat").as_deref().and_then(process),
        }
    }

    /// The shares from `self` to `later`.
    pub fn until(&self, later: &Self) -> Shares {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let time = later.at.duration_since(self.at);
        if time < SHORTEST {
            return Shares { processors, ..Shares::default() };
        }
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        let capacity = time.as_secs_f64() * ticks_per_second * processors as f64;
        let own = |from: Option<u64>, to: Option<u64>| Some(share(to?.checked_sub(from?)? as f64, capacity));
        let part = |of: fn(&Machine) -> u64| {
            let (from, to) = (self.machine?, later.machine?);
            let total = to.total.checked_sub(from.total)?;
            Some(share(of(&to).saturating_sub(of(&from)) as f64, total as f64))
        };
        Shares {
            processors,
            machine: part(|machine| machine.busy),
            node: own(self.node, later.node),
            bench: own(self.bench, later.bench),
            softirq: part(|machine| machine.softirq),
            stolen: part(|machine| machine.stolen),
        }
    }
}

/// A share that is never above 1: ticks are coarse, and a short run can catch one too many.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// Processor times of the machine, from the text of `/proc/stat`.
fn machine(text: &str) -> Option<Machine> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(|field| field.parse::<u64>());
    let mut next = || fields.next().and_then(Result::ok);
    // Guest time, further on, is part of user time already.
    let (user, nice, system, idle, iowait) = (next()?, next()?, next()?, next()?, next()?);
    let (irq, softirq, stolen) = (next()?, next()?, next()?);
    let busy = user + nice + system + irq + softirq + stolen;
    Some(Machine { busy, softirq, stolen, total: busy + idle + iowait })
}

/// User and system time of a process, all threads, from `/proc/PID/stat`.
fn process(text: &str) -> Option<u64> {
    // Fields are counted from behind the name, which may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11).map(|field| field.parse::<u64>());
    let mut next = || fields.next().and_then(Result::ok);
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_kernels_lines_are_read() {
        let text = "cpu  490346 526400 231154 1239012 6144 3 38732 7168 5 6\ncpu0 1 2 3\n";
        let read = machine(text).unwrap();
        assert_eq!((read.softirq, read.stolen), (38732, 7168));
        assert_eq!(read.busy, 490_346 + 526_400 + 231_154 + 3 + 38_732 + 7168);
        assert_eq!(read.total, read.busy + 1_239_012 + 6144);
        assert_eq!(machine("cpu  1 2 3\n"), None);
        assert_eq!(machine(""), None);
        let text = "7 (a) b ) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 3 0 100 1 1";
        assert_eq!(process(text), Some(400));
        assert_eq!(process("7 (a) S"), None);
    }

    #[test]
    fn shares_are_of_all_processors() {
        let at = Instant::now();
        let machine = |busy, total| Some(Machine { busy, softirq: busy / 4, stolen: 0, total });
        let from = Reading { at, machine: machine(100, 1000), node: Some(10), bench: None };
        let to = Reading { at: at + Duration::from_secs(1), machine: machine(300, 1400), node: Some(10), bench: None };
        let shares = from.until(&to);
        assert_eq!((shares.machine, shares.softirq, shares.stolen), (Some(0.5), Some(0.125), Some(0.0)));
        assert_eq!((shares.node, shares.bench), (Some(0.0), None));
        let soon = Reading { at: at + Duration::from_millis(99), ..to };
        assert_eq!(from.until(&soon), Shares { processors: shares.processors, ..Shares::default() });
    }

    #[test]
    fn a_process_that_works_is_seen() {
        let from = Reading::take(Some(std::process::id()));
        let mut to = from.clone();
        let mut sum = 0_u64;
        // Until the kernel has counted a tick of it, and long enough for shares.
        while to.bench == from.bench || to.at.duration_since(from.at) < SHORTEST {
            sum = (0..100_000).fold(sum, |sum, value| std::hint::black_box(sum ^ value));
            to = Reading::take(Some(std::process::id()));
        }
        let shares = from.until(&to);
        assert!(shares.bench > Some(0.0) && shares.node > Some(0.0), "{shares:?}");
        assert!(shares.processors > 0 && shares.machine.is_some(), "{shares:?}");
    }
}

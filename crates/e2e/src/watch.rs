//! A reader that never stops, while its daemon is restarted and the field changes around it.
//!
//! It owns the rule about silence: a read that takes long must be told of in the log of the node
//! that it waits at.

use std::path::Path;
use std::time::Duration;
use vfield_lab::{Daemon, Host, LabError, Process, wait_until};

/// What reads; says what it prints.
const SCRIPT: &str = include_str!("watch.py");
/// Seconds after which a read has to be told of: a node tells after ten, and looks once in a
/// second.
const SLOW_S: &str = "12";
/// What a node says when a read has waited for ten seconds, and when none waits any more.
const WAITS: &str = "a read of chunk";
const GOES_ON: &str = "no read waits any more";
/// The first words of a daemon.
const STARTED: &str = "listening on ";
/// A round takes some seconds on a busy machine.
const ROUND: Duration = Duration::from_secs(60);
/// Pause before each read of one of many readers. Without it two dozen of them leave the daemons of
/// a small machine no time.
const PAUSE: Duration = Duration::from_millis(30);

/// A reader of one export of one host.
#[derive(Debug)]
pub struct Watch {
    name: String,
    reader: Process,
}

impl Watch {
    /// Reads the only image of a daemon over NBD, compared with a file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn nbd(host: &Host, daemon: &Daemon, image: &Path) -> Result<Self, LabError> {
        Self::start("watch", host, daemon, &daemon.uri(""), image, &[], Duration::ZERO)
    }

    /// One of many readers: it pauses before each read. It reads over NBD, or the file of a mount.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn one_of_many(host: &Host, daemon: &Daemon, file: Option<&Path>, image: &Path) -> Result<Self, LabError> {
        let Some(file) = file else {
            return Self::start("watch", host, daemon, &daemon.uri(""), image, &[], PAUSE);
        };
        Self::start("fuse", host, daemon, &file.display().to_string(), image, &[file], PAUSE)
    }

    /// Reads a file, compared with another one. Cached pages of it, and of `under`, are forgotten
    /// before each read.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn file(host: &Host, daemon: &Daemon, file: &Path, under: &[&Path], image: &Path) -> Result<Self, LabError> {
        Self::named("watch", host, daemon, file, under, image)
    }

    /// As [`Watch::file`], beside other readers of the same daemon.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn named(
        name: &str,
        host: &Host,
        daemon: &Daemon,
        file: &Path,
        under: &[&Path],
        image: &Path,
    ) -> Result<Self, LabError> {
        let caches: Vec<_> = std::iter::once(file).chain(under.iter().copied()).collect();
        Self::start(name, host, daemon, &file.display().to_string(), image, &caches, Duration::ZERO)
    }

    fn start(
        name: &str,
        host: &Host,
        daemon: &Daemon,
        export: &str,
        image: &Path,
        caches: &[&Path],
        pause: Duration,
    ) -> Result<Self, LabError> {
        let name = format!("{name}-{}", daemon.addr());
        let pause_s = pause.as_secs_f64().to_string();
        let mut words = host.command("/usr/bin/python3");
        words.args(["-c", SCRIPT, export]).arg(image).arg(daemon.process().log_path());
        words.args([SLOW_S, &pause_s]).args(caches);
        Ok(Self { reader: host.spawn(&name, &mut words)?, name })
    }

    /// Waits until all was read once more, from now on.
    ///
    /// # Errors
    /// If it hangs.
    pub fn goes_on(&self) -> Result<(), LabError> {
        let rounds = || self.said("round ").len();
        // The round that is under way has begun before.
        let before = rounds();
        let what = format!("{} reads on: {}", self.name, self.reader.log_tail());
        wait_until(&what, ROUND, || rounds() > before + 1).map(drop)
    }

    /// Its longest read, as of its last round.
    ///
    /// # Panics
    /// If it has read nothing.
    pub fn longest(&self) -> Duration {
        let rounds = self.said("round ");
        let seconds = rounds.last().and_then(|round| round.rsplit(' ').next()?.parse().ok());
        Duration::from_secs_f64(seconds.unwrap_or_else(|| panic!("{} has read nothing", self.name)))
    }

    /// Reads that failed and bytes that were wrong so far.
    pub fn errors(&self) -> Vec<String> {
        [self.said("refused "), self.said("wrong ")].concat()
    }

    /// Ends it and judges what it has seen. Each restart of its daemon may refuse one read.
    ///
    /// # Panics
    /// If a byte was wrong, a read was refused by a daemon that was there, or a long one was
    /// silent.
    pub fn judge(mut self, daemon_log: &str, restarts: usize) {
        self.reader.kill();
        let (log, name) = (self.reader.log(), &self.name);
        assert!(self.said("wrong ").is_empty(), "{name} read a wrong byte:\n{log}");
        let refused = self.said("refused ");
        assert!(refused.len() <= restarts, "{name}: {restarts} restarts, and refused: {refused:#?}");
        for slow in self.said("slow ") {
            let numbers: Vec<usize> = slow.split(' ').skip(3).filter_map(|word| word.parse().ok()).collect();
            let [from, to] = numbers[..] else { panic!("{slow}") };
            let told = told(daemon_log.as_bytes(), from, to);
            assert!(told, "{name}: a silent wait, {slow}, the node's log:\n{daemon_log}");
        }
        assert!(!self.said("round ").is_empty(), "{name} has read nothing:\n{log}");
    }

    /// Lines of its log that begin so.
    fn said(&self, start: &str) -> Vec<String> {
        self.reader.log().lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }
}

/// Whether a log tells of a read that waits, somewhere between two of its lengths: said then, or
/// said before and not taken back. The first line of another daemon tells it too: on a busy machine
/// the exchange of daemons takes seconds.
fn told(log: &[u8], from: usize, to: usize) -> bool {
    let text = |range| String::from_utf8_lossy(&log[range]).into_owned();
    let before = text(0..from.min(log.len()));
    let meanwhile = text(from.min(log.len())..to.min(log.len()));
    before.rfind(WAITS) > before.rfind(GOES_ON) || [WAITS, STARTED].iter().any(|line| meanwhile.contains(line))
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_wait_is_told_of_when_it_was_said_and_not_taken_back() {
        let log = b"a read of chunk 7 waits\nno read waits any more\nanother line\n";
        assert!(told(log, 0, 30));
        assert!(told(log, 30, 30), "said before");
        assert!(!told(log, 53, log.len()), "taken back");
        assert!(!told(b"another line\n", 0, 13));
    }
}

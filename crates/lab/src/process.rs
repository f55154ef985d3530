//! A process of the lab: its output goes to a log, and it never outlives its value.

use crate::LabError;
use crate::wait::Deadline;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// How much of a log an error shows.
const LOG_TAIL_BYTES: usize = 2000;

/// A running (or ended) process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

/// What a process has in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Pages of its own: heap and stacks.
    pub anonymous_bytes: u64,
    /// Pages of mapped files: mostly the program itself.
    pub file_bytes: u64,
    /// Allocated blocks of its memory files, mapped or not.
    pub shared_bytes: u64,
}

impl Memory {
    /// All but the program itself, whose pages a kernel without room for them reads again. Those of
    /// a debug build are many times those of a release.
    pub fn beside_program_bytes(self) -> u64 {
        self.anonymous_bytes + self.shared_bytes
    }

    /// All of it.
    pub fn total_bytes(self) -> u64 {
        self.anonymous_bytes + self.file_bytes + self.shared_bytes
    }
}

impl Process {
    /// Starts a command whose standard output and error are appended to a log.
    pub(crate) fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self, LabError> {
        let file = File::options().create(true).append(true).open(log).map_err(LabError::at(log))?;
        let twin = file.try_clone().map_err(LabError::at(log))?;
        let child = command
            .stdout(file)
            .stderr(twin)
            .spawn()
            .map_err(|error| LabError::Command { command: line(command), why: error.to_string() })?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), ended: None })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`LabError::Late`].
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, LabError> {
        let what = format!("{} ends", self.name);
        Deadline::after(limit).poll(&what, || Ok(self.ended()))
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<(), LabError> {
        match self.ended() {
            None => Ok(()),
            Some(how) => Err(LabError::Ended { name: self.name.clone(), how: how.to_string(), log: self.log_tail() }),
        }
    }

    /// SIGTERM: asks it to end.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: its connections stay, and nothing comes over them.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Goes on, by SIGCONT.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends a signal; nothing happens if it has ended.
    fn signal(&mut self, name: Signal) {
        if self.ended().is_none() {
            signal(self.pid(), name);
        }
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended = self.child.wait().ok().or(self.ended);
    }

    /// The file that it prints to; a later process of the same name on the same host appends to it.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Everything that it has printed.
    pub fn log(&self) -> String {
        text(&self.log)
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Processor time it has used, all threads.
    pub fn cpu(&self) -> Duration {
        cpu(self.pid())
    }

    /// Descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Memory it holds now: its own pages, and the allocated blocks of its memory files.
    pub fn memory(&self) -> Memory {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let kib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or_default()
        };
        Memory {
            anonymous_bytes: kib("RssAnon:") << 10,
            file_bytes: kib("RssFile:") << 10,
            shared_bytes: memory_file_bytes(self.pid()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {} ({}):\n{}", self.name, self.log.display(), self.log_tail());
        }
    }
}

/// A file's text, as far as it is one; empty if there is no such file.
fn text(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}

/// The end of a file's text, as much as an error shows.
pub(crate) fn tail(file: &Path) -> String {
    let text = text(file);
    let mut from = text.len().saturating_sub(LOG_TAIL_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].trim().to_owned()
}

/// Allocated bytes of a process's memory files, each counted once however many descriptors it has.
fn memory_file_bytes(pid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut files = std::collections::BTreeMap::new();
    for descriptor in descriptors {
        let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("/memfd:")
            && let Ok(file) = std::fs::metadata(descriptor.path())
        {
            files.insert(file.ino(), file.blocks() * 512);
        }
    }
    files.values().sum()
}

/// SIGKILL for a process that is borrowed elsewhere and not yet waited for.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// A signal for a process that nobody has waited for yet.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may end in this very moment, which is what most signals want.
        let _ = kill_process(pid, signal);
    }
}

/// Processor time that a process has used, all threads; also of a zombie.
pub fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Fields are counted from behind the name, which may contain anything.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// If it cannot be started or fails; what it said on standard error is in the message.
pub fn run(command: &mut Command) -> Result<String, LabError> {
    let done = command.output();
    let failed = |why: String| LabError::Command { command: line(command), why };
    let done = done.map_err(|error| failed(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(failed(format!("{}: {} {}", done.status, text(&done.stdout), text(&done.stderr))))
    }
}

/// A command as one would type it.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

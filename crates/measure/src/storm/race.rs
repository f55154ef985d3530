//! The race: readers that all start at one moment, trouble on the way, and one outcome of each.

use super::field::Field;
use super::memory::Memory;
use super::meter::{Reading, processes_s};
use super::plan::{Plan, System};
use super::pulse::Pulse;
use super::report::Sample;
use super::role::{Outcome, Programs, Role, VARIABLE, Word, go, now_ns};
use super::weather::{Event, Trouble};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use vfield_lab::process::signal;
use vfield_lab::{Host, LabError};

/// From the word to the start, so that all processes have heard it and wait.
const START_DELAY: Duration = Duration::from_millis(200);
/// Readers are promised a byte within this time. If one gets none for longer, its node is asked
/// why.
const FREEZE: Duration = Duration::from_secs(1);
/// Lines of its answer that are shown: of the three slowest reads or so.
const FREEZE_LINES: usize = 12;
/// How much of a log an error shows.
const LOG_TAIL_BYTES: usize = 600;

/// Each storm of a process has an image of its own.
static STORMS: AtomicU64 = AtomicU64::new(1);

/// Runs a storm and measures it. Readers that fail are in the sample; it is an error if the storm
/// could not begin.
///
/// # Errors
/// Without root, if a program is missing, or if nodes that were to be warm are not in time.
pub fn run(plan: &Plan, programs: &Programs) -> Result<Sample, LabError> {
    plan.check().map_err(|why| LabError::Command { command: "the plan".to_owned(), why })?;
    let mut field = Field::lay_out(plan, programs, STORMS.fetch_add(1, Ordering::Relaxed))?;
    let (sender, heard) = mpsc::channel();
    let mut runners = Vec::new();
    for host in 1..=plan.hosts_max() {
        runners.push(Runner::new(host, field.start_reader(host)?, plan, &sender));
    }
    let mut race = Race { field: &field, runners, heard, warnings: Vec::new() };
    race.wait_ready()?;
    if plan.origin_gone {
        // The borrow ends here, and the readers go on waiting.
        let Race { runners, heard, warnings, .. } = race;
        field.dismiss_origin()?;
        race = Race { field: &field, runners, heard, warnings };
    }
    race.measured()
}

/// The process of a host, and the way to talk to it.
#[derive(Debug)]
pub(super) struct Helper {
    host: usize,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    dir: PathBuf,
}

impl Helper {
    /// Starts a role on a host.
    pub(super) fn start(host: &Host, helper: &(PathBuf, Vec<String>), role: &Role) -> Result<Self, LabError> {
        let (program, words) = helper;
        let log = host.dir().join("helper.log");
        let mut command = host.command(program);
        let role = serde_json::to_string(role).expect("roles are plain data");
        command.args(words).env(VARIABLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(&log).map_err(LabError::at(&log))?);
        let mut child = command.spawn().map_err(LabError::at(program))?;
        let stdout = child.stdout.take().map(BufReader::new);
        let stdin = child.stdin.take();
        Ok(Self { host: host.index(), child, stdin, stdout, dir: host.dir().to_owned() })
    }

    /// The id of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the helper is ready.
    pub(super) fn wait_ready(&mut self, limit: Duration) -> Result<(), LabError> {
        let (sender, heard) = mpsc::channel();
        self.listen(&sender);
        loop {
            match heard.recv_timeout(limit) {
                Ok((_, Some(Word::Ready))) => return Ok(()),
                Ok((_, Some(_))) => (),
                Ok((_, None)) => return Err(self.ended()),
                Err(_) => return Err(LabError::Late { what: format!("host {} is ready", self.host), limit }),
            }
        }
    }

    /// Sends what it says, and at the end nothing more.
    fn listen(&mut self, sender: &Sender<(usize, Option<Word>)>) {
        let (Some(stdout), host, sender) = (self.stdout.take(), self.host, sender.clone()) else { return };
        std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            let words = lines.filter_map(|line| Word::hear(&line)).map(Some);
            // Nobody listens any more once the race is over.
            let _ = words.chain([None]).try_for_each(|word| sender.send((host, word)));
        });
    }

    /// Tells the helper when to start. An ended helper is found by its silence.
    fn start_at(&mut self, start_ns: u64) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(go(start_ns).as_bytes());
        }
    }

    /// What it, and the node of its host, have said last.
    fn last_words(&self) -> String {
        let tail = |name: &str| {
            let text = std::fs::read(self.dir.join(name)).unwrap_or_default();
            let from = text.len().saturating_sub(LOG_TAIL_BYTES);
            String::from_utf8_lossy(&text[from..]).trim().to_owned()
        };
        ["helper.log", "node.log"].map(tail).join("\n").trim().to_owned()
    }

    fn ended(&self) -> LabError {
        LabError::Ended {
            name: format!("the reader of host {}", self.host),
            how: "before the start".to_owned(),
            log: self.last_words(),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended. Its node is ended by the lab's janitor.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reader in the race.
#[derive(Debug)]
pub(super) struct Runner {
    /// Its host's number.
    pub(super) host: usize,
    helper: Helper,
    node: Option<u32>,
    ready: bool,
    /// When it starts, in seconds after the storm does; `None` until it joins.
    pub(super) start_s: Option<f64>,
    /// What befell it, if it cannot be expected to go on.
    pub(super) fate: Option<Trouble>,
    /// What it said at its end.
    pub(super) outcome: Option<Outcome>,
    gone: bool,
}

impl Runner {
    fn new(host: usize, mut helper: Helper, plan: &Plan, sender: &Sender<(usize, Option<Word>)>) -> Self {
        helper.listen(sender);
        let start_s = (host <= plan.readers).then(|| plan.start_s(host));
        Self { host, helper, node: None, ready: false, start_s, fate: None, outcome: None, gone: false }
    }

    /// Why it has no outcome.
    pub(super) fn last_words(&self) -> String {
        let why = if self.gone { "it died" } else { "it ran past the limit" };
        format!("{why}; {}", self.helper.last_words())
    }

    /// True if the race is not over before it has ended.
    fn is_awaited(&self) -> bool {
        self.start_s.is_some() && self.fate.is_none() && self.outcome.is_none() && !self.gone
    }

    /// Whom a signal for this host is for.
    fn pid(&self) -> u32 {
        self.node.unwrap_or_else(|| self.helper.pid())
    }
}

/// The meters before and after, and the processor seconds of the processes in between.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) before: Reading,
    pub(super) after: Reading,
    pub(super) daemons_s: f64,
    pub(super) readers_s: f64,
    /// What [`Pulse`] found in between.
    pub(super) latest: Duration,
}

struct Race<'a> {
    field: &'a Field<'a>,
    runners: Vec<Runner>,
    heard: Receiver<(usize, Option<Word>)>,
    warnings: Vec<String>,
}

impl Race<'_> {
    fn wait_ready(&mut self) -> Result<(), LabError> {
        let limit = self.field.plan.limit();
        let end_ns = now_ns() + u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX / 2);
        while let Some(late) = self.runners.iter().find(|runner| !runner.ready) {
            let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
            let what = format!("host {} is ready", late.host);
            let (host, word) = self.heard.recv_timeout(left).map_err(|_| LabError::Late { what, limit })?;
            self.hear(host, word)?;
            if let Some(runner) = self.runners.iter().find(|runner| runner.gone) {
                return Err(runner.helper.ended());
            }
        }
        Ok(())
    }

    fn hear(&mut self, host: usize, word: Option<Word>) -> Result<(), LabError> {
        let runner = &mut self.runners[host - 1];
        match word {
            Some(Word::Ready) => runner.ready = true,
            Some(Word::Node { pid }) => {
                runner.node = Some(pid);
                self.field.confine(host, pid)?;
            }
            Some(Word::Done(outcome)) => runner.outcome = Some(outcome),
            None => runner.gone = true,
        }
        Ok(())
    }

    /// Starts everybody, and looks at the meters before and after.
    fn measured(mut self) -> Result<Sample, LabError> {
        let mut events: Vec<Event> = self.field.plan.events.clone();
        events.sort_by_key(|event| event.after);
        let mut events = VecDeque::from(events);
        while let Some(first) = events.front().filter(|event| event.after.is_zero()).copied() {
            events.pop_front();
            self.befall(first, 0)?;
        }
        let memory = Memory::hold(self.field.plan)?;
        let (daemons_s, readers_s) = (processes_s(self.daemons()), processes_s(self.readers()));
        let (pulse, before) = (Pulse::start(), self.field.reading()?);
        let start_ns = now_ns() + u64::try_from(START_DELAY.as_nanos()).expect("a fraction of a second");
        for runner in &mut self.runners {
            if let Some(start_s) = runner.start_s {
                runner.helper.start_at(start_ns + nanos(start_s));
            }
        }
        self.follow(start_ns, events)?;
        drop(memory);
        let measured = Measured {
            latest: pulse.latest(),
            after: self.field.reading()?,
            before,
            daemons_s: processes_s(self.daemons()) - daemons_s,
            readers_s: processes_s(self.readers()) - readers_s,
        };
        let freeze = self.freeze();
        Ok(Sample::of(self.field.plan, &self.runners, &measured, self.warnings, freeze))
    }

    /// Asks the node whose reader got no byte for the longest time why that was.
    fn freeze(&self) -> Option<String> {
        let gap_s = |runner: &Runner| runner.outcome.as_ref().map_or(0.0, |outcome| outcome.longest_gap_s);
        let worst = self.runners.iter().max_by(|one, other| gap_s(one).total_cmp(&gap_s(other)))?;
        let (host, gap_s) = (worst.host, gap_s(worst));
        (gap_s > FREEZE.as_secs_f64()).then(|| {
            let why = self.field.slow_reads(host).unwrap_or_default();
            let slowest = why.lines().take(FREEZE_LINES).collect::<Vec<_>>().join("\n");
            format!("host {host} got no byte for {gap_s:.1} s; its slowest reads:\n{slowest}")
        })
    }

    /// Listens until all expected readers have ended, and causes the events.
    fn follow(&mut self, start_ns: u64, mut events: VecDeque<Event>) -> Result<(), LabError> {
        let end_ns = start_ns + nanos(self.field.plan.limit_s);
        let more_join =
            |events: &VecDeque<Event>| events.iter().any(|event| matches!(event.trouble, Trouble::Join { .. }));
        while self.runners.iter().any(Runner::is_awaited) || more_join(&events) {
            let next_ns = events.front().map_or(end_ns, |event| start_ns + nanos(event.after.as_secs_f64()));
            let left = Duration::from_nanos(next_ns.min(end_ns).saturating_sub(now_ns()));
            match self.heard.recv_timeout(left) {
                Ok((host, word)) => self.hear(host, word)?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if next_ns >= end_ns => break,
                Err(RecvTimeoutError::Timeout) => {
                    let event = events.pop_front().expect("its time has come");
                    self.befall(event, start_ns)?;
                }
            }
        }
        self.warnings.extend(events.iter().map(|event| format!("{event} did not happen: all had ended before")));
        Ok(())
    }

    /// Brings trouble. `start_ns`: when the storm began.
    fn befall(&mut self, event: Event, start_ns: u64) -> Result<(), LabError> {
        let trouble = event.trouble;
        self.field.befall_link(trouble)?;
        if let Trouble::Join { count } = trouble {
            let idle = self.runners.iter_mut().filter(|runner| runner.start_s.is_none()).take(count);
            for runner in idle {
                runner.start_s = Some(event.after.as_secs_f64());
                // With those who start at zero it is told later.
                if start_ns > 0 {
                    runner.helper.start_at(start_ns + nanos(event.after.as_secs_f64()));
                }
            }
            return Ok(());
        }
        let host = trouble.host().expect("all others befall a host");
        let runner = host.checked_sub(1).and_then(|index| self.runners.get_mut(index));
        let pid = match &runner {
            Some(runner) => Some(runner.pid()),
            None => self.field.origin_pid(),
        };
        let name = match trouble {
            Trouble::Stop { .. } => Some(Signal::STOP),
            Trouble::Kill { .. } => Some(Signal::KILL),
            Trouble::Leave { .. } => Some(Signal::TERM),
            Trouble::Back { .. } => Some(Signal::CONT),
            _ => None,
        };
        match (name, pid) {
            (Some(name), Some(pid)) => signal(pid, name),
            (Some(_), None) => self.warnings.push(format!("{event} had nobody to befall")),
            (None, _) => (),
        }
        if let Some(runner) = runner.filter(|runner| runner.outcome.is_none()) {
            match trouble {
                Trouble::Back { .. } => runner.fate = None,
                _ if trouble.ends_reading() => runner.fate = Some(trouble),
                _ => (),
            }
        }
        Ok(())
    }

    /// Processes that deliver: the origin's, the nodes, and all of a chain.
    fn daemons(&self) -> impl Iterator<Item = u32> {
        let chain = self.field.plan.system == System::Chain;
        let relays = self.runners.iter().filter(move |_| chain).map(|runner| runner.helper.pid());
        self.field.origin_pid().into_iter().chain(self.runners.iter().filter_map(|runner| runner.node)).chain(relays)
    }

    /// Processes that only read.
    fn readers(&self) -> impl Iterator<Item = u32> {
        let chain = self.field.plan.system == System::Chain;
        self.runners.iter().filter(move |_| !chain).map(|runner| runner.helper.pid())
    }
}

/// Nanoseconds of a number of seconds that is not negative.
fn nanos(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).expect("less than centuries")
}

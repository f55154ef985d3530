//! Reloads of a running daemon (SIGHUP) and changes of its verbosity (SIGUSR1, SIGUSR2).
//!
//! Four things: the field keys, the admission list, the certificates of the NBD server, and the
//! log level of the configuration file. Each is taken up or left as it was, and said to be.
//! Everything else wants a start. Files are read on threads that may wait for a disk, one reload
//! after another.

use super::request_handler::RequestHandler;
use super::signals::Instruction;
use crate::plan::{Plan, ReadVolume};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use vfield_console::failure::Failure;
use vfield_console::log::{Console, EVENTS, Level};
use vfield_console::volume::Volume;
use vfield_control::message::Reply;
use vfield_control::server::Daemon as _;
use vfield_export::nbd::Tls;
use vfield_node::apart;

/// Reloads files and sets the verbosity of a running daemon.
pub struct Reloader {
    console: Console,
    /// A second reload that is wanted during the first begins after it; a third is the second.
    wanted: Arc<Notify>,
    _reloading: JoinSet<()>,
}

/// The files to reload, and those who take them up.
struct Files {
    console: Console,
    handler: Arc<RequestHandler>,
    tls: Option<Tls>,
    config: Option<PathBuf>,
    volume: Volume,
    read_volume: ReadVolume,
}

/// What became of one thing: what it is now, or why it is still what it was.
type Outcome = Result<String, Failure>;

/// After so long without an answer people wonder whether the daemon heard them.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// Reads something again on a thread that may wait for a disk. If that takes long, it is said.
pub async fn read<T: Send + 'static>(what: &str, read: impl FnOnce() -> T + Send + 'static) -> T {
    let after = SAID_AFTER.as_secs();
    let tell = || {
        tracing::warn!(
            "not reloaded yet: no answer for {after} s from the disk of {what}; all is as it was until then"
        );
    };
    apart::run_or_tell(SAID_AFTER, tell, read).await
}

impl Reloader {
    /// The reloader of the daemon of `plan`, whose requests `handler` answers. Has to be called
    /// within a tokio runtime.
    pub fn new(plan: &Plan, handler: Arc<RequestHandler>, console: Console) -> Self {
        let (tls, config, volume) = (plan.exports.tls.clone(), plan.config.clone(), plan.volume);
        let files = Files { console: console.clone(), handler, tls, config, volume, read_volume: plan.read_volume };
        let wanted = Arc::new(Notify::new());
        let mut reloading = JoinSet::new();
        reloading.spawn(files.reload_when(Arc::clone(&wanted)));
        Self { console, wanted, _reloading: reloading }
    }

    /// Does what a signal asks for that does not end the daemon, or has it begun.
    pub fn obey(&self, instruction: Instruction) {
        match instruction {
            Instruction::End => {}
            Instruction::Reload => self.wanted.notify_one(),
            Instruction::Louder => self.set_level(self.console.level().louder()),
            Instruction::Quieter => self.set_level(self.console.level().quieter()),
        }
    }

    fn set_level(&self, level: Level) {
        self.console.set_level(level);
        tracing::info!(target: EVENTS, event = "log_level", level = level.name(), "log level");
        // Said at any level: the one who asked wants to see that it was heard.
        self.console.tell(&format!("log level: {}", level.name()));
    }
}

impl Files {
    async fn reload_when(self, wanted: Arc<Notify>) {
        loop {
            wanted.notified().await;
            self.reload().await;
        }
    }

    async fn reload(&self) {
        let outcomes = [self.keys().await, self.certificates().await, self.level().await];
        let mut done = Vec::new();
        for outcome in outcomes.into_iter().flatten() {
            match outcome {
                Ok(what) => done.push(what),
                Err(failure) => self.console.warn(&format!("not reloaded: {}", failure.fact())),
            }
        }
        let done = if done.is_empty() { "nothing".to_owned() } else { done.join("; ") };
        tracing::info!(target: EVENTS, event = "reloaded", what = done, "reloaded");
        self.console.tell(&format!("reloaded: {done} (all other options need a start)"));
    }

    /// The admission list too; nothing for an open field without one.
    async fn keys(&self) -> Option<Outcome> {
        if !self.handler.has_key_files() {
            return None;
        }
        Some(match self.handler.reload_keys().await {
            Reply::Keys { ids, admission } => {
                let keys = (!ids.is_empty()).then(|| format!("field keys {}", ids.join(", ")));
                Ok(keys.into_iter().chain(admission).collect::<Vec<_>>().join("; "))
            }
            Reply::Refused { fact, .. } => Err(Failure::failed(fact)),
            _ => Err(Failure::failed("field keys: the node is not there yet")),
        })
    }

    async fn certificates(&self) -> Option<Outcome> {
        let tls = self.tls.clone()?;
        let what = format!("NBD certificates in {}", tls.dir().display());
        let reloaded = read(&what, move || tls.reload()).await;
        Some(reloaded.map(|()| what).map_err(|error| Failure::failed(format!("--nbd-tls: {error}"))))
    }

    async fn level(&self) -> Option<Outcome> {
        let (config, read_volume, volume) = (self.config.clone()?, self.read_volume, self.volume);
        let what = format!("the configuration {}", config.display());
        let volume = match read(&what, move || read_volume(&config, volume)).await {
            Ok(volume) => volume,
            Err(failure) => return Some(Err(failure)),
        };
        let level = Level::of(volume);
        self.console.set_level(level);
        Some(Ok(format!("log level {}", level.name())))
    }
}

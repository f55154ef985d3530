//! Reloads of a running daemon (SIGHUP) and changes of its verbosity (SIGUSR1, SIGUSR2).
//!
//! Four things: the field keys, the admission list, the certificates of the NBD server, and the
//! log level of the configuration file. Each is taken up or left as it was, and said to be.
//! Everything else wants a start.

use super::request_handler::RequestHandler;
use super::signals::Instruction;
use crate::plan::{Plan, ReadVolume};
use std::path::PathBuf;
use std::sync::Arc;
use vfield_console::failure::Failure;
use vfield_console::log::{Console, EVENTS, Level};
use vfield_console::volume::Volume;
use vfield_control::message::Reply;
use vfield_control::server::Daemon as _;
use vfield_export::nbd::Tls;

/// Reloads files and sets the verbosity of a running daemon.
pub struct Reloader {
    console: Console,
    handler: Arc<RequestHandler>,
    tls: Option<Tls>,
    config: Option<PathBuf>,
    volume: Volume,
    read_volume: ReadVolume,
}

/// What became of one thing: what it is now, or why it is still what it was.
type Outcome = Result<String, Failure>;

impl Reloader {
    /// The reloader of the daemon of `plan`, whose requests `handler` answers.
    pub fn new(plan: &Plan, handler: Arc<RequestHandler>, console: Console) -> Self {
        let (tls, config, volume) = (plan.exports.tls.clone(), plan.config.clone(), plan.volume);
        Self { console, handler, tls, config, volume, read_volume: plan.read_volume }
    }

    /// Does what a signal asks for that does not end the daemon.
    pub fn obey(&self, instruction: Instruction) {
        match instruction {
            Instruction::End => {}
            Instruction::Reload => self.reload(),
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

    fn reload(&self) {
        let outcomes = [self.keys(), self.certificates(), self.level()];
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
    fn keys(&self) -> Option<Outcome> {
        if !self.handler.has_key_files() {
            return None;
        }
        Some(match self.handler.reload_keys() {
            Reply::Keys { ids, admission } => {
                let keys = (!ids.is_empty()).then(|| format!("field keys {}", ids.join(", ")));
                Ok(keys.into_iter().chain(admission).collect::<Vec<_>>().join("; "))
            }
            Reply::Refused { fact, .. } => Err(Failure::failed(fact)),
            _ => Err(Failure::failed("field keys: the node is not there yet")),
        })
    }

    fn certificates(&self) -> Option<Outcome> {
        let tls = self.tls.as_ref()?;
        let failed = |error| Failure::failed(format!("--nbd-tls: {error}"));
        Some(tls.reload().map_err(failed).map(|()| format!("NBD certificates in {}", tls.dir().display())))
    }

    fn level(&self) -> Option<Outcome> {
        let config = self.config.as_deref()?;
        let volume = match (self.read_volume)(config, self.volume) {
            Ok(volume) => volume,
            Err(failure) => return Some(Err(failure)),
        };
        let level = Level::of(volume);
        self.console.set_level(level);
        Some(Ok(format!("log level {}", level.name())))
    }
}

//! The signals that a daemon knows.
//!
//! SIGTERM and SIGINT end it. SIGHUP reloads files; if the daemon's terminal is gone, it ends the
//! daemon, since Ctrl-C is no longer possible. SIGUSR1 and SIGUSR2 raise and lower the verbosity.
//! [`super::reload`] and [`crate::run`] obey them.

use std::io::{IsTerminal, stderr, stdin};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The instruction of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// Leave, and end.
    End,
    /// Reload keys, certificates and the configuration's verbosity.
    Reload,
    /// Raise the verbosity.
    Louder,
    /// Lower the verbosity.
    Quieter,
}

/// The signals, caught from its creation on.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    louder: Signal,
    quieter: Signal,
    terminals: Terminals,
}

impl Signals {
    /// Starts to catch signals. Must be called within a tokio runtime.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            louder: signal(SignalKind::user_defined1())?,
            quieter: signal(SignalKind::user_defined2())?,
            terminals: Terminals::now(),
        })
    }

    /// The next instruction.
    pub async fn next(&mut self) -> Instruction {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Instruction::End,
            _ = self.interrupt.recv() => Instruction::End,
            _ = self.hang_up.recv() => if self.terminals == Terminals::now() { Instruction::Reload } else { Instruction::End },
            _ = self.louder.recv() => Instruction::Louder,
            _ = self.quieter.recv() => Instruction::Quieter,
        }
    }

    /// Returns at the next instruction to end; others are ignored.
    pub async fn end(&mut self) {
        while self.next().await != Instruction::End {}
    }
}

/// The standard streams that are terminals; a hung-up stream is none.
#[derive(Debug, PartialEq, Eq)]
struct Terminals {
    stdin: bool,
    stderr: bool,
}

impl Terminals {
    fn now() -> Self {
        Self { stdin: stdin().is_terminal(), stderr: stderr().is_terminal() }
    }
}

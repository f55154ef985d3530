//! Where words to people and log lines go: stderr, in one of three styles and at one of four
//! levels.
//!
//! Owns the choice of style, the level, which a running daemon can change, and the tracing
//! subscriber. The words for a node's events are the daemon's.

use crate::volume::Volume;
use crate::{output, stderr};
use console::Term;
use indicatif::{MultiProgress, ProgressDrawTarget};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

/// Target of what a daemon says about its work, apart from the logs of its parts.
pub const EVENTS: &str = "vfield::event";

/// Bars are drawn so often each second at most.
const BARS_HZ: u8 = 20;

/// How a daemon speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Lines and progress bars, for a person at a terminal.
    Bars,
    /// Lines, for a file or a journal.
    Lines,
    /// JSON objects, one a line.
    Json,
}

impl Style {
    /// What suits stderr.
    pub fn choose(json: bool, volume: Volume) -> Self {
        match (json, io::stderr().is_terminal() && !volume.quiet) {
            (true, _) => Self::Json,
            (false, true) => Self::Bars,
            (false, false) => Self::Lines,
        }
    }
}

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Errors, and warnings to people.
    Quiet,
    /// What happens to the images, and warnings of the parts.
    Usual,
    /// Also nodes that come and go.
    Verbose,
    /// Events and every detail.
    Debug,
}

impl Level {
    const ALL: [Self; 4] = [Self::Quiet, Self::Usual, Self::Verbose, Self::Debug];

    /// What the options ask for.
    pub const fn of(volume: Volume) -> Self {
        match (volume.quiet, volume.verbose) {
            (true, _) => Self::Quiet,
            (false, 0) => Self::Usual,
            (false, 1) => Self::Verbose,
            (false, _) => Self::Debug,
        }
    }

    /// One step up, or itself at the top.
    pub fn louder(self) -> Self {
        Self::ALL.into_iter().find(|level| *level > self).unwrap_or(self)
    }

    /// One step down, or itself at the bottom.
    pub fn quieter(self) -> Self {
        Self::ALL.into_iter().rev().find(|level| *level < self).unwrap_or(self)
    }

    /// With the options that ask for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet (-q)",
            Self::Usual => "usual",
            Self::Verbose => "verbose (-v)",
            Self::Debug => "debug (-vv)",
        }
    }

    /// Which log lines pass.
    fn filter(self, style: Style) -> Targets {
        let parts = match self {
            Self::Quiet => LevelFilter::ERROR,
            Self::Usual => LevelFilter::WARN,
            Self::Verbose => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        };
        // People are told in words of their own.
        let events = match (style, self) {
            (Style::Json, Self::Quiet) => LevelFilter::WARN,
            (Style::Json, _) => LevelFilter::INFO,
            _ => LevelFilter::OFF,
        };
        Targets::new().with_default(parts).with_target(EVENTS, events)
    }
}

/// The daemon's console: prints log lines at one level that all clones share; cheap to clone.
#[derive(Debug, Clone)]
pub struct Console {
    /// The output style.
    pub style: Style,
    /// The bars on the terminal; hidden in the other styles.
    pub bars: MultiProgress,
    level: Arc<Mutex<Level>>,
    filter: Handle<Targets, Registry>,
}

impl Console {
    /// How much is said now.
    pub fn level(&self) -> Level {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says more or less from now on.
    pub fn set_level(&self, level: Level) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
        // A subscriber of somebody else's, as tests have it, filters for itself.
        let _ = self.filter.reload(level.filter(self.style));
    }

    /// A line for people. Not in JSON, which has events instead.
    pub fn say(&self, line: &str) {
        if self.style != Style::Json && self.level() != Level::Quiet {
            self.bars.suspend(|| output::say(line));
        }
    }

    /// A line that answers somebody who asked for it just now, at any level. Not in JSON.
    pub fn tell(&self, line: &str) {
        if self.style != Style::Json {
            self.bars.suspend(|| output::say(line));
        }
    }

    /// A line that `--quiet` does not silence.
    pub fn warn(&self, line: &str) {
        if self.style == Style::Json {
            tracing::warn!(target: EVENTS, "{line}");
        } else {
            self.bars.suspend(|| output::say(&format!("warning: {line}")));
        }
    }
}

/// Starts logging; to be called once.
pub fn start(style: Style, volume: Volume) -> Console {
    let target = if style == Style::Bars {
        ProgressDrawTarget::term(Term::read_write_pair(io::stdin(), Terminal), BARS_HZ)
    } else {
        ProgressDrawTarget::hidden()
    };
    let level = Level::of(volume);
    let (filter, handle) = reload::Layer::new(level.filter(style));
    let bars = MultiProgress::with_draw_target(target);
    let console = Console { style, bars, level: Arc::new(Mutex::new(level)), filter: handle };
    let writer = Stderr(console.bars.clone());
    let layer = if style == Style::Json {
        fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(writer)
            .boxed()
    } else {
        fmt::layer().with_ansi(style == Style::Bars).with_writer(writer).boxed()
    };
    // A second start, as tests do it, keeps the first subscriber.
    let _ = registry().with(layer.with_filter(filter)).try_init();
    console
}

/// Writes log lines above the bars.
struct Stderr(MultiProgress);

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.0.clone())
    }
}

struct Line(MultiProgress);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| stderr::put(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal of the bars.
#[derive(Debug)]
struct Terminal;

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        stderr::put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Terminal {
    fn as_raw_fd(&self) -> RawFd {
        io::stderr().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_a_top_and_a_bottom() {
        let up: Vec<_> = std::iter::successors(Some(Level::Quiet), |level| Some(level.louder())).take(5).collect();
        assert_eq!(up, [Level::Quiet, Level::Usual, Level::Verbose, Level::Debug, Level::Debug]);
        let down: Vec<_> = std::iter::successors(Some(Level::Debug), |level| Some(level.quieter())).take(5).collect();
        assert_eq!(down, [Level::Debug, Level::Verbose, Level::Usual, Level::Quiet, Level::Quiet]);
    }
}

//! Where words to people and log lines go: stderr, in one of three styles.
//!
//! Owns the choice of style and the tracing subscriber. What is said about a node's events is
//! [`crate::report`]'s.

use crate::args::Volume;
use crate::output;
use indicatif::{MultiProgress, ProgressDrawTarget};
use std::io::{self, IsTerminal, Write};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// Target of what a daemon says about its work, apart from the logs of its parts.
pub const EVENTS: &str = "vfield::event";

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

/// How words reach people; cheap to clone.
#[derive(Debug, Clone)]
pub struct Voice {
    /// In which style.
    pub style: Style,
    /// How much.
    pub volume: Volume,
    /// The bars on the terminal; hidden in the other styles.
    pub bars: MultiProgress,
}

impl Voice {
    /// A line for people. Not in JSON, which has events instead.
    pub fn say(&self, line: &str) {
        if self.style != Style::Json && !self.volume.quiet {
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
pub fn start(style: Style, volume: Volume) -> Voice {
    let target = if style == Style::Bars { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let voice = Voice { style, volume, bars: MultiProgress::with_draw_target(target) };
    let level = match (volume.quiet, volume.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    };
    // People are told in words of their own.
    let events = match (style, volume.quiet) {
        (Style::Json, false) => LevelFilter::INFO,
        (Style::Json, true) => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    };
    let filter = Targets::new().with_default(level).with_target(EVENTS, events);
    let writer = Stderr(voice.bars.clone());
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
    voice
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
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

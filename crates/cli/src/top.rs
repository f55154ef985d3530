//! `vfield top`: a view of the field that refreshes.
//!
//! A thread asks the daemon, another one takes keys, and the main one draws. So a daemon that does
//! not answer keeps no key from working. The picture is a pure function of two samples
//! ([`view`]).

mod screen;
mod view;

use crate::args::TopOptions;
use screen::{Key, Screen, keys};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request};
use view::{Order, Sample, Size, View};

/// Time between the two samples of `--once`: rates over less than this jump about.
const ONCE: Duration = Duration::from_millis(500);
/// Shortest time between two samples: each costs the daemon a status.
const EVERY_LEAST: Duration = Duration::from_millis(100);
/// Width where nobody says another one.
const WIDTH: usize = 80;

/// Runs `vfield top`.
pub fn run(options: &TopOptions) -> Result<(), Failure> {
    let control = options.control.control.clone();
    if options.once {
        let before = sample(control.as_ref())?;
        std::thread::sleep(ONCE);
        let now = sample(control.as_ref())?;
        let width = screen::size().map_or_else(said_width, |size| size.width);
        let view = View { size: Size { width, height: None }, order: Order::Traffic, skip: 0 };
        return output::put((view.lines(&now, Some(&before)).join("\n") + "\n").as_bytes());
    }
    let every = options.every.0.max(EVERY_LEAST);
    let screen = Screen::enter()?;
    let system = |error: std::io::Error| Failure::failed(format!("the terminal: {}", plain(&error)));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(system)?;
    let shown = runtime.block_on(show(&screen, control, every)).map_err(system);
    // A thread that waits for a key or the daemon ends with the process.
    runtime.shutdown_background();
    drop(screen);
    shown
}

/// The width that the environment says.
fn said_width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.filter(|width| *width > 0).unwrap_or(WIDTH)
}

/// What the daemon knows now.
fn sample(control: Option<&PathBuf>) -> Result<Sample, Failure> {
    let control = control.map(PathBuf::as_path);
    let status = Client::connect(control)?.status()?;
    let mut client = Client::connect(control)?;
    client.send(&Request::Explain { image: None, offset: None, follow: false })?;
    let Reply::Explained { explained } = client.reply()? else { return Err(client.unexpected()) };
    Ok(Sample { at: Instant::now(), status, waits: explained.chunks })
}

/// Draws until a key or a signal ends it.
async fn show(screen: &Screen, control: Option<PathBuf>, every: Duration) -> std::io::Result<()> {
    // A sample waits until it is taken, so a slow terminal costs no memory.
    let (send, mut samples) = mpsc::channel(1);
    std::thread::spawn(move || {
        while send.blocking_send(sample(control.as_ref())).is_ok() {
            std::thread::sleep(every);
        }
    });
    let mut keys = keys();
    let (mut end, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut resized = signal(SignalKind::window_change())?;
    let (mut now, mut before, mut failed) = (None, None, None);
    let mut view = View { size: Size { width: WIDTH, height: None }, order: Order::Traffic, skip: 0 };
    loop {
        select! {
            sample = samples.recv() => match sample {
                Some(Ok(sample)) => {
                    before = now.replace(sample);
                    failed = None;
                }
                Some(Err(failure)) => failed = Some(failure.fact().to_owned()),
                None => return Ok(()),
            },
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                Some(Key::Order) => view.order = view.order.next(),
                Some(Key::Scroll(by)) => view.scroll(by, now.as_ref()),
                Some(Key::Other) => {}
            },
            _ = end.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            _ = resized.recv() => {}
        }
        if let Some(size) = screen::size() {
            view.size = size;
        }
        let mut lines = match &now {
            Some(now) => view.lines(now, before.as_ref()),
            None => vec!["asking the daemon".to_owned()],
        };
        if let Some(failed) = &failed {
            lines.truncate(view.size.height.unwrap_or(usize::MAX).saturating_sub(1));
            lines.insert(0, view::cut(failed, view.size.width));
        }
        screen.draw(&lines)?;
    }
}

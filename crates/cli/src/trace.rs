//! `vfield trace`: what the daemon does for each chunk, recorded for a while and written as a file
//! for trace viewers.
//!
//! The daemon sends events in parts; this process gives them the form of the viewers ([`chrome`])
//! and writes the file, which appears when it is whole.

mod chrome;

use crate::args::TraceOptions;
use chrome::Chrome;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;
use vfield_console::failure::{Failure, plain};
use vfield_console::new_file::NewFile;
use vfield_console::output;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request, millis};
use vfield_control::recording::LONGEST;

/// Runs `vfield trace`.
pub fn run(options: &TraceOptions) -> Result<(), Failure> {
    let (duration, longest) = (options.duration.0, LONGEST.as_secs());
    if millis(duration) == 0 {
        return Err(Failure::usage("a trace of 0 s records nothing").hint("give a duration, such as 5s"));
    }
    if duration > LONGEST {
        let fact = format!("a trace of {} s is too long", duration.as_secs_f64());
        return Err(Failure::usage(fact).hint(format!("record {longest} s at most; viewers become slow")));
    }
    let mut client = Client::connect(options.control.control.as_deref())?;
    // A bad path is said at once, and not when the reads to be seen are over.
    let file = NewFile::create(&options.out).map_err(|error| refusal(&options.out, &error))?;
    client.send(&Request::Trace { duration_ms: millis(duration) })?;
    let (events, missed) = record(&mut client, duration, &file, &options.out)?;
    file.finish().map_err(|error| refusal(&options.out, &error))?;
    let missed = if missed == 0 { String::new() } else { format!(", {missed} more found no room") };
    output::put(format!("{}: {events} events{missed}\n", options.out.display()).as_bytes())
}

/// Writes the recording; the number of its events, and of those that found no room.
fn record(client: &mut Client, duration: Duration, file: &NewFile, path: &Path) -> Result<(u64, u64), Failure> {
    let failed = |error| refusal(path, &error);
    let mut chrome = Chrome::begin(BufWriter::new(&file.file)).map_err(failed)?;
    let (mut events, mut missed, mut begun) = (0, 0, false);
    // A daemon that ends before the time is over has shown its last moments.
    while let Some(reply) = client.last_reply()? {
        match reply {
            Reply::Recorded(part) => {
                if !std::mem::replace(&mut begun, true) {
                    output::say(&format!("recording for {} s", duration.as_secs_f64()));
                }
                (events, missed) = (events + part.events.len() as u64, missed + part.missed);
                part.events.iter().try_for_each(|event| chrome.add(event)).map_err(failed)?;
            }
            Reply::Done => break,
            _ => return Err(client.unexpected()),
        }
    }
    chrome.end(missed).and_then(|mut out| out.flush()).map_err(failed)?;
    Ok((events, missed))
}

fn refusal(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::StorageFull => "nothing was left behind; make room, or choose another place with --out",
        _ => "check --out; its directory must be writable",
    };
    Failure::failed(format!("{}: {}", path.display(), plain(error))).hint(hint)
}

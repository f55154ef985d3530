//! The commands that are not daemons: each speaks to one, or needs none.

use crate::args::{CatOptions, Cli, CompletionOptions, IdOptions, LeaveOptions, ManOptions, StatusOptions, Volume};
use crate::control::client::{self, Client};
use crate::control::message::{DaemonStatus, Reply, Request, millis};
use crate::failure::{Failure, plain};
use crate::log::{Style, Voice};
use crate::values::until::Until;
use crate::{log, output, publish, source_file, status as view};
use clap::CommandFactory;
use std::path::Path;
use std::time::{Duration, Instant};
use vfield_node::status::Sole;

/// How long `status --wait` without a timeout looks for a daemon that is just being started.
const DAEMON_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that `cat` takes at a time.
const CAT_BYTES: usize = 256 << 10;

/// `vfield status`.
pub fn status(options: &StatusOptions) -> Result<(), Failure> {
    let control = options.control.control.as_deref();
    if let Some(until) = options.wait {
        wait(control, until, options.timeout.map(|timeout| timeout.0))?;
        if !options.json {
            return Ok(());
        }
    }
    let status = client::status(control)?;
    output::put(shown(&status, options.json).as_bytes())
}

fn shown(status: &DaemonStatus, json: bool) -> String {
    if json {
        let mut text = serde_json::to_string_pretty(status).expect("plain data becomes JSON");
        text.push('\n');
        return text;
    }
    view::text(status)
}

fn wait(control: Option<&Path>, until: Until, timeout: Option<Duration>) -> Result<(), Failure> {
    let start = Instant::now();
    let mut client = Client::await_daemon(control, timeout.unwrap_or(DAEMON_PATIENCE))?;
    let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
    client.send(&Request::Wait { until, timeout_ms: left.map(millis) })?;
    match client.reply()? {
        Reply::Reached => Ok(()),
        Reply::TimedOut => {
            let seconds = timeout.unwrap_or_default().as_secs_f64();
            Err(Failure::failed(format!("not {} after {seconds} s", until)).hint("`vfield status` says how far it is"))
        }
        _ => Err(client.unexpected()),
    }
}

/// `vfield cat`.
pub fn cat(options: &CatOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    let length = options.length.map(|size| size.0);
    client.send(&Request::Cat { image: options.image.clone(), offset: options.offset.0, length })?;
    let mut buffer = vec![0; CAT_BYTES];
    loop {
        match client.read(&mut buffer)? {
            0 => return Ok(()),
            read => output::put(&buffer[..read])?,
        }
    }
}

/// `vfield leave`.
pub fn leave(options: &LeaveOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    let LeaveOptions { force, dry_run, .. } = *options;
    client.send(&Request::Leave { timeout_ms: millis(options.timeout.0), force, dry_run })?;
    let lost = match client.reply()? {
        Reply::Left { lost, .. } => lost,
        Reply::WouldLose { alone, images } => return would_lose(alone, &images),
        _ => return Err(client.unexpected()),
    };
    client.await_end();
    if lost > 0 {
        let fact = format!("it has left, but {lost} chunks that only it held were taken by nobody");
        return Err(Failure::failed(fact).hint("start it again, or let the other nodes have larger stores"));
    }
    Ok(())
}

/// `vfield leave --dry-run`.
fn would_lose(alone: bool, images: &[Sole]) -> Result<(), Failure> {
    if !images.is_empty() {
        let fact = format!("no other node holds {}", view::sole_text(images));
        return Err(Failure::failed(fact)
            .hint("leaving hands over what fits into the stores of others, and is refused if that is not all"));
    }
    let text = if alone { "nobody else is in the field, which would end\n" } else { "nothing would be lost\n" };
    output::put(text.as_bytes())
}

/// `vfield id`.
pub fn id(options: &IdOptions, volume: Volume) -> Result<(), Failure> {
    let chunk_size = source_file::chunk_size(options.chunk_size)?;
    source_file::check(&options.file)?;
    let voice: Voice = log::start(Style::choose(false, volume), volume);
    let (id, _) = publish::id(&options.file, chunk_size, &voice)?;
    output::put(format!("{id}\n").as_bytes())
}

/// `vfield completions`.
pub fn completions(options: &CompletionOptions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "vfield", &mut text);
    output::put(&text)
}

/// `vfield man`.
pub fn man(options: &ManOptions) -> Result<(), Failure> {
    let Some(dir) = &options.dir else {
        let mut text = Vec::new();
        let rendered = clap_mangen::Man::new(Cli::command()).render(&mut text);
        rendered.map_err(|error| Failure::failed(format!("manual page: {}", plain(&error))))?;
        return output::put(&text);
    };
    clap_mangen::generate_to(Cli::command(), dir).map_err(|error| {
        let failure = Failure::failed(format!("{}: {}", dir.display(), plain(&error)));
        failure.hint("give a directory that exists and can be written")
    })
}

//! The commands that are not daemons: each speaks to one, or needs none.

use crate::args::{CatOptions, IdOptions, StatusOptions};
use crate::{publish, source_file, status as view};
use std::path::Path;
use std::time::{Duration, Instant};
use vfield_console::failure::Failure;
use vfield_console::log::{Console, Style};
use vfield_console::volume::Volume;
use vfield_console::{log, output};
use vfield_control::client::{self, Client};
use vfield_control::message::{DaemonStatus, Reply, Request, millis};
use vfield_control::offer::ExportStatus;
use vfield_control::selection;
use vfield_control::values::until::Until;

/// How long `cat`, and `status --wait` without a timeout, look for a daemon that is just being
/// started.
const DAEMON_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that `cat` takes at a time.
const CAT_BYTES: usize = 256 << 10;

/// Runs `vfield status`.
pub fn status(options: &StatusOptions) -> Result<(), Failure> {
    let control = options.control.control.as_deref();
    if let Some(until) = options.wait {
        wait(control, until, options.timeout.map(|timeout| timeout.0))?;
        if !options.json {
            return Ok(());
        }
    }
    let status = client::status(control)?;
    match &options.device {
        Some(image) => output::put(format!("{}\n", device(&status, image)?).as_bytes()),
        None => output::put(shown(&status, options.json).as_bytes()),
    }
}

/// The block device of an image, or of the version to which a followed tag leads.
fn device<'a>(status: &'a DaemonStatus, wanted: &str) -> Result<&'a str, Failure> {
    let following = status.following.iter().find(|following| following.tag == wanted);
    let wanted = match following {
        Some(following) if following.id.is_empty() => {
            let failure = Failure::failed(format!("the tag {wanted} leads to no image here yet"));
            return Err(failure.hint("`vfield tag ls` says why"));
        }
        Some(following) => &following.id,
        None => wanted,
    };
    let image = selection::choose(wanted, &status.node.images).map_err(|undecided| {
        let (fact, hint) = undecided.words(wanted, "the daemon");
        Failure::failed(fact).hint(hint)
    })?;
    let is_its = |export: &&ExportStatus| {
        export.kind.is_device() && export.image.as_ref().is_some_and(|name| image.has_name(name))
    };
    let device = status.exports.iter().find(is_its).map(|export| export.address.as_str());
    device.ok_or_else(|| {
        let failure = Failure::failed(format!("image {} is no block device here", image.name));
        failure.hint("start the daemon with --device auto")
    })
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
    let client = Client::await_daemon(control, timeout.unwrap_or(DAEMON_PATIENCE))?;
    let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
    if reach(client, until, left)? {
        return Ok(());
    }
    let seconds = timeout.unwrap_or_default().as_secs_f64();
    Err(Failure::failed(format!("not {until} after {seconds} s")).hint("`vfield status` shows the progress"))
}

/// False if the time is over; without a time it is never.
fn reach(mut client: Client, until: Until, left: Option<Duration>) -> Result<bool, Failure> {
    client.send(&Request::Wait { until, timeout_ms: left.map(millis) })?;
    match client.reply()? {
        Reply::Reached => Ok(true),
        Reply::TimedOut => Ok(false),
        _ => Err(client.unexpected()),
    }
}

/// Runs `vfield cat`: of a daemon that is still starting, once it is ready.
pub fn cat(options: &CatOptions) -> Result<(), Failure> {
    let control = options.control.control.as_deref();
    // A read waits for its daemon as it does for a chunk.
    wait(control, Until::Ready, None)?;
    let mut client = Client::connect(control)?;
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

/// Runs `vfield id`.
pub fn id(options: &IdOptions, volume: Volume) -> Result<(), Failure> {
    source_file::check(&options.file)?;
    let chunk_size = options.chunk_size.of_image(&options.file);
    let console: Console = log::start(Style::choose(false, volume), volume);
    let id = match &options.hashes {
        Some(hashes) => publish::id_and_hashes(&options.file, chunk_size, hashes, &console)?,
        None => publish::id(&options.file, chunk_size, &console)?.0,
    };
    output::put(format!("{id}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_control::message::FollowingStatus;
    use vfield_control::offer::ExportKind;
    use vfield_node::status::ImageStatus;

    #[test]
    fn a_device_is_found_by_name_and_by_id() {
        let (root, other) = ("0123456789abcdef".repeat(4), "ab".repeat(32));
        let image = |name: &str, id: &str| ImageStatus { name: name.into(), id: id.into(), ..ImageStatus::default() };
        let mut status = DaemonStatus::default();
        status.node.images = vec![image("my root.erofs", &root), image("root.erofs", &other), image("initrd", "12")];
        let device_of = |kind, address: &str, image: &str| ExportStatus {
            kind,
            address: address.into(),
            image: Some(image.into()),
        };
        status.exports = vec![
            ExportStatus::of_all(ExportKind::Nbd, "nbd+unix:///?socket=/run/x"),
            device_of(ExportKind::Ublk, "/dev/ublkb0", "my root.erofs"),
            device_of(ExportKind::Device, "/dev/nbd1", "root.erofs"),
        ];
        for wanted in ["my root.erofs", &root, &root.to_uppercase()] {
            assert_eq!(device(&status, wanted), Ok("/dev/ublkb0"), "{wanted}");
        }
        assert_eq!(device(&status, "root.erofs"), Ok("/dev/nbd1"));
        assert_eq!(device(&status, "initrd").unwrap_err().fact(), "image initrd is no block device here");
        assert_eq!(device(&status, "erofs").unwrap_err().fact(), "the daemon has no image \"erofs\"");
        let following =
            |tag: &str, id: &str| FollowingStatus { tag: tag.into(), id: id.into(), ..FollowingStatus::default() };
        // A tag comes before an image of its name.
        status.following = vec![following("root.erofs", &root), following("prod", "")];
        assert_eq!(device(&status, "root.erofs"), Ok("/dev/ublkb0"));
        assert_eq!(device(&status, "prod").unwrap_err().fact(), "the tag prod leads to no image here yet");
    }
}

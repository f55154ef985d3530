//! `vfield drain` and `vfield leave`: a node goes, and no reader misses it.

use crate::args::{DrainOptions, LeaveOptions};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::clean;
use vfield_control::client::Client;
use vfield_control::message::{DrainLeft, Reply, Request, millis};
use vfield_control::shares::{apart_text, sole_text};
use vfield_node::status::Sole;

/// Runs `vfield drain`.
pub fn drain(options: &DrainOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    if options.undo {
        client.send(&Request::Undrain)?;
        return match client.reply()? {
            Reply::Done => output::put(b"the node takes part as before\n"),
            _ => Err(client.unexpected()),
        };
    }
    client.send(&Request::Drain { timeout_ms: millis(options.timeout.0) })?;
    let Reply::Drained { left } = client.reply()? else { return Err(client.unexpected()) };
    if !left.is_none() {
        let fact = format!("after {} s the node is still needed: {}", options.timeout.0.as_secs_f64(), needed(&left));
        return Err(Failure::failed(fact).hint(hint(&left)));
    }
    output::put(text(&left).as_bytes())
}

/// Who needs the node still.
fn needed(left: &DrainLeft) -> String {
    let sole = (!left.images.is_empty()).then(|| format!("no other node holds {}", sole_text(&left.images)));
    let asked = left.is_asked.then(|| "other nodes ask it".to_owned());
    let reads = match left.reads {
        0 => None,
        1 => Some("1 read of this machine waits".to_owned()),
        count => Some(format!("{count} reads of this machine wait")),
    };
    sole.into_iter().chain(apart_text(&left.dependents)).chain(asked).chain(reads).collect::<Vec<_>>().join("; ")
}

fn hint(left: &DrainLeft) -> &'static str {
    if left.images.is_empty() {
        "repeat the command, with a longer --timeout; `vfield explain` says why reads wait"
    } else {
        "enlarge other stores, or repeat the command with a longer --timeout; `vfield drain --undo` takes it back"
    }
}

fn text(left: &DrainLeft) -> String {
    let mut text = "the node is drained: no other node needs it\n".to_owned();
    for clients in &left.clients {
        text += &format!("still connected on this machine: {}\n", clean(clients));
    }
    text
}

/// Time between the last hand-over and the moment when people wonder why the daemon has not ended.
/// The daemon itself says by then what it waits for.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// Says after a time that the daemon is still there, unless the result is dropped before.
fn say_if_late(after: Duration) -> Sender<()> {
    let (ended, end) = channel();
    std::thread::spawn(move || {
        if end.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
            output::say("the daemon has not ended yet: see its log; to end this command changes nothing for it");
        }
    });
    ended
}

/// Runs `vfield leave`.
pub fn leave(options: &LeaveOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    let LeaveOptions { force, dry_run, .. } = *options;
    client.send(&Request::Leave { timeout_ms: millis(options.timeout.0), force, dry_run })?;
    let _ended = say_if_late(options.timeout.0.saturating_add(SAID_AFTER));
    let lost = match client.reply()? {
        Reply::Left { lost, .. } => lost,
        Reply::WouldLose { alone, images, dependents } => return would_lose(alone, &images, &dependents),
        _ => return Err(client.unexpected()),
    };
    client.await_end();
    if lost > 0 {
        let fact = format!("the node has left, but no other node took {lost} chunks that it alone held");
        return Err(Failure::failed(fact).hint("start it again, or give the other nodes larger stores"));
    }
    Ok(())
}

/// `vfield leave --dry-run`.
fn would_lose(alone: bool, images: &[Sole], dependents: &[String]) -> Result<(), Failure> {
    if !images.is_empty() {
        let fact = format!("no other node holds {}", sole_text(images));
        return Err(Failure::failed(fact)
            .hint("a leave hands over the chunks that fit into other stores, and is refused if any are left"));
    }
    if let Some(apart) = apart_text(dependents) {
        return Err(Failure::failed(apart).hint("let these nodes reach the others, or serve the file elsewhere too"));
    }
    let text = if alone { "this is the field's last node\n" } else { "nothing would be lost\n" };
    output::put(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_one_line() {
        let sole = Sole { image: "viver".into(), bytes: 12 << 20, share: 0.25 };
        let mut left = DrainLeft { images: vec![sole], is_asked: true, reads: 2, ..DrainLeft::default() };
        assert_eq!(
            needed(&left),
            "no other node holds 25.0 % of viver (12.0 MiB); other nodes ask it; 2 reads of this machine wait"
        );
        (left.images, left.is_asked, left.reads) = (Vec::new(), false, 1);
        assert_eq!(needed(&left), "1 read of this machine waits");
        (left.dependents, left.reads) = (vec!["192.168.1.7:4440".into(), "192.168.1.8:4440".into()], 0);
        let apart = "192.168.1.7:4440 and 1 other have no way to stores with the rest";
        assert_eq!((needed(&left).as_str(), left.is_none()), (apart, false));
        left.dependents.clear();
        left.clients = vec!["viver: 1 NBD client".into()];
        let drained = "the node is drained: no other node needs it\n";
        assert_eq!(text(&left), format!("{drained}still connected on this machine: viver: 1 NBD client\n"));
    }
}

//! What a new user needs to know next, said when a daemon runs and when it ends.

use std::net::SocketAddr;
use vfield_console::log::{Console, EVENTS};
use vfield_control::offer::ExportStatus;
use vfield_node::Node;
use vfield_node::config::DEFAULT_PORT;
use vfield_node::node::Leaving;

/// Says how others join, and where the images are.
pub fn running(console: &Console, node: &Node, serving: bool, places: &[ExportStatus]) {
    let listening = node.listening();
    let known_as = node.status().addr.parse().unwrap_or(listening);
    let exports: Vec<String> = places.iter().map(ToString::to_string).collect();
    tracing::info!(target: EVENTS, event = "ready", addr = %listening, ?exports, "ready");
    let closed = node.status().field.closed;
    for line in lines(listening, known_as, serving, closed, places) {
        console.say(&line);
    }
}

fn lines(
    listening: SocketAddr,
    known_as: SocketAddr,
    serving: bool,
    closed: bool,
    places: &[ExportStatus],
) -> Vec<String> {
    let mut lines = Vec::new();
    if serving || !listening.ip().is_loopback() {
        let key = if closed { " --field-key FILE" } else { "" };
        lines.push(format!("another machine joins with: vfield join {}{key}", short(known_as)));
    }
    if listening.ip().is_loopback() {
        lines.push("reachable from this machine only; --listen ADDR opens it to the network".to_owned());
    } else if !closed && listening.ip().is_unspecified() {
        lines.push("open to every network of this machine, unencrypted: for a closed LAN only".to_owned());
    } else if !closed {
        lines.push(
            "an open field: every machine that reaches this address can join and read; --field-key closes it"
                .to_owned(),
        );
    }
    lines.extend(places.iter().map(ExportStatus::sentence));
    lines.push("see `vfield status`; end with Ctrl-C or `vfield leave`".to_owned());
    lines
}

/// An address without the port that everybody assumes.
fn short(addr: SocketAddr) -> String {
    if addr.port() == DEFAULT_PORT { addr.ip().to_string() } else { addr.to_string() }
}

/// Says how leaving went.
pub fn left(console: &Console, left: Leaving) {
    let Leaving { handed_over, lost } = left;
    tracing::info!(target: EVENTS, event = "left", handed_over, lost, "left");
    if handed_over > 0 {
        console.say(&format!("handed over {handed_over} chunks that this node alone held"));
    }
    if lost > 0 {
        console.warn(&format!("no other node took {lost} chunks that this node alone held"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_control::offer::ExportKind;

    fn said(listening: &str, known_as: &str, serving: bool, closed: bool) -> String {
        let (listening, known_as) = (listening.parse().unwrap(), known_as.parse().unwrap());
        lines(listening, known_as, serving, closed, &[ExportStatus::of_all(ExportKind::Fuse, "/mnt")]).join("\n")
    }

    #[test]
    fn a_new_user_learns_how_others_join() {
        let local = said("127.0.0.1:4440", "127.0.0.1:4440", true, false);
        assert!(
            local.starts_with("another machine joins with: vfield join 127.0.0.1\nreachable from this machine only")
        );
        let near = said("192.168.1.1:4441", "192.168.1.1:4441", true, false);
        assert!(near.starts_with("another machine joins with: vfield join 192.168.1.1:4441\nan open field: "));
        let closed = said("0.0.0.0:4440", "192.168.1.1:4440", true, true);
        assert!(closed.starts_with(
            "another machine joins with: vfield join 192.168.1.1 --field-key FILE\nthe images are files in /mnt"
        ));
        let open = said("0.0.0.0:4440", "192.168.1.1:4440", true, false);
        assert!(open.starts_with("another machine joins with: vfield join 192.168.1.1\nopen to every network"));
        let (address, image) = ("/dev/ublkb0".to_owned(), Some("my image".to_owned()));
        let device = ExportStatus { kind: ExportKind::Ublk, address, image };
        assert_eq!(device.sentence(), "my image is the block device /dev/ublkb0");
        assert!(said("[fd00::1]:4440", "[fd00::1]:4440", false, false).contains("vfield join fd00::1\n"));
    }
}

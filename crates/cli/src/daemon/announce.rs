//! What a new user needs to know next, said when a daemon runs and when it ends.

use crate::log::{EVENTS, Voice};
use std::net::SocketAddr;
use vfield_node::Node;
use vfield_node::config::DEFAULT_PORT;
use vfield_node::node::Leaving;

/// Says how others join, and where the images are.
pub fn running(voice: &Voice, node: &Node, serving: bool, advertise: Option<SocketAddr>, places: &[String]) {
    let listening = node.listening();
    tracing::info!(target: EVENTS, event = "ready", addr = %listening, exports = ?places, "ready");
    for line in lines(listening, serving, advertise, places) {
        voice.say(&line);
    }
}

fn lines(listening: SocketAddr, serving: bool, advertise: Option<SocketAddr>, places: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    let known_as = advertise.filter(|_| listening.ip().is_unspecified()).unwrap_or(listening);
    if serving || !listening.ip().is_loopback() {
        lines.push(format!("another machine joins with: vfield join {}", short(known_as)));
    }
    if listening.ip().is_loopback() {
        lines.push("reachable from this machine only; --listen ADDR shares it with the network".to_owned());
    } else if listening.ip().is_unspecified() {
        lines.push("open to every network of this machine, unencrypted: made for a closed LAN".to_owned());
    }
    lines.extend(places.iter().map(|place| match place.strip_prefix("fuse:") {
        Some(dir) => format!("images are files in {dir}"),
        None => format!("images are at {place}"),
    }));
    lines.push("see `vfield status`; end with Ctrl-C or `vfield leave`".to_owned());
    lines
}

/// An address without the port that everybody assumes.
fn short(addr: SocketAddr) -> String {
    match (addr.port() == DEFAULT_PORT, addr.ip().is_unspecified()) {
        (_, true) => "ADDR (this machine's)".to_owned(),
        (true, false) => addr.ip().to_string(),
        (false, false) => addr.to_string(),
    }
}

/// Says how leaving went.
pub fn left(voice: &Voice, left: Leaving) {
    let Leaving { handed_over, lost } = left;
    tracing::info!(target: EVENTS, event = "left", handed_over, lost, "left");
    if handed_over > 0 {
        voice.say(&format!("handed over {handed_over} chunks that only this node held"));
    }
    if lost > 0 {
        voice.warn(&format!("{lost} chunks that only this node held were taken by nobody"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(listening: &str, serving: bool, advertise: Option<&str>) -> String {
        let advertise = advertise.map(|addr| addr.parse().unwrap());
        lines(listening.parse().unwrap(), serving, advertise, &["fuse:/mnt".to_owned()]).join("\n")
    }

    #[test]
    fn a_new_user_learns_how_others_join() {
        let local = said("127.0.0.1:4440", true, None);
        assert!(
            local.starts_with("another machine joins with: vfield join 127.0.0.1\nreachable from this machine only")
        );
        assert!(
            said("192.168.1.1:4441", true, None)
                .starts_with("another machine joins with: vfield join 192.168.1.1:4441\nimages are files in /mnt")
        );
        let open = said("0.0.0.0:4440", true, Some("192.168.1.1:4440"));
        assert!(open.starts_with("another machine joins with: vfield join 192.168.1.1\nopen to every network"));
        assert!(said("[fd00::1]:4440", false, None).contains("vfield join fd00::1\n"));
    }
}

//! What a node's counters say of a run: the senders, and the share of the bytes that was here.
//!
//! Pure: two statuses of the node, before and after. Other readers of the node count as well.

use super::outcome::{Found, FromPeer, State};
use std::collections::BTreeMap;
use vfield_control::message::DaemonStatus;

/// Below this share of the bytes that were read, those that came meanwhile are noise.
const HARDLY: f64 = 0.1;
/// Above this share they are all.
const NEARLY: f64 = 0.9;

/// Bytes from each peer between two statuses.
pub fn came(before: &DaemonStatus, after: &DaemonStatus) -> Vec<FromPeer> {
    let before: BTreeMap<&str, u64> =
        before.node.peers.iter().map(|peer| (peer.id.as_str(), peer.received_bytes)).collect();
    let since = |id: &str, bytes: u64| bytes.saturating_sub(before.get(id).copied().unwrap_or(0));
    let peers = after.node.peers.iter();
    peers
        .map(|peer| FromPeer {
            addr: peer.addr.clone(),
            origin: peer.origin,
            bytes: since(&peer.id, peer.received_bytes),
        })
        .collect()
}

/// How much of `read_bytes` the node had in its memory.
pub fn found(before: &DaemonStatus, after: &DaemonStatus, random: bool, read_bytes: u64) -> Found {
    let hit_bytes = hits(after).saturating_sub(hits(before)).min(read_bytes);
    let came_bytes = received(after).saturating_sub(received(before));
    Found { hit_bytes, state: state(random, read_bytes, hit_bytes, came_bytes) }
}

fn hits(status: &DaemonStatus) -> u64 {
    status.node.traffic.from_store_bytes
}

/// Bytes of chunks and hash pages, plain.
fn received(status: &DaemonStatus) -> u64 {
    let traffic = &status.node.traffic;
    let sent = traffic.from_peers_bytes + traffic.from_origin_bytes;
    sent.saturating_sub(traffic.from_compressed_bytes) + traffic.from_compressed_plain_bytes
}

/// A reader in order takes each byte once, so the bytes that came are those that it read, although
/// read-ahead makes hits of most of them. At random a whole chunk may come for a page of it, so
/// misses count there.
fn state(random: bool, read_bytes: u64, hit_bytes: u64, came_bytes: u64) -> State {
    // The kernel has pages of a mounted file too: a read that the node did not see brought nothing.
    let missed_bytes = (read_bytes - hit_bytes).min(came_bytes);
    let brought_bytes = if random { missed_bytes } else { missed_bytes.max(came_bytes) };
    let share = |bytes: u64| bytes as f64 / read_bytes.max(1) as f64;
    if share(came_bytes) < HARDLY || brought_bytes == 0 {
        State::Warm
    } else if share(brought_bytes) >= NEARLY {
        State::Cold
    } else {
        State::Mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_node::status::Traffic;

    #[test]
    fn what_came_for_the_reads_makes_a_run_cold() {
        for (random, hits, came, want) in [
            (false, 1000, 0, State::Warm),
            // Read-ahead brings it in time.
            (false, 940, 1000, State::Cold),
            (false, 500, 500, State::Mixed),
            (true, 1000, 0, State::Warm),
            // Whole chunks for a few pages.
            (true, 950, 800, State::Mixed),
            (true, 500, 8000, State::Mixed),
            (true, 20, 1100, State::Cold),
            (true, 990, 50, State::Warm),
            // A fill goes on meanwhile, and every read is a hit.
            (true, 1000, 5000, State::Warm),
            // From the kernel's pages of a mounted file.
            (true, 0, 0, State::Warm),
            (true, 0, 300, State::Mixed),
        ] {
            assert_eq!(state(random, 1000, hits, came), want, "{random} {hits} {came}");
        }
        assert_eq!(state(true, 0, 0, 0), State::Warm);
    }

    #[test]
    fn compressed_bytes_count_plain_and_hits_at_most_what_was_read() {
        let status = |from_store_bytes, from_origin_bytes, compressed, plain| {
            let mut status = DaemonStatus::default();
            status.node.traffic = Traffic {
                from_store_bytes,
                from_origin_bytes,
                from_compressed_bytes: compressed,
                from_compressed_plain_bytes: plain,
                ..Traffic::default()
            };
            status
        };
        let before = status(5000, 100, 0, 0);
        let cold = found(&before, &status(5050, 600, 500, 1000), true, 1000);
        assert_eq!(cold, Found { hit_bytes: 50, state: State::Cold });
        let warm = found(&before, &status(9000, 100, 0, 0), false, 1000);
        assert_eq!(warm, Found { hit_bytes: 1000, state: State::Warm });
    }
}

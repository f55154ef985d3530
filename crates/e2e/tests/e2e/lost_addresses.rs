//! A machine that gets another address while its daemon runs: a lease ended, or a network was
//! numbered anew.

use crate::reach::{ALL, on};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{NEWS, live};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::FILL_LIMIT;
use vfield_lab::need::{Need, have};
use vfield_lab::{Host, Lab, client};

const NEEDS: [Need; 2] = [Need::Root, Need::Tool("nbdcopy")];
/// An address has to be lost for three seconds, and others bury the one before.
const NOTICED: Duration = Duration::from_secs(45);

/// Where a host is next.
fn next(host: &Host) -> SocketAddr {
    format!("198.18.0.10{}:4440", host.index()).parse().expect("an address")
}

/// Takes an address away from a host, and gives it another one.
fn renumber(host: &Host, from: SocketAddr, to: SocketAddr) -> Outcome {
    on(host, &format!("ip address del {}/24 dev eth0", from.ip()))?;
    on(host, &format!("ip address add {}/24 broadcast + dev eth0", to.ip()))?;
    Ok(())
}

/// True if this member is there, with so much in its store, hashes besides.
fn holds(status: &Value, addr: SocketAddr, bytes: u64) -> bool {
    let is_there = |node: &Value| node["addr"] == addr.to_string() && node["state"] == "alive";
    let mut nodes = status["nodes"].as_array().into_iter().flatten();
    nodes.any(|node| is_there(node) && node["held_bytes"].as_u64() >= Some(bytes))
}

/// One that found its address itself has a successor under its guard, which listens elsewhere. One
/// that listens on all addresses only says another one. Both have their stores, and their readers.
#[test]
fn a_node_goes_on_at_its_machines_next_address() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(4)?, vfield());
    let image = random_file(&lab.dir().join("room.img"), 8 * MIB, 1)?;
    let mut origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let join = |host: usize| vfield.join(lab.host(host), origin.addr()).store("all").args(&["--join-boost", "9"]);
    let guarded = join(1).facing().args(&["--guard"]).ready()?;
    let everywhere = join(2).listen(ALL).ready()?;
    let reader = vfield.join(lab.host(3), origin.addr()).store("0").ready()?;
    for (node, host) in [(&guarded, lab.host(1)), (&everywhere, lab.host(2))] {
        node.wait("filled", FILL_LIMIT)?;
        renumber(host, host.addr(), next(host))?;
        for other in [&origin, &reader] {
            let moved =
                |status: &Value| holds(status, next(host), 8 * MIB) && !live(status).contains(&host.addr().to_string());
            other.wait_status("it is at the next address, with its store", NOTICED, moved)?;
        }
        client::compare_all(host, node, &image)?;
    }
    // The stores of the two are all that is left.
    assert!(origin.leave(NEWS)?.success());
    client::compare_all(lab.host(3), &reader, &image)?;
    Ok(())
}

/// One that listens where it was told to can only say so, and waits for the address.
#[test]
fn a_node_whose_given_address_is_lost_says_so() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(2)?, vfield());
    let image = random_file(&lab.dir().join("room.img"), MIB, 1)?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let mut node = vfield.join(lab.host(1), origin.addr()).store("all").args(&["--guard"]).ready()?;
    node.wait("filled", FILL_LIMIT)?;
    let host = lab.host(1);
    renumber(host, host.addr(), next(host))?;
    let text = "this machine no longer has the address 198.18.0.2";
    node.says(text, NOTICED)?;
    let warned = |status: &Value| status["warnings"].to_string().contains(text);
    node.wait_status("it is in its status", NEWS, warned)?;
    client::compare_all(host, &node, &image)?;
    renumber(host, next(host), host.addr())?;
    node.says("other nodes can connect to this node at 198.18.0.2", NOTICED)?;
    node.wait_status("nothing is wrong any more", NEWS, |status| !warned(status))?;
    let back = |status: &Value| holds(status, host.addr(), MIB);
    origin.wait_status("its store counts", NOTICED, back)?;
    Ok(())
}

//! Nodes that others cannot connect to, and nodes that say a wrong address of themselves.

use std::net::SocketAddr;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, live};
use vfield_e2e::program::vfield;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Host, Lab, LabError, client, daemon};

/// A node that cannot be reached asks again after 3, 6 and 12 s, and is dialled for 3.5 s each
/// time.
const ASKED_AGAIN: Duration = Duration::from_secs(45);
/// A node that has no way to others tries them again after half a minute at most, two of them in
/// ten seconds.
const TRIED_AGAIN: Duration = Duration::from_secs(90);
/// Behind a card that leads nowhere.
const ELSEWHERE: &str = "198.19.77.1";

/// Runs words separated by spaces on a host.
pub fn on(host: &Host, line: &str) -> Result<String, LabError> {
    let mut words = line.split(' ');
    run(host.command(words.next().unwrap_or_default()).args(words))
}

/// A rule for packets that come to a host.
fn rule(host: &Host, rule: &str) -> Outcome {
    on(host, "nft add table inet closed")?;
    on(host, "nft add chain inet closed in { type filter hook input priority 0 ; }")?;
    on(host, &format!("nft add rule inet closed in {rule}"))?;
    Ok(())
}

/// Drops packets that come to a host and match this.
fn close(host: &Host, which: &str) -> Outcome {
    rule(host, &format!("{which} drop"))
}

/// Drops packets for a node's port of a protocol.
fn close_port(host: &Host, protocol: &str) -> Outcome {
    close(host, &format!("{protocol} dport 4440"))
}

/// Lets all packets through again.
fn open(host: &Host) -> Outcome {
    on(host, "nft delete table inet closed")?;
    Ok(())
}

/// Gives a host a second card, behind which is nobody, and lets it take that way to everywhere it
/// knows nothing of.
fn second_card(host: &Host) -> Outcome {
    on(host, "ip link add card type veth peer name nobody")?;
    on(host, &format!("ip address add {ELSEWHERE}/24 dev card"))?;
    on(host, "ip link set nobody up")?;
    on(host, "ip link set card up")?;
    on(host, "ip route add default via 198.19.77.254 dev card")?;
    Ok(())
}

/// On all addresses of the host.
pub const ALL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 4440);
const ALL_V6: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), 4440);

/// firewalld tells senders that it rejects their packets, and a machine may know no way at all.
#[test]
fn why_nothing_gets_there_is_said() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft")]) {
        return Ok(());
    }
    let lab = Lab::best(3)?;
    let (door, vfield) = (lab.host(0).addr(), vfield());
    rule(lab.host(0), "tcp dport 4440 reject with icmpx type admin-prohibited")?;
    let mut node = vfield.join(lab.host(1), door).spawn()?;
    node.says(&format!("waiting for {door}: the machine is off, or a firewall rejects this; trying again"), NEWS)?;
    open(lab.host(0))?;
    node.says(&format!("waiting for {door}: connection refused; trying again"), NEWS)?;
    let nowhere = SocketAddr::from(([198, 51, 100, 1], 4440));
    let mut node = vfield.join(lab.host(2), nowhere).spawn()?;
    node.says(&format!("waiting for {nowhere}: no network of this machine leads there; trying again"), NEWS)
        .map_err(Into::into)
}

#[test]
fn a_store_that_nobody_can_reach_does_not_count() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0"], spare_hosts: 1, ..Plan::default() })?;
    close_port(field.host(1), "tcp")?;
    let mut closed = field.join(1, field.origin.addr(), "all").ready()?;
    let known_by = field.origin.addr().ip();
    let text = format!("{known_by} cannot connect to you on TCP 4440: nobody can read your store");
    closed.says(&text, NEWS)?;
    let warned = |status: &serde_json::Value| status["warnings"].to_string().contains(&text);
    closed.wait_status("it is in its status", NEWS, warned)?;
    field.origin.says("nobody can read the store of 198.18.0.3:4440", NEWS)?;
    let told = |status: &serde_json::Value| {
        status["warnings"].to_string().contains("nobody can read the store of 198.18.0.3,")
    };
    field.origin.wait_status("the origin's status says why its store does not count", NEWS, told)?;
    closed.wait("filled", daemon::FILL_LIMIT)?;
    for node in [&field.origin, &field.nodes[0], &closed] {
        let bare = |status: &serde_json::Value| {
            status["images"][0]["coverage"] == 0.0 && status["images"][0]["origin_may_leave"] == false
        };
        node.wait_status("nothing is covered", NEWS, bare)?;
    }
    // The port is opened: what it holds counts.
    open(field.host(1))?;
    closed.says("other nodes can connect to this node at", ASKED_AGAIN)?;
    let covered = |status: &serde_json::Value| status["images"][0]["origin_may_leave"] == true;
    field.origin.wait_status("it counts", NEWS, covered)?;
    closed.wait_status("nothing is wrong any more", NEWS, |status| !warned(status))?;
    field.origin.wait_status("nor does the origin say so", NEWS, |status| !told(status))?;
    assert!(field.origin.leave(ASKED_AGAIN)?.success());
    field.compare(&[]).map_err(Into::into)
}

/// A firewall with a rule for TCP only: gossip goes over connections, nobody is buried, and all are
/// told what to open.
#[test]
fn a_room_whose_firewalls_drop_udp_works_and_says_so() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &[], spare_hosts: 4, ..Plan::default() })?;
    for number in 0..4 {
        close_port(field.host(number), "udp")?;
    }
    for number in 0..4 {
        let node = field.join(number, field.origin.addr(), "40%").ready()?;
        field.nodes.push(node);
    }
    let warned = |status: &serde_json::Value| status["warnings"].to_string().contains("open UDP 4440");
    field.nodes[0].says("no UDP packet comes through between this node and", ASKED_AGAIN)?;
    for node in &field.nodes {
        node.wait_status("it is in its status", ASKED_AGAIN, warned)?;
    }
    let covered = |status: &serde_json::Value| status["images"][0]["origin_may_leave"] == true;
    field.nodes[3].wait_status("all stores are known", NEWS, covered)?;
    assert!(field.origin.leave(ASKED_AGAIN)?.success());
    field.compare(&[])?;
    for node in &field.nodes {
        // A machine far too busy may bury one for a moment; without gossip nobody stays for long.
        node.wait_status("all others live", NEWS, |status| live(status).len() == 4 && covered(status))?;
    }
    // The rules are taken away: in a while nothing is wrong any more.
    for number in 0..4 {
        open(field.host(number))?;
    }
    for node in &field.nodes {
        node.wait_status("nothing is wrong any more", ASKED_AGAIN, |status| !warned(status))?;
    }
    Ok(())
}

/// A switch isolates its ports, all but the server's: the machines read, nobody is buried, and the
/// server may not leave though the stores add up to the image.
#[test]
fn machines_that_reach_the_server_alone_read_and_keep_it() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &[], spare_hosts: 4, ..Plan::default() })?;
    let server = field.origin.addr();
    for number in 0..4 {
        close(field.host(number), &format!("iif != lo ip saddr != {}", server.ip()))?;
    }
    for number in 0..4 {
        let node = field.join(number, server, "60%").ready()?;
        field.nodes.push(node);
    }
    field.filled()?;
    field.compare(&[])?;
    let depend = |status: &serde_json::Value, count| {
        status["images"][0]["dependents"].as_array().is_some_and(|dependents| dependents.len() == count)
    };
    field.origin.wait_status("all need it", ASKED_AGAIN, |status| depend(status, 4))?;
    field.nodes[0].says("no way to 198.18.0.", NEWS)?;
    for node in field.nodes.iter().chain([&field.origin]) {
        let apart = |status: &serde_json::Value| {
            let (image, nodes) = (&status["images"][0], status["nodes"].as_array().map(Vec::len));
            nodes == Some(5) && image["coverage"] == 1.0 && image["origin_may_leave"] == false
        };
        node.wait_status("the stores are not enough", NEWS, apart)?;
    }
    for words in [&["leave", "--timeout", "1s"][..], &["leave", "--dry-run"]] {
        let refused = run(field.origin.ask(words[0]).args(&words[1..])).expect_err("all need it").to_string();
        assert!(refused.contains("and 3 others have no way to stores with the rest"), "{refused}");
    }
    // The ports are joined: in a while the server may leave.
    for number in 0..4 {
        open(field.host(number))?;
    }
    field.origin.wait_status("nobody needs it", TRIED_AGAIN, |status| depend(status, 0))?;
    assert!(field.origin.leave(daemon::FILL_LIMIT)?.success());
    field.compare(&[]).map_err(Into::into)
}

/// Machines with jumbo frames at a switch without: it drops long packets, and tells nobody.
#[test]
fn a_room_that_loses_long_packets_reads_and_says_so() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = vfield_lab::Lab::best(3)?;
    for number in 0..3 {
        // The cable's other end has 1500. It would take a long packet that is to be cut yet, so
        // there are none.
        on(lab.host(number), "ip link set eth0 mtu 9000 gso_max_segs 1")?;
    }
    let mut field = Field::on(lab, Plan { stores: &["60%", "60%"], ..Plan::default() })?;
    field.covered()?;
    field.compare(&[])?;
    // Of one of the others at least: it takes two connections that were silent.
    let text = "packets of more than 1500 bytes do not come from 198.18.0.";
    field.nodes[0].says(text, NEWS)?;
    let warned = |status: &serde_json::Value| status["warnings"].to_string().contains(text);
    field.nodes[0].wait_status("it is in its status", NEWS, warned)?;
    Ok(())
}

/// It hands over nothing to a store that nobody can read, and says so with its exit code.
#[test]
fn an_origin_leaves_nothing_to_a_store_that_nobody_can_reach() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft")]) {
        return Ok(());
    }
    let field = Field::start(Plan { stores: &["0"], spare_hosts: 1, ..Plan::default() })?;
    close_port(field.host(1), "tcp")?;
    let mut closed = field.join(1, field.origin.addr(), "all").ready()?;
    closed.says("cannot connect to you on TCP 4440", NEWS)?;
    closed.wait("filled", daemon::FILL_LIMIT)?;
    let uncovered = |status: &serde_json::Value| status["images"][0]["origin_may_leave"] == false;
    field.origin.wait_status("it is known", NEWS, uncovered)?;
    let left = field.origin.ask_to(&["leave", "--timeout", "1s"]).output()?;
    assert_eq!(left.status.code(), Some(1), "{}", String::from_utf8_lossy(&left.stderr));
    Ok(())
}

/// A boot server with two cards listens on all addresses, and its way to everywhere leads through
/// the wrong card.
#[test]
fn who_joins_teaches_an_origin_its_address() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = vfield_lab::Lab::best(3)?;
    second_card(lab.host(0))?;
    let vfield = vfield_e2e::program::vfield();
    let image = vfield_lab::bytes::random_file(&lab.dir().join("disk.img"), Plan::default().image_bytes, 1)?;
    let mut origin = vfield.serve(lab.host(0), &[&image]).name("origin").listen(ALL).ready()?;
    assert_eq!(origin.status()?["addr"], format!("{ELSEWHERE}:4440"), "what the second card is for");
    let node = vfield.join(lab.host(1), lab.host(0).addr()).store("0").ready()?;
    client::compare_all(lab.host(1), &node, &image)?;
    origin.says("--advertise 198.18.0.1", NEWS)?;
    let late = vfield.join(lab.host(2), node.addr()).store("0").ready()?;
    client::compare_all(lab.host(2), &late, &image)?;
    late.wait_status("all know the address", NEWS, |status| live(status).contains(&"198.18.0.1:4440".to_owned()))?;
    Ok(())
}

/// A configured address is not replaced. A node that connected in another way keeps that address,
/// and both report the fault.
#[test]
fn a_wrong_address_that_was_given_is_gone_around() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = vfield_lab::Lab::best(2)?;
    let vfield = vfield_e2e::program::vfield();
    let image = vfield_lab::bytes::random_file(&lab.dir().join("disk.img"), Plan::default().image_bytes, 1)?;
    let serve = vfield.serve(lab.host(0), &[&image]).name("origin").listen(ALL);
    let mut origin = serve.args(&["--advertise", ELSEWHERE]).ready()?;
    let mut node = vfield.join(lab.host(1), lab.host(0).addr()).store("0").ready()?;
    client::compare_all(lab.host(1), &node, &image)?;
    node.says("start it with --advertise 198.18.0.1", NEWS)?;
    origin.says("198.18.0.2 cannot connect to 198.19.77.1:4440", NEWS)?;
    origin.says("--advertise 198.18.0.1", NEWS)?;
    Ok(())
}

/// It asks for its address by the first of two members, which is behind the wrong card and does not
/// answer.
#[test]
fn who_guessed_its_address_wrongly_is_told_by_dialling_back() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = vfield_lab::Lab::best(3)?;
    second_card(lab.host(1))?;
    let vfield = vfield_e2e::program::vfield();
    let image = vfield_lab::bytes::random_file(&lab.dir().join("disk.img"), Plan::default().image_bytes, 1)?;
    let mut origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let nobody: SocketAddr = "198.19.77.9:4440".parse()?;
    let join = vfield.join(lab.host(1), nobody).args(&[origin.addr().to_string()]).store("all").listen(ALL);
    let mut node = join.args(&["--join-boost", "9"]).ready()?;
    node.says("--advertise 198.18.0.2", NEWS)?;
    origin.wait("covered", daemon::FILL_LIMIT)?;
    let late = vfield.join(lab.host(2), origin.addr()).store("0").ready()?;
    assert!(origin.leave(NEWS)?.success());
    client::compare_all(lab.host(2), &late, &image)?;
    Ok(())
}

#[test]
fn who_listens_on_all_addresses_of_ipv6_is_found_by_ipv4() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = vfield_lab::Lab::best(3)?;
    let vfield = vfield_e2e::program::vfield();
    let image = vfield_lab::bytes::random_file(&lab.dir().join("disk.img"), Plan::default().image_bytes, 1)?;
    let mut origin = vfield.serve(lab.host(0), &[&image]).name("origin").listen(ALL_V6).ready()?;
    let join = |host: usize, store: &str| vfield.join(lab.host(host), lab.host(0).addr()).store(store).listen(ALL_V6);
    let node = join(1, "all").args(&["--join-boost", "9"]).ready()?;
    let reader = join(2, "0").ready()?;
    node.wait("covered", daemon::FILL_LIMIT)?;
    assert!(origin.leave(NEWS)?.success());
    client::compare_all(lab.host(2), &reader, &image)?;
    Ok(())
}

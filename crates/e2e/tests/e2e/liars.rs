//! Members that make false statements, or do not do what they say: readers get every byte, from
//! others, and the liar is counted and put aside.

use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use vfield_core::membership::{Member, State};
use vfield_e2e::Outcome;
use vfield_e2e::bully::{self, Name};
use vfield_e2e::field::{Field, NEWS, Plan, live, state_of};
use vfield_e2e::liar::{self, Twist};
use vfield_e2e::program::vfield;
use vfield_lab::Lab;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};

/// Kinds of frames that carry compressed chunks.
const LZ4: u8 = 20;
const ZSTD: u8 = 26;

/// An origin, a member that has everything and whose answers are twisted, and one that reads
/// everything; what the last then says of itself. The liar is asked first, since its store is full
/// and origins are spared.
fn read_beside(twist: Twist) -> Result<(Field, Value), vfield_e2e::Failed> {
    let (mut field, _) = Field::beside_liar(4, 16 * MIB + 77, twist)?;
    let through = field.origin.addr();
    let reader = field.join(1, through, "0").ready()?;
    field.nodes.push(reader);
    field.compare(&[0])?;
    let status = field.nodes[1].status()?;
    assert_eq!(state_of(&status, through).as_deref(), Some("alive"), "the origin is innocent: {status:#}");
    Ok((field, status))
}

/// Chunks of another image, of another place, that do not unpack, and lengths that no chunk has:
/// each is blamed by name within one chunk.
#[test]
fn wrong_chunks_of_every_kind_are_blamed() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(1)?;
    let other = std::fs::read(random_file(&lab.dir().join("other.img"), MIB, 2)?)?;
    let compressed = [LZ4, ZSTD].map(Twist::Compress);
    let lengths = [u32::MAX, MIB as u32].map(Twist::Claim);
    for twist in [Twist::Replace(Arc::new(other)), Twist::Delay].into_iter().chain(compressed).chain(lengths) {
        let (field, status) = read_beside(twist)?;
        let front = field.lab.host(3).addr();
        assert_eq!(state_of(&status, front).as_deref(), Some("blamed"), "{status:#}");
        let lies = status["misdeeds"]["lies"].as_u64();
        assert!(lies.is_some_and(|lies| (1..=4).contains(&lies)), "what was under way, and no more: {status:#}");
    }
    Ok(())
}

/// Who refuses what it says that it has is asked less and less.
#[test]
fn who_claims_what_it_does_not_hold_is_not_believed_for_long() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (field, status) = read_beside(Twist::Deny)?;
    let claims = status["misdeeds"]["false_claims"].as_u64();
    assert!(claims.is_some_and(|claims| claims >= 32), "{status:#}");
    assert_eq!(status["misdeeds"]["lies"], 0, "{status:#}");
    assert!(status["traffic"]["from_origin_bytes"].as_u64() >= Some(16 * MIB), "{status:#}");
    assert!(live(&status).contains(&field.origin.addr().to_string()));
    Ok(())
}

/// It announces all of the image and refuses every chunk: the origin sees that, and stays.
#[test]
fn a_store_that_holds_nothing_does_not_let_the_origin_leave() -> Outcome {
    if !have(&[]) {
        return Ok(());
    }
    let (field, _) = Field::beside_liar(4, 16 * MIB + 77, Twist::Deny)?;
    let announced = |status: &Value| status["images"][0]["coverage"] == 1.0;
    field.origin.wait_status("the origin hears that it is full", NEWS, announced)?;
    let left = field.origin.ask_to(&["leave", "--timeout", "2s"]).output()?;
    let text = String::from_utf8_lossy(&left.stderr);
    assert_eq!(left.status.code(), Some(1), "{text}");
    assert!(text.contains("100.0 % of disk.img"), "{text}");
    let status = field.origin.status()?;
    let image = &status["images"][0];
    assert!(image["origin_may_leave"] == false && image["verified"] == 0.0, "{status:#}");
    assert!(status["misdeeds"]["false_claims"].as_u64() >= Some(1), "{status:#}");
    Ok(())
}

/// One sends a byte now and then, the other promises to send: both are signs of life, and no
/// answer.
#[test]
fn who_delivers_nothing_whole_is_put_aside() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    for twist in [Twist::Trickle, Twist::Promise] {
        let (_, status) = read_beside(twist)?;
        assert!(status["misdeeds"]["drags"].as_u64() >= Some(1), "{status:#}");
        assert_eq!(status["misdeeds"]["lies"], 0, "{status:#}");
    }
    Ok(())
}

/// The id of a member as another member lists it.
fn id_of(status: &Value, addr: &str) -> u64 {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    let node = nodes.into_iter().find(|node| node["addr"] == addr).expect("a member");
    u64::from_str_radix(node["id"].as_str().expect("an id"), 16).expect("hexadecimal")
}

/// One that a stranger says is dead denies it; of what the stranger says in its name nothing is
/// believed; members that do not exist are buried; and meanwhile everything is read.
#[test]
fn slander_is_denied_and_who_does_not_exist_is_buried() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field =
        Field::on(Lab::loopback(6)?, Plan { stores: &["60%", "60%", "60%"], spare_hosts: 2, ..Plan::default() })?;
    field.covered()?;
    let victim = field.nodes[1].addr();
    let status = field.origin.status()?;
    let id = |addr: &str| id_of(&status, addr);
    let far_future = 1 << 50;
    let from = Name::of(field.host(3).addr(), 7);
    let known = bully::ask(field.origin.addr(), from)?.members;
    let known = known.into_iter().find(|member| member.identity.addr == victim).expect("a member");
    let slandered = Name { addr: victim, node: id(&victim.to_string()), generation: far_future, seed: 7 };
    let replaced = Name { generation: far_future + 9, ..Name::of(victim, 8) };
    let mut said = vec![
        Member { state: State::Down, ..known },
        slandered.says(5, State::Down),
        slandered.says(6, State::Left),
        replaced.says(0, State::Alive),
    ];
    said.extend((0..20).map(|number| {
        let addr = (field.host(4).addr().ip(), 10_000 + number).into();
        Name { generation: far_future, ..Name::of(addr, 1000 + u64::from(number)) }.says(0, State::Alive)
    }));
    for daemon in [&field.origin, &field.nodes[0], &field.nodes[2]] {
        bully::gossip(daemon.addr(), id(&daemon.addr().to_string()), from, &said)?;
    }
    field.compare(&[])?;
    let denied = |status: &Value| status["misdeeds"]["denials"].as_u64() >= Some(1);
    field.nodes[1].wait_status("it denies its death", NEWS, denied)?;
    // The origin and three nodes: nobody else is left, and nobody is missing.
    for daemon in field.nodes.iter().chain([&field.origin]) {
        daemon.wait_status("the members are those who are there", 3 * NEWS, |status| live(status).len() == 4)?;
    }
    // It can die all the same.
    field.nodes[1].kill();
    field.members(3, &[1])?;
    field.compare(&[1])?;
    Ok(())
}

/// One datagram says that a member lives elsewhere, another that a process is at its address which
/// nobody can outbid: it is found where it is, it is heard, and it can die.
#[test]
fn nobody_is_moved_or_muted_by_a_datagram() -> Outcome {
    let mut field = Field::on(Lab::loopback(5)?, Plan { stores: &["60%", "60%"], spare_hosts: 2, ..Plan::default() })?;
    field.covered()?;
    let (bully, victim) = (field.host(3).addr(), field.nodes[1].addr());
    let status = field.origin.status()?;
    let id = |addr: SocketAddr| id_of(&status, &addr.to_string());
    let from = Name::of(bully, 7);
    let clock_max = 1 << 52;
    let moved = Name { addr: bully, node: id(victim), generation: clock_max, seed: 7 };
    let replaced = |generation| Name { generation, ..Name::of(victim, 9) }.says(0, State::Alive);
    let said = [
        replaced(clock_max - 1),
        moved.says(u32::MAX - 1, State::Alive),
        replaced(1 << 53),
        replaced(u64::MAX),
        Name { generation: u64::MAX, ..moved }.says(u32::MAX, State::Down),
    ];
    for daemon in [&field.nodes[1], &field.origin, &field.nodes[0]] {
        for one in &said {
            bully::gossip(daemon.addr(), id(daemon.addr()), from, &[*one])?;
        }
    }
    let denied = |status: &Value| status["misdeeds"]["denials"].as_u64() >= Some(1);
    field.nodes[1].wait_status("it says where it is", NEWS, denied)?;
    for daemon in field.nodes.iter().chain([&field.origin]) {
        let there = |status: &Value| live(status).len() == 3 && live(status).contains(&victim.to_string());
        daemon.wait_status("the members are those who are there", 3 * NEWS, there)?;
    }
    field.nodes[1].kill();
    field.members(2, &[1])?;
    Ok(())
}

/// The statement of a node that died since, repeated: it stays dead.
#[test]
fn what_the_dead_have_said_does_not_bring_them_back() -> Outcome {
    let lab = Lab::loopback(4)?;
    let front = lab.host(3).addr();
    let overheard = liar::listen_in(front, lab.host(0).addr())?;
    let vfield = vfield();
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let origin = vfield.serve(lab.host(0), &[&image]).args(&["--advertise", &front.to_string()]);
    let origin = origin.name("origin").ready()?;
    let mut nodes = Vec::new();
    for host in [1, 2] {
        nodes.push(vfield.join(lab.host(host), front).store("all").ready()?);
    }
    origin.wait_status("three members", NEWS, |status| live(status).len() == 3)?;
    nodes[1].kill();
    origin.wait_status("one is gone", NEWS, |status| live(status).len() == 2)?;
    let repeated = overheard.datagrams();
    assert!(!repeated.is_empty(), "nothing was overheard");
    let again = UdpSocket::bind((lab.host(3).addr().ip(), 0))?;
    for datagram in &repeated {
        again.send_to(datagram, lab.host(0).addr())?;
    }
    // The next datagram shows that it was heard.
    let status = origin.status()?;
    let me = id_of(&status, &front.to_string());
    let stranger = Name::of(lab.host(3).addr(), 7);
    let known = bully::ask(nodes[0].addr(), stranger)?.members;
    let known = known.into_iter().find(|member| member.identity.node.0 == me).expect("a member");
    bully::gossip(lab.host(0).addr(), me, stranger, &[Member { state: State::Down, ..known }])?;
    let denied = |status: &Value| status["misdeeds"]["denials"].as_u64() >= Some(1);
    origin.wait_status("all of it was heard", NEWS, denied)?;
    assert_eq!(live(&origin.status()?).len(), 2, "{:#}", origin.status()?);
    Ok(())
}

//! Peers that want to have more than there is for them: others are served meanwhile, memory and
//! descriptors stay within their bounds, and each misdeed is counted.

use serde_json::Value;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfield_core::wire::HEADER;
use vfield_e2e::Outcome;
use vfield_e2e::bully::{self, Name};
use vfield_e2e::field::{Field, NEWS, Plan, state_of};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::{Daemon, Lab};

/// What a node may have besides its store under any misuse.
const BESIDES_BYTES: u64 = 64 * MIB;
/// The node hangs up after 20 s of slowness; the machine may be busy.
const HANGS_UP: Duration = Duration::from_secs(60);

fn misdeeds(status: &Value, which: &str) -> u64 {
    status["misdeeds"][which].as_u64().unwrap_or_default()
}

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.process().pid())).map_or(0, Iterator::count)
}

/// Somebody at an address of its own, who may have any number of names.
fn name(addr: SocketAddr, node: u64) -> Name {
    Name::of(addr, node)
}

/// An origin, two nodes that hold half of the image each, and a host for the bully.
fn field() -> Result<Field, vfield_lab::LabError> {
    let field =
        Field::on(Lab::loopback(4)?, Plan { stores: &["50%", "50%"], image_bytes: 32 * MIB, ..Plan::default() })?;
    field.filled()?;
    Ok(field)
}

/// Asks for as much as the socket takes, again and again, until the other side hangs up or `done`.
fn ask_for_everything(mut stream: TcpStream, requests: &[u8], done: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    while !done.load(Ordering::Relaxed) {
        match stream.write(requests) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

#[test]
fn who_asks_for_everything_and_reads_nothing_is_hung_up_on() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = field()?;
    let status = field.origin.status()?;
    let image = status["images"][0]["id"].as_str().expect("an image").to_owned();
    let gets: Vec<u8> = (0..2048).flat_map(|chunk| bully::get(&image, chunk % 512, chunk)).collect();
    let syncs: Vec<u8> = (0..2048).flat_map(bully::sync).collect();
    let bully = field.host(2).addr();
    let victims = [field.origin.addr(), field.nodes[0].addr()];
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| -> Result<u64, vfield_e2e::Failed> {
        for (number, victim) in victims.iter().cycle().take(24).enumerate() {
            let stream = bully::greet(*victim, name(bully, 100 + number as u64))?;
            let (requests, done) = (if number % 4 < 2 { &gets } else { &syncs }, &done);
            scope.spawn(move || ask_for_everything(stream, requests, done));
        }
        let memory = || [&field.origin, &field.nodes[0]].map(|daemon| daemon.process().memory().total_bytes());
        let most = Cell::new(0);
        let watched = || -> Outcome {
            field.compare(&[])?;
            for daemon in [&field.origin, &field.nodes[0]] {
                daemon.wait_status("it hangs up on who does not read", HANGS_UP, |status| {
                    most.set(memory().into_iter().fold(most.get(), u64::max));
                    misdeeds(status, "unread") >= 1
                })?;
            }
            field.compare(&[])?;
            Ok(())
        };
        let outcome = watched();
        done.store(true, Ordering::Relaxed);
        outcome.map(|()| most.get())
    })?;
    // The node's store is 16 MiB; the origin has none.
    assert!(most <= 16 * MIB + BESIDES_BYTES, "{} MiB", most / MIB);
    field.origin.process_mut().check()?;
    Ok(())
}

/// First strangers that say nothing, then members that ask for nothing: neither keeps others out.
#[test]
fn thousands_of_connections_leave_room_for_others() -> Outcome {
    // Nobody but root sees what a daemon has open.
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = field()?;
    let (origin, bully) = (field.origin.addr(), field.host(2).addr());
    let mut held = VecDeque::new();
    for _ in 0..3000 {
        held.push_back(TcpStream::connect(origin)?);
        if held.len() > 200 {
            held.pop_front();
        }
    }
    // Who joins now is greeted, though the bully waits at the door.
    let late = field.join(2, origin, "0").name("late").ready()?;
    field.compare(&[])?;
    let status = field.origin.status()?;
    assert!(misdeeds(&status, "shown_out") >= 1000, "{status:#}");
    held.clear();
    let mut members = Vec::new();
    for node in 0..600 {
        members.push(bully::greet(origin, name(bully, 1000 + node % 7))?);
    }
    field.compare(&[])?;
    // Seven names, 64 places for each, and those of the nodes.
    assert!(descriptors(&field.origin) < 7 * 64 + 200, "{} descriptors", descriptors(&field.origin));
    assert!(field.origin.process().memory().total_bytes() < BESIDES_BYTES);
    drop((members, late));
    let back = || descriptors(&field.origin) < 100;
    vfield_lab::wait_until("descriptors are given back", NEWS, back)?;
    Ok(())
}

/// One that never greets, one whose frame never ends, and frames that say that they have 4 GiB.
#[test]
fn slow_and_endless_frames_are_cut_off() -> Outcome {
    let mut field = field()?;
    let (origin, bully) = (field.origin.addr(), field.host(2).addr());
    let mut ended = Vec::new();
    for (number, kind) in (0..=10).enumerate() {
        let mut stream = bully::greet(origin, name(bully, 100 + number as u64))?;
        stream.write_all(&bully::header(kind, u32::MAX, 1))?;
        // It hangs up, and the rest of what it may have said comes to an end.
        ended.push(stream.read_to_end(&mut Vec::new()));
    }
    let counted = |status: &Value| misdeeds(status, "broken_frames") == ended.len() as u64;
    field.origin.wait_status("frames of 4 GiB are counted", NEWS, counted)?;

    let _silent = TcpStream::connect(origin)?;
    let mut slow = bully::greet(origin, name(bully, 99))?;
    let mut frame = bully::header(bully::SYNC, 1 << 20, 1).into_iter().chain(std::iter::repeat(0));
    vfield_lab::wait_until("slowness is counted", HANGS_UP, || {
        // A byte for each look: it would take hours.
        let _ = slow.write_all(&[frame.next().expect("it has no end")]);
        let counted = |status: &Value| misdeeds(status, "slow_frames") == 1 && misdeeds(status, "silent") == 1;
        field.origin.status().is_ok_and(|status| counted(&status))
    })?;
    field.origin.process_mut().check()?;
    Ok(())
}

/// Parts of long frames from one machine: a long frame of another one comes in all the same.
#[test]
fn slow_long_frames_of_one_machine_hold_up_no_other() -> Outcome {
    const KIND_OF_A_LATER_VERSION: u8 = 200;
    let field = field()?;
    let (origin, bully, other) = (field.origin.addr(), field.host(2).addr(), field.host(1).addr());
    let slow = |number: u64| {
        let mut stream = bully::greet_from_there(origin, name(bully, 100 + number))?;
        stream.write_all(&bully::header(bully::SYNC, 1 << 20, 1))?;
        stream.write_all(&[0; 48 << 10])?;
        Ok::<_, io::Error>(stream)
    };
    let _slow: Vec<TcpStream> = (0..40).map(slow).collect::<Result<_, _>>()?;
    let length = 256 << 10;
    let mut long = bully::header(KIND_OF_A_LATER_VERSION, length as u32, 1).to_vec();
    long.resize(long.len() + length, 0);
    long.extend(bully::sync(2));
    let mut stream = bully::greet_from_there(origin, name(other, 1))?;
    stream.write_all(&long)?;
    stream.read_exact(&mut [0; HEADER])?;
    Ok(())
}

/// Who greets as another proves nothing: it is not even greeted back, and the member whose name is
/// used keeps its good name, and is asked.
#[test]
fn who_misbehaves_under_a_members_name_harms_itself_only() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = field()?;
    let (origin, node, bully) = (field.origin.addr(), &field.nodes[0], field.host(2).addr());
    let status = field.origin.status()?;
    let id = status["node"].as_str().or(status["nodes"][0]["id"].as_str()).expect("an id");
    let id = u64::from_str_radix(id, 16)?;
    for _ in 0..12 {
        let mut stream = bully::greet(node.addr(), Name { node: id, ..Name::of(origin, 5) })?;
        // It hangs up: it is no answer to a frame.
        let _ = stream.write_all(&bully::sync(1));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{} bytes for an impostor", answer.len());
    }
    node.wait_status("broken frames are counted", NEWS, |status| misdeeds(status, "broken_frames") == 12)?;
    let status = node.status()?;
    assert_eq!(state_of(&status, origin).as_deref(), Some("alive"), "{status:#}");
    assert_eq!(misdeeds(&status, "lies"), 0, "{status:#}");
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("127.0.0.1") && warnings.contains("did not prove"), "the address is named: {warnings}");
    // Nor does it keep out others who share its address.
    let late = field.join(2, node.addr(), "0").name("late").ready()?;
    field.compare(&[])?;
    drop((late, bully));
    Ok(())
}

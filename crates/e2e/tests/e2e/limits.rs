//! Bounds that hold whatever clients and peers do.

use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, while_running};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, client};

/// What a node may have besides its store: 64 MiB, of which the program itself takes 8.
const BESIDES_BYTES: u64 = 56 * MIB;

#[test]
fn memory_stays_below_the_store_plus_64_mib_while_peers_read() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (image_bytes, store_bytes) = (192 * MIB, 32 * MIB);
    let field = Field::start(Plan { image_bytes, stores: &["32M", "32M", "0", "0"], ..Plan::default() })?;
    field.filled()?;
    let daemons = || field.nodes.iter().chain([&field.origin]);
    let mut most = vec![0; field.nodes.len() + 1];
    let look = || {
        for (most, daemon) in most.iter_mut().zip(daemons()) {
            *most = daemon.process().memory().beside_program_bytes().max(*most);
        }
        // Read from /proc, so this is a pause and no wait: the bound is the readers'.
        std::thread::sleep(Duration::from_millis(10));
    };
    while_running(|| field.compare(&[]), look)?;
    let stores = [store_bytes, store_bytes, 0, 0, 0];
    for ((most, store), daemon) in most.iter().zip(stores).zip(daemons()) {
        assert!(*most <= store + BESIDES_BYTES, "{}: {} MiB, store {} MiB", daemon.addr(), most / MIB, store / MIB);
    }
    for node in &field.nodes {
        let image = node.image()?;
        assert!(image["held_bytes"].as_u64() <= image["capacity_bytes"].as_u64(), "{image:#}");
    }
    Ok(())
}

#[test]
fn advice_without_end_costs_a_node_no_memory() -> Outcome {
    if !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let lab = Lab::best(2)?;
    let (program, image) = (vfield(), lab.dir().join("large.img"));
    run(Command::new("truncate").args(["-s", "1T"]).arg(&image))?;
    let mut origin = program.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let node = program.join(lab.host(1), origin.addr()).store("0").ready()?;
    let before = node.process().memory().total_bytes();
    // Nothing can be fetched any more, so all that is remembered stays.
    origin.process_mut().freeze();
    let script = "
import nbd
connections = []
for turn in range(64):
    c = nbd.NBD()
    c.connect_uri(h.get_uri())
    for place in range(4096):
        c.aio_cache(4 << 20, (turn * 4096 + place) * (4 << 20))
    while c.aio_in_flight() > 64:
        c.poll(-1)
    # Half of the clients stay.
    if turn % 2:
        connections.append(c)
print(len(connections))
";
    client::nbdsh(lab.host(1), Duration::from_secs(120), &node.uri(""), script)?;
    let grown = node.process().memory().total_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "262144 pieces of advice cost {} MiB", grown / MIB);
    origin.process_mut().thaw();
    client::nbdsh(lab.host(1), NEWS, &node.uri(""), "assert h.pread(512, 1 << 39) == bytes(512)")?;
    Ok(())
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() -> Outcome {
    let mut field = Field::start(Plan { stores: &["all"], ..Plan::default() })?;
    field.nodes[0].process_mut().kill();
    assert!(field.nodes[0].nbd().exists(), "SIGKILL leaves the socket behind");
    let join = || field.join(0, field.origin.addr(), "all");
    let again = join().ready()?;
    assert!(again.status().is_ok());

    let mut second = join().listen((again.addr().ip(), again.addr().port() + 1).into()).spawn()?;
    let status = second.process_mut().wait(NEWS)?;
    let log = second.process().log();
    assert!(!status.success() && log.contains("another daemon"), "{status}: {log}");
    assert!(again.status().is_ok(), "the first still answers");
    Ok(())
}

#[test]
fn clients_that_come_and_go_leave_nothing_open() -> Outcome {
    // Nobody but root sees what a daemon has open.
    if !have(&[Need::Root, Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0"], ..Plan::default() })?;
    let descriptors = |field: &Field| {
        let open = std::fs::read_dir(format!("/proc/{}/fd", field.nodes[0].process().pid()));
        open.map_or(0, Iterator::count)
    };
    let before = descriptors(&field);
    // Each asks for more than it reads, and hangs up.
    let script = "
import nbd
uri = h.get_uri()
for _ in range(200):
    c = nbd.NBD()
    c.connect_uri(uri)
    c.aio_pread(nbd.Buffer(1 << 20), 0)
    del c
";
    client::nbdsh(field.host(0), Duration::from_secs(60), &field.nodes[0].uri(""), script)?;
    // Pool connections to the origin may have come; 200 clients may not have stayed.
    let settled = || descriptors(&field) < before + 20;
    vfield_lab::wait_until("descriptors of clients that went are closed", NEWS, settled)?;
    field.nodes[0].process_mut().check()?;
    Ok(())
}

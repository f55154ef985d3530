//! Peers that send rubbish, speak another version, or lie; files that change.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, state_of};
use vfield_e2e::liar::{self, Twist};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, client, daemon};

/// Sends bytes made by a shell command to a node, over TCP and over UDP.
fn throw(field: &Field, bytes: &str, addr: SocketAddr) {
    for protocol in ["tcp", "udp"] {
        let script = format!("{bytes} > /dev/{protocol}/{}/{}", addr.ip(), addr.port());
        // A node that hangs up in the middle makes the shell fail, and is right.
        let _ = run(field.host(0).client(Duration::from_secs(5), "bash").args(["-c", &script]));
    }
}

#[test]
fn rubbish_on_the_ports_does_no_harm() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["40%", "40%"], ..Plan::default() })?;
    field.filled()?;
    let rubbish = [
        "head -c 300000 /dev/urandom",
        "head -c 300000 /dev/zero",
        "printf 'GET / HTTP/1.0\\r\\n\\r\\n'",
        // The right magic and version, then a greeting of 4 GiB.
        "printf 'VFIELD\\r\\n\\x01\\0\\0\\0\\xff\\xff\\xff\\xff'",
        "printf 'VFIELD\\r\\n\\x01\\0\\0\\0\\x10\\0\\0\\0'; head -c 5000 /dev/urandom",
        "true",
    ];
    for bytes in rubbish {
        throw(&field, &format!("({bytes})"), field.origin.addr());
        throw(&field, &format!("({bytes})"), field.nodes[1].addr());
    }
    field.origin.process_mut().check()?;
    field.nodes[1].process_mut().check()?;
    assert!(!field.nodes[1].process().log().contains("panicked"), "{}", field.nodes[1].process().log());
    field.members(3, &[])?;
    field.compare(&[])?;
    Ok(())
}

/// What `join` says to a bootstrap node that answers with fixed bytes.
fn join_says(bytes: &'static [u8]) -> Result<String, vfield_e2e::Failed> {
    let lab = Lab::loopback(2)?;
    liar::answer(lab.host(0).addr(), bytes)?;
    let mut node = vfield().join(lab.host(1), lab.host(0).addr()).spawn()?;
    let status = node.process_mut().wait(Duration::from_secs(20))?;
    let log = node.process().log();
    assert!(!status.success(), "{log}");
    assert!(log.contains(&lab.host(0).addr().to_string()), "it does not name the peer: {log}");
    assert!(!log.contains("panicked"), "{log}");
    Ok(log)
}

#[test]
fn a_bootstrap_node_of_another_version_is_named() -> Outcome {
    let log = join_says(b"VFIELD\r\n\x63\0\0\0\0\0\x63\0")?;
    assert!(log.contains("version 99"), "{log}");
    Ok(())
}

#[test]
fn a_bootstrap_node_that_is_something_else_is_named() -> Outcome {
    let log = join_says(b"SSH-2.0-OpenSSH_9.2p1\r\n")?;
    assert!(log.contains("not a vfield"), "{log}");
    Ok(())
}

#[test]
fn a_lying_peer_is_blamed_and_the_bytes_are_right() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    // The liar is an honest node with a falsifier on the way from it; all are told the falsifier's
    // address.
    let (mut field, front) = Field::beside_liar(5, 16 * MIB, Twist::Flip)?;
    let through = field.origin.addr();
    let blames = |field: &Field, node: usize, innocent: &[SocketAddr]| -> Outcome {
        let status = field.nodes[node].status()?;
        assert_eq!(state_of(&status, front).as_deref(), Some("blamed"), "the liar is blamed: {status:#}");
        for addr in innocent {
            assert_eq!(state_of(&status, *addr).as_deref(), Some("alive"), "{addr} is innocent: {status:#}");
        }
        Ok(())
    };
    // One after the other: each could have all from the other, and never meet the liar.
    let reader = field.join(1, through, "0").ready()?;
    field.nodes.push(reader);
    field.compare(&[])?;
    blames(&field, 1, &[through])?;
    drop(field.nodes.pop());
    let filler = field.join(2, through, "50%").ready()?;
    field.nodes.push(filler);
    field.nodes[1].wait("filled", daemon::FILL_LIMIT)?;
    blames(&field, 1, &[through])?;
    let reader = field.join(1, through, "0").ready()?;
    field.nodes.push(reader);
    field.compare(&[])?;
    blames(&field, 1, &[through, field.nodes[2].addr()])?;
    let status = field.nodes[2].status()?;
    for addr in [through, field.nodes[1].addr()] {
        assert_eq!(state_of(&status, addr).as_deref(), Some("alive"), "{addr} is innocent: {status:#}");
    }
    Ok(())
}

#[test]
fn a_changed_file_gives_errors_and_never_wrong_bytes() -> Outcome {
    if !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0"], join: &["--io-timeout", "2s"], ..Plan::default() })?;
    let file = std::fs::File::options().write(true).open(&field.image)?;
    file.write_all_at(&[0x55; 4096], 8 * MIB)?;
    let mut file = file;
    file.flush()?;
    drop(file);
    let script = "
import errno
good = open(IMAGE, 'rb').read(4096)
assert h.pread(4096, 0) == good, 'an untouched chunk'
try:
    h.pread(4096, 8 << 20)
    raise SystemExit('bytes of a changed file were delivered')
except nbd.Error as error:
    assert error.errnum == errno.EIO, error
";
    let script = script.replace("IMAGE", &format!("{:?}", field.image.display().to_string()));
    for daemon in [&field.nodes[0], &field.origin] {
        client::nbdsh(field.host(0), Duration::from_secs(30), &daemon.uri(""), &script)?;
    }
    let named = |status: &serde_json::Value| {
        let source = &status["images"][0]["source"];
        source["state"] == "changed" && source["path"].as_str().is_some_and(|path| path.ends_with("disk.img"))
    };
    field.origin.wait_status("status names the changed file", NEWS, named)?;
    field.origin.process_mut().check()?;
    Ok(())
}

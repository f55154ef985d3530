//! The dashboard of real daemons: inside the sandbox, before and after the start, and what remains
//! known of a daemon that was killed.

use crate::kept::guarded;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::{Lab, client, process, wait_until};

/// A daemon that is killed is started again at once.
const AGAIN: Duration = Duration::from_secs(30);

/// The code and the body that `GET path` has, if somebody answers.
fn get(addr: SocketAddr, path: &str, host: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(NEWS))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.unwrap_or_default(), body.to_owned()))
}

/// The value of a series.
fn metric(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn a_confined_daemon_shows_itself_and_obeys_nobody() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(2)?;
    let image = random_file(&lab.dir().join("disk.img"), 24 * MIB + 5, 1)?;
    let at = |host: usize| SocketAddr::new(lab.host(host).addr().ip(), 9740);
    let vfield = vfield();
    let http = |host: usize| ["--http".to_owned(), at(host).ip().to_string(), "--sandbox".into(), "require".into()];
    let origin = vfield.serve(lab.host(0), &[&image]).args(&http(0)).name("origin").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("all").args(&http(1)).ready()?;
    client::compare_nbd(lab.host(1), &node.uri(""), &image)?;
    node.wait("covered", NEWS)?;

    for path in ["/healthz", "/readyz", "/", "/page.js", "/field.json"] {
        assert_eq!(get(at(1), path, "localhost")?.0, 200, "{path}");
    }
    let (_, metrics) = get(at(1), "/metrics", &at(1).to_string())?;
    let received = metric(&metrics, "vfield_received_bytes_total{source=\"origin\"}").unwrap_or_default();
    assert!(received >= (24 * MIB) as f64, "{received}: {metrics}");
    assert_eq!(metric(&metrics, "vfield_image_origin_may_leave{image=\"disk.img\"}"), Some(1.0));
    assert_eq!(metric(&metrics, "vfield_members{state=\"alive\"}"), Some(1.0));
    // None waited if the store was filled before the client began.
    assert!(metric(&metrics, "vfield_read_wait_seconds_count").is_some(), "{metrics}");
    let shown: Value = serde_json::from_str(&get(at(1), "/status.json", "localhost")?.1)?;
    let status = node.status()?;
    for key in ["node", "addr", "pid", "sandbox", "identity", "exports"] {
        assert_eq!(shown[key], status[key], "{key}");
    }
    let field: Value = serde_json::from_str(&get(at(1), "/field.json", "localhost")?.1)?;
    assert_eq!(field["images"][0]["stores"].as_array().map(Vec::len), Some(1));
    assert!(field["images"][0]["claimed"].as_array().is_some_and(|cells| cells.iter().all(|cell| cell[1] == 1)));

    // A browser that was told another name, and orders.
    assert_eq!(get(at(1), "/status.json", "evil.example")?.0, 421);
    for path in ["/leave", "/drop", "/../etc/passwd"] {
        assert_eq!(get(at(1), path, "localhost")?.0, 404, "{path}");
    }
    assert_eq!(node.status()?["images"][0]["origin_may_leave"], true);
    Ok(())
}

#[test]
fn what_a_killed_daemon_did_is_known_to_the_next() -> Outcome {
    let mut field = Field::start(Plan { image_bytes: 8 * MIB, spare_hosts: 1, ..Plan::default() })?;
    let node = field.join(0, field.origin.addr(), "all").args(&["--root"]).ready()?;
    node.wait("filled", AGAIN)?;
    field.origin.kill();
    let guard = node.process().pid();
    let daemon = || guarded(guard);
    let events = || -> Vec<Value> {
        let output = node.ask_to(&["events", "--json", "--last", "0"]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let has = |event: &str, pid: u32| events().iter().any(|one| one["event"] == event && one["pid"] == pid);
    let first = daemon().expect("a guard has a daemon");
    wait_until("it knows that the origin died", NEWS, || has("node_gone", first))?;
    process::kill(first);
    wait_until("the next one has started", AGAIN, || daemon().is_some_and(|pid| pid != first && has("started", pid)))?;
    assert!(has("filled", first) && has("node_gone", first), "{:#?}", events());
    let numbers: Vec<u64> = events().iter().filter_map(|event| event["number"].as_u64()).collect();
    assert!(numbers.is_sorted() && numbers.first() == Some(&1), "{numbers:?}");
    let output = node.ask_to(&["events"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the daemon was killed, or its machine\n"), "{text}");
    // The guard first, or there would be another daemon.
    process::kill(guard);
    if let Some(daemon) = daemon() {
        process::kill(daemon);
    }
    Ok(())
}

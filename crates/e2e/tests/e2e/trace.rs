//! `vfield trace` with real processes: what a cold read waited for, and for whom, on both sides.

use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, wait_until};

const SOON: Duration = Duration::from_secs(30);

/// The spans of a trace: the name of their group, and their own.
fn spans(path: &Path) -> Result<Vec<(String, String)>, Failed> {
    let trace: Value = serde_json::from_slice(&fs::read(path)?)?;
    let events = trace["traceEvents"].as_array().expect("a list of events");
    let group = |pid: &Value| {
        let named = events.iter().find(|event| event["name"] == "process_name" && event["pid"] == *pid);
        named.and_then(|event| event["args"]["name"].as_str()).unwrap_or_default().to_owned()
    };
    let begun = events.iter().filter(|event| event["ph"] == "b");
    let ended = events.iter().filter(|event| event["ph"] == "e").count();
    assert_eq!(begun.clone().count(), ended, "each span has its end");
    Ok(begun.map(|event| (group(&event["pid"]), event["name"].as_str().unwrap_or_default().to_owned())).collect())
}

/// Begins to record on a node, until it ends, and returns once it does.
fn record(node: &Daemon, out: &Path) -> Result<Child, Failed> {
    let mut command = node.ask_to(&["trace", "60s", "--out", out.to_str().expect("a path")]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let said = child.stderr.take().expect("a pipe");
    BufReader::new(said).read_line(&mut line)?;
    assert_eq!(line, "recording for 60 s\n");
    Ok(child)
}

/// What a recording says at its end.
fn said(mut recording: Child) -> Result<String, Failed> {
    let mut text = String::new();
    recording.stdout.take().expect("a pipe").read_to_string(&mut text)?;
    assert!(recording.wait()?.success(), "{text}");
    Ok(text)
}

#[test]
fn a_cold_read_is_seen_on_both_sides_with_the_right_peers() -> Outcome {
    let mut field = Field::on(Lab::loopback(3)?, Plan { stores: &["0", "0"], ..Plan::default() })?;
    let dir = field.lab.dir().to_owned();
    let (reader, origin) = (dir.join("reader.json"), dir.join("origin.json"));
    let recordings = [record(&field.nodes[1], &reader)?, record(&field.origin, &origin)?];
    // One at a time, and a bystander stays undisturbed.
    let refused = run(&mut field.origin.ask_to(&["trace", "1s", "--out", "second.json"])).expect_err("one at a time");
    assert!(refused.to_string().contains("another client records a trace"), "{refused}");
    run(&mut field.nodes[1].ask_to(&["cat", "disk.img", "--offset", "20M", "--length", "64K"]))?;
    assert!(!reader.exists(), "a trace appears when it is whole");
    // The end of a daemon is the end of its recording, and all until then is in the file.
    let addrs = [field.nodes[1].addr(), field.origin.addr()].map(|addr| addr.to_string());
    run(&mut field.nodes[1].ask_to(&["leave", "--force"]))?;
    field.nodes[1].process_mut().wait(SOON)?;
    // It ends, and names the lost chunks.
    run(&mut field.origin.ask_to(&["leave", "--force", "--timeout", "1s"])).expect_err("it has the only copy");
    field.origin.process_mut().wait(SOON)?;
    for (recording, out) in recordings.into_iter().zip([&reader, &origin]) {
        let said = said(recording)?;
        assert!(said.starts_with(&format!("{}: ", out.display())) && said.ends_with(" events\n"), "{said}");
    }
    let (seen, served) = (spans(&reader)?, spans(&origin)?);
    let chunk = format!("chunk {}", 20 * MIB / (64 << 10));
    let has = |spans: &[(String, String)], group: &str, name: &str| {
        let found = spans.iter().any(|(of, its)| of == group && its == name);
        assert!(found, "{group}: {name} is not among {spans:#?}");
    };
    let asks = seen.iter().find(|(group, name)| group.starts_with("asks ") && *name == chunk);
    let (asks, _) = asks.unwrap_or_else(|| panic!("nobody was asked: {seen:#?}"));
    has(&seen, "reads of this machine", &chunk);
    for stage in [chunk.as_str(), "queued", "requested"] {
        has(&seen, "fetches", stage);
    }
    for step in ["arrives", "is verified"] {
        has(&seen, asks, step);
    }
    // If a node stands between them, it asked in the reader's stead.
    let between = field.nodes[0].addr().to_string();
    assert!([format!("asks {}", addrs[1]), format!("asks {between}")].contains(asks), "{asks}");
    let askers = [format!("serves {}", addrs[0]), format!("serves {between}")];
    let serves = served.iter().find(|(group, name)| askers.contains(group) && *name == chunk);
    let (serves, _) = serves.unwrap_or_else(|| panic!("it served nobody: {served:#?}"));
    has(&served, serves, "is sent");
    Ok(())
}

#[test]
fn what_cannot_be_recorded_is_one_line_and_leaves_nothing() -> Outcome {
    let field = Field::on(Lab::loopback(2)?, Plan { stores: &["0"], ..Plan::default() })?;
    let node = &field.nodes[0];
    let refused = |words: &[&str]| -> String {
        let done = node.ask_to(&[&["trace"], words].concat()).output().expect("it runs");
        assert!(!done.status.success() && done.stdout.is_empty());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert_eq!(refused(&["0"]), "vfield: a trace of 0 s records nothing\nhint: give a duration, such as 5s\n");
    assert!(refused(&["61s"]).starts_with("vfield: a trace of 61 s is too long\nhint: "));
    assert!(refused(&["1s", "--out", "/nowhere/x.json"]).starts_with("vfield: /nowhere/x.json: "));
    assert!(refused(&["1s", "--out", "/dev/null"]).starts_with("vfield: /dev/null: not a regular file"));
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let full = field.lab.dir().join("full");
    fs::create_dir(&full)?;
    rustix::mount::mount("none", &full, "tmpfs", MountFlags::empty(), Some(c"size=4k"))?;
    fs::write(full.join("trace.json"), "from before")?;
    let out = full.join("trace.json");
    let said = refused(&["100ms", "--out", out.to_str().expect("a path")]);
    let left: Vec<_> = fs::read_dir(&full)?.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    let before = fs::read_to_string(&out)?;
    rustix::mount::unmount(&full, UnmountFlags::DETACH)?;
    assert_eq!(said.lines().next(), Some("recording for 0.1 s"), "{said}");
    assert!(said.contains(&format!("vfield: {}: no space left on device\nhint: ", out.display())), "{said}");
    assert_eq!((left, before.as_str()), (vec!["trace.json".into()], "from before"));
    // It records again where there is room.
    let good = field.lab.dir().join("good.json");
    wait_until("the recording before has ended", SOON, || {
        let word = good.to_str().unwrap_or_default();
        run(&mut node.ask_to(&["trace", "10ms", "--out", word])).is_ok()
    })?;
    spans(&good)?;
    Ok(())
}

//! The doctor on hosts of a lab: faults are found and mended, and a bundle has no keys.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Host, Lab, Link};

/// What the doctor says on a host; its exit code says whether something is wrong.
fn examined(host: &Host, words: &[&str]) -> Result<Value, Failed> {
    let mut command = host.command(vfield().path());
    command.args(["doctor", "--json", "--control", "/nonexistent/control.sock"]).args(words);
    let output = command.output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn found(report: &Value) -> Vec<&str> {
    report["findings"].as_array().into_iter().flatten().filter_map(|finding| finding["check"].as_str()).collect()
}

#[test]
fn what_is_broken_on_a_host_is_found_and_mended() -> Outcome {
    if !have(&[Need::Root, Need::Tool("sysctl")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(1, Link::default())?;
    let host = lab.host(0);
    for broken in ["net.ipv4.tcp_sack=0", "net.ipv4.tcp_window_scaling=0"] {
        run(host.command("sysctl").args(["-qw", broken]))?;
    }
    let report = examined(host, &[])?;
    assert!(["sack", "window-scaling"].iter().all(|check| found(&report).contains(check)), "{report:#}");
    // No daemon runs there.
    let unseen = report["unseen"].to_string();
    assert!(unseen.contains("the field"), "{unseen}");
    let mut fix = host.command(vfield().path());
    let fixed = fix.args(["doctor", "--fix", "--control", "/nonexistent/control.sock"]).output()?;
    let said = String::from_utf8_lossy(&fixed.stdout);
    assert!(said.contains("wrote /proc/sys/net/ipv4/tcp_sack: 1 instead of 0"), "{said}");
    let report = examined(host, &[])?;
    assert!(!["sack", "window-scaling"].iter().any(|check| found(&report).contains(check)), "{report:#}");
    Ok(())
}

#[test]
fn a_bundle_has_everything_but_keys() -> Outcome {
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let (key, bundle) = (lab.dir().join("field.key"), lab.dir().join("report.tar"));
    run(Command::new(vfield.path()).args(["key", "new"]).arg(&key))?;
    let content = std::fs::read_to_string(&key)?;
    let secret = content.lines().last().unwrap_or_default();
    let config = lab.dir().join("vfield.toml");
    let text = format!("field-key = \"{}\"\nlimit-up = \"50M\"\n# once: {}\n", key.display(), secret);
    std::fs::write(&config, text)?;
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let keyed = [Path::new("--field-key"), &key, Path::new("--config"), &config];
    let origin = vfield.serve(lab.host(0), &[&image]).args(&keyed).name("origin").ready()?;
    let make = |file: &Path| {
        let mut command = Command::new(vfield.path());
        command.args(["doctor", "bundle"]).arg(file).arg("--config").arg(&config);
        command.arg("--control").arg(origin.control()).output()
    };
    assert!(make(&bundle)?.status.success());
    let tar = std::fs::read(&bundle)?;
    let text = String::from_utf8_lossy(&tar);
    for part in ["doctor.json", "status.json", "events.jsonl", "vfield.toml", "disk.img", "limit-up = \"50M\""] {
        assert!(text.contains(part), "{part}");
    }
    let words = secret.split_whitespace().filter(|word| word.len() >= 16 && !word.starts_with("vfield"));
    let words: Vec<&str> = words.collect();
    assert!(!words.is_empty());
    for word in words {
        assert!(!text.contains(&word[..16]) && !text.contains(&word[word.len() - 16..]), "a part of a key");
    }
    // An existing file is not overwritten.
    assert!(!make(&bundle)?.status.success());
    if have(&[Need::Tool("tar")]) {
        let listed = run(Command::new("tar").arg("-tf").arg(&bundle))?;
        assert!(listed.contains("vfield/doctor.json") && listed.contains("vfield/vfield.toml"), "{listed}");
    }
    Ok(())
}

//! `vfield doctor`: looks at this machine and at the daemon, if one runs.

use crate::args::{DoctorAction, DoctorOptions};
use crate::settings;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_control::client::{self, Client};
use vfield_control::message::{DaemonStatus, Reply, Request};
use vfield_doctor::bundle::{self, Part};
use vfield_doctor::facts::Facts;
use vfield_doctor::finding::{Finding, Weight};
use vfield_doctor::read::Root;
use vfield_doctor::report::Report;
use vfield_doctor::{checks, fix};

/// The machine itself.
const ROOT: &str = "/";

/// Runs `vfield doctor`.
pub fn run(options: &DoctorOptions) -> Result<(), Failure> {
    if let Some(DoctorAction::Bundle { file, config, control }) = &options.action {
        return write_bundle(file, config.as_deref(), control.control.as_deref());
    }
    let (facts, _) = look(options.control.control.as_deref());
    let findings = checks::run(&facts);
    let report = Report::new(&findings, &facts.unseen);
    let text = if options.json { report.json() } else { report.text() };
    output::put(text.as_bytes())?;
    if options.fix {
        return apply(&findings);
    }
    judge(&findings)
}

/// The facts, and the status that some of them are from.
fn look(control: Option<&Path>) -> (Facts, Option<DaemonStatus>) {
    let status = client::status(control);
    let facts = Root::new(ROOT).facts(status.as_ref().map_err(Failure::fact));
    (facts, status.ok())
}

/// A script learns by the exit code whether something is wrong.
fn judge(findings: &[Finding]) -> Result<(), Failure> {
    let grave = findings.iter().any(|finding| finding.weight != Weight::Note);
    if grave { Err(Failure::failed("findings cost speed or fail reads").already_said()) } else { Ok(()) }
}

/// Writes the safe settings, and names each outcome.
fn apply(findings: &[Finding]) -> Result<(), Failure> {
    let outcomes = fix::apply(findings, Path::new(ROOT));
    if outcomes.is_empty() {
        return output::put(b"nothing that is safe to write\n");
    }
    let lines = |outcome: &fix::Outcome| match outcome {
        Ok(done) => format!("wrote {done}\n"),
        Err(why) => format!("not written: {why}\n"),
    };
    output::put(outcomes.iter().map(lines).collect::<String>().as_bytes())?;
    match outcomes.iter().filter(|outcome| outcome.is_err()).count() {
        0 => Ok(()),
        failed => {
            let fact = format!("{failed} of {} settings were not written", outcomes.len());
            Err(Failure::failed(fact).hint("settings of the kernel need root: sudo vfield doctor --fix"))
        }
    }
}

fn write_bundle(file: &Path, config: Option<&Path>, control: Option<&Path>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let failure = Failure::failed(format!("{}: {}", file.display(), plain(&error)));
        failure.hint("give a new file in a directory that can be written")
    };
    // Others need not read which machines there are.
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    let (facts, status) = look(control);
    let findings = checks::run(&facts);
    let report = Report::new(&findings, &facts.unseen);
    let mut parts = vec![
        Part { name: "doctor.json", text: report.json() },
        Part { name: "doctor.txt", text: report.text() },
        Part { name: "facts.txt", text: format!("{facts:#?}\n") },
        Part { name: "version.txt", text: format!("vfield {}\n", env!("CARGO_PKG_VERSION")) },
    ];
    if let Some(status) = status {
        let text = serde_json::to_string_pretty(&status).expect("plain data becomes JSON") + "\n";
        parts.push(Part { name: "status.json", text });
        parts.extend(events(control).map(|text| Part { name: "events.jsonl", text }));
    }
    let config = settings::place(config).and_then(|path| std::fs::read_to_string(path).ok());
    parts.extend(config.map(|text| Part { name: "vfield.toml", text: bundle::without_keys(&text) }));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    bundle::write(&parts, now, &mut out).and_then(|()| out.flush()).map_err(failed)?;
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    output::put(format!("{}: {}\n", file.display(), names.join(", ")).as_bytes())
}

/// The events that the daemon remembers, one JSON object a line.
fn events(control: Option<&Path>) -> Option<String> {
    let mut client = Client::connect(control).ok()?;
    client.send(&Request::Events { after: 0, most: usize::MAX, follow: false }).ok()?;
    let Ok(Reply::Events { events }) = client.reply() else { return None };
    let line = |event| serde_json::to_string(event).expect("plain data becomes JSON") + "\n";
    Some(events.iter().map(line).collect())
}

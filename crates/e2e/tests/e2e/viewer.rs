//! A trace in a viewer that is not ours: Perfetto's, in a browser, out of files of this machine.
//!
//! `VFIELD_PERFETTO` is the folder with its `index.html`; `scripts/test-trace` fetches it.

use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::{Failed, Outcome};
use vfield_lab::browser::{self, Browser};
use vfield_lab::process::run;
use vfield_lab::{Lab, port, wait_until};

const SOON: Duration = Duration::from_secs(30);
const SCREEN: (u32, u32) = (1400, 900);

/// A trace of a cold read.
fn record(field: &Field, out: &Path) -> Result<(), Failed> {
    let node = &field.nodes[0];
    let mut command = node.ask_to(&["trace", "2s", "--out", out.to_str().expect("a path")]);
    let mut recording = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut said = [0; 9];
    std::io::Read::read_exact(recording.stderr.as_mut().expect("a pipe"), &mut said)?;
    assert_eq!(&said, b"recording");
    run(&mut node.ask_to(&["cat", "disk.img", "--offset", "4M", "--length", "2M"]))?;
    assert!(recording.wait()?.success());
    Ok(())
}

/// What the viewer's engine answers to a query: rows of text.
fn query(browser: &mut Browser, sql: &str) -> Vec<Vec<String>> {
    let asked = format!(
        "app.trace.engine.query({}).then(result => {{
            const names = result.columns(), rows = [];
            for (const row = result.iter({{}}); row.valid(); row.next()) rows.push(names.map(name => String(row.get(name))));
            return rows;
        }})",
        Value::from(sql)
    );
    serde_json::from_value(browser.value(&asked)).expect("rows of text")
}

#[test]
fn perfettos_viewer_shows_each_group_with_its_spans() -> Outcome {
    let Some(viewer) = std::env::var_os("VFIELD_PERFETTO") else {
        println!("skipped: VFIELD_PERFETTO names no viewer; scripts/test-trace has one");
        return Ok(());
    };
    let Some(program) = browser::find() else { return Ok(()) };
    let field = Field::on(Lab::loopback(2)?, Plan { stores: &["0"], ..Plan::default() })?;
    // One folder, since a page may ask only where it came from.
    let site = field.lab.dir().join("site");
    fs::create_dir(&site)?;
    for entry in fs::read_dir(viewer)? {
        let entry = entry?;
        symlink(entry.path(), site.join(entry.file_name()))?;
    }
    record(&field, &site.join("trace.json"))?;
    let host = field.lab.host(0);
    let addr = SocketAddr::new(host.addr().ip(), port::free()?);
    let mut server = host.command("/usr/bin/python3");
    server.args(["-m", "http.server", "--bind", &addr.ip().to_string(), &addr.port().to_string(), "--directory"]);
    let _server = host.spawn("site", server.arg(&site))?;
    wait_until("a server of the viewer", SOON, || TcpStream::connect(addr).is_ok())?;
    let mut browser = Browser::start(&program);
    let site = format!("http://{addr}");
    browser.open(&format!("{site}/index.html#!/?url={site}/trace.json"), SCREEN, false);
    browser.until("location.hash.startsWith('#!/viewer') && window.app?.trace?.engine");
    browser.until("document.body.textContent.includes('fetches')");
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace.png"));

    let refused = query(&mut browser, "select name, value from stats where severity != 'info' and value > 0");
    assert!(refused.is_empty(), "the viewer found errors: {refused:?}");
    // Each group is a process, and each span lies in a row of its group.
    let spans = "select process.name, slice.name, slice.dur from slice
        join process_track on slice.track_id = process_track.id join process using (upid)";
    let shown = query(&mut browser, spans);
    let asks = format!("asks {}", field.origin.addr());
    let has = |group: &str, name: &str| {
        let is_it = |row: &Vec<String>| row[0] == group && row[1] == name && row[2] != "-1";
        assert!(shown.iter().any(is_it), "{group}: {name} is not among {shown:#?}");
    };
    has("reads of this machine", "chunk 64");
    has("fetches", "requested");
    has(&asks, "chunk 64");
    has(&asks, "is verified");
    let elsewhere = query(&mut browser, "select count(*) as count from track where type = 'legacy_async_global_slice'");
    assert_eq!(elsewhere, [["0"]], "spans without a group");
    // A row is a lane, not a span.
    let rows = query(&mut browser, "select count(*) as count from process_track");
    let rows: usize = rows[0][0].parse()?;
    assert!(rows * 2 < shown.len(), "{rows} rows for {} spans", shown.len());
    Ok(())
}

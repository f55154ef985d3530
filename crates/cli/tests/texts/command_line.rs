//! What people see who type something: help, and one clear line for each thing that cannot be.
//!
//! Each test runs the program with an empty environment in a directory of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A directory to type commands in.
struct Desk {
    dir: TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self, name: &str, content: &[u8]) -> &Self {
        std::fs::write(self.path().join(name), content).expect("a file in a directory of our own");
        self
    }

    fn directory(&self, name: &str) -> &Self {
        std::fs::create_dir(self.path().join(name)).expect("a directory in a directory of our own");
        self
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vfield"));
        command.args(line.split(' ').skip(1)).current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("HOME", self.path()).env("VFIELD_CONTROL", self.path().join("control.sock"));
        command.output().expect("the program runs")
    }

    /// Exit code and stderr, with the directory's path taken out.
    fn complaint(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.stdout.is_empty(), "stdout of {line:?}: {}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8_lossy(&output.stderr).replace(&self.path().display().to_string(), "DIR");
        assert!(!text.contains("panicked"), "{text}");
        format!("$ {line}\n[{}] {}", output.status.code().unwrap_or(-1), text.trim_end())
    }

    fn complaints(&self, lines: &[&str]) -> String {
        lines.iter().map(|line| self.complaint(line)).collect::<Vec<_>>().join("\n\n")
    }

    fn help(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success() && output.stderr.is_empty(), "{line}");
        String::from_utf8(output.stdout).expect("help is text")
    }
}

#[test]
fn help_of_the_program() {
    insta::assert_snapshot!(Desk::new().help("vfield --help"));
}

#[test]
fn help_of_serve() {
    insta::assert_snapshot!(Desk::new().help("vfield serve --help"));
}

#[test]
fn help_of_join() {
    insta::assert_snapshot!(Desk::new().help("vfield join --help"));
}

#[test]
fn help_of_the_others() {
    let desk = Desk::new();
    let helps = [
        "status",
        "id",
        "pack",
        "cat",
        "add",
        "drop",
        "leave",
        "overlay",
        "overlay save",
        "netboot",
        "completions",
        "man",
    ]
    .map(|name| desk.help(&format!("vfield {name} --help")));
    insta::assert_snapshot!(helps.join("\n----------------------------------------\n\n"));
}

#[test]
fn help_of_bench() {
    insta::assert_snapshot!(Desk::new().help("vfield bench --help"));
}

#[test]
fn benchmarks_that_cannot_be() {
    insta::assert_snapshot!(Desk::new().complaints(&[
        "vfield bench",
        "vfield bench viver --peer 127.0.0.1",
        "vfield bench --image viver",
        "vfield bench --nbd disk",
        "vfield bench --nbd nbd+unix:///x?socket=none.sock --control none.control",
        "vfield bench --via ftp",
        "vfield bench --pattern backwards",
        "vfield bench --streams 0",
        "vfield bench --depth 65",
        "vfield bench --link fast",
        "vfield bench --link 1GB",
        "vfield bench --size -1",
        "vfield bench --peer 127.0.0.1:99999",
        "vfield bench --peer 127.0.0.1:1",
        "vfield bench viver --peers",
        "vfield bench --peers --streams 2",
        "vfield bench --peers --peer 127.0.0.1 --image viver",
        "vfield bench --peers --peer 127.0.0.1:1",
        "vfield bench --peers --control none.control",
    ]));
}

#[test]
fn network_boots_that_cannot_be() {
    insta::assert_snapshot!(Desk::new().complaints(&[
        "vfield netboot",
        "vfield netboot root --control none.control",
        "vfield netboot root --machine 52:54=exam",
        "vfield netboot root --machine exam",
        "vfield netboot root --tag a/b=exam",
        "vfield netboot root --dhcp yes",
        "vfield join 192.168.1.1 --device floppy",
        "vfield join 192.168.1.1 --device auto --ublk",
    ]));
}

#[test]
fn no_command_prints_help() {
    let output = Desk::new().run("vfield");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("help is text");
    assert!(text.contains("Examples:") && text.contains("hint: begin with `vfield serve FILE`"), "{text}");
}

#[test]
fn files_that_are_no_images() {
    let desk = Desk::new();
    desk.file("empty.img", b"").file("ok.img", b"x").directory("dir").directory("other");
    desk.file("other/ok.img", b"y");
    insta::assert_snapshot!(desk.complaints(&[
        "vfield serve missing.img",
        "vfield serve empty.img",
        "vfield serve dir/",
        "vfield serve /dev/null",
        "vfield serve",
        "vfield serve ok.img other/ok.img",
        "vfield serve ok.img --name a --name b",
        "vfield serve ok.img --name a/b",
        "vfield serve ok.img --chunk-size 60K",
        "vfield serve ok.img --chunk-size 2M",
        "vfield id missing.img",
        "vfield -file missing.img",
    ]));
}

#[test]
fn values_that_are_none() {
    insta::assert_snapshot!(Desk::new().complaints(&[
        "vfield join 127.0.0.1 --store -1",
        "vfield join 127.0.0.1 --store lots",
        "vfield join 127.0.0.1 --store 128",
        "vfield join 127.0.0.1 --store 101%",
        "vfield join 127.0.0.1 --join-boost 10",
        "vfield join 127.0.0.1 --io-timeout soon",
        "vfield join 127.0.0.1 --nbd /tmp/sock",
        "vfield join 127.0.0.1 --nbd unix:",
        "vfield join 127.0.0.1 --image a/b",
        "vfield join 127.0.0.1 --image zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
        "vfield join",
        "vfield join 1.2.3",
        "vfield join 127.0.0.1:99999",
        "vfield join 127.0.0.1:0",
        "vfield join 0.0.0.0",
        "vfield join 127.0.0.1 --listen 224.0.0.1",
        "vfield join 127.0.0.1 --listen ::1",
    ]));
}

#[test]
fn words_that_have_no_meaning() {
    insta::assert_snapshot!(Desk::new().complaints(&[
        "vfield sevre x",
        "vfield serve x --stroe 5",
        "vfield join 127.0.0.1 --store",
        "vfield status --wait forever",
        "vfield status --timeout 5",
        "vfield cat",
        "vfield -q -v status",
        "vfield completions dos",
    ]));
}

#[test]
fn the_originals_form_misused() {
    let desk = Desk::new();
    desk.file("x.img", b"x");
    insta::assert_snapshot!(desk.complaints(&[
        "vfield -file",
        "vfield -file x.img -store 128",
        "vfield -file x.img -bs 192.168.1.1",
        "vfield -bs 192.168.1.1 -store -5",
        "vfield -bs 192.168.1.1 -join_boost 11",
        "vfield -bs 192.168.1.1 -stroe 128",
        "vfield -store 128",
    ]));
}

#[test]
fn overlays_that_cannot_be() {
    let desk = Desk::new();
    desk.file("x.img", b"x").file("notes", b"precious");
    insta::assert_snapshot!(desk.complaints(&[
        "vfield serve x.img --overlay-size 1G",
        "vfield serve x.img --overlay-from saved",
        "vfield serve x.img --overlay ram --overlay-size 128",
        "vfield serve x.img --overlay ram --overlay-size much",
        "vfield serve x.img --overlay ram --overlay-from missing",
        "vfield serve x.img --overlay ram --overlay-from notes",
        "vfield serve x.img --overlay notes",
        "vfield serve x.img --overlay missing/dir",
        "vfield overlay status",
        "vfield overlay save",
        "vfield overlay reset --json",
    ]));
    assert_eq!(std::fs::read(desk.path().join("notes")).unwrap(), b"precious");
}

#[test]
fn a_store_larger_than_memory() {
    let complaint = Desk::new().complaint("vfield join 127.0.0.1 --store 1000T");
    assert!(complaint.contains("[2] vfield: --store: 1000.0 TiB is more than this daemon's memory of"), "{complaint}");
}

#[test]
fn places_that_cannot_be_had() {
    let desk = Desk::new();
    desk.file("x.img", b"x").file("notes", b"precious").directory("full").file("full/precious", b"");
    let mut complaints = desk.complaints(&[
        "vfield serve x.img --nbd unix:notes",
        "vfield serve x.img --nbd unix:missing/sock",
        "vfield serve x.img --nbd unix:a --nbd unix:a",
        "vfield serve x.img --mount missing",
        "vfield serve x.img --mount notes",
        "vfield serve x.img --mount full",
        "vfield serve x.img --control notes",
        "vfield serve x.img --control missing/control.sock",
    ]);
    let live = std::os::unix::net::UnixListener::bind(desk.path().join("live")).expect("a socket");
    complaints += "\n\n";
    complaints += &desk.complaints(&["vfield serve x.img --nbd unix:live", "vfield serve x.img --control live"]);
    drop(live);
    insta::assert_snapshot!(complaints);
    assert_eq!(std::fs::read(desk.path().join("notes")).unwrap(), b"precious");
}

#[test]
fn a_port_that_is_taken() {
    let desk = Desk::new();
    desk.file("x.img", b"x");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("its address").to_string();
    let lines = [format!("vfield serve x.img --nbd tcp:{addr}"), format!("vfield serve x.img --listen {addr}")];
    let complaints = desk.complaints(&[&lines[0], &lines[1], "vfield serve x.img --listen 192.0.2.1"]);
    insta::assert_snapshot!(complaints.replace(&addr, "ADDR"));
}

#[test]
fn no_daemon_to_speak_to() {
    let desk = Desk::new();
    insta::assert_snapshot!(desk.complaints(&[
        "vfield status",
        "vfield status --wait covered --timeout 0",
        "vfield cat viver",
        "vfield cat viver --offset -1",
        "vfield leave",
    ]));
}

#[test]
fn configuration_files() {
    let desk = Desk::new();
    desk.file("unknown.toml", b"store = \"1M\"\n\nstroe = \"1M\"\n")
        .file("bad.toml", b"join = [\"127.0.0.1\"]\njoin-boost = 12\n")
        .file("syntax.toml", b"store = \n")
        .file("addr.toml", b"join = [\"127.0.0.1\",\n  \"1.2.3\"]\n")
        .file("binary.toml", &[0xff, 0xfe, 0]);
    insta::assert_snapshot!(desk.complaints(&[
        "vfield join --config missing.toml",
        "vfield join --config unknown.toml",
        "vfield join --config bad.toml",
        "vfield join --config syntax.toml",
        "vfield join --config addr.toml",
        "vfield join --config binary.toml",
        "vfield join --config .",
    ]));
}

#[test]
fn the_id_of_a_file_needs_no_daemon() {
    let desk = Desk::new();
    desk.file("x.img", b"hello");
    let id = desk.help("vfield id x.img");
    assert_eq!(id.trim_end().len(), 64);
    assert_eq!(desk.help("vfield id ./x.img"), id);
    assert_ne!(desk.help("vfield id x.img --chunk-size 16K"), id);
}

#[test]
fn completions_and_manual_pages_are_generated() {
    let desk = Desk::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(desk.help(&format!("vfield completions {shell}")).contains("join-boost"), "{shell}");
    }
    assert!(desk.help("vfield man").starts_with(".ie"));
    desk.directory("man");
    assert!(desk.run("vfield man man").status.success());
    for page in ["vfield.1", "vfield-serve.1", "vfield-join.1", "vfield-status.1", "vfield-bench.1"] {
        assert!(desk.path().join("man").join(page).exists(), "{page}");
    }
    assert_eq!(desk.run("vfield man missing").status.code(), Some(1));
}

#[test]
fn json_logs_hold_the_error_too() {
    let output = Desk::new().run("vfield serve missing.img --json");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).expect("logs are text");
    assert!(text.starts_with('{') && text.contains("missing.img: no such file") && text.lines().count() == 1, "{text}");
    // The code tells a service manager not to start the daemon again, in both forms.
    let refused = Desk::new().run("vfield join --json");
    assert_eq!((refused.status.code(), refused.stderr.first()), (Some(2), Some(&b'{')));
}

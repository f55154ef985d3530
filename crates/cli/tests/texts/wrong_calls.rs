//! What people read who asked for something that cannot be: each wrong call, its exit code and its
//! words.
//!
//! The calls and the answers stand in `wrong_calls.txt`, one after the other; `VFIELD_REWRITE=1
//! cargo test -p vfield --test texts` writes the answers anew, to be read before they are
//! committed. Each line is a shell's; `$OPEN` and `$CLOSED` are the addresses of running nodes, of
//! an open field with two images and of one with a key.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Fewer wrong calls than this are not worth a table.
const CALLS_MIN: usize = 78;
/// Every answer is there at once, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with everything that one can go wrong with.
struct Stage {
    dir: TempDir,
    nodes: Vec<(&'static str, String, Child)>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        for (_, _, node) in &mut self.nodes {
            // It may have ended already.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl Stage {
    fn new() -> Self {
        let mut stage = Self { dir: tempfile::tempdir().expect("a temporary directory"), nodes: Vec::new() };
        stage.fill();
        stage.start("OPEN", "open.sock", "serve x.img other/y.img --listen 127.0.0.1:0 --nbd unix:open.nbd");
        stage.start("CLOSED", "closed.sock", "serve x.img --listen 127.0.0.1:0 --field-key field.key");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn fill(&self) {
        for dir in ["dir", "other", "full", "certificates"] {
            std::fs::create_dir(self.path(dir)).expect("a directory in a directory of our own");
        }
        let loop_to_itself = std::os::unix::fs::symlink("loop", self.path("loop"));
        loop_to_itself.expect("a link in a directory of our own");
        for (name, content) in [
            ("x.img", "x"),
            ("other/x.img", "y"),
            ("other/y.img", "y"),
            ("empty.img", ""),
            ("notes", "precious"),
            ("full/precious", ""),
            ("certificates/server-cert.pem", "garbage"),
            ("key.toml", "stroe = \"1M\"\n"),
            ("hidden.toml", "no_pool = true\n"),
            ("far.toml", "nonsense = 1\n"),
            ("value.toml", "join = [\"127.0.0.1\"]\njoin-boost = 12\n"),
            ("array.toml", "join = [\"127.0.0.1\",\n  \"1.2.3\"]\n"),
            ("kind.toml", "ublk = \"yes\"\n"),
            ("twice.toml", "store = 0\nstore = 1\n"),
            ("syntax.toml", "store = \n"),
            ("size.toml", "store = \"0.5\"\n"),
            ("threads.toml", "threads = 3000\n"),
            ("bad.key", "vfield-key-1 nonsense\n"),
            ("none.key", "# nothing\n"),
            ("open.key", "# nothing\n"),
        ] {
            std::fs::write(self.path(name), content).expect("a file in a directory of our own");
        }
        for key in ["field.key", "another.key"] {
            let made = self.shell(&format!("vfield key new {key}"), "none.sock").output().expect("a shell");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        let private = self.shell("chmod 600 *.key; chmod 644 open.key", "none.sock").status();
        assert!(private.expect("a shell").success());
    }

    /// Starts a node and remembers its address as `$NAME`.
    fn start(&mut self, name: &'static str, control: &str, line: &str) {
        let node = self.shell(&format!("exec vfield {line}"), control).stderr(Stdio::null()).spawn().expect("a shell");
        self.nodes.push((name, String::new(), node));
        let wait = "vfield status --wait filled --timeout 60s --json";
        let waited = self.shell(wait, control).output().expect("a shell");
        let status: serde_json::Value = serde_json::from_slice(&waited.stdout).expect("its status");
        let addr = status["addr"].as_str().expect("its address").to_owned();
        self.nodes.last_mut().expect("the one just started").1 = addr;
    }

    /// A command line of a shell, in an empty environment, here.
    fn shell(&self, line: &str, control: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_vfield")).parent().expect("it lies in a directory");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", line]).current_dir(self.dir.path()).env_clear().stdin(Stdio::null());
        shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        shell.env("HOME", self.dir.path()).env("VFIELD_CONTROL", control);
        shell.envs(self.nodes.iter().map(|(name, addr, _)| (*name, addr.as_str())));
        shell
    }

    /// Exit code and stderr of a call, without what differs from run to run.
    fn answer(&self, call: &str) -> Answer {
        let (out, err) = (self.path("stdout"), self.path("stderr"));
        let file = |path: &Path| Stdio::from(std::fs::File::create(path).expect("a file of our own"));
        let mut child = self.shell(call, "none.sock").stdout(file(&out)).stderr(file(&err)).spawn().expect("a shell");
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().expect("our child") {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("{call}: no answer after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(std::fs::read_to_string(&out).expect("text"), "", "stdout of {call:?}");
        let mut text = std::fs::read_to_string(&err).expect("text").trim_end().to_owned();
        text = text.replace(&self.dir.path().display().to_string(), "DIR");
        for (name, addr, _) in &self.nodes {
            text = text.replace(addr, &format!("${name}"));
        }
        // On a busy machine the greeting is given up before the stranger is.
        text = text.replace("it sends no greeting", "it closed the connection");
        // A machine without a resolver says it differently.
        text = text.replace("temporary failure in name resolution", "name or service not known");
        Answer { code: status.code().unwrap_or(-1), text }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: i32,
    text: String,
}

impl Answer {
    /// The parts that an answer to a tired person lacks.
    fn fault(&self) -> Option<&'static str> {
        let lines: Vec<&str> = self.text.lines().collect();
        match &lines[..] {
            _ if ![1, 2].contains(&self.code) => Some("an exit code other than 1 and 2"),
            [fact, hint] if fact.starts_with("vfield: ") && hint.starts_with("hint: ") => None,
            _ => Some("other than a fact on one line and a hint on the next"),
        }
    }
}

#[test]
fn every_wrong_call_has_a_clear_answer() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/texts/wrong_calls.txt");
    let before = std::fs::read_to_string(&table).expect("the table");
    let calls: Vec<&str> = before.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(calls.len() >= CALLS_MIN, "{} calls", calls.len());
    let (stage, mut now, mut faults) = (Stage::new(), String::new(), Vec::new());
    for call in calls {
        let answer = stage.answer(call);
        faults.extend(answer.fault().map(|fault| format!("{call}\n  {fault}: [{}] {}", answer.code, answer.text)));
        let _ = write!(now, "$ {call}\n[{}] {}\n\n", answer.code, answer.text);
    }
    if std::env::var_os("VFIELD_REWRITE").is_some() {
        std::fs::write(&table, &now).expect("the table can be written");
    } else {
        assert_eq!(now, before, "answers are others than those in {}: VFIELD_REWRITE=1 writes them", table.display());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

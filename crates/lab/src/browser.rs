//! A browser without a screen, driven over two pipes (the DevTools protocol): JSON with a zero byte
//! behind each message.

use crate::need::{Need, find_tool, have};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The names that systems give it; Debian's smallest package first.
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// A browser that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the browser is; `None`, and a line, if there is none.
pub fn find() -> Option<PathBuf> {
    let found = NAMES.iter().find_map(|name| find_tool(name));
    found.or_else(|| {
        assert!(!have(&[Need::Tool(NAMES[0])]), "it was not found before");
        None
    })
}

/// One browser with one page.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    orders: File,
    answers: Receiver<Value>,
    number: u64,
    session: String,
    /// Addresses that the page asked for.
    pub asked: Vec<String>,
    /// Errors of scripts, and refusals by the content security policy.
    pub complaints: Vec<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser at `program`.
    pub fn start(program: &Path) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let [orders, answers] = ["orders", "answers"].map(|name| home.path().join(name));
        assert!(Command::new("mkfifo").args([&orders, &answers]).status().expect("mkfifo").success());
        // The numbers 3 and 4 are the browser's; only a shell opens files under numbers.
        let start = "exec \"$0\" --remote-debugging-pipe --headless --no-sandbox --disable-gpu \
             --disable-dev-shm-usage --no-first-run --hide-scrollbars --user-data-dir=\"$1\" about:blank \
             3<\"$2\" 4>\"$3\"";
        let mut command = Command::new("sh");
        command.args(["-c", start]).arg(program).args([home.path(), &orders, &answers]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
        let orders = File::options().write(true).open(&orders).expect("a pipe");
        let mut lines = BufReader::new(File::open(&answers).expect("a pipe"));
        let (told, answers) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while lines.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if told.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let (asked, complaints, session) = (Vec::new(), Vec::new(), String::new());
        let mut browser = Self { process, orders, answers, number: 0, session, asked, complaints, _home: home };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for part in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{part}.enable"), json!({}));
        }
        browser
    }

    /// Asks the browser; its answer.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut order = json!({"id": self.number, "method": method, "params": params});
        if !self.session.is_empty() {
            order["sessionId"] = json!(self.session);
        }
        self.orders.write_all(format!("{order}\0").as_bytes()).expect("the browser listens");
        loop {
            let message = self.answers.recv_timeout(PATIENCE).expect("the browser answers");
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.asked.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Log.entryAdded") => self.complaints.push(params["entry"].to_string()),
            Some("Runtime.consoleAPICalled") => self.complaints.push(params["args"].to_string()),
            _ => {}
        }
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Returns when an expression is true in the page.
    ///
    /// # Panics
    /// If it is never true. The page goes on asking meanwhile, so the browser is not silent.
    pub fn until(&mut self, expression: &str) {
        let patience = PATIENCE.as_millis();
        let look = format!(
            "new Promise(done => {{ const end = Date.now() + {patience}; const look = () => ({expression}) ? done(true) \
             : Date.now() > end ? done(false) : setTimeout(look, 20); look(); }})"
        );
        assert_eq!(self.value(&look), true, "never: {expression}");
    }

    /// Opens an address with a screen of this size, in the dark or not.
    pub fn open(&mut self, url: &str, (width, height): (u32, u32), dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media);
        self.resize((width, height));
        self.call("Page.navigate", json!({"url": url}));
    }

    /// Gives the page another screen.
    pub fn resize(&mut self, (width, height): (u32, u32)) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Presses a key; a letter is typed.
    pub fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 {
            key
        } else if key == "Enter" {
            "\r"
        } else {
            ""
        };
        let kind = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        self.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key, "text": text}));
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
    }

    /// Keeps a picture of the page for a person.
    pub fn picture(&mut self, path: &Path) {
        let data = self.call("Page.captureScreenshot", json!({"format": "png"}));
        std::fs::write(path, decoded(data["data"].as_str().unwrap_or_default())).expect("a picture");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Base64 without its checks: the browser's own.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').collect();
    let group = |four: &[u8]| {
        let bits =
            four.iter().fold(0u32, |bits, letter| (bits << 6) | u32::from(digit(*letter))) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    letters.chunks(4).flat_map(group).collect()
}

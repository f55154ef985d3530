//! `vfield booted`: a machine tells the network boot that it runs.
//!
//! The initramfs starts it beside the daemon, and it outlives the change of roots. It waits first:
//! a root that makes the kernel panic, or an init that reboots, does so within seconds. If nobody
//! can be told, the machine runs all the same.

use crate::args::BootedOptions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;
use vfield_console::failure::{BadValue, Failure, plain};
use vfield_core::doubling::Doubling;

/// The name of a process that a shutdown, and systemd's change of roots, leaves alone.
const SPARED: &str = "@vfield-booted";
/// Time for a connection, and for each read.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between attempts: the system sets its network up at this time.
const PAUSES: Doubling = Doubling { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// Attempts, in about four minutes.
const ATTEMPTS: u32 = 12;
/// The beginning of an answer, before the kind of its status.
const ANSWER: &[u8] = b"HTTP/1.1 ";

/// Whom to tell: `http://ADDR:PORT/PATH`, as `vfield netboot` writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    addr: SocketAddr,
    path: String,
}

impl FromStr for Report {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue::new(
                format!("{text:?} is nobody to tell"),
                "it looks like http://192.168.1.1:4480/booted/…".to_owned(),
            )
        };
        let rest = text.strip_prefix("http://").ok_or_else(bad)?;
        let (addr, path) = rest.split_at(rest.find('/').ok_or_else(bad)?);
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad());
        }
        Ok(Self { addr: addr.parse().map_err(|_| bad())?, path: path.to_owned() })
    }
}

/// Waits, and tells it.
pub fn run(options: &BootedOptions) -> Result<(), Failure> {
    let mut args = std::env::args_os();
    if args.next().is_none_or(|name| name != SPARED) {
        let error = Command::new("/proc/self/exe").arg0(SPARED).args(args).exec();
        return Err(Failure::failed(format!("starting again: {}", plain(&error))));
    }
    std::thread::sleep(options.after.0);
    let mut failures = 0;
    loop {
        let why = match tell(&options.report) {
            Ok(true) => return Ok(()),
            // It counts anew since its restart, or gave this machine another version.
            Ok(false) => "it does not ask about this boot".to_owned(),
            Err(error) if failures + 1 < ATTEMPTS => {
                tracing::debug!(%error, "telling that this machine runs");
                std::thread::sleep(PAUSES.pause(failures));
                failures += 1;
                continue;
            }
            Err(error) => plain(&error),
        };
        return Err(Failure::failed(format!("{} was not told that this machine runs: {why}", options.report.addr)));
    }
}

/// One attempt; false if the site refuses.
fn tell(report: &Report) -> std::io::Result<bool> {
    let Report { addr, path } = report;
    let mut stream = TcpStream::connect_timeout(addr, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut answer = [0; ANSWER.len() + 1];
    stream.read_exact(&mut answer)?;
    match answer.strip_prefix(ANSWER) {
        Some(b"2") => Ok(true),
        Some(b"4") => Ok(false),
        _ => Err(std::io::Error::other("no answer of a network boot")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_report_goes_to_an_address() {
        let report: Report = "http://192.168.1.1:4480/booted/52-54-00-00-00-01/7".parse().unwrap();
        assert_eq!(report.path, "/booted/52-54-00-00-00-01/7");
        for bad in [
            "",
            "http://",
            "http://a/b",
            "https://1.2.3.4:5/x",
            "http://1.2.3.4:5",
            "http://1.2.3.4:5/a b",
            "http://1.2.3.4/x",
        ] {
            assert!(bad.parse::<Report>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_answer_counts_and_a_refusal_does_not() {
        for (answer, told) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Some(true)),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Some(false)),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", None),
            ("SSH-2.0-x\r\n", None),
            ("", None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let report = Report { addr: listener.local_addr().unwrap(), path: "/x".to_owned() };
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 512];
                let length = stream.read(&mut asked).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&asked[..length]).into_owned()
            });
            assert_eq!(tell(&report).ok(), told, "{answer}");
            assert!(server.join().unwrap().starts_with("GET /x HTTP/1.1\r\n"));
        }
    }
}

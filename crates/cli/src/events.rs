//! `vfield events`: the last events of the running daemon, and of killed ones before it.

use crate::args::EventsOptions;
use std::time::{Duration, UNIX_EPOCH};
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::clean;
use vfield_control::client::Client;
use vfield_control::events::EventStatus;
use vfield_control::message::{Reply, Request};

/// Runs `vfield events`.
pub fn run(options: &EventsOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    let most = if options.last == 0 { usize::MAX } else { options.last };
    client.send(&Request::Events { after: 0, most, follow: options.follow })?;
    let mut pid = None;
    let mut reply = client.reply()?;
    loop {
        let Reply::Events { events } = reply else { return Err(client.unexpected()) };
        let lines: String = events.iter().map(|event| line(event, options.json, &mut pid)).collect();
        output::put(lines.as_bytes())?;
        if !options.follow {
            return Ok(());
        }
        // The daemon's end ends the list.
        reply = match client.reply() {
            Ok(reply) => reply,
            Err(_) => return Ok(()),
        };
    }
}

/// The line of an event. If the daemon before did not say that it ended, it was killed, and a line
/// of its own says so. `last` has the process of the event before, and whether it had ended.
fn line(event: &EventStatus, json: bool, last: &mut Option<(u32, bool)>) -> String {
    if json {
        return serde_json::to_string(event).expect("plain data becomes JSON") + "\n";
    }
    let killed = matches!(*last, Some((pid, false)) if event.event == "started" || pid != event.pid);
    let before = if killed { "                      the daemon was killed, or its machine\n" } else { "" };
    *last = Some((event.pid, event.event == "ended"));
    format!("{before}{}  {}\n", utc(event.at_ms), clean(&event.text))
}

/// The last moment that has a text: no year has five digits.
const LAST_MS: u64 = 253_402_300_799_999;

/// A moment in UTC, to the second: 2026-11-24 02:41:07Z.
fn utc(at_ms: u64) -> String {
    let moment = UNIX_EPOCH + Duration::from_millis(at_ms.min(LAST_MS));
    humantime::format_rfc3339_seconds(moment).to_string().replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_703_980_800, "2023-12-31 00:00:00Z"),
            (1_704_067_199, "2023-12-31 23:59:59Z"),
            (1_704_067_200, "2024-01-01 00:00:00Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(utc(seconds * 1000), text);
            assert_eq!(utc(seconds * 1000 + 999), text);
        }
        // What a file may say that nobody believes.
        for at_ms in [LAST_MS, LAST_MS + 1, u64::MAX] {
            assert_eq!(utc(at_ms), "9999-12-31 23:59:59Z");
        }
    }

    #[test]
    fn a_killed_daemon_is_told_from_one_that_ended() {
        let event = |pid, event: &str, text: &str| EventStatus {
            number: 1,
            at_ms: 0,
            pid,
            event: event.to_owned(),
            text: text.to_owned(),
        };
        let mut last = None;
        let mut told = |event: EventStatus| line(&event, false, &mut last);
        assert_eq!(told(event(7, "started", "vfield 0.1.0 started")), "1970-01-01 00:00:00Z  vfield 0.1.0 started\n");
        assert_eq!(told(event(7, "warning", "peer \x1b[2J lied")), "1970-01-01 00:00:00Z  peer ?[2J lied\n");
        assert!(told(event(8, "started", "")).starts_with("                      the daemon was killed"));
        told(event(8, "ended", "ended"));
        assert!(told(event(9, "started", "")).starts_with("1970"));
    }
}

//! `vfield events`: the last events of the running daemon, and of killed ones before it.

use crate::args::EventsOptions;
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

/// A moment in UTC, to the second: 2026-11-24 02:41:07Z.
fn utc(at_ms: u64) -> String {
    let (days, seconds) = (at_ms / 86_400_000, at_ms / 1000 % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Year, month and day of the Gregorian calendar, from days since 1970.
const fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the odd day is the last one; eras have 400 years.
    const ERA_DAYS: u64 = 146_097;
    let days = days + 719_468;
    let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + if month <= 2 { 1 } else { 0 };
    (year, month, day)
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
        }
        // What a file may say that nobody believes.
        assert!(utc(u64::MAX).ends_with('Z'));
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

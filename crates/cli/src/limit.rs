//! `vfield limit`: shows and changes the limits of the running daemon.

use crate::args::LimitCommandOptions;
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::clean;
use vfield_console::values::duration;
use vfield_console::values::size::human;
use vfield_control::client::Client;
use vfield_control::limits::{LimitStatus, LimitsStatus};
use vfield_control::message::{Reply, Request};

/// Runs `vfield limit`.
pub fn run(options: &LimitCommandOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    let [up, down] = [&options.up, &options.down].map(|limit| limit.as_ref().map(ToString::to_string));
    client.send(&Request::Limit { up, down })?;
    let Reply::Limits { limits } = client.reply()? else { return Err(client.unexpected()) };
    if options.json {
        let text = serde_json::to_string_pretty(&limits).expect("plain data becomes JSON") + "\n";
        return output::put(text.as_bytes());
    }
    output::put(format!("up    {}\ndown  {}\n", of(&limits.up), of(&limits.down)).as_bytes())
}

/// Both limits in one line.
pub fn text(limits: &LimitsStatus) -> String {
    format!("up {}; down {}", of(&limits.up), of(&limits.down))
}

/// The limit of one direction: the rate in force, the setting, and how long it held bytes back.
fn of(LimitStatus { setting, bytes_per_s, held_s }: &LimitStatus) -> String {
    let now = bytes_per_s.map_or_else(|| "none".to_owned(), |rate| format!("{}/s", human(rate)));
    let set = if setting.contains('=') { format!(" (of {})", clean(setting)) } else { String::new() };
    let held = if *held_s > 0.0 { format!(", held bytes for {}", duration::human(*held_s)) } else { String::new() };
    format!("{now}{set}{held}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_is_told_apart() {
        let up = LimitStatus { setting: "none,08:00-18:00=50M".into(), bytes_per_s: Some(50 << 20), held_s: 61.0 };
        let down = LimitStatus { setting: "none".into(), ..LimitStatus::default() };
        assert_eq!(
            text(&LimitsStatus { up, down }),
            "up 50.0 MiB/s (of none,08:00-18:00=50M), held bytes for 1m 1s; down none"
        );
    }
}

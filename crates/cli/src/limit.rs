//! `vfield limit`: shows and changes the limits of the running daemon; and the limits of a start.

use crate::args::{LimitCommandOptions, LimitOptions};
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::clean;
use vfield_console::values::duration;
use vfield_console::values::size::human;
use vfield_control::client::Client;
use vfield_control::limits::LimitStatus;
use vfield_control::message::{Reply, Request};
use vfield_daemon::limits::{Both, Settings};
use vfield_daemon::values::image_limit::ImageLimit;

/// Runs `vfield limit`.
pub fn run(options: &LimitCommandOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    let [up, down] = [&options.up, &options.down].map(|limit| limit.as_ref().map(ToString::to_string));
    client.send(&match options.image.clone() {
        Some(image) => Request::LimitImage { image, up, down },
        None => Request::Limit { up, down },
    })?;
    let Reply::Limits { limits } = client.reply()? else { return Err(client.unexpected()) };
    if options.json {
        let text = serde_json::to_string_pretty(&limits).expect("plain data becomes JSON") + "\n";
        return output::put(text.as_bytes());
    }
    let images = limits.images.iter().map(|limits| {
        let absent = if limits.is_here { "" } else { "; no image of this node has that name" };
        format!("{}  {}{absent}\n", clean(&limits.image), text(&limits.up, &limits.down))
    });
    let images: String = images.collect();
    output::put(format!("up    {}\ndown  {}\n{images}", of(&limits.up), of(&limits.down)).as_bytes())
}

/// The limits of the options; of an image each direction once.
pub fn settings(options: LimitOptions) -> Result<Settings, Failure> {
    let LimitOptions { limit_up, limit_down, image_limit_up, image_limit_down } = options;
    let node = Both { up: limit_up.unwrap_or_default(), down: limit_down.unwrap_or_default() };
    let mut settings = Settings { node, images: Vec::new() };
    let ups = image_limit_up.into_iter().map(|limit| ("--image-limit-up", limit));
    let downs = image_limit_down.into_iter().map(|limit| ("--image-limit-down", limit));
    let mut seen: Vec<(&str, String)> = Vec::new();
    for (option, ImageLimit { image, limit }) in ups.chain(downs) {
        if seen.iter().any(|(of, name)| *of == option && *name == image) {
            let failure = Failure::usage(format!("{option} is given twice for {image:?}"));
            return Err(failure.hint("one limit may have other rates at times of the day: 500M,08:00-18:00=50M"));
        }
        let both = settings.of_image(&image);
        *(if option == "--image-limit-up" { &mut both.up } else { &mut both.down }) = limit;
        seen.push((option, image));
    }
    Ok(settings)
}

/// Both limits in one line.
pub fn text(up: &LimitStatus, down: &LimitStatus) -> String {
    format!("up {}; down {}", of(up), of(down))
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
        assert_eq!(text(&up, &down), "up 50.0 MiB/s (of none,08:00-18:00=50M), held bytes for 1m 1s; down none");
    }
}

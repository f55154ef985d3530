//! `vfield overlay`: shows, saves or drops the changes of an image of the running daemon.

use crate::args::{OverlayAction, OverlayOptions};
use crate::status::overlay_text;
use std::io::ErrorKind;
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_console::text::clean;
use vfield_console::values::size::human;
use vfield_control::client::Client;
use vfield_control::message::{OverlayStatus, Reply, Request};
use vfield_overlay::{ReplaceError, Replacement};

/// Runs `vfield overlay`.
pub fn run(options: &OverlayOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    match options.action.as_ref().unwrap_or(&OverlayAction::Status { json: false }) {
        OverlayAction::Status { json } => output::put(shown(&client.status()?.overlays, *json).as_bytes()),
        OverlayAction::Save { file, image } => {
            let replacement = Replacement::begin(file).map_err(|error| explain(&error))?;
            client.send_with(&Request::OverlaySave { image: image.clone() }, replacement.file())?;
            let Reply::Saved { bytes } = client.reply()? else { return Err(client.unexpected()) };
            replacement.complete().map_err(|error| explain(&error))?;
            output::put(format!("saved {} in {}\n", human(bytes), file.display()).as_bytes())
        }
        OverlayAction::Reset { image, force } => {
            client.send(&Request::OverlayReset { image: image.clone(), force: *force })?;
            match client.reply()? {
                Reply::Done => Ok(()),
                _ => Err(client.unexpected()),
            }
        }
    }
}

fn explain(error: &ReplaceError) -> Failure {
    match error {
        ReplaceError::System { path, source } => {
            let hint = match source.kind() {
                ErrorKind::NotFound => "its directory must exist",
                ErrorKind::StorageFull => "the older file is unchanged; save to another file system",
                _ => "choose a directory of yours",
            };
            Failure::failed(format!("{}: {}", path.display(), plain(source))).hint(hint)
        }
        ReplaceError::Foreign(_) => {
            Failure::failed(error.to_string()).hint("it was left as it is; choose another file")
        }
    }
}

fn shown(overlays: &[OverlayStatus], json: bool) -> String {
    if json {
        let mut text = serde_json::to_string_pretty(overlays).expect("plain data becomes JSON");
        text.push('\n');
        return text;
    }
    if overlays.is_empty() {
        return "no overlay: the images are read-only\n".to_owned();
    }
    overlays.iter().map(|overlay| format!("{}: {}\n", clean(&overlay.image), overlay_text(overlay))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_image() {
        let overlay = OverlayStatus {
            image: "viver".to_owned(),
            id: "ab".repeat(32),
            place: "ram".to_owned(),
            held_bytes: 12 << 20,
            zero_bytes: 0,
            max_bytes: 1 << 30,
            refused_bytes: 0,
        };
        let zeros =
            OverlayStatus { image: "da\x1bta".to_owned(), place: "/d".to_owned(), zero_bytes: 4096, ..overlay.clone() };
        assert_eq!(
            shown(&[overlay, zeros], false),
            "viver: 12.0 MiB of 1.0 GiB, in memory\nda?ta: 12.0 MiB of 1.0 GiB, in /d, and 4.0 KiB of zeros\n"
        );
        assert_eq!(shown(&[], false), "no overlay: the images are read-only\n");
        assert_eq!(shown(&[], true), "[]\n");
    }
}

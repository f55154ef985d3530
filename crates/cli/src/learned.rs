//! `vfield learned`: what machines read first of an image.

use crate::args::LearnedOptions;
use std::fmt::Write as _;
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::clean;
use vfield_console::values::size;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request};

/// Runs `vfield learned`.
pub fn run(options: &LearnedOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    client.send(&Request::Learned { image: options.image.clone() })?;
    let Reply::Learned { image, image_bytes, machines, runs } = client.reply()? else {
        return Err(client.unexpected());
    };
    output::put(text(&image, image_bytes, machines, &runs).as_bytes())
}

fn text(image: &str, image_bytes: u64, machines: u64, runs: &[(u64, u64)]) -> String {
    let mut out = String::new();
    if runs.is_empty() {
        let _ = writeln!(out, "# {}: nothing learned yet", clean(image));
        return out;
    }
    let bytes: u64 = runs.iter().map(|(_, length)| length).sum();
    let share = bytes as f64 * 100.0 / image_bytes.max(1) as f64;
    let who = if machines == 1 { "1 machine reads".to_owned() } else { format!("{machines} machines read") };
    let _ = writeln!(out, "# {}: what {who} first: {}, {share:.1} % of it", clean(image), size::human(bytes));
    let _ = writeln!(out, "# offset length, in bytes");
    for (offset, length) in runs {
        let _ = writeln!(out, "{offset} {length}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_told_in_lines() {
        let said = text("a\u{1b}.img", 1 << 20, 2, &[(65536, 131_072), (0, 65536)]);
        assert_eq!(
            said,
            "# a?.img: what 2 machines read first: 192.0 KiB, 18.8 % of it\n\
             # offset length, in bytes\n65536 131072\n0 65536\n"
        );
        assert_eq!(text("a.img", 0, 1, &[]), "# a.img: nothing learned yet\n");
    }
}

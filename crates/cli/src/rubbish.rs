//! `vfield gc` and `vfield pin`: images that nobody needs, and those that stay all the same.

use crate::args::{GcOptions, PinOptions};
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::{aligned, clean};
use vfield_console::values::duration;
use vfield_console::values::size::human;
use vfield_control::client::{self, Client};
use vfield_control::message::{Freed, Reply, Request};
use vfield_node::status::{ImageStatus, RubbishStatus};

/// Runs `vfield gc`.
pub fn collect(options: &GcOptions) -> Result<(), Failure> {
    let control = options.control.control.as_deref();
    if options.dry_run {
        return output::put(table(&client::status(control)?.node.images).as_bytes());
    }
    let mut client = Client::connect(control)?;
    client.send(&Request::Collect)?;
    let Reply::Collected { freed } = client.reply()? else { return Err(client.unexpected()) };
    let gone = freed.iter().map(|Freed { image, id, bytes }| {
        let id = clean(id.get(..12).unwrap_or(id));
        format!("dropped {} (id {id}), {} freed\n", clean(image), human(*bytes))
    });
    let status = client::status(control)?;
    let left = status.node.images.iter().filter_map(|image| {
        let rubbish = image.rubbish.as_ref()?;
        Some(format!("{} stays: {}\n", clean(&image.name), stays(rubbish)))
    });
    let said: String = gone.chain(left).collect();
    output::put(if said.is_empty() { "no rubbish\n" } else { &said }.as_bytes())
}

/// Who needs each image, and what becomes of it.
fn table(images: &[ImageStatus]) -> String {
    if images.is_empty() {
        return "no images\n".to_owned();
    }
    let mut table = vec![["IMAGE", "ID", "HELD", "NEEDED", "RUBBISH"].map(str::to_owned).to_vec()];
    for image in images {
        table.push(vec![
            clean(&image.name),
            clean(image.id.get(..12).unwrap_or(&image.id)),
            human(image.held_bytes),
            clean(&image.needed),
            image.rubbish.as_ref().map_or_else(String::new, stays),
        ]);
    }
    aligned(&table, &[2])
}

/// What becomes of rubbish.
pub fn stays(rubbish: &RubbishStatus) -> String {
    match rubbish.stays.as_str() {
        "" => "goes now".to_owned(),
        "grace" | "settling" => format!("goes in {}", duration::human(rubbish.for_s.ceil())),
        "minority" => "this node sees at most half of its field".to_owned(),
        "last-copy" => format!("the last copy of {}, which another node may need", human(rubbish.lost_bytes)),
        other => clean(other),
    }
}

/// Runs `vfield pin`.
pub fn pin(options: &PinOptions) -> Result<(), Failure> {
    let mut client = Client::connect(options.control.control.as_deref())?;
    client.send(&Request::Pin { image: options.image.clone(), release: options.release })?;
    match client.reply()? {
        Reply::Done => Ok(()),
        _ => Err(client.unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_has_its_need_or_its_end() {
        let rubbish = |stays: &str, for_s, lost_bytes| {
            Some(RubbishStatus { since_s: 1.0, stays: stays.to_owned(), for_s, lost_bytes })
        };
        let image = |name: &str, needed: &str, rubbish| ImageStatus {
            name: name.to_owned(),
            id: "a00addb859dcffff".to_owned(),
            held_bytes: 3 << 20,
            needed: needed.to_owned(),
            rubbish,
            ..ImageStatus::default()
        };
        let images = [
            image("prod-2", "tag prod", None),
            image("prod-1", "", rubbish("grace", 340.2, 0)),
            image("prod-0", "", rubbish("last-copy", 0.0, 65536)),
            image("test-0", "", rubbish("minority", 0.0, 0)),
            image("test-1", "", rubbish("", 0.0, 0)),
        ];
        assert_eq!(
            table(&images),
            "IMAGE   ID               HELD  NEEDED    RUBBISH\n\
             prod-2  a00addb859dc  3.0 MiB  tag prod\n\
             prod-1  a00addb859dc  3.0 MiB            goes in 5m 41s\n\
             prod-0  a00addb859dc  3.0 MiB            the last copy of 64.0 KiB, which another node may need\n\
             test-0  a00addb859dc  3.0 MiB            this node sees at most half of its field\n\
             test-1  a00addb859dc  3.0 MiB            goes now\n"
        );
        assert_eq!(table(&[]), "no images\n");
    }
}

//! The image of each machine, and the members that it joins through.

use super::pinned::Pinned;
use crate::args::NetbootOptions;
use crate::values::machine::{Choice, Mac, Tag};
use std::collections::BTreeMap;
use vfield_console::failure::Failure;
use vfield_control::message::DaemonStatus;
use vfield_core::image::ImageId;

/// Maximum members for a machine: one that answers is enough, and a kernel command line has 2048
/// bytes.
const MEMBERS_MAX: usize = 8;
/// The word that names the images that a machine joins besides its root.
const ALSO: &str = "vfield.also=";

/// The images that machines boot, by machine and by tag.
#[derive(Debug)]
pub struct Menu {
    image: Pinned,
    tags: BTreeMap<String, Pinned>,
    machines: BTreeMap<Mac, Pinned>,
    append: String,
}

impl Menu {
    /// What `options` say, with names that the daemon of `status` knows.
    pub fn new(options: &NetbootOptions, status: &DaemonStatus) -> Result<Self, Failure> {
        let has = || {
            let images: Vec<&str> = status.node.images.iter().map(|image| image.name.as_str()).collect();
            format!("the daemon has: {}", images.join(", "))
        };
        let find = |image: &str| {
            Pinned::find(image, status).ok_or_else(|| {
                let failure = Failure::usage(format!("there is no image and no tag {image:?}"));
                failure.hint(format!("{}; give a tag with --tag NAME=IMAGE", has()))
            })
        };
        let tags = options.tag.iter().map(|Choice { key: Tag(tag), image }| Ok((tag.clone(), find(image)?)));
        let tags: BTreeMap<String, Pinned> = tags.collect::<Result<_, Failure>>()?;
        let resolve = |name: &str| tags.get(name).cloned().map_or_else(|| find(name), Ok);
        let machines = options.machine.iter().map(|Choice { key, image }| Ok((*key, resolve(image)?)));
        let words = options.append.as_deref().unwrap_or_default().split(' ').map(|word| pin_also(word, status));
        let append = words.collect::<Result<Vec<_>, String>>().map_err(|name| {
            let failure = Failure::usage(format!("--append: {ALSO}{name}: the daemon has no such image"));
            failure.hint(format!("{}; give others by their ids", has()))
        })?;
        let image = resolve(&options.image)?;
        Ok(Self { image, machines: machines.collect::<Result<_, Failure>>()?, append: append.join(" "), tags })
    }

    /// The image of a machine; the one for all if nothing was said of it.
    pub fn of_machine(&self, mac: Mac) -> &Pinned {
        self.machines.get(&mac).unwrap_or(&self.image)
    }

    /// The image of a tag.
    pub fn of_tag(&self, tag: &str) -> Option<&Pinned> {
        self.tags.get(tag)
    }

    /// The kernel's command line for a machine that gets `image`, and joins through those that
    /// `status` knows now.
    pub fn command_line(&self, image: &Pinned, status: &DaemonStatus) -> Result<String, Failure> {
        image.check(status)?;
        let live = status.node.nodes.iter().filter(|node| node.state != "unreachable" && node.addr != status.node.addr);
        let members: Vec<&str> = std::iter::once(status.node.addr.as_str())
            .chain(live.map(|node| node.addr.as_str()))
            .take(MEMBERS_MAX)
            .collect();
        let append = if self.append.is_empty() { String::new() } else { format!(" {}", self.append) };
        Ok(format!("ip=dhcp root=vfield:{}@{}{append}", image.id, members.join(",")))
    }
}

/// A word for the kernel, with the names of images to be joined as ids; the name that the daemon
/// does not know.
fn pin_also(word: &str, status: &DaemonStatus) -> Result<String, String> {
    let Some(images) = word.strip_prefix(ALSO) else { return Ok(word.to_owned()) };
    let ids = images.split(',').map(|image| match Pinned::find(image, status) {
        Some(pinned) => Ok(pinned.id),
        None if image.parse::<ImageId>().is_ok() => Ok(image.to_owned()),
        None => Err(image.to_owned()),
    });
    Ok(format!("{ALSO}{}", ids.collect::<Result<Vec<_>, String>>()?.join(",")))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::Parser as _;
    use vfield_node::status::{ImageStatus, NodeStatus};

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        options: NetbootOptions,
    }

    fn id(name: &str) -> String {
        format!("{name:f<64}").replace(|digit: char| !digit.is_ascii_hexdigit(), "0")
    }

    fn status() -> DaemonStatus {
        let mut status = DaemonStatus::default();
        let image = |name: &str| ImageStatus { name: name.to_owned(), id: id(name), ..ImageStatus::default() };
        let node = |addr: &str, state: &str| NodeStatus {
            addr: addr.to_owned(),
            state: state.to_owned(),
            ..NodeStatus::default()
        };
        status.node.addr = "192.168.1.1:4440".to_owned();
        status.node.images = ["root", "exam"].map(image).into();
        status.node.nodes = vec![
            node("192.168.1.1:4440", "self"),
            node("192.168.1.2:4440", "alive"),
            node("192.168.1.3:4440", "unreachable"),
        ];
        status
    }

    fn made(words: &str) -> Result<Menu, Failure> {
        Menu::new(&Typed::parse_from(format!("netboot {words}").split(' ')).options, &status())
    }

    /// One that a site can have.
    pub fn menu() -> Menu {
        made("root").unwrap()
    }

    #[test]
    fn a_machine_gets_its_own_image_and_all_others_the_usual_one() {
        let menu = made("stable --tag stable=root --tag test=exam --machine 52:54:00:00:00:01=test").unwrap();
        assert_eq!(menu.of_machine("52-54-00-00-00-01".parse().unwrap()).name, "exam");
        assert_eq!(menu.of_machine("52-54-00-00-00-02".parse().unwrap()).name, "root");
        assert_eq!((menu.of_tag("test").map(|image| &image.name[..]), menu.of_tag("none")), (Some("exam"), None));
    }

    #[test]
    fn machines_are_told_ids() {
        let (root, exam) = (id("root"), id("exam"));
        let unknown = "0123456789abcdef".repeat(4);
        let options = format!("vfield.store=1G vfield.also=exam,{unknown},{root} quiet");
        let typed = Typed::parse_from(["netboot", "root", "--append", &options]);
        let menu = Menu::new(&typed.options, &status()).unwrap();
        let line = menu.command_line(menu.of_machine("52:54:00:00:00:01".parse().unwrap()), &status()).unwrap();
        assert!(line.contains(&format!(" root=vfield:{root}@192.168.1.1:4440,")), "{line}");
        assert!(line.ends_with(&format!(" vfield.store=1G vfield.also={exam},{unknown},{root} quiet")), "{line}");
        assert_eq!(made(&id("exam")).unwrap().image.name, "exam");
        let refused = made("root --append vfield.also=exam,none").unwrap_err();
        assert_eq!(refused.fact(), "--append: vfield.also=none: the daemon has no such image");
    }

    #[test]
    fn an_image_that_took_the_name_later_is_not_handed_out() {
        let (menu, mut status) = (made("root").unwrap(), status());
        status.node.images[0].id = "ab".repeat(32);
        let refused = menu.command_line(&menu.image, &status).unwrap_err();
        let fact = format!("the daemon does not have image root with the id {} any more", id("root"));
        assert_eq!(refused.fact(), fact);
    }

    #[test]
    fn machines_join_through_those_who_are_there() {
        let menu = made("root --append quiet").unwrap();
        assert_eq!(
            menu.command_line(&menu.image, &status()).unwrap(),
            format!("ip=dhcp root=vfield:{}@192.168.1.1:4440,192.168.1.2:4440 quiet", id("root"))
        );
    }

    #[test]
    fn what_does_not_exist_is_refused_at_once() {
        for words in ["none", "root --tag x=none", "root --machine 52:54:00:00:00:01=none"] {
            assert_eq!(made(words).unwrap_err().fact(), "there is no image and no tag \"none\"", "{words}");
        }
    }
}

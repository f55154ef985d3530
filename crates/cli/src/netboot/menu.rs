//! Which machine gets which image, and through whom it joins.

use crate::args::NetbootOptions;
use crate::control::message::DaemonStatus;
use crate::failure::Failure;
use crate::values::machine::{Choice, Mac, Tag};
use std::collections::BTreeMap;

/// A machine is told so many members at most: one that answers is enough, and a command line has 2048 bytes.
const MEMBERS_MAX: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct Menu {
    image: String,
    tags: BTreeMap<String, String>,
    machines: BTreeMap<Mac, String>,
    append: String,
}

impl Menu {
    /// What `options` say, with names that the daemon of `status` knows.
    pub fn new(options: &NetbootOptions, status: &DaemonStatus) -> Result<Self, Failure> {
        let images: Vec<&str> = status.node.images.iter().map(|image| image.name.as_str()).collect();
        let hint = || format!("the daemon has: {}; give a tag with --tag NAME=IMAGE", images.join(", "));
        let tags: BTreeMap<String, String> =
            options.tag.iter().map(|Choice { key: Tag(tag), image }| (tag.clone(), image.clone())).collect();
        let resolve = |name: &str| {
            let image = tags.get(name).map_or(name, String::as_str);
            match images.iter().find(|known| **known == image) {
                Some(known) => Ok((*known).to_owned()),
                None => Err(Failure::usage(format!("there is no image and no tag {image:?}")).hint(hint())),
            }
        };
        tags.keys().try_for_each(|tag| resolve(tag).map(drop))?;
        let machines = options.machine.iter().map(|Choice { key, image }| Ok((*key, resolve(image)?)));
        let image = resolve(&options.image)?;
        Ok(Self {
            image,
            machines: machines.collect::<Result<_, Failure>>()?,
            append: options.append.clone().unwrap_or_default(),
            tags,
        })
    }

    /// The image of a machine; the one for all if nothing was said of it.
    pub fn of_machine(&self, mac: Mac) -> &str {
        self.machines.get(&mac).unwrap_or(&self.image)
    }

    /// The image of a tag.
    pub fn of_tag(&self, tag: &str) -> Option<&str> {
        self.tags.get(tag).map(String::as_str)
    }

    /// The kernel's command line for a machine that gets `image`, and joins through those that `status` knows now.
    pub fn command_line(&self, image: &str, status: &DaemonStatus) -> String {
        let live = status.node.nodes.iter().filter(|node| node.state != "unreachable" && node.addr != status.node.addr);
        let members: Vec<&str> = std::iter::once(status.node.addr.as_str())
            .chain(live.map(|node| node.addr.as_str()))
            .take(MEMBERS_MAX)
            .collect();
        let append = if self.append.is_empty() { String::new() } else { format!(" {}", self.append) };
        format!("ip=dhcp root=vfield:{image}@{}{append}", members.join(","))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;
    use vfield_node::status::{ImageStatus, NodeStatus};

    fn status() -> DaemonStatus {
        let mut status = DaemonStatus::default();
        let image = |name: &str| ImageStatus { name: name.to_owned(), ..ImageStatus::default() };
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
        let cli = Cli::parse_from(format!("vfield netboot {words}").split(' '));
        let Command::Netboot(options) = cli.command else { panic!("netboot") };
        Menu::new(&options, &status())
    }

    /// One that a site can have.
    pub fn menu() -> Menu {
        made("root").unwrap()
    }

    #[test]
    fn a_machine_gets_its_own_image_and_all_others_the_usual_one() {
        let menu = made("stable --tag stable=root --tag test=exam --machine 52:54:00:00:00:01=test").unwrap();
        assert_eq!(menu.of_machine("52-54-00-00-00-01".parse().unwrap()), "exam");
        assert_eq!(menu.of_machine("52-54-00-00-00-02".parse().unwrap()), "root");
        assert_eq!((menu.of_tag("test"), menu.of_tag("none")), (Some("exam"), None));
    }

    #[test]
    fn machines_join_through_those_who_are_there() {
        assert_eq!(
            made("root --append quiet").unwrap().command_line("root", &status()),
            "ip=dhcp root=vfield:root@192.168.1.1:4440,192.168.1.2:4440 quiet"
        );
    }

    #[test]
    fn what_does_not_exist_is_refused_at_once() {
        for words in ["none", "root --tag x=none", "root --machine 52:54:00:00:00:01=none"] {
            assert_eq!(made(words).unwrap_err().fact(), "there is no image and no tag \"none\"", "{words}");
        }
    }
}

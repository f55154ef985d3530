//! The image of each machine, and the members that it joins through.

use super::followed;
use super::pinned::Pinned;
use crate::args::NetbootOptions;
use crate::values::machine::{Choice, Mac, Tag};
use std::collections::BTreeMap;
use vfield_console::failure::Failure;
use vfield_control::message::DaemonStatus;
use vfield_core::image::ImageId;
use vfield_core::tag::{KEEP_MAX, SERIAL_MAX, TagName};

/// Maximum members for a machine: one that answers is enough, and a kernel command line has 2048
/// bytes.
const MEMBERS_MAX: usize = 8;
/// Longest command line in bytes. Kernels have room for 2048 with the zero behind it. They cut off
/// the rest without a word, and that could be the key to trust. iPXE adds `initrd=initrd `.
const COMMAND_LINE_BYTES_MAX: usize = 2047 - "initrd=initrd ".len();
/// The word that says whom a machine tells that it runs.
const BOOTED: &str = "vfield.booted=";
/// Longest URL in it: an IPv6 address, a network card, a serial.
const BOOTED_BYTES_MAX: usize = 106;
/// The word with the serials of its tag that failed on the machine.
const FAILED: &str = "vfield.failed=";
/// The word that names the images that a machine joins besides its root.
const ALSO: &str = "vfield.also=";
/// The words about a machine's secrets, and what each is about.
const SECRETS: [(&str, &str); 2] = [("vfield.key=", "the field's key"), ("vfield.identity=", "an identity")];
/// All that may be told of a secret.
const BY_CREDENTIAL: &str = "credential";

/// What a machine boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// Always this image.
    Image(Pinned),
    /// What the field's tag names at that moment.
    Tag(TagName),
}

/// What machines boot, by machine and by tag.
#[derive(Debug)]
pub struct Menu {
    boot: Boot,
    tags: BTreeMap<String, Boot>,
    machines: BTreeMap<Mac, Boot>,
    append: String,
}

impl Menu {
    /// What `options` say, with names that the daemon of `status` knows.
    pub fn new(options: &NetbootOptions, status: &DaemonStatus) -> Result<Self, Failure> {
        let has = || {
            let images: Vec<&str> = status.node.images.iter().map(|image| image.name.as_str()).collect();
            format!("the daemon has: {}", images.join(", "))
        };
        let find = |name: &str| match Pinned::find(name, status) {
            Some(pinned) => Ok(Boot::Image(pinned.bootable()?)),
            None => of_field(name, status)?.ok_or_else(|| {
                let failure = Failure::usage(format!("there is no image and no tag {name:?}"));
                failure.hint(format!("{}; give a tag with --tag NAME=IMAGE, or publish one", has()))
            }),
        };
        let tags = options.tag.iter().map(|Choice { key: Tag(tag), image }| Ok((tag.clone(), find(image)?)));
        let tags: BTreeMap<String, Boot> = tags.collect::<Result<_, Failure>>()?;
        let resolve = |name: &str| tags.get(name).cloned().map_or_else(|| find(name), Ok);
        let machines = options.machine.iter().map(|Choice { key, image }| Ok((*key, resolve(image)?)));
        let append = options.append.as_deref().unwrap_or_default();
        check_told(append)?;
        let words: Result<Vec<String>, Failure> = append.split(' ').map(|word| pin_also(word, status, has)).collect();
        let (boot, append) = (resolve(&options.image)?, words?.join(" "));
        let menu = Self { boot, machines: machines.collect::<Result<_, Failure>>()?, append, tags };
        for boot in menu.machines.values().chain(menu.tags.values()).chain([&menu.boot]) {
            match boot {
                Boot::Image(image) => menu.command_line(image, None, status)?,
                Boot::Tag(name) => {
                    let image = followed::pinned(name, &followed::versions(name, Mac::default(), status)?[0]);
                    let failed = vec![SERIAL_MAX; usize::from(KEEP_MAX) - 1];
                    menu.command_line(&image, Some((&"x".repeat(BOOTED_BYTES_MAX), &failed)), status)?
                }
            };
        }
        Ok(menu)
    }

    /// What a machine boots: what all do, if nothing was said of it.
    pub fn of_machine(&self, mac: Mac) -> &Boot {
        self.machines.get(&mac).unwrap_or(&self.boot)
    }

    /// The boot under a tag of this menu.
    pub fn of_tag(&self, tag: &str) -> Option<&Boot> {
        self.tags.get(tag)
    }

    /// The kernel's command line for a machine that gets `image`, and joins through those that
    /// `status` knows now. If it follows a tag, it tells the URL of `booted` that it runs, and is
    /// told the serials that failed on it.
    pub fn command_line(
        &self,
        image: &Pinned,
        booted: Option<(&str, &[u64])>,
        status: &DaemonStatus,
    ) -> Result<String, Failure> {
        image.check(status)?;
        let live = status.node.nodes.iter().filter(|node| node.state != "unreachable" && node.addr != status.node.addr);
        let members: Vec<&str> = std::iter::once(status.node.addr.as_str())
            .chain(live.map(|node| node.addr.as_str()))
            .take(MEMBERS_MAX)
            .collect();
        let append = if self.append.is_empty() { String::new() } else { format!(" {}", self.append) };
        let booted = booted.map_or_else(String::new, |(url, failed)| {
            let failed: Vec<String> = failed.iter().map(u64::to_string).collect();
            let failed = if failed.is_empty() { String::new() } else { format!(" {FAILED}{}", failed.join(",")) };
            format!(" {BOOTED}{url}{failed}")
        });
        let line = format!("ip=dhcp root=vfield:{}@{}{booted}{append}", image.word(), members.join(","));
        if line.len() > COMMAND_LINE_BYTES_MAX {
            let fact = format!("the kernel's command line would have {} bytes, and kernels read 2047", line.len());
            return Err(Failure::failed(fact).hint("leave words out of --append"));
        }
        Ok(line)
    }
}

/// The tag of the field that has this name, if there is one.
fn of_field(name: &str, status: &DaemonStatus) -> Result<Option<Boot>, Failure> {
    let Ok(name) = name.parse::<TagName>() else { return Ok(None) };
    Ok(followed::find(&name, status)?.map(|_| Boot::Tag(name)))
}

/// Refuses what machines must not be told.
fn check_told(append: &str) -> Result<(), Failure> {
    if append.contains(char::is_control) {
        return Err(Failure::usage("--append: a control character").hint("separate the words by spaces"));
    }
    // Not repeated: what it has may be the secret.
    let told = |secret: &str| {
        let mut values = append.split(' ').filter_map(|word| word.strip_prefix(secret));
        values.any(|value| value != BY_CREDENTIAL)
    };
    match SECRETS.into_iter().find(|(secret, _)| told(secret)) {
        Some((word, what)) => {
            let failure = Failure::usage(format!("--append: {word} would tell {what} to the whole network"));
            Err(failure.hint(format!("give machines {what} as a credential, and write {word}{BY_CREDENTIAL}")))
        }
        None => Ok(()),
    }
}

/// A word for the kernel, with the images to be joined pinned to their ids.
fn pin_also(word: &str, status: &DaemonStatus, has: impl Fn() -> String) -> Result<String, Failure> {
    let Some(images) = word.strip_prefix(ALSO) else { return Ok(word.to_owned()) };
    let pinned = images.split(',').map(|image| match Pinned::find(image, status) {
        Some(pinned) => Ok(pinned.bootable()?.word()),
        // An image of the field that this daemon does not have.
        None if image.parse::<ImageId>().is_ok() => Ok(image.to_owned()),
        None => {
            let failure = Failure::usage(format!("--append: {ALSO}{image}: the daemon has no such image"));
            Err(failure.hint(format!("{}; give others by their ids", has())))
        }
    });
    Ok(format!("{ALSO}{}", pinned.collect::<Result<Vec<_>, Failure>>()?.join(",")))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::Parser as _;
    use vfield_node::status::{ImageStatus, NodeStatus, TagStatus, VersionStatus};

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
        status.node.images = ["root", "exam", "my root", "-x", "a${b}", "a,b", "a\"b"].map(image).into();
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

    fn image(boot: &Boot) -> &Pinned {
        let Boot::Image(image) = boot else { panic!("{boot:?} is no image") };
        image
    }

    /// One that a site can have.
    pub fn menu() -> Menu {
        made("root").unwrap()
    }

    #[test]
    fn a_machine_gets_its_own_image_and_all_others_the_usual_one() {
        let menu = made("stable --tag stable=root --tag test=exam --machine 52:54:00:00:00:01=test").unwrap();
        assert_eq!(image(menu.of_machine("52-54-00-00-00-01".parse().unwrap())).name, "exam");
        assert_eq!(image(menu.of_machine("52-54-00-00-00-02".parse().unwrap())).name, "root");
        assert_eq!((menu.of_tag("test").map(|boot| &image(boot).name[..]), menu.of_tag("none")), (Some("exam"), None));
    }

    #[test]
    fn machines_are_told_names_that_are_pinned_to_ids() {
        let (root, exam) = (id("root"), id("exam"));
        let unknown = "0123456789abcdef".repeat(4);
        let options = format!("vfield.store=1G vfield.also=exam,{unknown},{root} quiet");
        let typed = Typed::parse_from(["netboot", "root", "--append", &options]);
        let menu = Menu::new(&typed.options, &status()).unwrap();
        let line = menu.command_line(image(&menu.boot), None, &status()).unwrap();
        assert!(line.contains(&format!(" root=vfield:root={root}@192.168.1.1:4440,")), "{line}");
        let words = format!(" vfield.store=1G vfield.also=exam={exam},{unknown},root={root} quiet");
        assert!(line.ends_with(&words), "{line}");
        assert_eq!(image(&made(&exam).unwrap().boot).name, "exam");
        let refused = made("root --append vfield.also=exam,none").unwrap_err();
        assert_eq!(refused.fact(), "--append: vfield.also=none: the daemon has no such image");
    }

    #[test]
    fn a_name_that_does_not_fit_on_a_command_line_is_refused() {
        for name in ["my root", "-x", "a${b}", "a,b", "a\"b"] {
            let fact = format!("no machine can boot image {name:?}: its name does not fit on a kernel's command line");
            for words in [vec![name], vec!["root", "--machine", &format!("52:54:00:00:00:01={name}")]] {
                let typed = Typed::parse_from(["netboot"].into_iter().chain(["--tag=t=root"]).chain(match words[0] {
                    "-x" => vec!["--", "-x"],
                    _ => words,
                }));
                assert_eq!(Menu::new(&typed.options, &status()).unwrap_err().fact(), fact);
            }
        }
        // Unless it gets another one here.
        let pin = format!("boot={}", &id("my root")[..12]);
        let menu = made(&format!("{pin} --append vfield.also={pin}")).unwrap();
        let line = menu.command_line(image(&menu.boot), None, &status()).unwrap();
        let word = format!("boot={}", id("my root"));
        assert!(
            line.contains(&format!("root=vfield:{word}@")) && line.ends_with(&format!("vfield.also={word}")),
            "{line}"
        );
    }

    #[test]
    fn what_would_give_the_key_away_or_be_cut_off_is_refused() {
        let appended = |words: &str| {
            let typed = Typed::parse_from(["netboot", "root", "--append", words]);
            Menu::new(&typed.options, &status()).map_err(|failure| failure.fact().to_owned())
        };
        assert!(appended("vfield.key=credential quiet").is_ok());
        let refused = appended("quiet vfield.key=c0ffee").unwrap_err();
        assert_eq!(refused, "--append: vfield.key= would tell the field's key to the whole network");
        assert!(appended("vfield.identity=credential").is_ok());
        let refused = appended("vfield.identity=c0ffee").unwrap_err();
        assert_eq!(refused, "--append: vfield.identity= would tell an identity to the whole network");
        assert_eq!(appended("quiet\nshell").unwrap_err(), "--append: a control character");
        assert!(appended(&"x".repeat(1800)).is_ok());
        assert!(appended(&"x".repeat(2000)).unwrap_err().starts_with("the kernel's command line would have 21"));
    }

    #[test]
    fn an_image_that_took_the_name_later_is_not_handed_out() {
        let (menu, mut status) = (made("root").unwrap(), status());
        status.node.images[0].id = "ab".repeat(32);
        let refused = menu.command_line(image(&menu.boot), None, &status).unwrap_err();
        let fact = format!("the daemon does not have image root with the id {} any more", id("root"));
        assert_eq!(refused.fact(), fact);
    }

    #[test]
    fn a_tag_of_the_field_is_a_choice_behind_images() {
        let mut status = status();
        let version = VersionStatus { serial: 3, image: id("root"), ..VersionStatus::default() };
        let tag = |name: &str| TagStatus {
            name: name.to_owned(),
            serial: 3,
            image: Some(id("root")),
            keep: 2,
            rollout: 100,
            versions: vec![version.clone()],
            ..TagStatus::default()
        };
        status.node.tags = vec![tag("prod"), tag("exam")];
        let made = |words: &str| {
            let typed = Typed::parse_from(format!("netboot {words}").split(' '));
            Menu::new(&typed.options, &status).map_err(|failure| failure.fact().to_owned())
        };
        let menu = made("prod --tag a=prod --machine 52:54:00:00:00:01=exam").unwrap();
        assert_eq!((&menu.boot, menu.of_tag("a")), (&Boot::Tag("prod".parse().unwrap()), Some(&menu.boot)));
        assert_eq!(image(menu.of_machine("52:54:00:00:00:01".parse().unwrap())).name, "exam");
        status.node.images.clear();
        let typed = Typed::parse_from(["netboot", "prod"]);
        let refused = Menu::new(&typed.options, &status).unwrap_err();
        assert_eq!(refused.fact(), "the daemon has no version of tag prod");
    }

    #[test]
    fn a_machine_is_told_what_failed_on_it() {
        let line = |failed: &[u64]| {
            let menu = made("root").unwrap();
            menu.command_line(image(&menu.boot), Some(("http://h/booted/m/1", failed)), &status()).unwrap()
        };
        assert!(line(&[]).ends_with(" vfield.booted=http://h/booted/m/1"));
        assert!(line(&[2, 5]).ends_with(" vfield.booted=http://h/booted/m/1 vfield.failed=2,5"));
    }

    #[test]
    fn machines_join_through_those_who_are_there() {
        let menu = made("root --append quiet").unwrap();
        assert_eq!(
            menu.command_line(image(&menu.boot), None, &status()).unwrap(),
            format!("ip=dhcp root=vfield:root={}@192.168.1.1:4440,192.168.1.2:4440 quiet", id("root"))
        );
    }

    #[test]
    fn what_does_not_exist_is_refused_at_once() {
        for words in ["none", "root --tag x=none", "root --machine 52:54:00:00:00:01=none"] {
            assert_eq!(made(words).unwrap_err().fact(), "there is no image and no tag \"none\"", "{words}");
        }
    }
}

//! Tags on the command line: `vfield publish` and `vfield tag`.
//!
//! The text is made and signed here; the daemon verifies it and tells the field. The secret key
//! never leaves this process. If it is on another machine, the text goes there in a file, and comes
//! back with its signature.

use crate::args::{PublishOptions, TagAction, TagNumbers, TagOptions, TagSigner};
use crate::{images, signature};
use minisign::PublicKey;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_console::text::{aligned, clean};
use vfield_control::client::{self, Client};
use vfield_control::message::{DaemonStatus, FollowingStatus, Reply, Request};
use vfield_control::selection;
use vfield_core::image::ImageId;
use vfield_core::tag::{BadTag, Tag, TagName, Version};
use vfield_core::tags::{Refused, SignedTag};
use vfield_node::status::TagStatus;
use vfield_trust::signature::{TrustedKeys, read_short};

/// Percent of the chunks below which another way to build images is worth a word. A month of
/// updates of a system leaves 86 % to a layout that stays, and 6 % to a rebuilt image.
const SHARED_LITTLE: f64 = 50.0;

/// Runs `vfield publish` for the field of a daemon.
pub fn publish(options: &PublishOptions) -> Result<(), Failure> {
    let tag = options.tag.as_ref().ok_or_else(|| Failure::usage("neither --tag nor the URL of a bucket is given"))?;
    let control = options.control.control.as_deref();
    // A key that is wrong is found out before a large file is hashed.
    let signer = Signer::read(&options.signer)?;
    let mut client = images::send_file(&options.file, options.name.as_ref(), options.chunk_size, control)?;
    let id = match client.reply() {
        Ok(Reply::Added { id, .. }) => id.parse().map_err(|_| client.unexpected())?,
        Ok(_) => return Err(client.unexpected()),
        Err(failure) => served_before(options, control).ok_or(failure)?,
    };
    let status = client::status(control)?;
    let known = signer.known(&status, &tag.0)?;
    move_to(&signer, &tag.0, known, id, options.numbers, control)
}

/// The image of a file that the daemon serves already.
fn served_before(options: &PublishOptions, control: Option<&Path>) -> Option<ImageId> {
    let path = std::path::absolute(&options.file).ok()?.to_string_lossy().into_owned();
    let images = client::status(control).ok()?.node.images;
    let is_it = |source: &vfield_node::status::SourceStatus| source.path == path && source.state != "changed";
    images.iter().find(|image| image.source.as_ref().is_some_and(is_it))?.id.parse().ok()
}

/// Runs `vfield tag`.
pub fn run(options: &TagOptions) -> Result<(), Failure> {
    let control = options.control.control.as_deref();
    match &options.action {
        TagAction::Ls => output::put(list(&client::status(control)?).as_bytes()),
        TagAction::Show { tag } => show(&client::status(control)?, &tag.0),
        TagAction::Set { tag, image, signer, numbers } => {
            let (signer, status) = (Signer::read(signer)?, client::status(control)?);
            let image = find(&status, image)?;
            let known = signer.known(&status, &tag.0)?;
            move_to(&signer, &tag.0, known, image, *numbers, control)
        }
        TagAction::Rollback { tag, to, signer } => {
            let (signer, status) = (Signer::read(signer)?, client::status(control)?);
            let known = signer.must_know(&status, &tag.0)?;
            let Version { serial, image } = version(&known, *to)?;
            tell(&signer, &next(&known, Some(image))?, control)?;
            // Another step back would lead to what the tag has just left.
            let undo = format!("vfield tag rollback {} --to {}", known.name, known.serial);
            output::put(format!("that is the version of serial {serial}; to undo it: {undo}\n").as_bytes())
        }
        TagAction::Send { file, signer } => send(file, public(signer)?, control),
        TagAction::Rm { tag, signer } => {
            let (signer, status) = (Signer::read(signer)?, client::status(control)?);
            let known = signer.must_know(&status, &tag.0)?;
            tell(&signer, &next(&known, None)?, control)
        }
    }
}

/// An operator with a key.
struct Signer {
    public: String,
    pen: Pen,
}

/// What a tag is signed with.
enum Pen {
    /// A secret key on this machine.
    Here(Box<minisign::SecretKey>),
    /// One on another machine, to which the text goes in this file.
    Elsewhere(PathBuf),
}

impl Signer {
    fn read(options: &TagSigner) -> Result<Self, Failure> {
        let TagSigner { secret_key, unsigned, signer } = options;
        if let (Some(file), Some(signer)) = (unsigned, signer) {
            return Ok(Self { public: public(signer)?, pen: Pen::Elsewhere(file.clone()) });
        }
        let missing = || {
            let failure = Failure::usage("neither --secret-key nor --unsigned is given");
            failure.hint("sign with --secret-key KEY, or have it signed elsewhere: --unsigned FILE --signer KEY")
        };
        let secret = signature::secret(secret_key.as_deref().ok_or_else(missing)?)?;
        let public = PublicKey::from_secret_key(&secret);
        let public = public.map_err(|error| Failure::failed(format!("signing failed: {error}")))?.to_base64();
        Ok(Self { public, pen: Pen::Here(Box::new(secret)) })
    }

    /// The tag of this name and this signer, if the daemon knows it.
    fn known(&self, status: &DaemonStatus, name: &TagName) -> Result<Option<Tag>, Failure> {
        let tags = &status.node.tags;
        let found = tags.iter().find(|tag| tag.name == name.as_str() && tag.signer == self.public);
        found.map(|tag| tag.tag().ok_or_else(|| Failure::failed("the daemon's tag cannot be read"))).transpose()
    }

    fn must_know(&self, status: &DaemonStatus, name: &TagName) -> Result<Tag, Failure> {
        self.known(status, name)?.ok_or_else(|| {
            let others = status.node.tags.iter().any(|tag| tag.name == name.as_str());
            let signed = if others { "no tag of this signer" } else { "no tag" };
            let failure = Failure::failed(format!("the daemon knows {signed} named {name}"));
            failure.hint("`vfield tag ls` lists the tags; `vfield tag set` makes one")
        })
    }
}

/// Moves a tag to an image, with the numbers that are given.
fn move_to(
    signer: &Signer,
    name: &TagName,
    known: Option<Tag>,
    image: ImageId,
    numbers: TagNumbers,
    control: Option<&Path>,
) -> Result<(), Failure> {
    let TagNumbers { keep, rollout, serial } = numbers;
    let moved = match &known {
        None => Tag::first(name.clone(), image),
        Some(known) => next(known, Some(image))?,
    };
    if let (Some(serial), Some(known)) = (serial, &known)
        && serial <= known.serial
    {
        let why = Refused::Old { name: name.clone(), serial, known: known.serial };
        return Err(Failure::failed(why.to_string()).hint("leave --serial out for the next one"));
    }
    let mut tag = keep.map_or_else(|| moved.clone(), |keep| moved.clone().keeping(keep));
    tag.rollout = rollout.unwrap_or(tag.rollout);
    tag.serial = serial.unwrap_or(tag.serial);
    if tag.rollout < 100 && tag.before.is_empty() {
        let failure = Failure::usage("--rollout below 100: the tag has no earlier version for the other nodes");
        return Err(failure.hint("keep at least 2 versions, and publish the first one for all"));
    }
    tell(signer, &tag, control)?;
    match known.as_ref().and_then(|known| known.image.map(|before| (known.serial, before))) {
        Some((serial, before)) if before != image => say_shared(image, serial, before, control),
        _ => Ok(()),
    }
}

/// Says what the image shares with that of the serial before, if the daemon serves both.
fn say_shared(image: ImageId, serial: u64, before: ImageId, control: Option<&Path>) -> Result<(), Failure> {
    let mut client = Client::connect(control)?;
    client.send(&Request::Compare { image: image.to_string(), with: before.to_string() })?;
    // The tag has moved, whatever a daemon of an earlier version says to this.
    let Ok(Reply::Shared { with_data, same }) = client.reply() else { return Ok(()) };
    output::put(shared(serial, with_data, same).as_bytes())
}

/// The line about `same` chunks of `with_data` that the version of `serial` has as well.
fn shared(serial: u64, with_data: u64, same: u64) -> String {
    let percent = same as f64 * 100.0 / with_data.max(1) as f64;
    let line = format!("shared with serial {serial}: {same} of {with_data} chunks with data, {percent:.0} %");
    if percent < SHARED_LITTLE { format!("{line}: see vfield pack\n") } else { format!("{line}\n") }
}

fn next(known: &Tag, image: Option<ImageId>) -> Result<Tag, Failure> {
    known.next(image).map_err(|_| {
        let fact = format!("tag {} serial {}: no later serial is possible", known.name, known.serial);
        Failure::failed(fact).hint("use another name for the tag")
    })
}

/// The version to go back to.
fn version(known: &Tag, to: Option<u64>) -> Result<Version, Failure> {
    let earlier = || known.before.iter().copied();
    let found = to.map_or_else(|| earlier().next(), |to| earlier().find(|version| version.serial == to));
    found.ok_or_else(|| {
        let fact = match to {
            Some(to) => format!("tag {} keeps no version of serial {to}", known.name),
            None => format!("tag {} keeps no earlier version", known.name),
        };
        Failure::failed(fact).hint("`vfield tag set TAG IMAGE` names any image; --keep keeps more versions")
    })
}

/// Signs a tag, and gives it to the daemon; or has it signed elsewhere.
fn tell(signer: &Signer, tag: &Tag, control: Option<&Path>) -> Result<(), Failure> {
    tag.check().map_err(|why| bad(&why))?;
    let text = tag.to_string();
    let secret = match &signer.pen {
        Pen::Here(secret) => secret,
        Pen::Elsewhere(file) => {
            let written = std::fs::write(file, text);
            written.map_err(|error| unreadable(file, &plain(&error)).hint("its directory must be writable"))?;
            let file = file.display().to_string();
            let next = format!("sign {0} with minisign -S, and then: vfield tag send {0}", clean(&file));
            return output::put(format!("{}; nobody knows it yet\n{next}\n", said(tag)).as_bytes());
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let signature = signature::of(secret, &text, Path::new(tag.name.as_str()), now)?;
    give(SignedTag { signer: signer.public.clone(), text, signature }, tag, control)
}

/// Gives the daemon a tag that was signed elsewhere.
fn send(file: &Path, signer: String, control: Option<&Path>) -> Result<(), Failure> {
    let read = |path: &Path| {
        let text = read_short(path).map_err(|error| unreadable(path, &plain(&error)));
        text?.ok_or_else(|| unreadable(path, "too long, or no text"))
    };
    let text = read(file)?;
    let mut beside = file.as_os_str().to_owned();
    beside.push(".minisig");
    let signature = read(Path::new(&beside)).map_err(|failure| failure.hint("sign the file with `minisign -S`"))?;
    let tag: Tag = text.parse().map_err(|_| {
        unreadable(file, "not the text of a tag")
            .hint("make it with `vfield tag set`, `publish` or `rollback` and --unsigned")
    })?;
    give(SignedTag { signer, text, signature }, &tag, control)
}

/// Gives a tag to the daemon, which verifies it.
fn give(signed: SignedTag, tag: &Tag, control: Option<&Path>) -> Result<(), Failure> {
    let mut client = Client::connect(control)?;
    client.send(&Request::Tag(signed))?;
    let Reply::Done = client.reply()? else { return Err(client.unexpected()) };
    output::put(format!("{}\n", said(tag)).as_bytes())
}

fn said(tag: &Tag) -> String {
    let what = match tag.image {
        Some(image) => format!("names the image {}", image.short()),
        None => "removes the tag".to_owned(),
    };
    format!("tag {}: serial {} {what}", tag.name, tag.serial)
}

fn unreadable(file: &Path, why: &str) -> Failure {
    Failure::failed(format!("{}: {why}", file.display()))
}

/// A public key that is given itself, or in a file, as it is written.
fn public(given: &str) -> Result<String, Failure> {
    let keys = TrustedKeys::read(&[given.to_owned()]).map_err(signature::explain)?;
    let key = keys.as_ref().and_then(|keys| keys.written().next()).map(str::to_owned);
    key.ok_or_else(|| Failure::usage("--signer names no key"))
}

fn bad(why: &BadTag) -> Failure {
    let hint = match why {
        BadTag::Serial => "leave --serial out for the next one",
        BadTag::Keep => "give --keep 1 to --keep 6",
        BadTag::Rollout => "give --rollout 1 to --rollout 100",
        _ => "see `vfield tag show`",
    };
    Failure::usage(why.to_string()).hint(hint)
}

/// The id of an image that is typed, or that the daemon has.
fn find(status: &DaemonStatus, wanted: &str) -> Result<ImageId, Failure> {
    if let Ok(id) = wanted.parse() {
        return Ok(id);
    }
    let image = selection::choose(wanted, &status.node.images).map_err(|undecided| {
        let (fact, hint) = undecided.words(wanted, "the daemon");
        Failure::failed(fact).hint(hint)
    })?;
    image.id.parse().map_err(|_| Failure::failed("the daemon's image has no id"))
}

/// `vfield tag ls`.
fn list(status: &DaemonStatus) -> String {
    if status.node.tags.is_empty() {
        return "no tags\n".to_owned();
    }
    let heads = ["TAG", "SERIAL", "IMAGE", "NODES", "FILLED", "ROLLOUT", "HERE"];
    let mut table = vec![heads.map(str::to_owned).to_vec()];
    for tag in &status.node.tags {
        let here = status.following.iter().find(|following| following.tag == tag.name);
        if tag.image.is_none() {
            let row = [clean(&tag.name), tag.serial.to_string(), "removed".to_owned()];
            table.push(row.into_iter().chain((0..4).map(|_| String::new())).collect());
        }
        for version in &tag.versions {
            let is_now = Some(&version.image) == tag.image.as_ref();
            table.push(vec![
                if is_now { clean(&tag.name) } else { String::new() },
                version.serial.to_string(),
                clean(version.image.get(..12).unwrap_or(&version.image)),
                version.nodes.to_string(),
                version.filled.to_string(),
                if is_now { format!("{} %", tag.rollout) } else { String::new() },
                here.filter(|here| here.id == version.image).map_or_else(String::new, state),
            ]);
        }
    }
    aligned(&table, &[1, 3, 4, 5])
}

/// How far a follower is, in words.
pub fn state(following: &FollowingStatus) -> String {
    match following.state.as_str() {
        "ready" => "ready".to_owned(),
        _ => clean(&following.why),
    }
}

/// `vfield tag show`.
fn show(status: &DaemonStatus, name: &TagName) -> Result<(), Failure> {
    let tags: Vec<&TagStatus> = status.node.tags.iter().filter(|tag| tag.name == name.as_str()).collect();
    if tags.is_empty() {
        let failure = Failure::failed(format!("the daemon knows no tag named {name}"));
        return Err(failure.hint("`vfield tag ls` lists the tags"));
    }
    let text = |tag: &&TagStatus| {
        let said = tag.tag().map_or_else(String::new, |tag| tag.to_string());
        format!("{said}# signed by {}\n", clean(&tag.signer))
    };
    output::put(tags.iter().map(text).collect::<Vec<_>>().join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_that_is_shared_names_the_way_out() {
        assert_eq!(shared(3, 13189, 11649), "shared with serial 3: 11649 of 13189 chunks with data, 88 %\n");
        let little = "shared with serial 1: 138 of 2300 chunks with data, 6 %: see vfield pack\n";
        assert_eq!(shared(1, 2300, 138), little);
        assert_eq!(shared(1, 0, 0), "shared with serial 1: 0 of 0 chunks with data, 0 %: see vfield pack\n");
    }
}

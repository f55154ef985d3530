//! The configuration file: TOML with the names of the options.
//!
//! Finds it, reads it, and completes the command line, which takes precedence. One file may serve
//! both `serve` and `join`: a key of only one of them is no error. An unknown key is an error,
//! named with its line.

use crate::args::{Cli, DaemonOptions, JoinOptions, ServeOptions};
use crate::nearest::nearest;
use crate::values::access::Access;
use crate::values::boost::Boost;
use crate::values::threads::Threads;
use crate::values::zone::ZoneChoice;
use clap::{Command, CommandFactory};
use serde::Deserialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use vfield_console::failure::{BadValue, Failure, plain};
use vfield_console::values::address::Address;
use vfield_console::values::duration::{Retry, Timeout};
use vfield_console::values::size::Size;
use vfield_console::volume::Volume;
use vfield_control::values::endpoint::Endpoint;
use vfield_daemon::values::device::DeviceKind;
use vfield_daemon::values::disk::Disk;
use vfield_daemon::values::http::HttpAddress;
use vfield_daemon::values::image::{ImageName, Wanted};
use vfield_daemon::values::image_limit::ImageLimit;
use vfield_daemon::values::limit::Limit;
use vfield_daemon::values::overlay::OverlayPlace;
use vfield_daemon::values::sandbox::SandboxMode;
use vfield_daemon::values::store::Store;
use vfield_daemon::values::tag::Tagged;
use vfield_daemon::values::user::UserName;
use vfield_pack::chunks::Chunks;

/// The default file of the machine.
const SYSTEM_PATH: &str = "/etc/vfield.toml";
/// A configuration file longer than this is something else.
const LENGTH_MAX: u64 = 1 << 20;

/// The keys of a configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    file: OneOrMany<PathBuf>,
    name: OneOrMany<ImageName>,
    chunk_size: Option<Chunks>,
    rehash: bool,
    object_cache: Option<Size>,
    mirror: OneOrMany<PathBuf>,
    join: OneOrMany<Address>,
    image: OneOrMany<Wanted>,
    follow: OneOrMany<Tagged>,
    open: bool,
    store: Option<Store>,
    disk: Option<Disk>,
    disk_writes: Option<Size>,
    huge: bool,
    compress_store: bool,
    join_boost: Option<Boost>,
    nbd: OneOrMany<Endpoint>,
    nbd_tls: Option<PathBuf>,
    nbd_allow: OneOrMany<Access>,
    mount: Option<PathBuf>,
    ublk: bool,
    device: Option<DeviceKind>,
    io_timeout: Option<Timeout>,
    overlay: Option<OverlayPlace>,
    overlay_size: Option<Size>,
    overlay_from: OneOrMany<PathBuf>,
    listen: Option<Address>,
    advertise: Option<Address>,
    zone: Option<ZoneChoice>,
    field_key: OneOrMany<PathBuf>,
    identity: Option<PathBuf>,
    admission: Option<PathBuf>,
    admission_trust: OneOrMany<String>,
    trust: OneOrMany<String>,
    allow_rollback: bool,
    members: Option<PathBuf>,
    limit_up: Option<Limit>,
    limit_down: Option<Limit>,
    image_limit_up: OneOrMany<ImageLimit>,
    image_limit_down: OneOrMany<ImageLimit>,
    no_compression: bool,
    no_learning: bool,
    retry: Option<Retry>,
    http: Option<HttpAddress>,
    http_name: OneOrMany<String>,
    http_public: bool,
    control: Option<PathBuf>,
    json: bool,
    verbose: u8,
    quiet: bool,
    sandbox: Option<SandboxMode>,
    user: Option<UserName>,
    guard: bool,
    root: bool,
    threads: Option<Threads>,
}

/// `x = "a"` or `x = ["a", "b"]`.
#[derive(Debug)]
struct OneOrMany<T>(Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let list = if let toml::Value::Array(list) = value { list } else { vec![value] };
        // Not an untagged enum: that would hide what exactly is wrong with a value.
        let parsed = list.into_iter().map(|value| T::deserialize(value).map_err(|error| error.message().to_owned()));
        parsed.collect::<Result<_, _>>().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Settings {
    /// Reads the file at `path`, as [`place`] found it; without one nothing is set.
    pub fn load(path: Option<&Path>) -> Result<Self, Failure> {
        path.map_or_else(|| Ok(Self::default()), |path| Self::parse(path, &read(path)?))
    }

    /// Settings in the text of a file; a refusal names the file, the line and the fact.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            let before = text.bytes().take(start).filter(|byte| *byte == b'\n').count();
            let (message, hint) = BadValue::split(error.message());
            let message = message.replace('\n', " ").replace('`', "\"");
            let (fact, hint) = match (message.split_once(", expected one of "), hint) {
                (Some((fact, _)), _) => (fact.replace("field", "key"), meant(fact)),
                (None, hint) => (about(text.lines().nth(before), &message), hint.map(str::to_owned)),
            };
            let hint = hint.unwrap_or("keys and values are those of the options, see `vfield join --help`".to_owned());
            Failure::usage(format!("{} line {}: {fact}", path.display(), before + 1)).hint(hint)
        })
    }

    /// The verbosity: the command line's, else the file's.
    pub fn volume(&self, typed: Volume) -> Volume {
        let open = typed.verbose == 0 && !typed.quiet;
        if open { Volume { verbose: self.verbose, quiet: self.quiet } } else { typed }
    }

    /// Completes `options` from the file.
    pub fn complete_serve(self, mut options: ServeOptions) -> ServeOptions {
        if options.file.is_empty() {
            options.file = self.file.0.clone();
            fill(&mut options.name, &self.name);
            fill(&mut options.mirror, &self.mirror);
        }
        fill(&mut options.join, &self.join);
        options.chunk_size = options.chunk_size.or(self.chunk_size);
        options.rehash |= self.rehash;
        options.object_cache = options.object_cache.or(self.object_cache);
        options.daemon = self.complete_daemon(options.daemon);
        options
    }

    /// Completes `options` from the file.
    pub fn complete_join(self, mut options: JoinOptions) -> JoinOptions {
        fill(&mut options.join, &self.join);
        if options.follow.is_empty() {
            fill(&mut options.image, &self.image);
        }
        if options.image.is_empty() {
            fill(&mut options.follow, &self.follow);
        }
        options.open |= self.open;
        options.store = options.store.or(self.store);
        options.disk = options.disk.or_else(|| self.disk.clone());
        options.disk_writes = options.disk_writes.or(self.disk_writes);
        options.huge |= self.huge && options.disk.is_none() && !options.compress_store;
        options.compress_store |= self.compress_store && options.disk.is_none() && !options.huge;
        options.join_boost = options.join_boost.or(self.join_boost);
        fill(&mut options.trust, &self.trust);
        options.allow_rollback |= self.allow_rollback;
        options.daemon = self.complete_daemon(options.daemon);
        options
    }

    fn complete_daemon(self, mut options: DaemonOptions) -> DaemonOptions {
        fill(&mut options.nbd, &self.nbd);
        fill(&mut options.nbd_allow, &self.nbd_allow);
        options.nbd_tls = options.nbd_tls.or(self.nbd_tls);
        options.mount = options.mount.or(self.mount);
        if !options.ublk && options.device.is_none() {
            (options.ublk, options.device) = (self.ublk, self.device);
        }
        options.io_timeout = options.io_timeout.or(self.io_timeout);
        options.overlay = options.overlay.or(self.overlay);
        options.overlay_size = options.overlay_size.or(self.overlay_size);
        fill(&mut options.overlay_from, &self.overlay_from);
        options.listen = options.listen.or(self.listen);
        options.advertise = options.advertise.or(self.advertise);
        options.zone = options.zone.or(self.zone);
        fill(&mut options.field_key, &self.field_key);
        options.identity = options.identity.or(self.identity);
        options.admission = options.admission.or(self.admission);
        fill(&mut options.admission_trust, &self.admission_trust);
        options.members = options.members.or(self.members);
        options.retry = options.retry.or(self.retry);
        options.limits.limit_up = options.limits.limit_up.or(self.limit_up);
        options.limits.limit_down = options.limits.limit_down.or(self.limit_down);
        fill(&mut options.limits.image_limit_up, &self.image_limit_up);
        fill(&mut options.limits.image_limit_down, &self.image_limit_down);
        options.no_compression |= self.no_compression;
        options.no_learning |= self.no_learning;
        options.http = options.http.or(self.http);
        fill(&mut options.http_name, &self.http_name);
        options.http_public |= self.http_public;
        options.control.control = options.control.control.or(self.control);
        options.json |= self.json;
        options.sandbox = options.sandbox.or(self.sandbox);
        options.user = options.user.or(self.user);
        options.guard |= self.guard;
        options.root |= self.root;
        options.threads = options.threads.or(self.threads);
        options
    }
}

/// The fact with the key of its line, or else the line.
fn about(line: Option<&str>, message: &str) -> String {
    let line = line.unwrap_or_default().trim();
    let (key, value) = line.split_once('=').map_or(("", ""), |(key, value)| (key.trim(), value.trim()));
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match (is_key, line) {
        (_, "") => message.to_owned(),
        (true, _) if !value.is_empty() => format!("{key}: {message}"),
        _ => format!("{line:?}: {message}"),
    }
}

/// The known key nearest to the one in `fact`.
fn meant(fact: &str) -> Option<String> {
    let key = fact.split('"').nth(1)?;
    let all = Cli::command();
    let daemons = ["serve", "join"].into_iter().filter_map(|name| all.find_subcommand(name));
    let shown = daemons.chain([&all]).flat_map(Command::get_arguments).filter(|arg| !arg.is_hide_set());
    let shown: Vec<String> = shown.map(|arg| arg.get_id().as_str().replace('_', "-")).collect();
    nearest(key, shown.iter().map(String::as_str)).map(|key| format!("did you mean {key}?"))
}

fn fill<T: Clone>(list: &mut Vec<T>, from: &OneOrMany<T>) {
    if list.is_empty() {
        list.clone_from(&from.0);
    }
}

/// The file that `given` names, or else the usual one, if it exists.
pub fn place(given: Option<&Path>) -> Option<PathBuf> {
    given.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).or_else(usual_path)
}

/// The user's file, or else the machine's, if it exists.
fn usual_path() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".config"));
    let user = std::env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from).or_else(home);
    let user = user.map(|dir| dir.join("vfield.toml"));
    user.into_iter().chain([PathBuf::from(SYSTEM_PATH)]).find(|path| path.exists())
}

fn read(path: &Path) -> Result<String, Failure> {
    let refuse = |why: &str| Failure::failed(format!("configuration file {}: {why}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|error| {
        let hint = if error.kind() == ErrorKind::NotFound {
            "check --config and VFIELD_CONFIG"
        } else {
            "check its permissions"
        };
        refuse(&plain(&error)).hint(hint)
    })?;
    if !metadata.is_file() || metadata.len() > LENGTH_MAX {
        return Err(refuse("not a text file of TOML").hint("check --config and VFIELD_CONFIG"));
    }
    std::fs::read_to_string(path).map_err(|error| refuse(&plain(&error)).hint("it must be readable UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(Path::new("x.toml"), text).map_err(|failure| failure.fact().to_owned())
    }

    #[test]
    fn keys_are_the_names_of_the_options() {
        let refused = toml::from_str::<Settings>("nonsense = 1").unwrap_err();
        let (_, known) = refused.message().split_once("expected one of ").unwrap();
        let known: BTreeSet<String> = known.split(", ").map(|key| key.replace('`', "")).collect();
        let command = Cli::command();
        let daemons = ["serve", "join"].map(|name| command.find_subcommand(name).unwrap());
        let names: BTreeSet<String> = daemons
            .into_iter()
            .chain([&command])
            .flat_map(|command| command.get_arguments())
            .filter(|arg| !arg.is_hide_set())
            .map(|arg| arg.get_id().as_str().replace('_', "-"))
            .filter(|name| name != "config")
            .collect();
        assert_eq!(known, names);
    }

    #[test]
    fn the_nearest_key_is_offered_and_none_that_is_hidden() {
        let hint = |text: &str| Settings::parse(Path::new("x"), text).unwrap_err().hint_text().unwrap().to_owned();
        assert_eq!(hint("stroe = 1"), "did you mean store?");
        assert_eq!(hint("join_boost = 1"), "did you mean join-boost?");
        for far in ["no-pol = true", "nonsense = 1", "publish-thread = 1"] {
            assert_eq!(hint(far), "keys and values are those of the options, see `vfield join --help`");
        }
    }

    #[test]
    fn one_value_or_a_list() {
        let settings =
            parse("join = \"192.168.1.1\"\nnbd = [\"unix:/a\", \"tcp:127.0.0.1\"]\nstore = 0\njoin-boost = 3").unwrap();
        assert_eq!((settings.join.0.len(), settings.nbd.0.len()), (1, 2));
        assert!(settings.store.is_some() && settings.join_boost.is_some());
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, fact) in [
            ("store = \"1M\"\nstroe = \"1M\"", "x.toml line 2: unknown key \"stroe\""),
            ("\n\nstore = \"-1\"", "x.toml line 3: store: a store cannot be negative: \"-1\""),
            ("nbd = [\n  \"pipe:x\"\n]", "x.toml line 1: nbd: \"pipe:x\" starts neither with unix: nor with tcp:"),
            ("join-boost = 12", "x.toml line 1: join-boost: \"12\" is not a join boost"),
        ] {
            assert_eq!(parse(text).unwrap_err(), fact);
        }
        assert!(parse("store = ").unwrap_err().starts_with("x.toml line 1: "));
    }

    proptest! {
        #[test]
        fn any_text_is_settings_or_a_refusal(text in "\\PC{0,80}") {
            let _ = parse(&text);
        }
    }
}

//! From options to what a daemon is to do: names resolved, files looked at, defaults filled in.
//!
//! Everything that can be found out before anything is started is found out here. Both forms of the
//! command line and the configuration file end in one [`Plan`].

mod disk;
mod overlay;
mod pages;

use crate::args::{DaemonOptions, JoinOptions, ServeOptions};
use crate::limit;
use crate::settings::Settings;
use crate::signature;
use crate::source_file;
use crate::source_object;
use crate::values::boost::Boost;
use crate::values::zone::ZoneChoice;
use std::collections::BTreeSet;
use std::io::{ErrorKind, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vfield_console::failure::{Failure, plain};
use vfield_console::values::address::Address;
use vfield_console::volume::Volume;
use vfield_core::identity::Zone;
use vfield_core::wire::SIGNERS_MAX;
use vfield_daemon::admission::AdmissionFiles;
use vfield_daemon::key_files::KeyFiles;
use vfield_daemon::link_memory;
use vfield_daemon::members;
use vfield_daemon::plan::user::User;
use vfield_daemon::plan::{HttpPlan, Places, Plan};
use vfield_daemon::tags;
use vfield_daemon::values::device::DeviceKind;
use vfield_daemon::values::image::ImageName;
use vfield_daemon::values::store::Store;
use vfield_export::nbd;
use vfield_machine::memory;
use vfield_machine::network;
use vfield_node::config::{
    ChunkSizing, DEFAULT_PORT, ELSEWHERE, JoinBoost, NodeConfig, ServeConfig, StoreSize, Tuning,
};
use vfield_node::limits::Rates;
use vfield_node::object_origin::publish::ServeObject;
use vfield_node::route::{local_towards, speaks_to};
use vfield_pack::chunks::Chunks;
use vfield_trust::identity_file::{self, IdentityError, IdentityFault};
use vfield_trust::private_file::Unfit;
use vfield_trust::signature::TrustedKeys;

/// What a joining node holds of each image if nobody says otherwise: with four nodes the origin may
/// leave.
const STORE_DEFAULT: StoreSize = StoreSize::Percent(30.0);
/// How long somebody at a terminal waits for a member to answer: two started with one command find
/// each other.
const RETRY_AT_TERMINAL: Duration = Duration::from_secs(5);

/// What `vfield serve` is to do.
pub fn serve(options: ServeOptions) -> Result<Plan, Failure> {
    let (bootstrap, warnings) = resolve_members(&options.join, Vec::new())?;
    let (serve, rehash) = (files(&options)?, options.rehash);
    let listen = match &options.daemon.listen {
        Some(address) => listen_at(address, "--listen")?,
        None => default_serve_listen(&bootstrap)?,
    };
    let any_port = options.daemon.listen.is_none() && !bootstrap.is_empty();
    // Who founded the field and is started again finds those who stayed; if nobody did, it founds
    // another.
    let founds = bootstrap.is_empty();
    let remembered = remembered(&options.daemon, &bootstrap);
    let remembered = remembered.into_iter().filter(|addr| speaks_to(listen, *addr));
    let bootstrap = bootstrap.into_iter().chain(remembered).collect();
    let node = NodeConfig {
        bootstrap_names: names(&options.join),
        serve,
        founds,
        join: Vec::new(),
        store: StoreSize::Bytes(0),
        join_boost: JoinBoost::DEFAULT,
        ..node(&options.daemon, listen, any_port, bootstrap)?
    };
    with(warnings, Plan { rehash, ..plan(node, options.daemon, false)? })
}

/// What `vfield join` is to do.
pub fn join(options: JoinOptions) -> Result<Plan, Failure> {
    if options.join.is_empty() {
        let failure = Failure::usage("no address to join through");
        return Err(
            failure.hint("name any member of the field: `vfield join ADDR`, or join = \"ADDR\" in the configuration")
        );
    }
    // A root stands on one version, whatever its tag names when its daemon starts.
    if !options.follow.is_empty() && !options.image.is_empty() && !options.daemon.root {
        let failure = Failure::usage("--image and --follow do not go together");
        return Err(failure.hint("add images beside those of the tag with `vfield add`"));
    }
    if !options.follow.is_empty() && options.trust.is_empty() && !options.open {
        let failure = Failure::usage("--follow needs --trust: any member can sign a tag with a key of its own");
        return Err(failure.hint("--trust names the public key of the tag's signer; --open follows any signer"));
    }
    // A disk may be of any size, and is looked at when the daemon starts; what compressed chunks
    // take is seen when they come.
    let is_bounded = options.disk.is_none() && !options.compress_store;
    let memory = memory::most_bytes().filter(|_| is_bounded).unwrap_or(u64::MAX);
    let store = options.store.unwrap_or(Store(STORE_DEFAULT)).within(memory)?;
    let large_pages = options.huge.then(|| pages::are_large(store)).transpose()?.is_some();
    let compressed = options.compress_store.then(pages::are_small).transpose()?.is_some();
    let (members, warnings) = resolve_members(&options.join, remembered(&options.daemon, &[]))?;
    let (listen, bootstrap) = match &options.daemon.listen {
        Some(address) => {
            let listen = listen_at(address, "--listen")?;
            (listen, reachable_from(listen, members)?)
        }
        None => network::facing(&members)?,
    };
    let any_port = options.daemon.listen.as_ref().is_none_or(|address| address.port().is_none());
    let node = NodeConfig {
        bootstrap_names: names(&options.join),
        serve: Vec::new(),
        trusted: TrustedKeys::read(&options.trust).map_err(signature::explain)?,
        join: options.image.into_iter().map(|wanted| wanted.0).collect(),
        // A root that follows began as a version of its tag.
        joins_version: options.daemon.root && !options.follow.is_empty(),
        follow: options.follow.into_iter().map(|tag| tag.0).collect(),
        store,
        stores_max_bytes: if options.store.is_none() { memory::default_stores_bytes() } else { None },
        large_pages,
        compressed_max_bytes: compressed.then(|| memory::stores_max_bytes().unwrap_or(u64::MAX)),
        disk: disk::plan(options.disk, options.disk_writes)?,
        join_boost: options.join_boost.map_or(JoinBoost::DEFAULT, Boost::level),
        ..node(&options.daemon, listen, any_port, bootstrap)?
    };
    with(warnings, plan(node, options.daemon, options.allow_rollback)?)
}

fn plan(mut node: NodeConfig, daemon: DaemonOptions, allow_rollback: bool) -> Result<Plan, Failure> {
    let key_files = KeyFiles::choose(daemon.field_key.clone());
    node.field_keys = key_files.read()?;
    let (admission, mut warnings) = admission(&daemon, &mut node)?;
    if tags::are_kept(&node.follow) {
        let (kept, damaged) = tags::read(&node.follow);
        node.tags = kept;
        warnings.extend(damaged);
    }
    let mut places = Vec::new();
    for endpoint in &daemon.nbd {
        let place = endpoint.resolve()?;
        if places.contains(&place) {
            return Err(Failure::usage(format!("--nbd {endpoint} is given twice")).hint("give each place once"));
        }
        places.push(place);
    }
    let hint = "openssl or certtool make them: see docs/howto/nbd-tls.md";
    let tls = daemon.nbd_tls.as_deref().map(nbd::Tls::from_dir).transpose();
    let tls = tls.map_err(|error| Failure::failed(format!("--nbd-tls: {error}")).hint(hint))?;
    let access = daemon.nbd_allow.iter().map(|access| access.0.clone()).collect();
    // Half of the processors are for those who read: on a small machine a second thread costs more
    // in wake-ups, by a fifth of a storm's throughput, than it brings.
    let half = || NonZeroUsize::new(cores().get().div_ceil(2)).unwrap_or(NonZeroUsize::MIN);
    let threads = daemon.threads.map_or_else(half, NonZeroUsize::from);
    let (overlay, http) = (overlay::plan(&daemon)?, http(&daemon)?);
    let (control, json, sandbox) = (daemon.control.control, daemon.json, daemon.sandbox.unwrap_or_default());
    let device = daemon.device.or(daemon.ublk.then_some(DeviceKind::Ublk));
    if daemon.user.is_some() && (device.is_some() || daemon.mount.is_some()) {
        let failure = Failure::usage("--user: devices and mounts need root while they exist");
        return Err(failure.hint("export over NBD (--nbd), or leave --user out"));
    }
    let user = daemon.user.as_ref().map(User::find).transpose()?.flatten();
    let exports = Places { nbd: places, access, tls, mount: daemon.mount, device };
    let (members, root) = (daemon.members, daemon.root);
    let limits = limit::settings(daemon.limits)?;
    Ok(Plan {
        node,
        finds_address: daemon.listen.is_none(),
        exports,
        overlay,
        limits,
        key_files,
        admission,
        allow_rollback,
        rehash: false,
        control,
        sandbox,
        root,
        user,
        http,
        members,
        json,
        threads,
        config: None,
        volume: Volume::default(),
        read_volume: |config, given| Ok(Settings::load(Some(config))?.volume(given)),
        warnings,
    })
}

/// Where the dashboard is to be. All addresses of a machine are more than most people mean.
fn http(daemon: &DaemonOptions) -> Result<Option<HttpPlan>, Failure> {
    let Some(address) = &daemon.http else { return Ok(None) };
    let addr = address.resolve()?;
    if addr.ip().is_multicast() || addr.ip() == IpAddr::V4(Ipv4Addr::BROADCAST) {
        let fact = format!("--http: {address} is not an address of one machine");
        return Err(Failure::usage(fact).hint("give an address of this machine, or a port alone for 127.0.0.1"));
    }
    if addr.ip().is_unspecified() && !daemon.http_public {
        let fact = format!("--http {address} shows names and addresses to every network of this machine");
        return Err(Failure::usage(fact).hint("give one address, or add --http-public if that is meant"));
    }
    Ok(Some(HttpPlan { addr, names: daemon.http_name.clone() }))
}

/// A plan with more to tell.
fn with(warnings: Vec<String>, plan: Plan) -> Result<Plan, Failure> {
    Ok(Plan { warnings: [warnings, plan.warnings].concat(), ..plan })
}

/// Takes the identity, and reads the admission list.
fn admission(daemon: &DaemonOptions, node: &mut NodeConfig) -> Result<(AdmissionFiles, Vec<String>), Failure> {
    let identity = daemon.identity.clone().or_else(identity_file::credential);
    let taken = identity.as_deref().map(identity_file::take).transpose().map_err(explain_identity)?;
    node.identity = taken.map(Arc::new);
    let signers = TrustedKeys::read(&daemon.admission_trust).map_err(signature::explain)?;
    if daemon.admission_trust.len() > SIGNERS_MAX {
        let failure = Failure::usage(format!("more than {SIGNERS_MAX} keys in --admission-trust"));
        return Err(failure.hint("leave out those that sign no lists any more"));
    }
    if let (Some(list), None) = (&daemon.admission, &signers) {
        let failure = Failure::usage(format!("nobody is trusted to sign the admission list {}", list.display()));
        return Err(failure.hint("name the signer's public key: --admission-trust PUBKEY"));
    }
    let files = AdmissionFiles { list: daemon.admission.clone(), signers };
    let (list, warnings) = files.start()?;
    (node.admission, node.admission_signers) = (list, files.signers.clone());
    Ok((files, warnings))
}

/// `error` for people.
pub fn explain_identity(error: IdentityError) -> Failure {
    let (path, fact) = (error.path.display().to_string(), error.to_string());
    let hint = match &error.why {
        IdentityFault::Unfit(Unfit::Io(source)) => {
            let hint = match source.kind() {
                ErrorKind::NotFound => "make one with `vfield key identity FILE`",
                ErrorKind::AlreadyExists => "identities are not overwritten: choose a new file",
                _ => "check the file and its directory",
            };
            return Failure::failed(format!("identity {path}: {}", plain(source))).hint(hint);
        }
        IdentityFault::Unfit(Unfit::Open(_)) => {
            format!("chmod 600 {path}; if others may have read it, make a new one and revoke this one")
        }
        IdentityFault::Unfit(Unfit::Foreign(_)) => {
            "give a file that belongs to the user whom the daemon runs as".to_owned()
        }
        IdentityFault::InUse => "give each daemon an identity of its own: `vfield key identity FILE`".to_owned(),
        _ => "an identity file is what `vfield key identity FILE` makes".to_owned(),
    };
    Failure::failed(fact).hint(hint)
}

/// Members of an earlier daemon besides the known ones.
fn remembered(daemon: &DaemonOptions, known: &[SocketAddr]) -> Vec<SocketAddr> {
    let remembered = daemon.members.as_deref().map(members::read).unwrap_or_default();
    remembered.into_iter().filter(|addr| !known.contains(addr)).collect()
}

/// Number of threads that can run at once.
fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The parts of a node's configuration that do not depend on the command.
fn node(
    daemon: &DaemonOptions,
    listen: SocketAddr,
    any_port: bool,
    bootstrap: Vec<SocketAddr>,
) -> Result<NodeConfig, Failure> {
    let advertise = match &daemon.advertise {
        Some(address) => Some(advertised(address, listen)?),
        None if listen.ip().is_unspecified() && bootstrap.is_empty() => network::own_address(listen),
        None => None,
    };
    let own_ip = own_ip(listen, &bootstrap, advertise);
    let zone = match daemon.zone {
        None => Zone::default(),
        Some(ZoneChoice::Named(zone)) => zone,
        Some(ZoneChoice::Subnet) => network::subnet::zone_of(own_ip.ok_or_else(no_subnet)?)?,
    };
    // Without a route there is no network yet, and nothing to know of its card.
    let ip = own_ip.or_else(|| local_towards(ELSEWHERE).ok());
    let card_bytes_per_s = ip.and_then(network::card::bytes_per_s);
    let measured_bytes_per_s = advertise.map(|addr| addr.ip()).or(ip).and_then(link_memory::remembered);
    Ok(NodeConfig {
        listen,
        any_port,
        advertise,
        advertised: daemon.advertise.is_some(),
        zone,
        bootstrap,
        bootstrap_names: Vec::new(),
        retry: daemon.retry.map_or_else(retry_default, |retry| retry.0),
        founds: false,
        serve: Vec::new(),
        join: Vec::new(),
        store: STORE_DEFAULT,
        stores_max_bytes: None,
        memory_max_bytes: memory::most_bytes().unwrap_or(u64::MAX),
        join_boost: JoinBoost::DEFAULT,
        io_timeout: daemon.io_timeout.and_then(|timeout| timeout.0),
        field_keys: None,
        identity: None,
        admission_signers: None,
        admission: None,
        trusted: None,
        added: Vec::new(),
        added_files: Vec::new(),
        follow: Vec::new(),
        joins_version: false,
        tags: Vec::new(),
        sockets: None,
        large_pages: false,
        compressed_max_bytes: None,
        disk: None,
        keeper: None,
        card_bytes_per_s,
        measured_bytes_per_s,
        limits: Rates::default(),
        image_limits: Vec::new(),
        hash_threads: cores().into(),
        tuning: Tuning {
            pool: !daemon.no_pool,
            parallel: !daemon.no_parallel,
            read_ahead: !daemon.no_read_ahead,
            compression: !daemon.no_compression,
            learning: !daemon.no_learning,
            lane_bytes_per_s: daemon.lane_rate.unwrap_or(Tuning::default().lane_bytes_per_s),
        },
    })
}

/// At a terminal a user waits for the answer; elsewhere no user restarts the daemon.
fn retry_default() -> Option<Duration> {
    std::io::stderr().is_terminal().then_some(RETRY_AT_TERMINAL)
}

/// This machine's own address; an advertised address may belong to a router.
fn own_ip(listen: SocketAddr, bootstrap: &[SocketAddr], advertise: Option<SocketAddr>) -> Option<IpAddr> {
    if !listen.ip().is_unspecified() {
        return Some(listen.ip());
    }
    let towards = bootstrap.first().and_then(|member| local_towards(*member).ok());
    towards.or_else(|| advertise.map(|addr| addr.ip()))
}

fn no_subnet() -> Failure {
    let failure = Failure::failed("--zone subnet: this machine has no address on a network");
    failure.hint("name the zone (--zone NAME) or the listen address (--listen ADDR)")
}

/// The files to publish, each looked at, with names that differ.
fn files(options: &ServeOptions) -> Result<Vec<ServeConfig>, Failure> {
    if options.file.is_empty() {
        let failure = Failure::usage("no file to serve");
        return Err(failure.hint("name an image: `vfield serve FILE`, or file = \"FILE\" in the configuration"));
    }
    if !options.name.is_empty() && options.name.len() != options.file.len() {
        let files = match options.file.len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        let fact = format!("--name is given {} times for {files}", options.name.len());
        return Err(Failure::usage(fact).hint("give one --name for each FILE, in their order, or none"));
    }
    let cache_bytes = source_object::cache_bytes(options.object_cache)?;
    let mut mirrors = source_object::mirrors(&options.mirror, &options.file)?;
    let mut serve: Vec<ServeConfig> = Vec::new();
    for (index, path) in options.file.iter().enumerate() {
        let place = source_object::Place::find(path)?;
        if place.is_none() {
            source_file::check(path)?;
        }
        let name = match (options.name.get(index), &place) {
            (Some(ImageName(name)), _) => name.clone(),
            (None, Some(place)) => place.name()?,
            (None, None) => source_file::name_of(path)?,
        };
        let path = place.as_ref().map_or_else(|| absolute(path), |place| Ok(place.address()))?;
        if let Some(other) = serve.iter().find(|other| other.name.as_ref() == Some(&name)) {
            let fact = format!("two images are named {name:?}: {} and {}", other.path.display(), path.display());
            return Err(Failure::usage(fact).hint("give each its own --name, in the order of the files"));
        }
        let proof = if place.is_none() { signature::beside(&path)? } else { None };
        let (asked, rehash) = (options.chunk_size.and_then(Chunks::wanted), options.rehash);
        let chunk_size = asked.map_or(ChunkSizing::Own(|path| Chunks::Auto.of_image(path)), ChunkSizing::Of);
        let object = place.map(|place| {
            let store = place.store(std::mem::take(&mut mirrors));
            ServeObject { store, chunk_size: asked, rehash, cache_bytes }
        });
        serve.push(ServeConfig { path, object, file: None, name: Some(name), chunk_size, proof, kept: None });
    }
    Ok(serve)
}

/// As it is called from anywhere: commands find a served file by its path, in whatever directory
/// they run.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let failure = Failure::failed(format!("{}: {}", path.display(), plain(&error)));
        failure.hint("give the whole path of the file")
    })
}

/// All addresses of all members named, then those that are `remembered`; and a warning for each
/// name that has none.
///
/// # Errors
/// If none has an address, or one can be no member's.
fn resolve_members(
    members: &[Address],
    remembered: Vec<SocketAddr>,
) -> Result<(Vec<SocketAddr>, Vec<String>), Failure> {
    let (mut addrs, mut unknown) = (Vec::new(), Vec::new());
    for member in members {
        match member.resolve(DEFAULT_PORT) {
            Ok(found) => addrs.extend(found),
            Err(failure) => unknown.push(failure),
        }
        if addrs.iter().any(|addr| addr.port() == 0 || addr.ip().is_unspecified() || addr.ip().is_multicast()) {
            let fact = format!("{member} cannot be the address of a member");
            return Err(Failure::usage(fact).hint("give a member's address on the network, for example 192.168.1.1"));
        }
    }
    addrs.extend(remembered);
    let mut seen = BTreeSet::new();
    addrs.retain(|addr| seen.insert(*addr));
    if addrs.is_empty()
        && let Some(failure) = unknown.first()
    {
        let facts: Vec<&str> = unknown.iter().map(Failure::fact).collect();
        return Err(Failure::failed(facts.join("; ")).hint(failure.hint_text().unwrap_or_default()));
    }
    let warnings = unknown.iter().map(|failure| format!("{}; the other members are tried", failure.fact()));
    Ok((addrs, warnings.collect()))
}

/// The host names of members, with their ports.
fn names(members: &[Address]) -> Vec<(String, u16)> {
    let names = members.iter().filter_map(|member| Some((member.name()?.to_owned(), member.port())));
    names.map(|(name, port)| (name, port.unwrap_or(DEFAULT_PORT))).collect()
}

fn listen_at(address: &Address, option: &str) -> Result<SocketAddr, Failure> {
    let addr = address.first(DEFAULT_PORT)?;
    if addr.ip().is_multicast() || addr.ip() == IpAddr::V4(Ipv4Addr::BROADCAST) {
        let fact = format!("{option}: {address} is not an address of one machine");
        return Err(Failure::usage(fact).hint("give an address of this machine, or 0.0.0.0 for all of them"));
    }
    Ok(addr)
}

fn advertised(address: &Address, listen: SocketAddr) -> Result<SocketAddr, Failure> {
    let addr = address.first(listen.port())?;
    if addr.ip().is_unspecified() || addr.ip().is_multicast() {
        let fact = format!("--advertise: {address} is not reachable for other nodes");
        return Err(Failure::usage(fact).hint("give the address at which other nodes reach this one"));
    }
    Ok(addr)
}

fn default_serve_listen(bootstrap: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    if bootstrap.is_empty() {
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_PORT));
    }
    network::facing(bootstrap).map(|(listen, _)| listen)
}

/// Those of `members` that a socket bound to `listen` can speak to.
fn reachable_from(listen: SocketAddr, members: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Failure> {
    let same: Vec<SocketAddr> = members.iter().copied().filter(|addr| speaks_to(listen, *addr)).collect();
    if same.is_empty() {
        let names = members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let fact = format!("{names} cannot be reached from --listen {}: one is IPv4, the other IPv6", listen.ip());
        return Err(Failure::usage(fact).hint("listen on an address of the members' kind"));
    }
    Ok(same)
}

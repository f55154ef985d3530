//! How each fault is brought about, and healed where it can be.

use super::field::{Field, LOOK_EVERY, backing};
use super::kind::Fault;
use super::reader::Readers;
use super::{Plan, reader};
use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};
use vfield_lab::bytes::MIB;
use vfield_lab::cgroup::Cgroup;
use vfield_lab::process::run;
use vfield_lab::{Daemon, LabError, client};

/// Between two kills.
const KILL_EVERY: Duration = Duration::from_secs(1);
/// Between a join and a leave: 200 a minute.
const CHURN_EVERY: Duration = Duration::from_millis(300);
/// A node that is told to leave hands over what only it has.
const LEAVE_LIMIT: Duration = Duration::from_secs(60);
/// What a node may have besides its store: chunks kept for a while, and 64 MiB for everything else
/// together.
const BESIDES_BYTES: u64 = 64 * MIB;
/// Less than a node needs to fill a store.
const TOO_LITTLE_BYTES: u64 = 12 * MIB;
/// Descriptors that a node may have more than it has.
const FEW_DESCRIPTORS: usize = 2;
/// What it may have otherwise.
const DESCRIPTORS: &str = "8192";

/// The fault that was caused.
#[derive(Debug, Default)]
pub(super) struct Deed {
    /// How often it was caused.
    pub(super) times: usize,
    /// When, in seconds after it began, and to which host, where it is done to many.
    pub(super) done: Vec<(f64, usize)>,
    /// Hosts whose own readers cannot be expected to go on meanwhile.
    pub(super) struck: Vec<usize>,
    /// What happened that should not have.
    pub(super) amiss: Vec<String>,
}

impl Deed {
    fn once(struck: &[usize]) -> Self {
        Self { times: 1, struck: struck.to_vec(), ..Self::default() }
    }
}

/// Numbers from a seed: splitmix64 (Steele and others, 2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound.max(1) as u64) as usize
    }

    /// A node's host.
    fn node(&mut self, plan: &Plan) -> usize {
        1 + self.below(plan.nodes)
    }
}

/// Does it, for as long as the plan says.
pub(super) fn bring_about(
    fault: Fault,
    plan: &Plan,
    field: &mut Field<'_>,
    readers: &Readers,
) -> Result<Deed, LabError> {
    let mut dice = Dice(plan.seed);
    let host = dice.node(plan);
    match fault {
        Fault::Kills => kills(plan, field, &mut dice),
        Fault::Freeze => freeze(plan, field, host),
        Fault::OneWay => one_way(plan, field, host),
        Fault::DiskFull => disk_full(plan, field),
        Fault::DiskErrors => disk_errors(plan, field),
        Fault::Truncated => truncated(plan, field),
        Fault::Descriptors => descriptors(plan, field, host, &mut dice),
        Fault::Memory => memory(plan, field, host),
        Fault::OutOfMemory => out_of_memory(plan, field, host),
        Fault::Clock => clock(plan, field, host, readers),
        Fault::Churn => churn(plan, field),
        Fault::Upgrade => upgrade(plan, field),
    }
}

fn kills(plan: &Plan, field: &mut Field<'_>, dice: &mut Dice) -> Result<Deed, LabError> {
    let (start, mut deed) = (Instant::now(), Deed::default());
    while start.elapsed() < plan.lasts {
        let host = dice.below(plan.nodes + 1);
        deed.done.push((start.elapsed().as_secs_f64(), host));
        field.kill(host)?;
        deed.times += 1;
        let next = start + KILL_EVERY * deed.times as u32;
        field.keep_alive_for(next.saturating_duration_since(Instant::now()))?;
    }
    Ok(deed)
}

fn freeze(plan: &Plan, field: &mut Field<'_>, host: usize) -> Result<Deed, LabError> {
    field.daemon(host).process_mut().freeze();
    field.keep_alive_for(plan.lasts)?;
    field.daemon(host).process_mut().thaw();
    Ok(Deed::once(&[host]))
}

fn one_way(plan: &Plan, field: &mut Field<'_>, host: usize) -> Result<Deed, LabError> {
    field.lab().deafen(field.lab().host(host))?;
    field.keep_alive_for(plan.lasts)?;
    field.lab().undeafen(field.lab().host(host))?;
    Ok(Deed::once(&[host]))
}

fn disk_full(plan: &Plan, field: &mut Field<'_>) -> Result<Deed, LabError> {
    let path = field.image().with_file_name("filler");
    let mut filler = File::create(&path).map_err(LabError::at(&path))?;
    let full = std::iter::repeat_with(|| filler.write_all(&[0x55; 4096])).find_map(Result::err);
    if full.as_ref().and_then(std::io::Error::raw_os_error) != Some(rustix::io::Errno::NOSPC.raw_os_error()) {
        return Err(LabError::at(&path)(full.unwrap_or_else(|| std::io::ErrorKind::Other.into())));
    }
    field.keep_alive_for(plan.lasts / 2)?;
    // It starts again where it cannot write anything.
    field.kill(0)?;
    field.keep_alive_for(plan.lasts / 2)?;
    std::fs::remove_file(&path).map_err(LabError::at(&path))?;
    Ok(Deed::once(&[]))
}

fn disk_errors(plan: &Plan, field: &mut Field<'_>) -> Result<Deed, LabError> {
    let (image, backing) = (field.image().to_owned(), backing(field.lab()));
    File::open(&image).and_then(|file| file.sync_all()).map_err(LabError::at(&image))?;
    let file = File::options().write(true).open(&backing).map_err(LabError::at(&backing))?;
    file.set_len(plan.size_bytes / 4).map_err(LabError::at(&backing))?;
    client::forget(&image)?;
    field.keep_alive_for(plan.lasts)?;
    Ok(Deed::once(&[]))
}

fn truncated(plan: &Plan, field: &mut Field<'_>) -> Result<Deed, LabError> {
    // Waits until the origin has let go of its lease.
    let file = File::options().write(true).open(field.image()).map_err(LabError::at(field.image()))?;
    file.set_len(plan.size_bytes / 2).map_err(LabError::at(field.image()))?;
    field.keep_alive_for(plan.lasts)?;
    Ok(Deed::once(&[]))
}

fn descriptors(plan: &Plan, field: &mut Field<'_>, host: usize, dice: &mut Dice) -> Result<Deed, LabError> {
    let process = field.daemon(host).process();
    let (pid, most) = (process.pid().to_string(), process.descriptors() + FEW_DESCRIPTORS);
    let limit =
        |most: &str| run(Command::new("prlimit").args(["--pid", &pid]).arg(format!("--nofile={most}:{DESCRIPTORS}")));
    limit(&most.to_string())?;
    // Others connect anew meanwhile.
    let mut deed = Deed::once(&[host]);
    let start = Instant::now();
    while start.elapsed() < plan.lasts {
        let other = dice.node(plan);
        if other != host {
            field.kill(other)?;
        }
        field.keep_alive_for(KILL_EVERY)?;
    }
    deed.amiss.extend((field.daemon(host).process().pid().to_string() != pid).then(|| "it ended".to_owned()));
    if deed.amiss.is_empty() {
        limit(DESCRIPTORS)?;
    }
    Ok(deed)
}

/// What the plan's store has in bytes, as the node says.
fn store_bytes(field: &mut Field<'_>, host: usize) -> Result<u64, LabError> {
    Ok(field.daemon(host).image()?["capacity_bytes"].as_u64().unwrap_or_default())
}

fn tag(field: &Field<'_>) -> String {
    field.lab().dir().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn memory(plan: &Plan, field: &mut Field<'_>, host: usize) -> Result<Deed, LabError> {
    let bytes = store_bytes(field, host)? + BESIDES_BYTES;
    field.confined = Some((host, Cgroup::new(&tag(field), bytes)?));
    field.kill(host)?;
    let revived = field.revived;
    field.keep_alive_for(plan.lasts)?;
    let ended = field.revived - revived;
    let amiss = (ended > 0).then(|| format!("it ended {ended} times with {} MiB", bytes / MIB));
    Ok(Deed { amiss: amiss.into_iter().collect(), ..Deed::once(&[host]) })
}

fn out_of_memory(plan: &Plan, field: &mut Field<'_>, host: usize) -> Result<Deed, LabError> {
    field.confined = Some((host, Cgroup::new(&tag(field), TOO_LITTLE_BYTES)?));
    field.kill(host)?;
    let revived = field.revived;
    field.keep_alive_for(plan.lasts)?;
    let times = field.revived - revived;
    // Its processes have to leave before it is removed.
    field.daemon(host).kill();
    field.confined = None;
    field.start_again(host)?;
    let amiss = (times == 0).then(|| "the kernel did not end it".to_owned());
    Ok(Deed { times, amiss: amiss.into_iter().collect(), ..Deed::once(&[host]) })
}

fn clock(plan: &Plan, field: &mut Field<'_>, host: usize, readers: &Readers) -> Result<Deed, LabError> {
    let path = field.lab().dir().join("clock");
    let set = |time: &str| std::fs::write(&path, time).map_err(LabError::at(&path));
    set("+0")?;
    field.clock = Some((host, path.clone()));
    field.kill(host)?;
    readers.all_read(reader::HANGS)?;
    field.keep_alive_for(plan.lasts / 3)?;
    // In a process that runs, then for one that starts: by its clock it is older than the one whose
    // place it takes.
    set("-3600")?;
    field.keep_alive_for(plan.lasts / 3)?;
    field.kill(host)?;
    field.keep_alive_for(plan.lasts / 3)?;
    Ok(Deed { times: 2, ..Deed::once(&[]) })
}

fn churn(plan: &Plan, field: &mut Field<'_>) -> Result<Deed, LabError> {
    let spare: Vec<usize> = (plan.nodes + 1..field.lab().hosts().len()).collect();
    let mut guests: Vec<(usize, Option<Daemon>)> = spare.into_iter().map(|host| (host, None)).collect();
    let (start, mut deed) = (Instant::now(), Deed::default());
    while start.elapsed() < plan.lasts {
        let turn = deed.times % guests.len();
        let host = guests[turn].0;
        match &mut guests[turn].1 {
            Some(daemon) => {
                // The next time round it has gone.
                daemon.process_mut().terminate();
                guests[turn].1 = None;
            }
            gone => *gone = Some(field.start(host)?.spawn()?),
        }
        deed.times += 1;
        let next = start + CHURN_EVERY * deed.times as u32;
        field.keep_alive_for(next.saturating_duration_since(Instant::now()))?;
    }
    Ok(deed)
}

fn upgrade(plan: &Plan, field: &mut Field<'_>) -> Result<Deed, LabError> {
    let (start, mut deed) = (Instant::now(), Deed::default());
    for host in (0..=plan.nodes).cycle() {
        if start.elapsed() >= plan.lasts {
            break;
        }
        // As whoever upgrades a field would: not while somebody has what nobody else does.
        field.daemon(host).wait("covered", LEAVE_LIMIT)?;
        field.daemon(host).leave(LEAVE_LIMIT)?;
        field.start_again(host)?;
        field.daemon(host).wait_ready(LEAVE_LIMIT)?;
        deed.times += 1;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(deed)
}

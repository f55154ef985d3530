//! A day in the life of a field: what an administrator does to five machines from morning to
//! evening, as it is typed, while all of them read. No byte is wrong, no acknowledged write is
//! lost, and nothing that waits is silent about it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vfield_e2e::field::{NEWS, live};
use vfield_e2e::program::vfield;
use vfield_e2e::tree::Tree;
use vfield_e2e::watch::Watch;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::{FILL_LIMIT, Start};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Host, Lab, LabError, Vfield, client};

/// The name under which all have the image.
const NAME: &str = "disk.img";
/// A polite end hands over for at most ten seconds.
const LEAVES: Duration = Duration::from_secs(20);
/// Less than a file of [`Tree::fill`] times ten.
const SMALL: &str = "12M";
const LARGE: &str = "64M";

/// Machines by the names that the story gives to them; m1 is the first host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    M1,
    M2,
    M3,
    M4,
    M5,
}
use Machine::{M1, M2, M3, M4, M5};

/// The field during the day. Fields are dropped in this order: readers, mounts, daemons,
/// hosts.
struct Day {
    /// The file system in m4's image.
    tree: Option<Tree>,
    /// Daemon of each machine, and how often it was ended.
    daemons: [Option<Daemon>; 5],
    ended: [usize; 5],
    /// Readers of m2, m3 and m4 that never stop; dropped after the daemons, which may owe them an
    /// answer.
    watches: Vec<(Machine, Watch)>,
    /// What m1 serves.
    image: PathBuf,
    /// The same bytes as of the morning, and the file that is in its file system.
    old: PathBuf,
    base: PathBuf,
    vfield: Vfield,
    lab: Lab,
    began: Instant,
}

/// Whether a status warns of something.
fn warned(status: &Value, text: &str) -> bool {
    let warnings = status["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(Value::as_str).any(|warning| warning.contains(text))
}

fn id_of(daemon: &Daemon) -> Result<String, Failed> {
    let image = daemon.image()?;
    Ok(image["id"].as_str().expect("it has an image").get(..12).expect("64 digits").to_owned())
}

/// Drops packets for a machine's TCP port.
fn close_port(host: &Host) -> Outcome {
    for line in [
        "add table inet closed",
        "add chain inet closed in { type filter hook input priority 0 ; }",
        "add rule inet closed in tcp dport 4440 drop",
    ] {
        run(host.command("nft").args(line.split(' ')))?;
    }
    Ok(())
}

impl Day {
    fn new() -> Result<Self, LabError> {
        let (lab, vfield) = (Lab::best(5)?, vfield());
        let files = lab.dir().join("files");
        let dirs = [&files, &lab.dir().join("old")];
        dirs.into_iter().try_for_each(std::fs::create_dir).expect("a new lab is empty");
        let base = random_file(&files.join("base"), 10 * MIB, 1)?;
        let (image, old) = (lab.dir().join(NAME), lab.dir().join("old").join(NAME));
        run(Command::new("truncate").args(["-s", "32M"]).arg(&image))?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&files).arg(&image))?;
        run(Command::new("cp").arg("--sparse=always").arg(&image).arg(&old))?;
        Ok(Self {
            tree: None,
            daemons: Default::default(),
            ended: [0; 5],
            watches: Vec::new(),
            image,
            old,
            base,
            vfield,
            lab,
            began: Instant::now(),
        })
    }

    fn host(&self, machine: Machine) -> &Host {
        self.lab.host(machine as usize)
    }

    fn daemon(&self, machine: Machine) -> &Daemon {
        self.daemons[machine as usize].as_ref().expect("it was started")
    }

    fn daemon_mut(&mut self, machine: Machine) -> &mut Daemon {
        self.daemons[machine as usize].as_mut().expect("it was started")
    }

    /// The command of a machine; the origin names no member.
    fn command(&self, machine: Machine) -> Start<'_> {
        let (host, joins) = (self.host(machine), self.host(M1).addr());
        let join = |store: &str| self.vfield.join(host, joins).store(store).args(&["--join-boost", "9"]);
        match machine {
            M1 => self.vfield.serve(host, &[&self.image]),
            M2 => join("all"),
            M3 => join("10%").mounted(true),
            M4 => join("10%").mounted(true).args(&["--overlay", "ram"]),
            M5 => join("all"),
        }
    }

    /// Starts a machine's daemon with some more words.
    fn start(&mut self, machine: Machine, words: &[&str]) -> Outcome {
        let daemon = self.command(machine).args(words).ready()?;
        self.daemons[machine as usize] = Some(daemon);
        Ok(())
    }

    /// `systemctl stop`: SIGTERM, and the daemon ends in peace.
    fn stop(&mut self, machine: Machine) -> Outcome {
        let process = self.daemon_mut(machine).process_mut();
        process.terminate();
        let status = process.wait(LEAVES)?;
        assert!(status.success(), "{machine:?} {status}: {}", process.log_tail());
        self.gone(machine);
        Ok(())
    }

    /// The daemon of a machine has ended.
    fn gone(&mut self, machine: Machine) {
        self.daemons[machine as usize] = None;
        self.ended[machine as usize] += 1;
    }

    /// The outcome of `systemctl restart`.
    fn restart(&mut self, machine: Machine, words: &[&str]) -> Outcome {
        self.stop(machine)?;
        self.start(machine, words)
    }

    /// Waits until a machine's status shows something.
    fn sees(&self, machine: Machine, what: &str, cond: impl Fn(&Value) -> bool) -> Outcome {
        Ok(self.daemon(machine).wait_status(&format!("{machine:?}: {what}"), NEWS, cond)?)
    }

    /// Waits until all present nodes know each other.
    fn together(&self) -> Outcome {
        let machines: Vec<_> =
            [M1, M2, M3, M4, M5].into_iter().filter(|&m| self.daemons[m as usize].is_some()).collect();
        for machine in &machines {
            let all = |status: &Value| live(status).len() == machines.len();
            self.sees(*machine, &format!("{} members", machines.len()), all)?;
        }
        Ok(())
    }

    fn covered(&self) -> Outcome {
        for machine in [M2, M3, M4] {
            self.daemon(machine).wait("covered", FILL_LIMIT)?;
        }
        Ok(())
    }

    /// All present nodes read everything, by each of their exports, and all bytes are compared; who
    /// reads all day goes on.
    fn compare(&self, step: &str) -> Outcome {
        eprintln!("{:5.1}s {step}", self.began.elapsed().as_secs_f64());
        let compare = |machine: Machine| {
            let (host, daemon) = (self.host(machine), self.daemons[machine as usize].as_ref());
            match (machine, daemon, &self.tree) {
                (_, None, _) | (M4, _, None) => Ok(()),
                (M1 | M5, Some(daemon), _) => client::compare_nbd(host, &daemon.uri(""), &self.image),
                (M2, Some(daemon), _) => client::compare_nbd(host, &daemon.uri(""), &self.old),
                (M3, Some(daemon), _) => client::compare_all(host, daemon, &self.old),
                (M4, Some(daemon), Some(tree)) => {
                    let base = tree.dir().join("base");
                    client::forget(&base)?;
                    client::forget(&mounted(daemon))?;
                    client::compare_file(host, &base, &self.base)
                }
            }
        };
        std::thread::scope(|scope| {
            let readers = [M1, M2, M3, M4, M5].map(|machine| scope.spawn(move || compare(machine)));
            readers.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
        })?;
        let mut watches = self.watches.iter().filter(|(machine, _)| self.daemons[*machine as usize].is_some());
        Ok(watches.try_for_each(|(_, watch)| watch.goes_on())?)
    }

    /// Mounts m4's file system, of which a file is read from now on.
    fn mount(&mut self) -> Outcome {
        let (host, daemon) = (self.host(M4), self.daemon(M4));
        let image = mounted(daemon);
        let tree = Tree::of(host, &image)?;
        let watch = Watch::file(host, daemon, &tree.dir().join("base"), &[&image], &self.base)?;
        self.watches.push((M4, watch));
        self.tree = Some(tree);
        Ok(())
    }

    fn unmount(&mut self) -> Outcome {
        let reads_it = self.watches.iter().position(|(machine, _)| *machine == M4).expect("it is mounted");
        let (_, watch) = self.watches.remove(reads_it);
        watch.judge(&self.daemon(M4).process().log(), 0);
        Ok(self.tree.take().expect("it is mounted").unmount()?)
    }

    /// `vfield overlay WORDS` on m4.
    fn overlay(&self, words: &[&str]) -> Result<String, Failed> {
        Ok(run(self.daemon(M4).ask("overlay").args(words))?)
    }

    /// Where m4's changes are saved.
    fn changes(&self, name: &str) -> String {
        self.lab.dir().join(name).to_str().expect("a plain path").to_owned()
    }

    /// m2 by NBD, and m3 by FUSE, from now on.
    fn watch(&mut self) -> Outcome {
        let (m2, m3) = (self.daemon(M2), self.daemon(M3));
        let watches = [
            (M2, Watch::nbd(self.host(M2), m2, &self.old)?),
            (M3, Watch::file(self.host(M3), m3, &mounted(m3), &[], &self.old)?),
        ];
        self.watches.extend(watches);
        Ok(())
    }
}

/// The image in a daemon's mount.
fn mounted(daemon: &Daemon) -> PathBuf {
    daemon.mount().expect("it is mounted").join(NAME)
}

/// m1 serves; m2 joins with NBD, m3 with FUSE, m4 with private changes on which a file system is
/// mounted.
fn morning(day: &mut Day) -> Outcome {
    day.start(M1, &[])?;
    for machine in [M2, M3] {
        day.start(machine, &[])?;
    }
    day.start(M4, &["--overlay-size", SMALL])?;
    day.mount()?;
    day.together()?;
    day.watch()?;
    day.compare("all have joined")
}

/// Each is restarted while the others read; m4 takes its changes along.
fn restarts(day: &mut Day, written: &Path) -> Outcome {
    for machine in [M2, M3] {
        day.covered()?;
        day.restart(machine, &[])?;
        day.together()?;
        day.compare(&format!("{machine:?} was restarted"))?;
    }
    let tree = day.tree.as_ref().expect("it is mounted");
    let copy = tree.dir().join("written");
    run(Command::new("cp").arg(written).arg(&copy))?;
    run(Command::new("sync").arg(&copy))?;
    day.unmount()?;
    let changes = day.changes("morning.vfo");
    day.overlay(&["save", &changes])?;
    day.restart(M4, &["--overlay-size", SMALL, "--overlay-from", &changes])?;
    day.mount()?;
    client::compare_file(day.host(M4), &day.tree.as_ref().expect("it is mounted").dir().join("written"), written)?;
    day.compare("M4 was restarted")?;
    day.covered()?;
    day.restart(M1, &[])?;
    day.together()?;
    day.compare("M1 was restarted")
}

/// The origin goes, since all is covered, and comes back.
fn origin_leaves(day: &mut Day) -> Outcome {
    day.daemon(M1).wait("covered", FILL_LIMIT)?;
    assert!(day.daemon_mut(M1).leave(LEAVES)?.success());
    day.gone(M1);
    day.together()?;
    day.compare("M1 has left")?;
    day.start(M1, &[])?;
    day.together()?;
    day.compare("M1 is back")
}

/// `mv new disk.img`, and a restart: those who read go on and are told; returns the old id and the
/// new one.
fn replaced(day: &mut Day) -> Result<[String; 2], Failed> {
    day.covered()?;
    let old = id_of(day.daemon(M1))?;
    let new = random_file(&day.lab.dir().join("new.img"), 24 * MIB + 512, 2)?;
    run(Command::new("mv").arg(&new).arg(&day.image))?;
    day.sees(M1, "its file was replaced", |status| warned(status, "was replaced"))?;
    day.restart(M1, &[])?;
    day.together()?;
    let new = id_of(day.daemon(M1))?;
    let told = format!("\"{NAME}\" is another image now at {} (id {new})", day.daemon(M1).addr());
    for machine in [M2, M3, M4] {
        day.sees(machine, "it is told of the new image", |status| {
            warned(status, &told) && warned(status, &format!("still reads id {old}"))
        })?;
    }
    day.sees(M1, "it is told of the old image", |status| {
        warned(status, &format!("is served here with id {new}")) && warned(status, &format!("(id {old})"))
    })?;
    day.compare("the image was replaced")?;
    Ok([old, new])
}

/// m5 has to choose, and does; its firewall lets nobody in, so that it holds all of the new image
/// in vain.
fn firewall(day: &mut Day, [old, new]: &[String; 2]) -> Outcome {
    let mut refused = day.command(M5).name("refused").spawn()?;
    assert!(!refused.process_mut().wait(NEWS)?.success());
    let said = refused.process().log();
    for id in [old, new] {
        assert!(said.contains(&format!("--image {NAME}={id}")), "{said}");
    }
    drop(refused);
    close_port(day.host(M5))?;
    day.start(M5, &["--image", &format!("{NAME}={new}")])?;
    let text = format!("{} cannot connect to you on TCP 4440: nobody can read your store", day.host(M1).addr().ip());
    day.daemon_mut(M5).says(&text, NEWS)?;
    day.daemon(M5).wait("filled", FILL_LIMIT)?;
    for machine in [M1, M5] {
        day.sees(machine, "a store that nobody can read does not count", |status| {
            let images = status["images"].as_array().into_iter().flatten();
            let mut images = images.filter(|image| image["id"].as_str().is_some_and(|id| id.starts_with(new)));
            images.any(|image| image["coverage"] == 0.0 && image["origin_may_leave"] == false)
        })?;
    }
    day.compare("M5 has joined behind a firewall")
}

/// m3 is killed while all read, and m2, which holds most of the old image: m3 comes back, and m2
/// serves its file. Meanwhile m3 waits, or reads what m4 has in its transient cache.
fn killed(day: &mut Day, old: &str) -> Outcome {
    day.covered()?;
    let died = day.daemon(M3).addr();
    day.daemon_mut(M3).kill();
    day.gone(M3);
    day.daemon_mut(M2).says(&format!("node {died} died"), NEWS)?;
    day.compare("M3 was killed")?;
    day.daemon_mut(M2).kill();
    day.gone(M2);
    day.start(M3, &["--image", &format!("{NAME}={old}")])?;
    let file = day.old.clone();
    let serve = day.vfield.serve(day.host(M2), &[&file]).args(&["--name", "evening.img"]);
    let daemon = serve.args(&["--join", &day.host(M3).addr().to_string()]).ready()?;
    day.daemons[M2 as usize] = Some(daemon);
    day.together()?;
    day.compare("M2 and M3 were killed, and M2 serves the old image now")
}

/// m4's changes have no room: all acknowledged changes are there, now and with more room.
fn filled(day: &mut Day, old: &str, written: &Path) -> Outcome {
    let tree = day.tree.as_ref().expect("it is mounted");
    let done = tree.fill(day.host(M4))?;
    assert!((1..=2).contains(&done), "{done} files of 4 MB were acknowledged, in {SMALL}");
    day.daemon_mut(M4).says("the overlay is full", NEWS)?;
    day.unmount()?;
    let changes = day.changes("evening.vfo");
    day.overlay(&["save", &changes])?;
    let pin = format!("{NAME}={old}");
    day.restart(M4, &["--image", &pin, "--overlay-size", LARGE, "--overlay-from", &changes])?;
    day.mount()?;
    let tree = day.tree.as_ref().expect("it is mounted");
    tree.has_filled(done);
    client::compare_file(day.host(M4), &tree.dir().join("written"), written)?;
    day.compare("M4 has more room")?;
    day.unmount()
}

/// m1 serves one more image, m3 takes it and gives it up again, and neither is started anew for
/// that.
fn dropped(day: &mut Day) -> Outcome {
    let night = random_file(&day.lab.dir().join("night.img"), 8 * MIB + 3, 4)?;
    run(&mut day.daemon(M1).ask_to(&["add", night.to_str().expect("a path")]))?;
    run(&mut day.daemon(M3).ask_to(&["add", "night.img", "--store", "50%"]))?;
    client::compare_nbd(day.host(M3), &day.daemon(M3).uri("night.img"), &night)?;
    run(&mut day.daemon(M3).ask_to(&["drop", "night.img"]))?;
    day.sees(M3, "it has one image again", |status| status["images"].as_array().is_some_and(|all| all.len() == 1))?;
    day.compare("an image came and went")
}

/// What those saw who read all day.
fn judge(day: &mut Day) {
    for (machine, watch) in std::mem::take(&mut day.watches) {
        let log = day.daemon(machine).process().log();
        assert!(!log.contains("panicked"), "{log}");
        watch.judge(&log, day.ended[machine as usize]);
    }
}

#[test]
fn a_day_in_the_life() -> Outcome {
    let tools = ["mkfs.ext4", "nbdcopy", "nft", "cmp"].map(Need::Tool);
    if !have(&[Need::Root, Need::Fuse]) || !have(&tools) {
        return Ok(());
    }
    let day = &mut Day::new()?;
    let written = random_file(&day.lab.dir().join("written"), 3 * MIB, 3)?;
    morning(day)?;
    restarts(day, &written)?;
    origin_leaves(day)?;
    let ids = replaced(day)?;
    firewall(day, &ids)?;
    killed(day, &ids[0])?;
    filled(day, &ids[0], &written)?;
    dropped(day)?;
    judge(day);
    Ok(())
}

//! The hosts of a storm, the image, and who serves it: everything that is there before the readers
//! are.

use super::meter::Reading;
use super::nbd::Target;
use super::plan::{Mode, PIECE_BYTES, Plan, STORM_BLOCK_BYTES, STORM_DEPTH, System};
use super::race::Helper;
use super::reader::{self, Node, Random};
use super::relay::{self, Source};
use super::role::{Programs, Role};
use super::weather::Trouble;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_lab::cgroup::Cgroup;
use vfield_lab::process::run;
use vfield_lab::{Buckets, Daemon, Host, Lab, LabError, Process, Vfield, bytes};

/// The origin's goodbye: it waits for what it is sending.
const LEAVE_LIMIT: Duration = Duration::from_secs(30);
/// A server that does not listen after so long never will.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// A node that was slow may be slow to say why, or gone.
const EXPLAIN_LIMIT: Duration = Duration::from_secs(10);

/// The image in a bucket.
const OBJECT: &str = "s3://images/image";

/// A lab in which the origin serves.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) plan: &'a Plan,
    programs: &'a Programs,
    // Before the lab, whose janitor would otherwise find them.
    origin: Origin,
    bucket: Option<Buckets>,
    fronts: Vec<Process>,
    pub(super) lab: Lab,
    image: Image,
    /// The groups of busy hosts, after the lab: their processes end with it.
    busy: BTreeMap<usize, Cgroup>,
}

#[derive(Debug)]
struct Image {
    path: PathBuf,
    hash: String,
}

/// The first holder of the image.
#[derive(Debug)]
enum Origin {
    Vfield(Daemon),
    Nbdkit(Process),
    Chain(Helper),
    Gone,
}

impl<'a> Field<'a> {
    /// Lays out the hosts, makes an image, and starts its origin.
    pub(super) fn lay_out(plan: &'a Plan, programs: &'a Programs, seed: u64) -> Result<Self, LabError> {
        let mut lab = Lab::namespaces_with(1 + plan.hosts_max(), |host| plan.link(host))?;
        lab.tcp_as_debian()?;
        if let Some(entries) = plan.arp_table {
            lab.arp_table(entries)?;
        }
        let path = lab.dir().join("image");
        match &plan.content {
            Some(content) => bytes::file_of(&path, plan.size_bytes, content)?,
            None if plan.sparse > 1 => bytes::sparse_file(&path, plan.size_bytes, PIECE_BYTES, plan.sparse, seed)?,
            None => bytes::random_file(&path, plan.size_bytes, seed)?,
        };
        // Random reads are compared with the file.
        let hash = if plan.mode == Mode::Random { String::new() } else { hash(&path)? };
        let image = Image { hash, path };
        let busy = busy(plan, &lab)?;
        let (origin, bucket) = (Origin::Gone, None);
        let mut field = Self { plan, programs, origin, bucket, fronts: Vec::new(), lab, image, busy };
        field.bucket = plan.bucket.then(|| field.start_bucket()).transpose()?;
        field.origin = field.start_origin()?;
        field.origin_pid().map_or(Ok(()), |pid| field.confine(0, pid))?;
        field.fronts = (1..=plan.fronted).map(|host| field.start_front(host)).collect::<Result<_, _>>()?;
        Ok(field)
    }

    /// Gives the node of a host its part of a processor, if the host is busy.
    pub(super) fn confine(&self, host: usize, pid: u32) -> Result<(), LabError> {
        self.busy.get(&host).map_or(Ok(()), |group| group.take(pid))
    }

    /// The program between a host's node and all others.
    fn start_front(&self, host: usize) -> Result<Process, LabError> {
        let host = self.lab.host(host);
        let front = self.programs.front.as_deref().unwrap_or(Path::new(""));
        let addrs = [host.addr(), behind(host.addr())].map(|addr| addr.to_string());
        host.spawn("front", host.command(front).args(addrs))
    }

    fn start_origin(&self) -> Result<Origin, LabError> {
        let host = self.lab.host(0);
        Ok(match self.plan.system {
            System::Vfield => {
                let vfield = self.vfield();
                let serve = match &self.bucket {
                    None => vfield.serve(host, &[&self.image.path]),
                    Some(bucket) => bucket.known_to(vfield.serve(host, &[Path::new(OBJECT)])),
                };
                Origin::Vfield(serve.args(&self.plan.origin_words).ready()?)
            }
            System::Nbdkit => {
                let (ip, port) = (host.addr().ip().to_string(), host.addr().port().to_string());
                let mut command = host.command("nbdkit");
                command.args(["-f", "-r", "-i", &ip, "-p", &port, "file"]).arg(&self.image.path);
                Origin::Nbdkit(host.listening(host.spawn("nbdkit", &mut command)?, host.addr())?)
            }
            System::Chain => {
                let source = Source::File(self.image.path.clone());
                let role = Role::Relay(relay::Order { source, listen: Some(host.addr()) });
                let mut helper = Helper::start(host, &self.programs.helper, &role)?;
                helper.wait_ready(LISTEN_LIMIT)?;
                Origin::Chain(helper)
            }
        })
    }

    /// A server of buckets that has the image, with its hashes beside it.
    fn start_bucket(&self) -> Result<Buckets, LabError> {
        let (host, store) = (self.lab.host(0), self.lab.dir().join("store"));
        let object = store.join(OBJECT.trim_start_matches("s3://"));
        let dir = object.parent().unwrap_or(&store);
        std::fs::create_dir_all(dir).map_err(LabError::at(dir))?;
        std::fs::hard_link(&self.image.path, &object).map_err(LabError::at(&object))?;
        let mut id = Command::new(&self.programs.vfield);
        run(id.arg("id").arg(&object).arg("--hashes").arg(object.with_extension("vfh")))?;
        Buckets::start(host, &store)
    }

    fn vfield(&self) -> Vfield {
        Vfield::at(&self.programs.vfield)
    }

    /// Starts the process of a reader's host; joiners come cold, whatever the others do.
    pub(super) fn start_reader(&self, host: usize) -> Result<Helper, LabError> {
        Helper::start(self.lab.host(host), &self.programs.helper, &self.role(host))
    }

    fn role(&self, host: usize) -> Role {
        let plan = self.plan;
        if plan.system == System::Chain {
            let before = self.lab.host(host - 1).addr();
            let source = Source::Peer { addr: before, size_bytes: plan.size_bytes, hash: self.image.hash.clone() };
            let listen = (host < plan.readers).then(|| self.lab.host(host).addr());
            return Role::Relay(relay::Order { source, listen });
        }
        let random = plan.mode == Mode::Random;
        let node = (plan.system == System::Vfield).then(|| self.node(host));
        let target = match &node {
            Some(_) => Target::Unix(socket(self.lab.host(host))),
            None => Target::Tcp(self.lab.host(0).addr()),
        };
        Role::Reader(reader::Order {
            target,
            image: self.image.path.clone(),
            size_bytes: plan.size_bytes,
            hash: self.image.hash.clone(),
            block_bytes: if random { plan.block_bytes } else { STORM_BLOCK_BYTES },
            depth: if random { plan.depth } else { STORM_DEPTH },
            random: random.then_some(Random {
                count: plan.count,
                seed: host as u64,
                in_order: plan.in_order,
                sparse: plan.sparse,
            }),
            think: plan.think.of(host).unwrap_or_default(),
            node,
        })
    }

    /// The node of a reader's host.
    fn node(&self, index: usize) -> Node {
        let (plan, host) = (self.plan, self.lab.host(index));
        let text = |path: &Path| path.display().to_string();
        let (program, control) = (text(&self.programs.vfield), text(&control(host)));
        let mut command = vec![program.clone(), "join".to_owned(), self.lab.host(0).addr().to_string()];
        let fronted = (1..=plan.fronted).contains(&index);
        let options = [
            ("--listen", if fronted { behind(host.addr()) } else { host.addr() }.to_string()),
            ("--advertise", host.addr().to_string()),
            ("--store", plan.store.clone()),
            ("--join-boost", plan.boost.clone()),
            ("--control", control.clone()),
            ("--nbd", format!("unix:{}", text(&socket(host)))),
        ];
        command.extend(options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        let limit = plan.sends_at_most(index).map(|bytes_per_s| ["--limit-up".to_owned(), bytes_per_s.to_string()]);
        command.extend(limit.into_iter().flatten());
        command.extend(plan.node_words.iter().cloned());
        let timeout = plan.limit().as_secs().max(1).to_string();
        let wait = ["status", "--control", &control, "--wait", "filled", "--timeout", &timeout].map(str::to_owned);
        let warm = (plan.warm && index <= plan.readers).then(|| std::iter::once(program).chain(wait).collect());
        Node { command, warm }
    }

    /// Waits until the stores hold all of the image, and has the origin leave.
    pub(super) fn dismiss_origin(&mut self) -> Result<(), LabError> {
        let Origin::Vfield(mut daemon) = std::mem::replace(&mut self.origin, Origin::Gone) else { return Ok(()) };
        let seconds = self.plan.limit().as_secs().max(1).to_string();
        let mut covered = self.lab.host(1).client(self.plan.limit(), &self.programs.vfield.display().to_string());
        covered.args(["status", "--wait", "covered", "--timeout", &seconds, "--control"]);
        run(covered.arg(control(self.lab.host(1)))).map_err(|_| LabError::Late {
            what: format!("the stores hold all of the image: {:#}", daemon.image().unwrap_or_default()),
            limit: self.plan.limit(),
        })?;
        daemon.process_mut().terminate();
        daemon.process_mut().wait(LEAVE_LIMIT).map(drop)
    }

    /// The origin's process.
    pub(super) fn origin_pid(&self) -> Option<u32> {
        match &self.origin {
            Origin::Vfield(daemon) => Some(daemon.process().pid()),
            Origin::Nbdkit(process) => Some(process.pid()),
            Origin::Chain(helper) => Some(helper.pid()),
            Origin::Gone => None,
        }
    }

    /// Looks at the meters.
    pub(super) fn reading(&self) -> Result<Reading, LabError> {
        Reading::take(&self.lab)
    }

    /// What the node of a reader's host says of its slow reads; `None` if nobody answers there.
    pub(super) fn slow_reads(&self, host: usize) -> Option<String> {
        let host = self.lab.host(host);
        let mut explain = host.client(EXPLAIN_LIMIT, &self.programs.vfield.display().to_string());
        run(explain.args(["explain", "--slow", "--control"]).arg(control(host))).ok()
    }

    /// What befalls a link; the rest is the race's.
    pub(super) fn befall_link(&self, trouble: Trouble) -> Result<(), LabError> {
        match trouble {
            Trouble::Slow { host, factor } => self.lab.shape(self.lab.host(host), self.plan.link(host).slower(factor)),
            Trouble::Cut { host } => self.lab.cut(self.lab.host(host)),
            Trouble::Back { host } => {
                self.lab.restore(self.lab.host(host))?;
                self.lab.shape(self.lab.host(host), self.plan.link(host))
            }
            _ => Ok(()),
        }
    }
}

/// A group for each busy host.
fn busy(plan: &Plan, lab: &Lab) -> Result<BTreeMap<usize, Cgroup>, LabError> {
    let tag = lab.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let hosts = (0..lab.hosts().len()).filter_map(|host| Some((host, plan.busy.of(host)?)));
    hosts.map(|(host, share)| Ok((host, Cgroup::of_processor(&tag, host, share.divisor())?))).collect()
}

/// Where a node listens that stands behind something else.
fn behind(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port() + 1)
}

fn socket(host: &Host) -> PathBuf {
    host.dir().join("node.nbd")
}

fn control(host: &Host) -> PathBuf {
    host.dir().join("node.control")
}

/// BLAKE3 of a file, in hexadecimal.
fn hash(path: &Path) -> Result<String, LabError> {
    let mut file = std::fs::File::open(path).map_err(LabError::at(path))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&mut file).map_err(LabError::at(path))?;
    Ok(hasher.finalize().to_hex().to_string())
}

//! A field of real processes: one origin, some nodes, an image, each on a host of its own.

use crate::Failed;
use crate::liar::{self, Twist};
use crate::program::vfield;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::Start;
use vfield_lab::need::fuse_works;
use vfield_lab::{Daemon, Host, Lab, LabError, Vfield, client, daemon};

/// Changes in the field are known everywhere after this: failure detection takes 2 s, gossip a few
/// rounds.
pub const NEWS: Duration = Duration::from_secs(20);

/// What to lay out.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Length of the image; the odd bytes make its last sector a partial one.
    pub image_bytes: u64,
    /// What each node holds; their number is the number of nodes.
    pub stores: &'a [&'a str],
    /// Words for every `join`.
    pub join: &'a [&'a str],
    /// Hosts without a node.
    pub spare_hosts: usize,
    /// True for FUSE mounts where the machine has them.
    pub mounted: bool,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self { image_bytes: 24 * MIB + 777, stores: &[], join: &[], spare_hosts: 0, mounted: false }
    }
}

/// Origin on host 0, node `n` on host `n + 1`. Fields are dropped in this order: daemons before
/// hosts.
#[derive(Debug)]
pub struct Field {
    /// The nodes that joined.
    pub nodes: Vec<Daemon>,
    /// The origin of the image.
    pub origin: Daemon,
    /// The image's file.
    pub image: PathBuf,
    /// The program under test.
    pub vfield: Vfield,
    /// The hosts of the field.
    pub lab: Lab,
}

impl Field {
    /// Starts the origin and the nodes, in namespaces if this user may, each joining through the
    /// one before.
    ///
    /// # Errors
    /// If one does not start.
    pub fn start(plan: Plan<'_>) -> Result<Self, LabError> {
        Self::on(Lab::best(1 + plan.stores.len() + plan.spare_hosts)?, plan)
    }

    /// The same on hosts that are there.
    ///
    /// # Errors
    /// If one does not start.
    pub fn on(lab: Lab, plan: Plan<'_>) -> Result<Self, LabError> {
        let vfield = vfield();
        let image = random_file(&lab.dir().join("disk.img"), plan.image_bytes, 1)?;
        let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
        let mut field = Self { nodes: Vec::new(), origin, image, vfield, lab };
        for store in plan.stores {
            let through = field.nodes.last().unwrap_or(&field.origin).addr();
            let start = field.join(field.nodes.len(), through, store).args(plan.join);
            let node = start.mounted(plan.mounted && fuse_works()).ready()?;
            field.nodes.push(node);
        }
        Ok(field)
    }

    /// An origin and one member that has everything and whose answers are twisted, on so many hosts
    /// of loopback. The member is known by an address of the last host, which is returned.
    ///
    /// # Errors
    /// If one does not start, or the member is not filled in time.
    pub fn beside_liar(hosts: usize, image_bytes: u64, twist: Twist) -> Result<(Self, SocketAddr), Failed> {
        let lab = Lab::loopback(hosts)?;
        let front = lab.host(hosts - 1).addr();
        liar::twist(front, lab.host(1).addr(), twist)?;
        let mut field = Self::on(lab, Plan { image_bytes, ..Plan::default() })?;
        let liar = field.join(0, field.origin.addr(), "all").args(&["--advertise", &front.to_string()]).ready()?;
        field.nodes.push(liar);
        field.nodes[0].wait("filled", daemon::FILL_LIMIT)?;
        Ok((field, front))
    }

    /// One more node to be started, eager to fill.
    pub fn join(&self, node: usize, through: SocketAddr, store: &str) -> Start<'_> {
        self.vfield.join(self.host(node), through).store(store).args(&["--join-boost", "9"])
    }

    /// The host of a node.
    pub fn host(&self, node: usize) -> &Host {
        self.lab.host(node + 1)
    }

    /// Waits until all nodes are filled.
    ///
    /// # Errors
    /// Which is not.
    pub fn filled(&self) -> Result<(), LabError> {
        let filled = |status: &Value| status["images"][0]["filled"] == true;
        self.nodes.iter().try_for_each(|node| node.wait_status("filled", daemon::FILL_LIMIT, filled))
    }

    /// Waits until all nodes are filled and know that the stores hold everything.
    ///
    /// # Errors
    /// Which is not.
    pub fn covered(&self) -> Result<(), LabError> {
        self.filled()?;
        self.nodes.iter().try_for_each(|node| node.wait("covered", daemon::FILL_LIMIT))
    }

    /// All nodes but some read everything at the same time; every byte is compared.
    ///
    /// # Errors
    /// The first difference or failure.
    pub fn compare(&self, except: &[usize]) -> Result<(), LabError> {
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..self.nodes.len())
                .filter(|node| !except.contains(node))
                .map(|node| scope.spawn(move || client::compare_all(self.host(node), &self.nodes[node], &self.image)))
                .collect();
            readers.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
        })
    }

    /// Waits until every node (and `origin`, if it lives) sees `count` live members, itself among
    /// them.
    ///
    /// # Errors
    /// The node that does not, with its last status.
    pub fn members(&self, count: usize, except: &[usize]) -> Result<(), LabError> {
        let nodes = self.nodes.iter().enumerate().filter(|(index, _)| !except.contains(index));
        for (_, node) in nodes {
            node.wait_status(&format!("{count} live members"), NEWS, |status| live(status).len() == count)?;
        }
        Ok(())
    }
}

/// Addresses of the members that a node holds to be there, itself first; one that delivers nothing
/// at the moment is still a member.
pub fn live(status: &Value) -> Vec<String> {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    let nodes =
        nodes.filter(|node| ["alive", "leaving", "self", "stalled"].iter().any(|state| node["state"] == *state));
    nodes.filter_map(|node| node["addr"].as_str().map(str::to_owned)).collect()
}

/// Nobody was charged with anything by this node. On a busy machine a living node may be taken for
/// dead, and denies it; that is no charge.
///
/// # Panics
/// If the status has no misdeeds.
pub fn is_uncharged(status: &Value) -> bool {
    let misdeeds = status["misdeeds"].as_object().expect("counts");
    misdeeds.iter().all(|(kind, count)| kind == "denials" || *count == 0)
}

/// State of a member in a node's view.
pub fn state_of(status: &Value, addr: SocketAddr) -> Option<String> {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    let node = nodes.into_iter().find(|node| node["addr"] == addr.to_string())?;
    node["state"].as_str().map(str::to_owned)
}

/// Runs something while something else is looked at, and returns when both are done.
///
/// # Errors
/// What `work` says.
pub fn while_running<T: Send>(
    work: impl FnOnce() -> Result<T, LabError> + Send,
    mut look: impl FnMut(),
) -> Result<T, Failed> {
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        // A look costs more than the pause would.
        while !worker.is_finished() {
            look();
        }
        worker.join().expect("the work does not panic")
    });
    Ok(done?)
}

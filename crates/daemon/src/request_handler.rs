//! The handler of control requests: answers them from the node, the images and the overlays.
//!
//! Owns the daemon's stage (starting, running, leaving), and passes orders to leave on. Called by
//! the control server; it knows no sockets.

mod explaining;
mod keys;
mod learning;

use super::dashboard;
use super::events::Events;
use super::follow::Follow;
use super::handover::{UpgradeOrder, Upgrades};
use super::images::Images;
use super::leaving::{LeaveOrder, Orders};
use super::overlays::Overlays;
use super::rubbish;
use super::tags;
use crate::admission::AdmissionFiles;
use crate::key_files::KeyFiles;
use crate::limits::Limits;
use crate::standing_orders::StandingOrders;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use vfield_console::bar::percent;
use vfield_control::events::EventStatus;
use vfield_control::message::{DaemonStatus, Reply, STATUS_FORMAT, Serve};
use vfield_control::offer::MemoryStatus;
use vfield_control::recording::Recording;
use vfield_control::selection;
use vfield_control::server::{Daemon, Lent, Pending};
use vfield_control::values::until::Until;
use vfield_core::tags::SignedTag;
use vfield_dashboard::view::{EVENTS_SHOWN, RING_CELLS, Source, View};
use vfield_machine::memory;
use vfield_node::Node;
use vfield_node::event::Event;
use vfield_node::node::{Condition, NodeImage};
use vfield_node::status::Status;

/// Most time that a status waits for holders to show their chunks. It is enough for a room on a
/// LAN, and a person hardly notices it.
const VERIFIED_WITHIN: Duration = Duration::from_millis(300);

/// The daemon's stage.
#[derive(Clone)]
enum Stage {
    Starting,
    Running(Arc<Running>),
    Leaving,
}

/// The parts of a running daemon.
pub struct Running {
    /// The node that it drives.
    pub node: Arc<Node>,
    /// The images and their exports.
    pub images: Arc<Images>,
    /// The changes of images.
    pub overlays: Arc<Overlays>,
    /// The tags that it follows.
    pub following: Arc<Follow>,
    /// What the daemon has given up.
    pub sandbox: Vec<String>,
}

impl Running {
    /// The image that a client means, or the refusal; the only one if it names none.
    fn choose(&self, wanted: Option<&str>) -> Result<NodeImage, Reply> {
        let images = self.node.images();
        selection::choose_or_only(wanted, &images).cloned().map_err(|undecided| {
            let (fact, hint) = undecided.words(wanted.unwrap_or_default(), "this node");
            Reply::refused(fact, hint)
        })
    }
}

/// Answers the requests of the control socket.
pub struct RequestHandler {
    stage: watch::Sender<Stage>,
    doing: Mutex<String>,
    leaves: mpsc::Sender<LeaveOrder>,
    upgrades: mpsc::Sender<UpgradeOrder>,
    control: String,
    key_files: KeyFiles,
    admission: AdmissionFiles,
    /// Held by who reads them again.
    reloading: Arc<tokio::sync::Mutex<()>>,
    events: Arc<Events>,
    limits: Arc<Limits>,
    orders: Arc<StandingOrders>,
}

impl RequestHandler {
    /// The handler of a starting daemon. Its control socket is at `control`, its keys are in
    /// `key_files`, and its list is in `admission`.
    pub fn new(
        control: &Path,
        (key_files, admission): (KeyFiles, AdmissionFiles),
        events: Arc<Events>,
        limits: Arc<Limits>,
        orders: Arc<StandingOrders>,
    ) -> (Arc<Self>, Orders, Upgrades) {
        let (leaves, leave_orders) = Orders::channel();
        let (upgrades, upgrade_orders) = mpsc::channel(1);
        let handler = Self {
            stage: watch::Sender::new(Stage::Starting),
            doing: Mutex::new("not yet joined".to_owned()),
            leaves,
            upgrades,
            control: control.display().to_string(),
            key_files,
            admission,
            reloading: Arc::default(),
            events,
            limits,
            orders,
        };
        (Arc::new(handler), leave_orders, upgrade_orders)
    }

    /// Takes note of what the daemon does while it starts.
    pub fn hear(&self, event: &Event) {
        let doing = match event {
            Event::Hashing { image, done_bytes, total_bytes } => {
                format!("hashing {image}, {} % done", percent(*done_bytes, *total_bytes))
            }
            Event::BootstrapFailed { addr, why, .. } => format!("waiting for {addr}: {why}"),
            Event::NoImages => "waiting for an image: the field has none yet".to_owned(),
            Event::TagWaits { tag, why } => format!("waiting for tag {tag}: {why}"),
            _ => return,
        };
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    /// The node can be asked from now on.
    pub fn open(&self, running: Running) {
        self.stage.send_replace(Stage::Running(Arc::new(running)));
    }

    /// The node cannot be asked any more.
    pub fn close(&self) {
        self.stage.send_replace(Stage::Leaving);
    }

    /// True if the field was closed with keys out of files, or has an admission list in a file.
    pub fn has_key_files(&self) -> bool {
        !self.key_files.paths().is_empty() || self.admission.list.is_some()
    }

    fn status_of(&self, running: &Running) -> DaemonStatus {
        let node = running.node.status();
        DaemonStatus {
            format: STATUS_FORMAT,
            memory: memory_of(&node),
            limits: self.limits.status(&running.node),
            node,
            exports: running.images.places(),
            overlays: running.overlays.status(),
            following: running.following.status(),
            sandbox: running.sandbox.clone(),
            control: self.control.clone(),
            pid: std::process::id(),
        }
    }

    fn running(&self) -> Result<Arc<Running>, Reply> {
        match &*self.stage.borrow() {
            Stage::Running(running) => Ok(Arc::clone(running)),
            Stage::Leaving => Err(leaving()),
            Stage::Starting => {
                let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Err(Reply::Starting { doing })
            }
        }
    }
}

impl Source for RequestHandler {
    fn look(&self, asks: bool) -> Pending<'_, Result<View, String>> {
        Box::pin(async move {
            let running = self.running().map_err(|reply| match reply {
                Reply::Starting { doing } => doing,
                _ => "the daemon is leaving".to_owned(),
            })?;
            if asks {
                // Spectators come again and see what the checks found.
                running.node.inquire(Duration::ZERO).await;
            }
            Ok(View {
                status: self.status_of(&running),
                picture: running.node.picture(RING_CELLS),
                delays: running.node.delays(),
                events: self.events.after(0, EVENTS_SHOWN),
                processor_s: dashboard::processor_s(),
                at_ms: dashboard::now_ms(),
            })
        })
    }
}

/// What the images of a node take, and the process that holds them.
fn memory_of(node: &Status) -> MemoryStatus {
    let limit = memory::limit();
    MemoryStatus {
        // A chunk that versions share lies once in memory, and one on a disk does not.
        store_bytes: node
            .images
            .iter()
            .filter(|image| !image.on_disk)
            .map(|image| image.held_bytes.saturating_sub(image.shared_bytes))
            .sum(),
        transient_bytes: node.images.iter().map(|image| image.transient_bytes).sum(),
        process_bytes: memory::process_bytes(),
        limit_bytes: limit.map(|limit| limit.bytes),
        limit_by: limit.map(|limit| limit.by.to_owned()),
    }
}

fn leaving() -> Reply {
    Reply::refused("the daemon is leaving", "ask another node of the field")
}

impl Daemon for RequestHandler {
    fn status(&self) -> Pending<'_, Result<DaemonStatus, Reply>> {
        Box::pin(async {
            let running = self.running()?;
            running.node.inquire(VERIFIED_WITHIN).await;
            Ok(self.status_of(&running))
        })
    }

    fn events(&self, after: u64, most: usize) -> Vec<EventStatus> {
        self.events.after(after, most)
    }

    fn await_events(&self, after: u64) -> Pending<'_, ()> {
        Box::pin(self.events.await_after(after))
    }

    fn wait(&self, until: Until) -> Pending<'_, Result<(), Reply>> {
        Box::pin(async move {
            let mut stage = self.stage.subscribe();
            let reached = async {
                // The sender lives as long as the handler.
                let _ = stage.wait_for(|stage| !matches!(stage, Stage::Starting)).await;
                let running = self.running()?;
                let condition = match until {
                    Until::Ready => return Ok(()),
                    Until::Filled => Condition::Filled,
                    Until::Covered(times) => Condition::Covered(times.get()),
                };
                running.node.wait(condition).await;
                Ok(())
            };
            let mut stage = self.stage.subscribe();
            let closed = async {
                let _ = stage.wait_for(|stage| matches!(stage, Stage::Leaving)).await;
            };
            tokio::select! {
                reached = reached => reached,
                () = closed => Err(leaving()),
            }
        })
    }

    fn image(&self, wanted: &str) -> Result<Lent, Reply> {
        let running = self.running()?;
        running.choose(Some(wanted)).map(|image| running.images.lend(&image))
    }

    fn overlay_save(&self, image: Option<String>, file: File) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => running.overlays.save(image.as_deref(), file).await,
                Err(reply) => reply,
            }
        })
    }

    fn overlay_reset(&self, image: Option<String>, force: bool) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => running.overlays.reset(image.as_deref(), force).await,
                Err(reply) => reply,
            }
        })
    }

    fn add_image(&self, image: String, store: Option<String>) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => running.images.add_image(image, store).await,
                Err(reply) => reply,
            }
        })
    }

    fn add_file(&self, file: File, hashes: Option<File>, serve: Serve) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => running.images.add_file(file, hashes, serve).await,
                Err(reply) => reply,
            }
        })
    }

    fn drop_image(&self, image: String, force: bool) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => running.images.drop_image(image, force).await,
                Err(reply) => reply,
            }
        })
    }

    fn pin(&self, image: &str, release: bool) -> Reply {
        let pin = || {
            let running = self.running()?;
            let id = running.choose(Some(image))?.id;
            running.node.pin(id, !release);
            self.orders.pinned(id, !release);
            Ok(Reply::Done)
        };
        pin().unwrap_or_else(|reply: Reply| reply)
    }

    fn collect(&self) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => rubbish::collect(&running.node, &running.images).await,
                Err(reply) => reply,
            }
        })
    }

    fn learned(&self, image: Option<&str>) -> Reply {
        let chosen = self.running().and_then(|running| Ok((running.choose(image)?, running)));
        chosen.map_or_else(|reply| reply, |(image, running)| learning::learned(&running.node, &image))
    }

    fn explain(&self, image: Option<String>, offset: Option<u64>, follow: bool) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => explaining::explain(&running, image.as_deref(), offset, follow).await,
                Err(reply) => reply,
            }
        })
    }

    fn record(&self) -> Result<Recording, Reply> {
        let running = self.running()?;
        let Some(mut recording) = running.node.record() else {
            return Err(Reply::refused("another client records a trace", "wait until it is done"));
        };
        Ok(Box::new(move || recording.take()))
    }

    fn limit(&self, image: Option<&str>, up: Option<&str>, down: Option<&str>) -> Reply {
        let set = || {
            let running = self.running()?;
            let image = image.map(|wanted| running.choose(Some(wanted))).transpose()?;
            Ok(self.limits.set(&running.node, image.as_ref(), [up, down]))
        };
        set().unwrap_or_else(|reply: Reply| reply)
    }

    fn reload_keys(&self) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => self.keys_again(&running.node).await,
                Err(reply) => reply,
            }
        })
    }

    fn tag(&self, tag: SignedTag) -> Reply {
        self.running().map_or_else(|reply| reply, |running| tags::tell(&running.node, tag))
    }

    fn compare(&self, image: &str, with: &str) -> Pending<'_, Reply> {
        let (image, with) = (image.to_owned(), with.to_owned());
        Box::pin(async move {
            match self.running() {
                Ok(running) => tags::compare(Arc::clone(&running.node), &image, &with).await,
                Err(reply) => reply,
            }
        })
    }

    fn upgrade(&self, witness: Option<File>) -> Pending<'_, Reply> {
        Box::pin(async move {
            if let Err(reply) = self.running() {
                return reply;
            }
            let (tell, told) = oneshot::channel();
            if self.upgrades.send(UpgradeOrder { witness, tell }).await.is_err() {
                return leaving();
            }
            told.await.unwrap_or_else(|_| leaving())
        })
    }

    fn drain(&self, bound: Duration) -> Pending<'_, Reply> {
        Box::pin(async move {
            let running = match self.running() {
                Ok(running) => running,
                Err(reply) => return reply,
            };
            let begins = super::leaving::drain(&running.node, &running.images, true).await;
            self.orders.drained(true);
            if begins {
                self.events.add(dashboard::now_ms(), "drain", "peers ask this node last");
            }
            Reply::Drained { left: super::leaving::drained(&running.node, &running.images, bound).await }
        })
    }

    fn undrain(&self) -> Pending<'_, Reply> {
        Box::pin(async move {
            let running = match self.running() {
                Ok(running) => running,
                Err(reply) => return reply,
            };
            let ends = super::leaving::drain(&running.node, &running.images, false).await;
            self.orders.drained(false);
            if ends {
                self.events.add(dashboard::now_ms(), "drain", "peers ask this node again");
            }
            Reply::Done
        })
    }

    fn rehearse_leave(&self) -> Pending<'_, Reply> {
        Box::pin(async move {
            match self.running() {
                Ok(running) => super::leaving::rehearse(&running.node).await,
                Err(reply) => reply,
            }
        })
    }

    fn leave(&self, bound: Duration, force: bool) -> Pending<'_, Reply> {
        Box::pin(async move {
            let (tell, told) = oneshot::channel();
            if self.leaves.try_send(LeaveOrder { bound, force, tell: Some(tell) }).is_err() {
                return leaving();
            }
            told.await.unwrap_or_else(|_| leaving())
        })
    }
}

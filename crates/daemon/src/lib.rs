//! A running daemon: node, exports and control socket, from their start to a polite end.
//!
//! Owns the order of start and end. Refusals come before the node contacts the field. Exports
//! appear when the images can be read, and end before the process. SIGTERM, SIGINT and `vfield
//! leave` have the same effect; SIGHUP reloads files. It knows neither how chunks travel nor what
//! NBD is.

pub mod admission;
mod announce;
mod dashboard;
mod estate;
mod events;
mod exports;
mod follow;
mod ground;
pub mod guard;
mod handover;
mod images;
pub mod keeper;
pub mod key_files;
mod lasting;
mod learned;
mod leaving;
pub mod limits;
pub mod link_memory;
mod looks;
pub mod members;
mod memory_file;
mod onlooker;
mod overlays;
pub mod plan;
mod reload;
mod report;
mod request_handler;
mod rollback;
mod rubbish;
mod sandbox;
mod signals;
mod standing_orders;
mod start_error;
pub mod tags;
pub mod trees;
pub mod values;

use crate::dashboard::Dashboard;
use crate::estate::Estate;
use crate::ground::Ground;
use crate::handover::Handover;
use crate::handover::state::VERSION;
use crate::keeper::custody::Line;
use crate::keeper::service_manager;
use crate::keeper::word::Word;
use crate::onlooker::Onlooker;
use crate::plan::{Places, Plan};
use crate::report::Reporter;
use exports::Exports;
use follow::Follow;
use images::Images;
use leaving::{LAST_THREADS, LeaveOrder, Orders};
use limits::Limits;
use limits::local_time::minute_of_day;
use looks::Looks;
use overlays::{Overlays, Prepared};
use reload::Reloader;
use request_handler::{RequestHandler, Running};
use rustix::process::{Resource, getrlimit, setrlimit};
use sandbox::Sandbox;
use signals::{Instruction, Signals};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use vfield_console::failure::{Failure, plain};
use vfield_console::log::Console;
use vfield_console::stderr;
use vfield_control::message::Reply;
use vfield_control::server::Server;
use vfield_core::tag::TagName;
use vfield_node::Node;
use vfield_node::config::NodeConfig;
use vfield_node::node::{Leaving, Publication, StartError};

/// Descriptors for as many connections as a node may have: many systems give a process 1024 unless
/// it asks.
const DESCRIPTORS: u64 = 8192;
/// Below this there is no room for connections beside a daemon's own files: half of them are left.
const DESCRIPTORS_MIN: u64 = 64;

/// How long a leave takes at most where nobody says otherwise.
pub const LEAVE_BOUND: Duration = Duration::from_secs(10);

/// Runs until told to end.
pub fn run(mut plan: Plan, console: Console) -> Result<(), Failure> {
    let system = |error: std::io::Error| Failure::failed(format!("starting threads failed: {}", plain(&error)));
    let ground = match guard::succeeds() {
        None => Some(Ground::take(&mut plan)?),
        Some(VERSION) => {
            Line.say(&Word::Alive, None);
            None
        }
        Some(version) => {
            let fact = format!("the running daemon leaves a state of version {version}, this program knows {VERSION}");
            return Err(Failure::failed(fact).hint("end the daemon with `vfield leave`, and start the new program"));
        }
    };
    let warn = |plan: &mut Plan| plan.warnings.drain(..).for_each(|warning| console.warn(&warning));
    warn(&mut plan);
    if let Some(most) = take_descriptors().filter(|most| *most < DESCRIPTORS_MIN) {
        return Err(Failure::failed(format!("a process may have {most} open files here"))
            .hint(format!("a daemon needs {DESCRIPTORS_MIN} at least: raise the hard limit (ulimit -Hn)")));
    }
    // It may have to be made first, and then be left. A daemon with overlays has no successor.
    let overlay = plan.overlay.clone().filter(|_| ground.is_some());
    let prepared = overlays::prepare(overlay)?;
    // The time zone is read at the first question.
    (plan.node.limits, plan.node.image_limits) = plan.limits.rates_at(minute_of_day());
    trees::look(&mut plan, &console);
    let sandbox = Sandbox::enter(plan.sandbox, &plan, &vfield_control::place::choose(plan.control.as_deref()))?;
    let onlooker = if plan.exports.device.is_some() { Onlooker::start().map_err(system)? } else { Onlooker::default() };
    let alone = Alone { sandbox, onlooker: Arc::new(onlooker) };
    stderr::in_background().map_err(system)?;
    let reporter = Reporter::start(console.clone()).map_err(system)?;
    let on_disk = plan.node.disk.is_some() || plan.overlay.as_ref().is_some_and(|overlay| overlay.dir().is_some());
    let runtime = runtime(plan.threads, on_disk).map_err(system)?;
    let result = runtime.block_on(async {
        let (plan, ground, publication) = match ground {
            Some(ground) => (plan, ground, None),
            None => {
                let (mut plan, ground, publication) = Ground::succeed(plan, &reporter).await?;
                warn(&mut plan);
                (plan, ground, Some(publication))
            }
        };
        let events = Arc::clone(&ground.events);
        let result = live(plan, publication, prepared, ground, alone, &console, &reporter).await;
        let end = result.as_ref().map_or_else(|failure| format!("ended: {}", failure.fact()), |()| "ended".to_owned());
        events.add(dashboard::now_ms(), "ended", &end);
        result
    });
    runtime.shutdown_timeout(LAST_THREADS);
    reporter.finish();
    result
}

/// Raises the limit of descriptors as far as it is useful and allowed; it bounds the connections.
/// Returns the limit, if there is one.
fn take_descriptors() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        // Only an outer sandbox can refuse an allowed limit.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    getrlimit(Resource::Nofile).current
}

/// The runtime of the daemon's tasks, which may wait for a disk.
fn runtime(threads: NonZeroUsize, disk: bool) -> std::io::Result<Runtime> {
    // A single thread has no other thread to share work with or to wake. So it has nobody to leave
    // its tasks to either, if one of them waits for a disk.
    let alone = threads == NonZeroUsize::MIN && !disk;
    let mut builder = if alone { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads.into()).enable_all().build()
}

/// What a daemon has begun while it was one thread.
struct Alone {
    sandbox: Sandbox,
    onlooker: Arc<Onlooker>,
}

async fn live(
    plan: Plan,
    publication: Option<Publication>,
    prepared: Option<Prepared>,
    ground: Ground,
    alone: Alone,
    console: &Console,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let Alone { sandbox, onlooker } = alone;
    let Ground { place, listener, estate, events: remembered, orders: standing, mut state } = ground;
    let mut signals = Signals::new().map_err(|error| Failure::failed(format!("signals: {}", plain(&error))))?;
    exports::check(&plan.exports, &estate)?;
    check_listen(&plan.node)?;
    let mut handover = Handover::new(plan.root)?;
    let files = (plan.key_files.clone(), plan.admission.clone());
    let limits = Limits::new(plan.limits.clone(), Arc::clone(&standing));
    let (handler, mut orders, mut upgrades) =
        RequestHandler::new(place.path(), files, Arc::clone(&remembered), Arc::clone(&limits), Arc::clone(&standing));
    let reloader = Reloader::new(&plan, Arc::clone(&handler), console.clone());
    let _dashboard = Dashboard::start(plan.http.as_ref(), handler.clone(), console).await?;
    let server = Server::start(listen(listener)?, handler.clone());

    let may_move = plan.finds_address && guard::is_guarded();
    let serving = !plan.node.serve.is_empty();
    let follow = plan.node.follow.clone();
    let names_no_image = !plan.node.names_images();
    let (hashing, arrived) = (Arc::clone(&handler), Arc::clone(&remembered));
    let events = reporter.sink(move |event| {
        hashing.hear(event);
        if let Some((word, text)) = report::remembered(event) {
            remembered.add(dashboard::now_ms(), word, &text);
        }
    });
    // The address of another process with this node's identity.
    let mut outdone = None;
    let started = tokio::select! {
        node = Node::start_with(plan.node, publication, events) => Ok(node.map_err(start_error::explain)?),
        end = told_to_end(&mut signals, &mut orders, &reloader) => Err(end),
    };
    let (node, end) = match started {
        Ok(node) => {
            let node = Arc::new(node);
            let attached = async {
                rollback::check(node.status().images, plan.allow_rollback).await?;
                let attached = attach(&plan.exports, prepared, &node, &follow, &estate, &onlooker, console).await?;
                Ok((attached, sandbox.close()?))
            };
            let ((exports, overlays), given_up) = match attached.await {
                Ok(attached) => attached,
                Err(failure) => {
                    node.leave(LAST_THREADS).await;
                    return Err(failure);
                }
            };
            let (looks, laid) = (Looks::by(onlooker), Arc::clone(&overlays));
            let (taken, rollback) = (Arc::clone(&standing), plan.allow_rollback);
            let images = Images::new(Arc::clone(&node), exports, laid, looks, taken, rollback, console.clone());
            let images = Arc::new(images);
            if let ([only], true) = (&node.images()[..], names_no_image) {
                standing.began_with(only);
            }
            let (following, mut followers) = (Arc::new(Follow::default()), JoinSet::new());
            following.begin(&follow, &node, &images, &mut followers).await;
            standing.follow(&node, &images, state.is_none()).await;
            followers.spawn(rubbish::keep_away(Arc::clone(&node), Arc::clone(&images)));
            if may_move {
                followers.spawn(handover::move_along(Arc::clone(&node), Arc::clone(&handler)));
            }
            let running = Running {
                node: Arc::clone(&node),
                images: Arc::clone(&images),
                overlays: Arc::clone(&overlays),
                following,
                sandbox: given_up,
            };
            // Before anybody hears that it is ready, and asks how it came here.
            handover::arrived(state.as_ref(), &estate.take_stays(), &arrived);
            handler.open(running);
            if let Some(state) = &mut state {
                images.resume(handover::clients(&estate, state)).await;
            }
            estate.drop_rest();
            announce::running(console, &node, serving, &images.places());
            service_manager::tell("READY=1");
            let keeping = plan.admission.signers.is_some().then(|| tokio::spawn(admission::keep(Arc::clone(&node))));
            if tags::are_kept(&follow) {
                followers.spawn(tags::keep(Arc::clone(&node), follow));
            }
            if lasting::has_place() {
                followers.spawn(learned::keep(Arc::clone(&node)));
                followers.spawn(link_memory::keep(Arc::clone(&node)));
            }
            let limiting = tokio::spawn(limits.keep(Arc::clone(&node)));
            let remembering = plan.members.map(|path| tokio::spawn(members::remember(path, Arc::clone(&node))));
            let end = loop {
                let order = tokio::select! {
                    order = told_to_end(&mut signals, &mut orders, &reloader) => order,
                    addr = node.outdone() => {
                        outdone = Some(addr);
                        break LeaveOrder { bound: Duration::ZERO, force: true, tell: None };
                    }
                    order = handover.due(&mut upgrades, &images) => {
                        match handover::hand_over(order, &node, &images, &arrived).await {}
                    }
                };
                if let Some(order) = leaving::judge(&node, order, &mut signals).await {
                    break order;
                }
            };
            for task in remembering.into_iter().chain(keeping).chain([limiting]) {
                task.abort();
            }
            (Some((node, images, overlays)), end)
        }
        Err(end) => (None, end),
    };
    service_manager::tell("STOPPING=1");
    handler.close();
    let was_member = node.is_some();
    let left = match node {
        None => Leaving { handed_over: 0, lost: 0 },
        Some((node, images, overlays)) => {
            let exports = images.close().await;
            console.say("leaving; repeat the signal to end at once");
            let left = tokio::select! {
                left = leaving::leave(&node, end.bound, console) => Some(left),
                () = signals.end() => None,
            };
            tokio::select! {
                () = leaving::finish(exports, &overlays, console) => {}
                () = signals.end() => {
                    // To drop them is to wait for their disk.
                    std::mem::forget(overlays);
                    return Err(Failure::failed("ended at once: what clients wrote last may be lost"));
                }
            }
            left.ok_or_else(|| Failure::failed("ended at once, without handing over"))?
        }
    };
    announce::left(console, left);
    if was_member {
        console.say("this node has left the field");
    }
    drop(place);
    if let Some(addr) = outdone {
        server.finish().await;
        return Err(start_error::explain(StartError::Twin { addr }));
    }
    end.answer(Reply::Left { handed_over: left.handed_over, lost: left.lost });
    server.finish().await;
    Ok(())
}

/// Exports the images.
async fn attach(
    places: &Places,
    prepared: Option<Prepared>,
    node: &Node,
    follow: &[TagName],
    estate: &Arc<Estate>,
    onlooker: &Arc<Onlooker>,
    console: &Console,
) -> Result<(Exports, Arc<Overlays>), Failure> {
    let access = exports::access::resolve(places, &node.images(), follow, console)?;
    let overlays = lay(prepared, node).await?;
    let exports = Exports::start(places, access, overlays.sources(node.images()), estate, onlooker, console).await?;
    overlays.attached_as(exports.devices(), Arc::clone(onlooker));
    Ok((exports, overlays))
}

fn listen(listener: std::os::unix::net::UnixListener) -> Result<UnixListener, Failure> {
    let listener = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
    listener.map_err(|error| Failure::failed(format!("control socket: {}", plain(&error))))
}

/// Refuses an address that cannot be bound before a large file is hashed in vain.
fn check_listen(config: &NodeConfig) -> Result<(), Failure> {
    if config.any_port || config.sockets.is_some() {
        return Ok(());
    }
    let addr = config.listen;
    let tried = std::net::TcpListener::bind(addr).and_then(|_| std::net::UdpSocket::bind(addr));
    tried.map(drop).map_err(|source| start_error::explain(StartError::Listen { addr, source }))
}

/// Lays the overlays on a thread that may block on disks.
async fn lay(prepared: Option<Prepared>, node: &Node) -> Result<Arc<Overlays>, Failure> {
    let Some(prepared) = prepared else { return Ok(Arc::default()) };
    let images: Vec<_> = node.images().into_iter().map(|image| (image.id, image.source)).collect();
    let laid = tokio::task::spawn_blocking(|| prepared.lay(images)).await;
    laid.map_err(|error| Failure::failed(format!("laying overlays: {error}")))?.map(Arc::new)
}

/// Returns at a signal or an order to end; obeys other signals until then.
async fn told_to_end(signals: &mut Signals, orders: &mut Orders, reloader: &Reloader) -> LeaveOrder {
    loop {
        let instruction = tokio::select! {
            instruction = signals.next() => instruction,
            order = orders.next() => return order,
        };
        match instruction {
            Instruction::End => return LeaveOrder { bound: LEAVE_BOUND, force: true, tell: None },
            other => reloader.obey(other),
        }
    }
}

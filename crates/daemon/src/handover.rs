//! Handing over to a successor: another process, perhaps of another program, that goes on where
//! this one is. Clients notice a short pause.
//!
//! The guard starts the successor while this daemon serves. The successor reads its files, hashes
//! the images that it serves, and says that it is ready. Only then does this daemon stop, each
//! connection between two requests. It leaves its connections and a [`State`] to the guard. The
//! guard has all else at all times: memory files, the kernel's end of a mount, listening sockets.
//!
//! Until the daemon stops nothing has changed, so a successor that fails costs nothing. If it fails
//! later, the guard starts the program before it, with the same files.

pub mod state;

use crate::dashboard::now_ms;
use crate::estate::Estate;
use crate::events::Events;
use crate::guard;
use crate::images::Images;
use crate::keeper::custody::{Line, ONCE};
use crate::keeper::word::{self, Heard, Word};
use crate::request_handler::RequestHandler;
use state::{State, VERSION};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind, stdin};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use vfield_console::failure::{Failure, plain};
use vfield_console::log::EVENTS;
use vfield_console::stderr;
use vfield_control::message::Reply;
use vfield_control::server::Daemon as _;
use vfield_export::nbd::Handed;
use vfield_node::Node;
use vfield_node::keeper::Keeper as _;

/// Members that the successor is told of: one that answers is enough.
const MEMBERS_MAX: usize = 8;

/// An order to hand over.
pub struct UpgradeOrder {
    /// Over which the client names a program, if it names one.
    pub witness: Option<File>,
    /// Takes the answer.
    pub tell: oneshot::Sender<Reply>,
}

impl UpgradeOrder {
    fn answer(self, reply: Reply) {
        // The client may have gone.
        let _ = self.tell.send(reply);
    }
}

/// Orders to hand over.
pub type Upgrades = mpsc::Receiver<UpgradeOrder>;

/// Pause before the next try of a node that has to move, and could not.
const MOVE_AGAIN: Duration = Duration::from_secs(60);

/// Has a successor listen where this machine is now, each time that it has no longer the address at
/// which the node listens.
pub async fn move_along(node: Arc<Node>, daemon: Arc<RequestHandler>) {
    loop {
        node.displaced().await;
        if let Reply::Refused { fact, .. } = daemon.upgrade(None).await {
            tracing::warn!("the node stays at an address that is lost: {fact}");
        }
        tokio::time::sleep(MOVE_AGAIN).await;
    }
}

/// The line to the guard, and an order that waits for a successor.
pub struct Handover {
    line: Option<UnixStream>,
    root: bool,
    waiting: Option<UpgradeOrder>,
}

impl Handover {
    /// Of a daemon, which carries a root file system if `root`. Within a runtime.
    pub fn new(root: bool) -> Result<Self, Failure> {
        let line = guard::is_guarded().then(line).transpose();
        let line = line.map_err(|error| Failure::failed(format!("the line to the guard: {}", plain(&error))))?;
        Ok(Self { line, root, waiting: None })
    }

    /// Takes orders until it is time to hand over; the order that is due.
    pub async fn due(&mut self, orders: &mut Upgrades, images: &Images) -> UpgradeOrder {
        loop {
            tokio::select! {
                Some(order) = orders.recv() => self.begin(order, images).await,
                heard = hear(self.line.as_ref()) => match (heard, &self.waiting) {
                    (Heard::Word(Word::Go, _), Some(_)) => {
                        if let Some(order) = self.waiting.take() {
                            return order;
                        }
                    }
                    (Heard::Word(Word::Failed(why), _), Some(_)) => {
                        tracing::warn!("not upgraded: {why}");
                        let refused = Reply::refused(
                            format!("the new program was not taken: {why}"),
                            "the daemon serves on as before; its log has what the new program said",
                        );
                        if let Some(order) = self.waiting.take() {
                            order.answer(refused);
                        }
                    }
                    (Heard::End, _) => self.alone(),
                    _ => {}
                },
            }
        }
    }

    /// Asks the guard for a successor, if this daemon can have one.
    async fn begin(&mut self, order: UpgradeOrder, images: &Images) {
        let refusal = if self.line.is_none() {
            Some(Reply::refused(
                "this daemon has no guard, which alone could start another program in its place",
                "start it with --guard; without one, `vfield leave` and start it again",
            ))
        } else if self.waiting.is_some() {
            Some(Reply::refused("an upgrade is under way", "wait for its end"))
        } else {
            images.may_be_handed_over().await.err()
        };
        if let Some(refusal) = refusal {
            return order.answer(refusal);
        }
        Line.say(&Word::Upgrade(VERSION), order.witness.as_ref().map(File::as_fd));
        self.waiting = Some(order);
    }

    /// The guard has ended. Whoever ended it meant the daemon; a root file system stays all the
    /// same.
    fn alone(&mut self) {
        if self.root {
            tracing::warn!("the guard has ended: the daemon goes on alone");
            self.line = None;
            return;
        }
        tracing::error!("the guard has ended, and the daemon with it");
        stderr::finish();
        std::process::exit(1);
    }
}

/// This process's end of the line, for waiting.
fn line() -> io::Result<UnixStream> {
    let line = std::os::unix::net::UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    line.set_nonblocking(true)?;
    UnixStream::from_std(line)
}

/// The next word of the guard; never without one.
async fn hear(line: Option<&UnixStream>) -> Heard {
    let Some(line) = line else { return std::future::pending().await };
    let heard = line.async_io(Interest::READABLE, || match word::hear(line) {
        Heard::Nothing => Err(ErrorKind::WouldBlock.into()),
        heard => Ok(heard),
    });
    heard.await.unwrap_or(Heard::End)
}

/// Stops, leaves connections and state to the guard, and ends this process.
pub async fn hand_over(order: UpgradeOrder, node: &Node, images: &Images, events: &Events) -> Infallible {
    order.answer(Reply::HandingOver);
    let paused_ms = now_ms();
    let clients = match images.close().await {
        Some(exports) => exports.hand_over().await,
        None => Vec::new(),
    };
    let members = node.status().nodes.into_iter().filter(|node| node.state == "alive").map(|node| node.addr);
    let members = members.take(MEMBERS_MAX).collect();
    node.depart();
    for (server, clients) in clients.iter().enumerate() {
        for (number, client) in clients.iter().enumerate() {
            Line.keep(&client_name(server, number), client.socket.as_fd());
        }
    }
    let clients = clients.into_iter().map(|clients| clients.into_iter().map(|client| client.state).collect());
    let (version, pid) = (env!("CARGO_PKG_VERSION").to_owned(), std::process::id());
    let state = State { version, pid, paused_ms, members, clients: clients.collect() };
    match state.write() {
        Ok(file) => Line.keep(&state_name(), file.as_fd()),
        Err(error) => tracing::error!("clients are disconnected: {}", plain(&error)),
    }
    events.add(now_ms(), "ended", "handed over to the next program");
    Line.say(&Word::Handed, None);
    stderr::finish();
    // No destructor runs: what it would clear away is the successor's.
    std::process::exit(0);
}

/// The state that the daemon before this one has left.
pub fn state(estate: &Estate) -> Option<State> {
    let file = estate.pick(&state_name())?;
    let state = State::read(&file);
    if state.is_none() {
        tracing::warn!("the state of the daemon before is not one of this version: its clients are disconnected");
    }
    state
}

/// The clients of each NBD server that the daemon before this one has left.
pub fn clients(estate: &Estate, state: &mut State) -> Vec<Vec<Handed>> {
    let servers = std::mem::take(&mut state.clients).into_iter().enumerate();
    let of = |(server, states): (usize, Vec<Vec<u8>>)| {
        let numbered = states.into_iter().enumerate();
        let taken = numbered.filter_map(|(number, state)| {
            let socket = estate.pick(&client_name(server, number))?;
            Some(Handed { socket, state })
        });
        taken.collect()
    };
    servers.map(of).collect()
}

/// Tells the guard that all is taken over. Remembers how it went, and what stays at the place of
/// the daemon before.
pub fn arrived(state: Option<&State>, stays: &[String], events: &Events) {
    if guard::is_guarded() {
        Line.say(&Word::Up, None);
    }
    for text in stays {
        tracing::warn!("{text}");
        events.add(now_ms(), "stays", text);
    }
    if let Some(why) = guard::returns() {
        let text = format!("not upgraded: {why}");
        tracing::warn!(target: EVENTS, event = "upgrade_failed", "{text}");
        return events.add(now_ms(), "upgrade_failed", &text);
    }
    let Some(State { version, pid, paused_ms, .. }) = state else { return };
    let pause_ms = now_ms().saturating_sub(*paused_ms);
    let text = format!("took over from version {version}, process {pid}: a pause of {pause_ms} ms");
    tracing::info!(target: EVENTS, event = "upgraded", pause_ms, "{text}");
    events.add(now_ms(), "upgraded", &text);
}

fn state_name() -> String {
    format!("{ONCE}state")
}

fn client_name(server: usize, number: usize) -> String {
    format!("{ONCE}nbd-{server}-{number}")
}

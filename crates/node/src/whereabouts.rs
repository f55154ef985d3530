//! The announced address of this node: whether others can connect to it, and how to correct it.
//!
//! A node that listens on all addresses of its machine can only guess which one others see. While
//! it has no other members, the address of an incoming connection is a better guess. A joining node
//! asks a member to dial back. If that fails, the next guess is the local address of its connection
//! to the member. A configured address is never replaced, only reported as wrong.
//!
//! A machine may get another address later: a lease ends, or a cable is pulled. A node that listens
//! on all addresses announces the next one. One that listens at the lost address cannot, since its
//! sandbox lets it open no sockets to listen. It says so, and its daemon may have a successor.
//!
//! A node that others cannot connect to announces that it has nothing ([`Input::Reachable`]), and
//! asks again until they can. Other nodes may announce wrong addresses too. A node that has reached
//! one of them elsewhere keeps that address, a detour.

use crate::driver::Driver;
use crate::event::Event;
use crate::gossip;
use crate::greet::{self, GreetError, Greeted};
use crate::route;
use crate::segments::Carrying;
use crate::turns::Turns;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use vfield_core::identity::{Identity, NodeId};
use vfield_core::node::{Input, MemberView};
use vfield_core::wire::{self, DialledBack, FrameHeader, HEADER, Kind};

/// Timeout for dialling back: two packets may be lost, and a dropping firewall is not found sooner.
const CONNECT: Duration = Duration::from_millis(3500);
/// Timeout for a member to dial back and report.
const ANSWER: Duration = Duration::from_secs(12);
/// The pause before the first time that a node which cannot be reached asks again, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));
/// How often a node looks whether its machine has the announced address: others hold the node for
/// dead within two seconds of a loss.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks in a row that miss a lost address. Programs that set up networks take addresses away for a
/// moment.
const MISSED: u32 = 3;
/// Most nodes dialled back at once. A room that is switched on waits a moment, and no flood of
/// requests makes this node dial as much.
const AT_ONCE: usize = 16;
/// Most detours kept, and addresses reported: more wrong ones mean one wrong network.
const WRONG_MAX: usize = 64;
/// Most nodes that are known not to be reachable, gone ones among them: more than rooms have.
const SHUT_MAX: usize = 4096;
/// Members asked besides the bootstrap nodes.
const MEMBERS_ASKED: usize = 3;

/// The addresses of this node and others.
#[derive(Debug)]
pub struct Whereabouts {
    /// True if the announced address was not configured.
    guessed: bool,
    /// The reason, in words, why others cannot connect to this node.
    unreached: Mutex<Option<String>>,
    /// Nodes to which this one could not connect when they asked for it.
    shut: Mutex<BTreeSet<NodeId>>,
    /// The reachable addresses of members that announce other ones.
    detours: RwLock<BTreeMap<SocketAddr, SocketAddr>>,
    /// Nodes that were logged, each with the wrong address.
    reported: Mutex<BTreeSet<(IpAddr, SocketAddr)>>,
    dialling: Semaphore,
    /// True while the address at which this node listens is lost, and the machine has another one.
    displaced: watch::Sender<bool>,
    /// Nodes that take turns at one address.
    pub turns: Turns,
    /// The segments that carry to others.
    pub carrying: Arc<Carrying>,
}

impl Whereabouts {
    /// `guessed` unless the announced address was configured.
    pub fn new(guessed: bool) -> Self {
        Self {
            guessed,
            unreached: Mutex::default(),
            shut: Mutex::default(),
            detours: RwLock::default(),
            reported: Mutex::default(),
            dialling: Semaphore::new(AT_ONCE),
            displaced: watch::Sender::new(false),
            turns: Turns::default(),
            carrying: Arc::default(),
        }
    }

    /// The reachable address of a node that announces `addr`.
    pub fn way_to(&self, addr: SocketAddr) -> SocketAddr {
        self.detours.read().unwrap_or_else(PoisonError::into_inner).get(&addr).copied().unwrap_or(addr)
    }

    /// That others cannot connect to this node, if it is so.
    pub fn unreached(&self) -> Option<String> {
        self.unreached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// That nobody can connect to some of these members, which announce that they have nothing.
    pub fn shut(&self, members: &[MemberView]) -> Option<String> {
        let shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        // Another member may have reached one since.
        let is_shut = |member: &&MemberView| shut.contains(&member.identity.node) && member.capacity_bytes == 0;
        let addrs = members.iter().filter(is_shut).map(|member| member.identity.addr).collect::<Vec<_>>();
        addrs.split_first().map(|(first, others)| {
            let (named, port) = (gossip::named(*first, others), first.port());
            format!("nobody can read the store of {named}, which does not count: TCP {port} must be open there")
        })
    }

    fn set_shut(&self, node: NodeId, is_shut: bool) {
        let mut shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_shut {
            shut.remove(&node);
        } else if shut.len() < SHUT_MAX {
            shut.insert(node);
        }
    }

    /// Returns while this machine has another address than the one at which this node listens.
    pub async fn displaced(&self) {
        let mut displaced = self.displaced.subscribe();
        if displaced.wait_for(|displaced| *displaced).await.is_err() {
            std::future::pending().await
        }
    }

    fn set_unreached(&self, text: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.unreached.lock().unwrap_or_else(PoisonError::into_inner), text)
    }

    fn detour(&self, said: SocketAddr, there: SocketAddr) {
        let mut detours = self.detours.write().unwrap_or_else(PoisonError::into_inner);
        if detours.len() < WRONG_MAX || detours.contains_key(&said) {
            detours.insert(said, there);
        }
    }

    /// True the first time.
    fn tell(&self, whose: IpAddr, addr: SocketAddr) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.len() < WRONG_MAX && reported.insert((whose, addr))
    }
}

/// An address as it is usually written, where the kernel maps an IPv4 address into IPv6.
pub fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Notes an incoming connection at `local`: while this node is alone, it announces that address.
pub fn came_by(driver: &Arc<Driver>, local: SocketAddr) {
    let (local, (me, alone)) = (plain(local), driver.look(|core| (core.me().addr, core.is_alone())));
    let worse = local.ip().is_loopback() && !me.ip().is_loopback();
    if !driver.whereabouts.guessed || !alone || worse || local.ip() == me.ip() {
        return;
    }
    readdress(driver, local.ip());
}

/// Announces another address from now on.
fn readdress(driver: &Arc<Driver>, ip: IpAddr) {
    let from = driver.look(|core| core.me().addr);
    let to = SocketAddr::new(ip, from.port());
    driver.apply(Input::Readdress(to));
    driver.event(Event::Readdressed { from, to });
}

/// Handles a member that was met at `addr`. If it announces another address and is not there, its
/// detour is this one.
pub async fn check_member(driver: &Arc<Driver>, addr: SocketAddr, member: Identity) {
    let (said, addr) = (member.addr, plain(addr));
    if plain(said) == addr || driver.whereabouts.way_to(said) == addr {
        return;
    }
    let there = greet::dial(said, driver.me()).await;
    if there.is_ok_and(|(met, _)| met.node == member.node) {
        return;
    }
    driver.whereabouts.detour(said, addr);
    if driver.whereabouts.tell(addr.ip(), said) {
        let ip = addr.ip();
        driver.event(Event::Warning(format!(
            "{addr} announces the address {said}, which is unreachable from here; other nodes may not find it: \
             start it with --advertise {ip}"
        )));
    }
}

/// Connects to a node that asked for it, unless too many others have.
pub async fn dial_back(driver: &Arc<Driver>, peer: Identity, from: SocketAddr) -> Option<DialledBack> {
    let _permit = driver.whereabouts.dialling.try_acquire().ok()?;
    let dialled = greet::dial_within(CONNECT, peer.addr, driver.me()).await;
    let what = match dialled {
        Ok((met, _)) if met.node == peer.node => DialledBack::Reached,
        Err(GreetError::TimedOut) => DialledBack::Silence,
        Err(GreetError::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => DialledBack::Refused,
        Err(GreetError::Io(_)) => DialledBack::Silence,
        Ok(_) | Err(_) => DialledBack::Another,
    };
    driver.whereabouts.set_shut(peer.node, what != DialledBack::Reached);
    let (said, ip) = (peer.addr, from.ip().to_canonical());
    if what != DialledBack::Reached && driver.whereabouts.tell(ip, said) {
        let why = what.name();
        driver.event(Event::Warning(if said.ip() == ip {
            format!("nobody can read the store of {said}, which does not count: {why}; TCP {} must be open there", said.port())
        } else {
            format!("nobody can read the store of {ip}, which announces the address {said}: {why}; start it with --advertise {ip}")
        }));
    }
    Some(what)
}

/// Notes that a node reached this one at `local`, and could not at the announced address.
pub fn lost_by(driver: &Driver, from: SocketAddr, local: SocketAddr) {
    let (from, local, me) = (plain(from).ip(), plain(local).ip(), driver.look(|core| core.me().addr));
    if local != me.ip() && driver.whereabouts.tell(from, me) {
        driver.event(Event::Warning(format!(
            "{from} cannot connect to {me}, the announced address of this node, but can to {local}: start it with --advertise {local}"
        )));
    }
}

/// Finds out whether others can connect to this node, if it joined through any. Looks meanwhile and
/// then whether the machine still has the announced address.
pub async fn watch(driver: Arc<Driver>, addrs: Vec<SocketAddr>) {
    // A configured one may be that of a router.
    let is_own = route::is_here(announced_ip(&driver));
    // Others reach an origin when they join through it.
    let mut is_reached = addrs.is_empty();
    loop {
        tokio::select! {
            () = find_out(&driver, &addrs), if !is_reached => is_reached = true,
            () = lose_address(&driver), if is_own => {
                if driver.whereabouts.guessed {
                    announce_next(&driver, &addrs).await;
                    is_reached = false;
                } else {
                    regain_address(&driver, &addrs).await;
                    if is_reached {
                        reached(&driver);
                    }
                }
            }
            else => return,
        }
    }
}

fn announced_ip(driver: &Driver) -> IpAddr {
    driver.look(|core| core.me().addr.ip())
}

/// Returns when the machine no longer has the announced address.
async fn lose_address(driver: &Driver) {
    let mut missed = 0;
    while missed < MISSED {
        sleep(LOOK_EVERY).await;
        missed = if route::is_here(announced_ip(driver)) { 0 } else { missed + 1 };
    }
}

/// The bootstrap nodes, and some members where they can be reached.
fn to_ask(driver: &Driver, addrs: &[SocketAddr]) -> impl Iterator<Item = SocketAddr> {
    let members = driver.look(|core| core.some_members(MEMBERS_ASKED));
    addrs.iter().copied().chain(members.into_iter().map(|addr| driver.whereabouts.way_to(addr)))
}

/// The address from which this machine speaks to others now, if it has a way to them.
fn next_ip(driver: &Driver, addrs: &[SocketAddr]) -> Option<IpAddr> {
    to_ask(driver, addrs).find_map(|addr| route::local_towards(addr).ok())
}

/// Announces the machine's next address as soon as it has one.
async fn announce_next(driver: &Arc<Driver>, addrs: &[SocketAddr]) {
    while !route::is_here(announced_ip(driver)) {
        if let Some(ip) = next_ip(driver, addrs) {
            readdress(driver, ip);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Says that others cannot connect, until the machine has the address again.
async fn regain_address(driver: &Arc<Driver>, addrs: &[SocketAddr]) {
    let (me, whereabouts) = (announced_ip(driver), &driver.whereabouts);
    let text = format!(
        "this machine no longer has the address {me}, which this node announces: nobody can read your store until \
         the address is back, or the node is started again"
    );
    whereabouts.set_unreached(Some(text.clone()));
    driver.event(Event::Warning(text));
    driver.apply(Input::Reachable(false));
    while !route::is_here(me) {
        whereabouts.displaced.send_replace(next_ip(driver, addrs).is_some());
        sleep(LOOK_EVERY).await;
    }
    whereabouts.displaced.send_replace(false);
}

/// Asks until others can connect to this node.
async fn find_out(driver: &Arc<Driver>, addrs: &[SocketAddr]) {
    let mut pause = AGAIN.0;
    while !judge(driver, addrs).await {
        sleep(pause).await;
        pause = (pause * 2).min(AGAIN.1);
    }
}

/// True if a node has connected to this one at its announced address.
async fn judge(driver: &Arc<Driver>, addrs: &[SocketAddr]) -> bool {
    for addr in to_ask(driver, addrs) {
        let Ok(first) = ask(driver, addr).await else { continue };
        if first.what == DialledBack::Reached {
            reached(driver);
            return true;
        }
        let me = driver.look(|core| core.me().addr);
        if !driver.whereabouts.guessed || first.local.ip() == me.ip() {
            unreached(driver, &first);
            return false;
        }
        readdress(driver, first.local.ip());
        match ask(driver, addr).await {
            Ok(second) if second.what == DialledBack::Reached => {
                reached(driver);
                return true;
            }
            Ok(second) => unreached(driver, &second),
            Err(_) => {}
        }
        return false;
    }
    false
}

/// The findings of a member.
struct Found {
    what: DialledBack,
    /// The member's address, and that of this node on the way there.
    by: SocketAddr,
    local: SocketAddr,
}

/// Asks the member at an address to dial back.
async fn ask(driver: &Arc<Driver>, addr: SocketAddr) -> Result<Found, GreetError> {
    let (Greeted { mut connection, .. }, member) = greet::dial(addr, driver.me()).await?;
    let said = member.identity.addr;
    let lost = driver.whereabouts.way_to(said) != said;
    let local = plain(connection.stream.local_addr()?);
    let exchange = async {
        connection.send(&wire::dial_back_frame(0, lost)).await?;
        loop {
            let head = connection.receive(HEADER).await?;
            let header = FrameHeader::decode(head.first_chunk().expect("as long as was asked for"))?;
            let body = connection.receive(header.length as usize).await?;
            match header.kind {
                Kind::Patience => {}
                Kind::DialledBack => return Ok::<_, GreetError>(wire::decode_dialled_back(&body)?),
                // It has other nodes to dial.
                _ => return Err(GreetError::TimedOut),
            }
        }
    };
    let what = timeout(ANSWER, exchange).await.map_err(|_| GreetError::TimedOut)??;
    Ok(Found { what, by: addr, local })
}

fn reached(driver: &Arc<Driver>) {
    if driver.whereabouts.set_unreached(None).is_some() {
        driver.event(Event::Reachable { addr: driver.look(|core| core.me().addr) });
    }
    driver.apply(Input::Reachable(true));
}

fn unreached(driver: &Arc<Driver>, found: &Found) {
    let me = driver.look(|core| core.me().addr);
    let (by, why) = (found.by.ip(), found.what.name());
    let text = if me.ip() == found.local.ip() {
        format!("{by} cannot connect to you on TCP {}: nobody can read your store ({why})", me.port())
    } else {
        let right = found.local.ip();
        format!("{by} cannot connect to you at {me}: nobody can read your store ({why}); --advertise {right} may help")
    };
    if driver.whereabouts.set_unreached(Some(text.clone())).is_none() {
        driver.event(Event::Warning(text));
    }
    driver.apply(Input::Reachable(false));
}

//! The address that others are told of this node: whether it leads here, and what is done if it does not.
//!
//! A node that listens on all addresses of its machine can only guess which of them others see. While nobody else is a member,
//! the address by which somebody comes is a better guess. Whoever joins asks a member to dial back; if that finds nobody, the
//! address from which the member was reached is the next guess. An address that was given is never replaced, only said to be wrong.
//!
//! A node that others cannot connect to says that it has nothing ([`Input::Reachable`]), and asks again until they can. Other
//! nodes may say a wrong address as well: whoever has reached one at another keeps to that one, a detour.

use crate::driver::Driver;
use crate::event::Event;
use crate::greet::{self, GreetError};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use vfield_core::identity::Identity;
use vfield_core::node::Input;
use vfield_core::wire::{self, DialledBack, FrameHeader, HEADER, Kind};

/// How long dialling back may take to connect: two packets may be lost, and a firewall that drops them is not found sooner.
const CONNECT: Duration = Duration::from_millis(3500);
/// How long a member may take to dial back and say so.
const ANSWER: Duration = Duration::from_secs(12);
/// The pause before the first time that a node which cannot be reached asks again, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));
/// So many are dialled back at once: a room that is switched on waits a moment, and nobody makes this node dial in a flood.
const AT_ONCE: usize = 16;
/// So many detours are kept, and so many addresses told of: more wrong ones are one wrong network.
const WRONG_MAX: usize = 64;
/// So many members are asked besides those that the node was told to join through.
const MEMBERS_ASKED: usize = 3;

/// See the module.
#[derive(Debug)]
pub struct Whereabouts {
    /// Nobody said which address others are to be told.
    guessed: bool,
    /// That others cannot connect to this node, in words.
    unreached: Mutex<Option<String>>,
    /// Where members are reached that say another address.
    detours: RwLock<BTreeMap<SocketAddr, SocketAddr>>,
    /// Of whom people were told, and which address was wrong.
    told: Mutex<BTreeSet<(IpAddr, SocketAddr)>>,
    dialling: Semaphore,
}

impl Whereabouts {
    /// `guessed` if nobody said which address others are to be told.
    pub fn new(guessed: bool) -> Self {
        Self {
            guessed,
            unreached: Mutex::default(),
            detours: RwLock::default(),
            told: Mutex::default(),
            dialling: Semaphore::new(AT_ONCE),
        }
    }

    /// Where a node is reached that says that it is at `addr`.
    pub fn way_to(&self, addr: SocketAddr) -> SocketAddr {
        self.detours.read().unwrap_or_else(PoisonError::into_inner).get(&addr).copied().unwrap_or(addr)
    }

    /// That others cannot connect to this node, if it is so.
    pub fn unreached(&self) -> Option<String> {
        self.unreached.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < WRONG_MAX && told.insert((whose, addr))
    }
}

/// An address as it is usually written, where the kernel maps an IPv4 address into IPv6.
fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Somebody has connected to this node at `local`: while it is alone, that is what others are told.
pub fn came_by(driver: &Arc<Driver>, local: SocketAddr) {
    let (local, (me, alone)) = (plain(local), driver.look(|core| (core.me().addr, core.is_alone())));
    let worse = local.ip().is_loopback() && !me.ip().is_loopback();
    if !driver.whereabouts.guessed || !alone || worse || local.ip() == me.ip() {
        return;
    }
    let to = SocketAddr::new(local.ip(), me.port());
    driver.apply(Input::Readdress(to));
    driver.event(Event::Readdressed { from: me, to });
}

/// A member was met at `addr`. If it says another address, at which it is not, it is spoken to at this one.
pub async fn check_member(driver: &Arc<Driver>, addr: SocketAddr, member: Identity) {
    let (said, addr) = (member.addr, plain(addr));
    if plain(said) == addr || driver.whereabouts.way_to(said) == addr {
        return;
    }
    let me = driver.look(|core| *core.me());
    let there = greet::dial(said, me, driver.keys.ring()).await;
    if there.is_ok_and(|(_, greeting)| greeting.identity.node == member.node) {
        return;
    }
    driver.whereabouts.detour(said, addr);
    if driver.whereabouts.tell(addr.ip(), said) {
        let ip = addr.ip();
        driver.event(Event::Warning(format!(
            "{addr} tells others that it is at {said}, where it is not to be reached from here; other nodes may not find it: \
             start it with --advertise {ip}"
        )));
    }
}

/// Connects to a node that has asked for it, if not too many others have.
pub async fn dial_back(driver: &Arc<Driver>, peer: Identity, from: SocketAddr) -> Option<DialledBack> {
    let _permit = driver.whereabouts.dialling.try_acquire().ok()?;
    let me = driver.look(|core| *core.me());
    let dialled = greet::dial_within(CONNECT, peer.addr, me, driver.keys.ring()).await;
    let what = match dialled {
        Ok((_, greeting)) if greeting.identity.node == peer.node => DialledBack::Reached,
        Err(GreetError::TimedOut) => DialledBack::Silence,
        Err(GreetError::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => DialledBack::Refused,
        Err(GreetError::Io(_)) => DialledBack::Silence,
        Ok(_) | Err(_) => DialledBack::Another,
    };
    let (said, ip) = (peer.addr, from.ip().to_canonical());
    if what != DialledBack::Reached && driver.whereabouts.tell(ip, said) {
        let why = what.name();
        driver.event(Event::Warning(if said.ip() == ip {
            format!("nobody can read what {said} holds, which does not count: {why}; TCP {} must be open there", said.port())
        } else {
            format!("nobody can read what {ip} holds, which tells others that it is at {said}: {why}; start it with --advertise {ip}")
        }));
    }
    Some(what)
}

/// Somebody reached this node at `local`, and could not at the address that it tells.
pub fn lost_by(driver: &Driver, from: SocketAddr, local: SocketAddr) {
    let (from, local, me) = (plain(from).ip(), plain(local).ip(), driver.look(|core| core.me().addr));
    if local != me.ip() && driver.whereabouts.tell(from, me) {
        driver.event(Event::Warning(format!(
            "{from} cannot connect to {me}, which others are told of this node, but can to {local}: start it with --advertise {local}"
        )));
    }
}

/// Finds out whether others can connect to this node, and goes on until they can.
pub async fn watch(driver: Arc<Driver>, doors: Vec<SocketAddr>) {
    let mut pause = AGAIN.0;
    loop {
        if judge(&driver, &doors).await {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN.1);
    }
}

/// True if somebody has connected to this node where it says that it is.
async fn judge(driver: &Arc<Driver>, doors: &[SocketAddr]) -> bool {
    let members = driver.look(|core| core.some_members(MEMBERS_ASKED));
    for addr in doors.iter().copied().chain(members.into_iter().map(|addr| driver.whereabouts.way_to(addr))) {
        let Ok(first) = ask(driver, addr).await else { continue };
        if first.what == DialledBack::Reached {
            reached(driver);
            return true;
        }
        let me = driver.look(|core| core.me().addr);
        let to = SocketAddr::new(first.local.ip(), me.port());
        if !driver.whereabouts.guessed || to == me {
            unreached(driver, &first);
            return false;
        }
        driver.apply(Input::Readdress(to));
        driver.event(Event::Readdressed { from: me, to });
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

/// What a member found.
struct Found {
    what: DialledBack,
    /// The member's address, and that of this node on the way there.
    by: SocketAddr,
    local: SocketAddr,
}

/// Asks the member at an address to dial back.
async fn ask(driver: &Arc<Driver>, addr: SocketAddr) -> Result<Found, GreetError> {
    let me = driver.look(|core| *core.me());
    let (mut connection, greeting) = greet::dial(addr, me, driver.keys.ring()).await?;
    let said = greeting.identity.addr;
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
                // It has others to dial.
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
        format!(
            "{by} cannot connect to you at {me}: nobody can read your store ({why}); --advertise {right} may cure it"
        )
    };
    if driver.whereabouts.set_unreached(Some(text.clone())).is_none() {
        driver.event(Event::Warning(text));
    }
    driver.apply(Input::Reachable(false));
}

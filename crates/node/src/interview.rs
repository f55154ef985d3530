//! Interviews: requests to members over connections of their own, before this node joins an image.
//!
//! Claims decide whom to ask first, and a claim proves nothing. So the node waits for no single
//! member, blames none for an answer, and bounds the number of members asked at once.

use crate::connection::Connection;
use crate::driver::Driver;
use crate::greet::{self, GreetError};
use crate::segments::Dialled;
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use vfield_block::gather::Gather as _;
use vfield_core::membership::Member;
use vfield_core::node::Claim;
use vfield_core::wire::{FrameHeader, HEADER, Kind};

/// Timeout of an answer: the time of a chunk on a link that fifty others share.
const ANSWER: Duration = Duration::from_secs(5);
/// Most members asked: many claimed holders of an image may not exist.
const ASKED_MAX: usize = 256;

/// The way to ask members.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Members asked at once.
    pub at_once: usize,
    /// The next member is asked this long after the one before, or after its answer.
    pub pace: Duration,
    /// Timeout of the whole interview.
    pub within: Duration,
}

/// Asks the members at `addrs`, in this order, until `enough` of an answer, or the time is up.
pub async fn ask_all<T, F>(
    addrs: Vec<SocketAddr>,
    manner: Manner,
    ask: impl Fn(SocketAddr) -> F,
    mut enough: impl FnMut(SocketAddr, T) -> bool,
) where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let end = Instant::now() + manner.within;
    let mut left = addrs.into_iter().take(ASKED_MAX).peekable();
    let mut asked = JoinSet::new();
    let mut next_at = Instant::now();
    loop {
        if asked.is_empty() && left.peek().is_none() {
            return;
        }
        let more = left.peek().is_some() && asked.len() < manner.at_once;
        tokio::select! {
            biased;
            Some(answer) = asked.join_next() => {
                let (addr, answer) = answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
                if enough(addr, answer) {
                    return;
                }
                next_at = Instant::now();
            }
            () = sleep_until(next_at), if more => {
                if let Some(addr) = left.next() {
                    let answer = ask(addr);
                    asked.spawn(async move { (addr, answer.await) });
                }
                next_at = Instant::now() + manner.pace;
            }
            () = sleep_until(end) => return,
        }
    }
}

/// A conversation with one member.
pub struct Guest(Connection);

impl Guest {
    /// Over a connection that was greeted.
    pub const fn over(connection: Connection) -> Self {
        Self(connection)
    }

    /// Connects to a member and greets it.
    pub async fn at(driver: &Driver, addr: SocketAddr) -> Result<Self, GreetError> {
        Ok(Self::greet(driver, addr).await?.0)
    }

    /// The same; returns what the member says of itself, and the latest generation that it knows.
    pub async fn greet(driver: &Driver, addr: SocketAddr) -> Result<(Self, Member, u64), GreetError> {
        let (met, member) = greet::dial(addr, driver.me()).await?;
        Ok((Self(met.connection), member, met.latest))
    }

    /// The latest version of the protocol that both sides speak.
    pub const fn version(&self) -> u32 {
        self.0.version
    }

    /// Asks one thing; the answer's head and its payload.
    pub async fn ask(&mut self, question: &[u8]) -> Result<(FrameHeader, Vec<u8>), GreetError> {
        let exchange = async {
            self.0.send(question).await?;
            loop {
                let head = self.0.receive(HEADER).await?;
                let header = FrameHeader::decode(head.first_chunk().expect("as long as was asked for"))?;
                let body = self.0.receive(header.length as usize).await?;
                if !matches!(header.kind, Kind::Patience | Kind::Unknown(_)) {
                    return Ok((header, body));
                }
            }
        };
        let answer = timeout(ANSWER, exchange).await;
        answer.unwrap_or_else(|_| {
            self.0.dialled.iter().for_each(Dialled::is_stuck);
            Err(GreetError::TimedOut)
        })
    }
}

/// The members to ask about an image with these claims, in order: the met ones that have it, then
/// stores and origins in turns, then any other met one. Each node begins with another.
pub fn whom(driver: &Arc<Driver>, claims: &[&Claim], met: &[SocketAddr]) -> Vec<SocketAddr> {
    let me = driver.look(|core| *core.me());
    let tellers = || claims.iter().flat_map(|claim| &claim.tellers);
    let known: BTreeSet<SocketAddr> = tellers().map(|teller| teller.identity.addr).gathered();
    let origins = tellers().filter(|teller| teller.origin);
    let holders = tellers().filter(|teller| !teller.origin && teller.filled > 0);
    let rest = tellers().filter(|teller| !teller.origin && teller.filled == 0);
    let addrs = |some: &mut dyn Iterator<Item = &vfield_core::node::Teller>| {
        let mut addrs: Vec<SocketAddr> = some.map(|teller| teller.identity.addr).collect();
        let first = me.node.0 as usize % addrs.len().max(1);
        addrs.rotate_left(first);
        addrs
    };
    let (origins, holders) = (addrs(&mut { origins }), addrs(&mut { holders }));
    let in_turns = (0..origins.len().max(holders.len())).flat_map(|at| [holders.get(at), origins.get(at)]);
    let members = driver.look(|core| core.members()).into_iter().map(|member| member.identity.addr);
    let mut seen = BTreeSet::from([me.addr]);
    let all = met.iter().filter(|addr| known.contains(addr)).copied();
    let all =
        all.chain(in_turns.flatten().copied()).chain(addrs(&mut { rest })).chain(met.iter().copied()).chain(members);
    all.filter(|addr| seen.insert(*addr)).take(ASKED_MAX).collect()
}

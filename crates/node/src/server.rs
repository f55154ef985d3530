//! The serving side: accepts peers' connections and answers their requests.
//!
//! Stored chunks go straight from the store's memory file with `sendfile`, without the core. Under
//! seal they are read from it into the record. The core gets or refuses other chunks. Bounds:
//!
//! - connections ([`gate`]), and the open requests of each ([`serving`]),
//! - the time for a frame to come, and for an answer to be taken,
//! - memory: a waiting answer costs a few words, not a chunk, and few long frames are under way at
//!   once ([`long_frames`]).

mod answers;
mod backlog;
mod gate;
mod long_frames;
mod offenders;
mod outgoing;
mod serving;

pub use gate::{Bounds, Gate};
pub use offenders::Offenders;
pub use serving::{Brought, Freed, Leaves, TAKEN_WITHIN};

use crate::driver::Driver;
use crate::greet::{self, GreetError, Greeted};
use crate::low_water;
use crate::whereabouts;
use gate::Place;
use long_frames::LongFrames;
use serving::{End, Long, Serving};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use vfield_core::fetch::ConnectionId;
use vfield_core::misdeed::Misdeed;
use vfield_core::node::Input;
use vfield_trust::admission::Verified;

/// Most answer bytes queued in the kernel. Two chunks keep a link of 10 Gbit/s busy for 100 us, and
/// more urgent answers wait no longer than that.
const QUEUED_MAX: usize = 128 << 10;

/// Accepts peers until the task is dropped.
pub async fn accept(driver: Arc<Driver>, listener: TcpListener) {
    let long = LongFrames::new();
    let mut failed = false;
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => {
                failed = false;
                let place = driver.gate.enter(addr.ip());
                tokio::spawn(connection(Arc::clone(&driver), stream, addr, place, Arc::clone(&long)));
            }
            Err(error) => {
                // Out of descriptors, most likely.
                if !std::mem::replace(&mut failed, true) {
                    tracing::warn!(%error, "cannot accept a connection");
                }
                driver.gate.make_room();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Greets the connecting node, if it greets in time and keeps its place meanwhile.
async fn greet(driver: &Arc<Driver>, stream: TcpStream, addr: SocketAddr, place: &Place) -> Option<Greeted> {
    if let Ok(local) = stream.local_addr() {
        whereabouts::came_by(driver, local);
    }
    if driver.look(|core| core.has_left()) {
        return None;
    }
    let greeted = tokio::select! {
        biased;
        () = place.shown_out() => return None,
        greeted = greet::answer(stream, driver.me(), addr) => greeted,
    };
    match greeted {
        Ok(met) => Some(met),
        Err(error) => {
            tracing::debug!(%addr, %error, "not greeted");
            match error {
                GreetError::Stranger(_) | GreetError::OpenField => driver.turned_away(addr),
                GreetError::TimedOut => driver.misdeeds.add(Misdeed::Silent),
                GreetError::Wire(_) => driver.misdeeds.add(Misdeed::BrokenFrames),
                GreetError::NotAdmitted => driver.excluded(addr),
                GreetError::Impostor => driver.broke_in(addr, "did not prove the identity that it claimed"),
                GreetError::Io(_)
                | GreetError::Myself { .. }
                | GreetError::Unwelcome
                | GreetError::Twin(_)
                | GreetError::HungUp { .. }
                | GreetError::Starting(_) => {}
            }
            None
        }
    }
}

async fn connection(driver: Arc<Driver>, stream: TcpStream, addr: SocketAddr, place: Place, long: Arc<LongFrames>) {
    let Some(met) = greet(&driver, stream, addr, &place).await else { return };
    let zone = driver.look(|core| core.me().zone);
    let (peer, met_key) = (met.identity(addr, zone), met.key);
    let (member, connection) = (met.member, met.connection);
    place.prove(peer.node);
    let pause = driver.offenders.pause(addr.ip(), std::time::Instant::now());
    if !pause.is_zero() {
        tokio::select! {
            () = place.shown_out() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
    // A guest is no member.
    if let Some(member) = member {
        driver.apply(Input::Met(member));
    }
    let id = ConnectionId(driver.number());
    low_water::queue_at_most(&connection.stream, QUEUED_MAX);
    let replies = driver.open(id);
    let key = connection.key;
    let mut serving = Serving::new(&driver, id, peer, connection, &place, Long { frames: long, ip: addr.ip() });
    let (mut keys, mut lists) = (driver.keys.changes(), driver.admissions.changes());
    let excludes = |list: &Option<Arc<Verified>>| list.as_ref().is_some_and(|list| !list.admission.admits(&met_key));
    let ended = tokio::select! {
        biased;
        _ = keys.wait_for(|_| !driver.keys.admits(key)) => End::Stranger,
        _ = lists.wait_for(excludes) => End::Excluded,
        () = place.shown_out() => End::ShownOut,
        ended = serving.run(replies) => ended,
    };
    tracing::debug!(%addr, %ended, "peer's connection ended");
    match ended {
        End::Wire(error) => {
            driver.broke_in(addr, &format!("sent a broken frame on a connection that it opened: {error}"));
        }
        End::Slow => driver.misdeeds.add(Misdeed::SlowFrames),
        End::Unread => driver.misdeeds.add(Misdeed::Unread),
        End::Io(_) | End::Closed | End::Stranger | End::Excluded | End::ShownOut => {}
    }
    driver.close(id);
}

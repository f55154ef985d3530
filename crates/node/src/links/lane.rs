//! A lane: one connection to a peer, with many requests in flight.
//!
//! The requesting task writes all requests of one event straight to the socket. The lane's own task
//! connects, writes the bytes that the socket did not take, and receives. On that task it verifies
//! received chunks, stores them, and tells the core. When the lane ends, for whatever reason, it
//! reports each request in flight as lost. If a connection owes answers and is silent, another one
//! replaces it as soon as it is open ([`super::silence`]).

use super::Ask;
use super::inbound::Broken;
use super::receiver::{Received, Receiver};
use super::silence::Silence;
use crate::connection::{Connection, Outbound, Written};
use crate::driver::Driver;
use crate::field_keys::FieldKeys;
use crate::greet;
use crate::segments::{self, Segments};
use crate::traffic::PeerCounters;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use vfield_core::fetch::RequestId;
use vfield_core::identity::Identity;
use vfield_core::misdeed::Misdeed;
use vfield_core::node::Input;
use vfield_core::wire::{FrameHeader, Get, GetSlice, Kind, Priority, Refusal, SLICES_SINCE};
use vfield_trust::KeyId;

/// Interval at which the core hears of trickling bytes: well within the 300 ms of silence after
/// which it hedges, and so adds to the load of a slow peer.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// Bytes asked for at a time within a limit: a chunk of the usual size with its header.
const TURN_BYTES: u64 = 68 << 10;

/// Why a lane was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// For one request: it closes after the first answer.
    Once,
    /// It stays until it breaks, or the peer goes.
    Pooled,
    /// Beside another one for the same kind of requests: its end tells nothing of the peer.
    Further,
}

/// One lane to a peer.
pub struct Lane {
    peer: Identity,
    role: Role,
    counters: Arc<PeerCounters>,
    state: Mutex<State>,
}

struct State {
    open: bool,
    /// Set once greetings are exchanged.
    outbound: Option<Outbound>,
    /// The key with which the peer proved that it belongs.
    key: Option<KeyId>,
    /// The version that both speak, once greetings are exchanged.
    version: Option<u32>,
    /// Bytes that are not sent yet.
    out: Vec<u8>,
    in_flight: HashMap<RequestId, Ask>,
    /// Since when something is in flight.
    owed_since: Instant,
    /// False while the lane's task does not look whether the peer is silent, since nothing was in
    /// flight.
    watched: bool,
    /// Wakes the lane's task: there is something to write, or it is to close.
    waker: Option<Waker>,
}

impl Lane {
    /// Begins to connect.
    pub fn open(driver: &Arc<Driver>, peer: Identity, role: Role) -> Arc<Self> {
        let state = State {
            open: true,
            outbound: None,
            key: None,
            version: None,
            out: Vec::new(),
            in_flight: HashMap::new(),
            owed_since: Instant::now(),
            watched: false,
            waker: None,
        };
        let counters = driver.counters.peer(&peer);
        let lane = Arc::new(Self { peer, role, counters, state: Mutex::new(state) });
        tokio::spawn(Arc::clone(&lane).run(Arc::clone(driver)));
        lane
    }

    /// True if it is open, and the peer is where it leads.
    pub fn leads_to(&self, peer: &Identity) -> bool {
        self.peer.addr == peer.addr && self.state().open
    }

    /// Why it was opened.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Bytes of chunks that the peer has brought, on all lanes.
    pub fn came(&self) -> u64 {
        self.counters.came()
    }

    /// Requests that are not answered yet.
    pub fn owed(&self) -> usize {
        self.state().in_flight.len()
    }

    /// False if the peer proved itself with a key that is not one of the field's any more.
    pub fn belongs(&self, keys: &FieldKeys) -> bool {
        let state = self.state();
        // A connecting lane has not shown its key yet.
        state.outbound.is_none() || keys.admits(state.key)
    }

    /// Lines up a request, to be sent with [`Lane::flush`]. Returns the end of the request if the
    /// lane has ended, or the peer does not know such requests.
    pub fn request(&self, ask: Ask) -> Option<Input> {
        let mut state = self.state();
        if !state.open {
            return Some(Input::Lost(ask.request));
        }
        if ask.slice.is_some() && state.version.is_some_and(|version| version < SLICES_SINCE) {
            return Some(Input::Refused(ask.request, Refusal::Whole));
        }
        if state.in_flight.is_empty() {
            state.owed_since = Instant::now();
            if !std::mem::replace(&mut state.watched, true) {
                state.wake();
            }
        }
        state.in_flight.insert(ask.request, ask);
        let Ask { request, image, chunk, priority, reach, insists, .. } = ask;
        match ask.slice {
            Some(slice) => state.out.extend_from_slice(&GetSlice { image, chunk, slice }.frame(request.0)),
            None => state.out.extend_from_slice(&Get { image, chunk, reach }.frame(request.0, priority, insists)),
        }
        None
    }

    /// Tells the peer that an answer is not wanted any more, if it was asked here.
    pub fn cancel(&self, request: RequestId) {
        let mut state = self.state();
        if state.in_flight.contains_key(&request) {
            let frame = FrameHeader::new(Kind::Cancel, request.0, 0).encode();
            state.out.extend_from_slice(&frame);
            state.flush();
        }
    }

    /// Sends a frame that needs no bookkeeping, unless the lane has ended.
    pub fn send(&self, frame: &[u8]) {
        let mut state = self.state();
        if state.open {
            state.out.extend_from_slice(frame);
            state.flush();
        }
    }

    /// Sends the queued requests.
    pub fn flush(&self) {
        self.state().flush();
    }

    /// Ends the lane.
    pub fn close(&self) {
        let mut state = self.state();
        state.open = false;
        state.wake();
    }

    async fn run(self: Arc<Self>, driver: Arc<Driver>) {
        let mut dialled = self.dial(&driver, None).await;
        // The segments of a connection that has carried nothing long, in bytes.
        let mut silent = None;
        let ended = loop {
            match dialled {
                Ok(connection) => match self.serve(&driver, connection, silent).await {
                    Ended::Replaced(connection, before) => {
                        self.start_over(&driver);
                        silent = before.or(silent);
                        dialled = Ok(*connection);
                    }
                    Ended::Broken(broken) => break broken,
                },
                Err(broken) => break broken,
            }
        };
        let (was_open, lost) = {
            let mut state = self.state();
            let was_open = std::mem::replace(&mut state.open, false);
            (state.outbound, state.out) = (None, Vec::new());
            (was_open, std::mem::take(&mut state.in_flight))
        };
        driver.links.ended(self.peer.node, &self);
        if let Broken::Wire(error) = ended {
            tracing::debug!(peer = %self.peer.addr, %error, "protocol violation");
            driver.misdeeds.add(Misdeed::BrokenFrames);
            driver.apply(Input::Misbehaved(self.peer.node));
        } else if was_open && self.role == Role::Pooled {
            driver.apply(Input::Broken(self.peer.node));
        }
        for request in lost.into_keys() {
            driver.apply(Input::Lost(request));
        }
    }

    async fn dial(&self, driver: &Arc<Driver>, segments: Option<Segments>) -> Result<Connection, Broken> {
        let to = driver.whereabouts.way_to(self.peer.addr);
        let (met, member) = greet::dial_by(segments, to, driver.me()).await.map_err(|_| Broken::Lost)?;
        driver.apply(Input::Met(member));
        // If another process has taken the address, the wanted peer is gone, and this one is there.
        if met.node == self.peer.node { Ok(met.connection) } else { Err(Broken::Lost) }
    }

    /// Sends all open requests again on a new connection, after the first one was silent.
    fn start_over(&self, driver: &Arc<Driver>) {
        let lost = {
            let mut state = self.state();
            // Half a frame may have been sent.
            (state.outbound, state.out) = (None, Vec::new());
            std::mem::take(&mut state.in_flight)
        };
        tracing::info!(peer = %self.peer.addr, requests = lost.len(), "a silent connection was replaced");
        for request in lost.into_keys() {
            driver.apply(Input::Lost(request));
        }
    }

    /// The peer skips requests for slices, since it does not know them: they end here.
    fn take_back_slices(&self, driver: &Arc<Driver>) {
        let is_slice = |_: &RequestId, ask: &mut Ask| ask.slice.is_some();
        let slices: Vec<RequestId> = self.state().in_flight.extract_if(is_slice).map(|(request, _)| request).collect();
        for request in slices {
            driver.apply(Input::Refused(request, Refusal::Whole));
        }
    }

    /// Serves a connection until it ends. `silent` says how long the segments were of one before it
    /// that carried nothing.
    async fn serve(&self, driver: &Arc<Driver>, connection: Connection, mut silent: Option<u32>) -> Ended {
        let Connection { stream, incoming, sealer, key, version, dialled } = connection;
        let stream = Arc::new(stream);
        let segments = dialled.as_ref().map_or(Segments::Path, |dialled| dialled.segments);
        let carries = AtomicBool::new(false);
        {
            let mut state = self.state();
            (state.outbound, state.key) = (Some(Outbound { stream: Arc::clone(&stream), sealer }), key);
            state.version = Some(version);
        }
        if version < SLICES_SINCE {
            self.take_back_slices(driver);
        }
        if !driver.keys.admits(key) || !driver.admissions.admission().may_admit(self.peer.node) {
            return Broken::Lost.into();
        }
        let mut receiver = Receiver::new(driver, self.peer, Arc::clone(&self.counters), incoming);
        let mut pause = pin!(tokio::time::sleep(PROGRESS_EVERY));
        let mut silence = Silence::new(|| {
            let next = if carries.load(Ordering::Relaxed) { segments } else { segments.next() };
            Box::pin(self.dial(driver, Some(next)))
        });
        loop {
            let quiet = receiver.inbound.is_quiet();
            if quiet && pause.is_elapsed() {
                pause.as_mut().reset(tokio::time::Instant::now() + PROGRESS_EVERY);
            }
            let last_byte = receiver.last_byte;
            let stirred = poll_fn(|cx| {
                let stirred = self.poll(cx, &stream, quiet.then_some(pause.as_mut()));
                if stirred.is_ready() {
                    return stirred;
                }
                silence.poll(cx, || self.owed_since(last_byte), || driver.look(|core| core.stall()))
            });
            let unasked = match stirred.await {
                Stirred::Closed => return Broken::Lost.into(),
                Stirred::Replaced(connection) => {
                    let before = (!receiver.carries).then(|| segments::length(&stream));
                    return Ended::Replaced(connection, before);
                }
                Stirred::Readable => false,
                Stirred::Paused => true,
            };
            // Answers may lie in the buffer of which the socket says nothing any more.
            loop {
                let mut allowed = self.allowance(driver).await;
                let received = receiver.receive(self, &stream, unasked, &mut allowed);
                receiver.room().await;
                if receiver.carries && !carries.swap(true, Ordering::Relaxed) {
                    let told = dialled.as_ref().and_then(|dialled| dialled.carries(silent.take()));
                    told.into_iter().for_each(|warning| driver.warn(warning));
                }
                if allowed <= TURN_BYTES {
                    driver.limits.down.give_back(allowed);
                }
                match received {
                    Ok(Received { answered: true, .. }) if self.role == Role::Once => return Broken::Lost.into(),
                    Ok(Received { all: true, .. }) => break,
                    Ok(Received { spent: true, .. }) => {}
                    Ok(_) => tokio::task::yield_now().await,
                    Err(broken) => return broken.into(),
                }
            }
        }
    }

    /// Waits for a turn within the node's limit, and returns the bytes that may come.
    async fn allowance(&self, driver: &Driver) -> u64 {
        let limit = &driver.limits.down;
        if !limit.is_limited() {
            return u64::MAX;
        }
        match limit.try_turn(TURN_BYTES) {
            Some(allowed) => allowed,
            None => Arc::clone(limit).turn(self.priority(), TURN_BYTES).await,
        }
    }

    /// The most urgent priority of the requests in flight.
    fn priority(&self) -> Priority {
        let state = self.state();
        state.in_flight.values().map(|ask| ask.priority).min().unwrap_or(Priority::Demand)
    }

    /// Since when the peer owes an answer and has sent nothing; `None` if it owes nothing, and then
    /// nobody looks again before it does.
    fn owed_since(&self, last_byte: Instant) -> Option<Instant> {
        let mut state = self.state();
        state.watched = !state.in_flight.is_empty();
        state.watched.then(|| state.owed_since.max(last_byte))
    }

    /// Writes pending bytes, and waits for more work; at most for `pause`, if given.
    fn poll(&self, cx: &mut Context<'_>, stream: &TcpStream, pause: Option<Pin<&mut Sleep>>) -> Poll<Stirred> {
        {
            let mut state = self.state();
            if !state.open {
                return Poll::Ready(Stirred::Closed);
            }
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            while state.write() == Written::Some {
                match stream.poll_write_ready(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(Stirred::Closed),
                    Poll::Pending => break,
                }
            }
        }
        match stream.poll_read_ready(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Stirred::Readable),
            Poll::Ready(Err(_)) => Poll::Ready(Stirred::Closed),
            Poll::Pending => pause.map_or(Poll::Pending, |pause| pause.poll(cx).map(|()| Stirred::Paused)),
        }
    }

    pub(super) fn take(&self, request: u64) -> Option<Ask> {
        self.state().in_flight.remove(&RequestId(request))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Writes what the socket takes; the lane's task writes the rest.
    fn flush(&mut self) {
        if self.write() == Written::Some {
            self.wake();
        }
    }

    /// Before the connection is there, everything waits for it and nothing for the socket.
    fn write(&mut self) -> Written {
        self.outbound.as_mut().map_or(Written::All, |outbound| outbound.send(&mut self.out))
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// How a connection of a lane ended.
enum Ended {
    /// It owed answers and was silent; this connection replaces it.
    /// If it carried nothing long, it had segments of so many bytes.
    Replaced(Box<Connection>, Option<u32>),
    /// And the lane with it.
    Broken(Broken),
}

impl From<Broken> for Ended {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Why a lane's task goes on.
pub(super) enum Stirred {
    /// The socket is readable.
    Readable,
    /// It is time to check for trickling bytes.
    Paused,
    /// The peer is silent on this connection, and has answered on another.
    Replaced(Box<Connection>),
    /// The lane was closed, or has broken.
    Closed,
}

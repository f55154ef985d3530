//! One peer's connection to this node, once both have greeted: its requests come in, answers go
//! out.
//!
//! The accepting side makes one for each connection and runs it until it ends. It pins the chunk of
//! one answer at a time. A peer that sends or takes too slowly ends its connection and no other.

mod asked;
mod bringing;
mod held;
mod leaf_turn;
mod marks;
mod pacing;
mod preparing;
mod waiting;

use super::answers::{Answer, Answers, Body};
use super::backlog::Backlog;
use super::gate::Place;
use super::long_frames::{Coming, LongFrame, LongFrames};
use super::outgoing::{Outgoing, Sent};
use crate::connection::Connection;
use crate::driver::{Driver, Reply};
use crate::image::LocalImage;
use crate::incoming::Incoming;
use crate::whereabouts;
pub use bringing::Brought;
pub use held::Freed;
use leaf_turn::LeafTurn;
pub use leaf_turn::Leaves;
use pacing::Pacing;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio::time::sleep_until;
use vfield_core::fetch::{Asker, ConnectionId};
use vfield_core::identity::Identity;
use vfield_core::image::ImageId;
use vfield_core::node::{Input, Serve};
use vfield_core::reach::Reach;
use vfield_core::snapshot::Known;
use vfield_core::wire::{self, FrameHeader, Get, GetSlice, HEADER, Kind, Priority, Refusal, WireError};
use vfield_trust::record::Sealer;
use waiting::Waiting;

/// Most requests of one connection that are open; more wait in the socket.
const OPEN_MAX: usize = 1024;
/// Interval at which a waiting peer hears that its request is in hand: well within the silence
/// after which it would hedge ([`vfield_core::tuning::HEDGE_AFTER`]).
const BEAT: Duration = Duration::from_millis(50);
/// A frame is to come whole within this: the longest needs half a megabit a second.
const WHOLE_WITHIN: Duration = Duration::from_secs(20);
/// Time within which a peer has to take some byte of an answer: longer than short stops of a
/// machine.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(20);
/// Lowest rate in bytes per second at which an answer has to be taken, after that time. At a byte a
/// second a chunk would be pinned for a day. It is a hundredth of 10 Mbit/s, so that as many peers
/// may share a link.
const TAKEN_RATE_MIN: u64 = 16 << 10;
/// Most digests of a question that count: twice a large zone. A connection keeps 64 KiB of them.
const KNOWN_MAX: usize = 4096;
/// A frame of more, or an answer, is long: a snapshot of a field of some hundred nodes.
const LONG: usize = 32 << 10;

/// Why a peer's connection ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("closed")]
    Closed,
    #[error("its key is not the field's any more")]
    Stranger,
    #[error("the admission list does not admit it any more")]
    Excluded,
    #[error("another connection needed its place")]
    ShownOut,
    #[error("timeout of an incomplete frame")]
    Slow,
    #[error("it does not read the answers it requested")]
    Unread,
}

/// The long frames of all connections, and the address that this one's count for.
#[derive(Debug)]
pub struct Long {
    pub frames: Arc<LongFrames>,
    pub ip: IpAddr,
}

/// One peer's connection to this node.
pub struct Serving<'a> {
    driver: &'a Arc<Driver>,
    id: ConnectionId,
    peer: Identity,
    stream: TcpStream,
    incoming: Incoming,
    sealer: Option<Sealer>,
    place: &'a Place,
    long: Long,
    /// Since when there has been less than a whole frame.
    partial: Option<Instant>,
    coming: Coming,
    /// The long answer that goes.
    going: Option<LongFrame>,
    answers: Answers,
    backlog: Backlog,
    /// The version of the protocol that says which compressed chunks the peer gets; 0: none.
    takes_since: u32,
    /// Requests that wait for an object, or for the limit of their image.
    waiting: Waiting,
    /// The statements that the peer knew when it asked last, by id.
    known: Vec<Known>,
    /// The image whose proofs were sent, and how many.
    proved: Option<(ImageId, usize)>,
    /// True while this node dials back for the peer.
    dialling: bool,
    /// The image requested last: nearly always the one requested next.
    image: Weak<LocalImage>,
}

impl<'a> Serving<'a> {
    /// The connection with this number, from its first request on.
    pub fn new(
        driver: &'a Arc<Driver>,
        id: ConnectionId,
        peer: Identity,
        connection: Connection,
        place: &'a Place,
        long: Long,
    ) -> Self {
        let Connection { stream, incoming, sealer, version, .. } = connection;
        Self {
            driver,
            id,
            peer,
            stream,
            incoming,
            sealer,
            place,
            long,
            partial: None,
            coming: Coming::None,
            going: None,
            answers: Answers::default(),
            backlog: Backlog::default(),
            takes_since: if driver.compresses { version } else { 0 },
            waiting: Waiting::default(),
            proved: None,
            known: Vec::new(),
            dialling: false,
            image: Weak::new(),
        }
    }

    /// Takes requests in and sends answers, until the connection ends. `replies` are the core's.
    pub async fn run(&mut self, mut replies: mpsc::UnboundedReceiver<Reply>) -> End {
        let counters = self.driver.counters.peer(&self.peer);
        // The answer under way, the only one whose chunk is pinned, and since when.
        let mut outgoing: Option<Outgoing> = None;
        let mut owing = self.driver.counters.owing();
        let (mut begun, mut priority) = (Instant::now(), Priority::Demand);
        let mut pacing = Pacing::new(Arc::clone(&self.driver.limits.up));
        let mut turn = LeafTurn::new(self.driver.limits.leaves.clone(), self.peer.node);
        let mut beat = pin!(tokio::time::sleep(BEAT));
        let mut traced: Option<u64> = None;
        // The rest of the answer under way, and since when it is unchanged.
        let mut stuck: Option<((u64, usize), Instant)> = None;
        // Frames that came together with the greeting: the socket does not tell of them again.
        if let Err(end) = self.frames() {
            return end;
        }
        loop {
            let mut sent = false;
            loop {
                if outgoing.is_none() {
                    if let Some(image) = self.answers.next_chunk_of()
                        && !turn.may_begin(self.driver, image, &self.stream)
                    {
                        self.backlog.is_full(std::time::Instant::now());
                        break;
                    }
                    let answer = self.answers.next();
                    priority = answer.as_ref().map_or(priority, |answer| answer.priority);
                    traced = answer.as_ref().and_then(|answer| self.mark_turn(answer));
                    outgoing = answer.map(|answer| self.prepare(answer));
                    begun = Instant::now();
                }
                let Some(sending) = &mut outgoing else {
                    turn.give_back();
                    self.backlog.is_empty();
                    break;
                };
                if !pacing.may_send(sending, self.sealer.as_ref(), priority) {
                    self.backlog.is_full(std::time::Instant::now());
                    break;
                }
                match sending.send(&self.stream, self.sealer.as_mut(), &mut pacing.allowed) {
                    Ok(Sent::All) => {
                        sent = true;
                        counters.sent(sending.payload_bytes());
                        if let Some(plain) = sending.plain_bytes() {
                            self.driver.counters.packed.crossed(sending.payload_bytes(), plain);
                        }
                        self.backlog.sent(sending.payload_bytes());
                        if let Some(request) = traced.take() {
                            marks::sent(self.driver, self.id, request, sending.payload_bytes());
                        }
                        if sending.payload_bytes() > 0 {
                            turn.sent(&self.stream);
                        }
                        (outgoing, self.going) = (None, None);
                    }
                    Ok(Sent::Some) => {
                        self.backlog.is_full(std::time::Instant::now());
                        break;
                    }
                    Ok(Sent::Allowed) => {}
                    Err(error) => return error.into(),
                }
            }
            if let (Some(sealer), None) = (&mut self.sealer, &outgoing) {
                sealer.rest();
            }
            owing.set(outgoing.is_some() || self.answers.open() > 0);
            let room = self.answers.open() < OPEN_MAX && !matches!(self.coming, Coming::Waits(_));
            // An unread frame cannot become complete.
            self.partial = self.partial.map(|since| if room { since } else { Instant::now() });
            let due = self.partial.map(|since| since + WHOLE_WITHIN);
            // It is no fault of a peer that this node holds its answer back.
            stuck = outgoing.as_ref().filter(|_| !pacing.is_waiting()).map(|sending| {
                let far = (sending.sent_bytes(), self.sealer.as_ref().map_or(0, |sealer| sealer.waiting().len()));
                let as_before = stuck.filter(|(before, _)| *before == far && !sent);
                as_before.unwrap_or_else(|| (far, Instant::now()))
            });
            let whole = outgoing.as_ref().map_or(0, Outgoing::payload_bytes);
            let taken_by = stuck.map(|(_, since)| taken_by(begun, since, whole));
            // A full socket tells the peer enough: it has bytes to read.
            let waiting = self.answers.open() > 0 && outgoing.is_none();
            if sent {
                beat.as_mut().reset(Instant::now() + BEAT);
            }
            tokio::select! {
                biased;
                reply = replies.recv() => match reply {
                    Some(reply) => {
                        self.reply(reply);
                        while let Ok(reply) = replies.try_recv() {
                            self.reply(reply);
                        }
                    }
                    None => return End::Closed,
                },
                readable = self.stream.readable(), if room => {
                    if let Err(end) = readable.map_err(End::Io).and_then(|()| self.receive()) {
                        return end;
                    }
                }
                () = self.coming.turn(), if matches!(self.coming, Coming::Waits(_)) => {}
                () = until(due), if due.is_some() => return End::Slow,
                () = until(taken_by), if taken_by.is_some() => return End::Unread,
                held = pacing.granted(), if pacing.is_waiting() => begun += held,
                writable = self.stream.writable(), if outgoing.is_some() && !pacing.is_waiting() => {
                    if let Err(error) = writable {
                        return error.into();
                    }
                }
                () = turn.changed(&self.stream), if turn.is_under_way() => {}
                () = &mut beat, if waiting => {
                    self.answers.beat();
                    beat.as_mut().reset(Instant::now() + BEAT);
                }
            }
        }
    }

    /// Receives the available bytes.
    fn receive(&mut self) -> Result<(), End> {
        if self.incoming.read(&self.stream, None, false)?.bytes == 0 {
            return Ok(());
        }
        self.frames()
    }

    /// Takes in the frames that are whole.
    fn frames(&mut self) -> Result<(), End> {
        while let Some(head) = self.incoming.content().first_chunk::<HEADER>() {
            let header = FrameHeader::decode(head)?;
            let length = HEADER + header.length as usize;
            if self.incoming.content().len() < length {
                if length > LONG && matches!(self.coming, Coming::None) {
                    let Long { frames, ip } = &self.long;
                    self.coming = match frames.take(*ip) {
                        Some(place) => Coming::Comes { _place: place },
                        None => Coming::Waits(Box::pin(Arc::clone(frames).wait(*ip))),
                    };
                }
                break;
            }
            self.place.used();
            self.frame(header)?;
            self.incoming.consume(length);
            self.partial = None;
            if !matches!(self.coming, Coming::None) {
                self.coming = Coming::None;
                self.incoming.shrink();
            }
        }
        self.partial = self.incoming.is_partial().then(|| self.partial.unwrap_or_else(Instant::now));
        Ok(())
    }

    /// Takes in the frame in front.
    fn frame(&mut self, header: FrameHeader) -> Result<(), End> {
        let payload = &self.incoming.content()[HEADER..][..header.length as usize];
        match header.kind {
            Kind::Get => {
                let get = Get::decode(payload)?;
                self.get(header, get);
            }
            Kind::GetSlice => {
                let get = GetSlice::decode(payload)?;
                self.get_slice(header.request, get);
            }
            Kind::Cancel => {
                self.answers.cancel(header.request);
                if self.waiting.cancel(header.request) {
                    self.answers.refuse(header.request, Refusal::NotHeld);
                }
                self.driver.apply(Input::CancelAsked(self.id, header.request));
            }
            Kind::Sync => {
                let mut snapshot = wire::decode_snapshot(payload)?;
                self.known = std::mem::take(&mut snapshot.known);
                self.known.truncate(KNOWN_MAX);
                self.known.sort_unstable();
                self.driver.apply(Input::Learned { from: self.peer.node, snapshot });
                self.answers.opened();
                self.answers.before(header.request, Body::Snapshot);
            }
            Kind::Prove => {
                let image = wire::decode_prove(payload)?;
                self.answers.opened();
                self.answers.before(header.request, Body::Proof(image));
            }
            Kind::Header => {
                let image = wire::decode_header(payload)?;
                self.answers.opened();
                self.answers.before(header.request, Body::Header(image));
            }
            Kind::AdmissionQuestion => {
                let question = wire::decode_list_question(payload)?;
                // A guest is no member, and has no address to ask at.
                if self.peer.generation > 0 && self.driver.admissions.asks_back(&question) {
                    self.driver.ask_list(self.peer);
                }
                self.answers.opened();
                self.answers.before(header.request, Body::AdmissionList(question));
            }
            Kind::PrefetchQuestion => {
                let image = wire::decode_prefetch_question(payload)?;
                self.answers.opened();
                self.answers.before(header.request, Body::PrefetchLists(image));
            }
            Kind::AccountQuestion => {
                let (image, chunk) = wire::decode_account_question(payload)?;
                self.answers.opened();
                let asker = Asker { connection: self.id, request: header.request, reach: Reach::HOLDER };
                self.driver.apply(Input::AskedWhy { asker, node: self.peer.node, image, chunk });
            }
            Kind::Speed => {
                let speed = wire::decode_speed(payload)?;
                self.backlog.told(speed.bytes_per_s());
                self.driver.apply(Input::Delivers(self.peer.node, speed));
            }
            Kind::Gossip => self.driver.apply(Input::Gossip(self.peer.node, payload.to_vec())),
            Kind::Here => {
                let (image, chunks) = wire::decode_here(payload)?;
                self.here(image, chunks);
            }
            Kind::DialBack => {
                let lost = wire::decode_dial_back(payload)?;
                self.dial_back(header.request, lost);
            }
            Kind::Data
            | Kind::Compressed(_)
            | Kind::Slice
            | Kind::Refuse
            | Kind::Redirect
            | Kind::Synced
            | Kind::Patience
            | Kind::Proof
            | Kind::DialledBack
            | Kind::HeaderProof
            | Kind::Account
            | Kind::PrefetchLists
            | Kind::AdmissionList => {
                return Err(WireError::Field("kind").into());
            }
            // A later version may say more.
            Kind::Unknown(_) => {}
        }
        Ok(())
    }

    /// Connects to the peer's announced address; a second request meanwhile is refused.
    fn dial_back(&mut self, request: u64, lost: bool) {
        self.answers.opened();
        let (Ok(from), Ok(local)) = (self.stream.peer_addr(), self.stream.local_addr()) else { return };
        if lost {
            whereabouts::lost_by(self.driver, from, local);
        }
        if std::mem::replace(&mut self.dialling, true) {
            return self.answers.refuse(request, Refusal::Busy);
        }
        let (driver, id, peer) = (Arc::clone(self.driver), self.id, self.peer);
        tokio::spawn(async move {
            let what = whereabouts::dial_back(&driver, peer, from).await;
            driver.reply(id, Reply::DialledBack(request, what));
        });
    }

    fn reply(&mut self, reply: Reply) {
        match reply {
            Reply::DialledBack(request, what) => {
                self.dialling = false;
                let body = what.map_or(Body::Refusal(Refusal::Busy), Body::DialledBack);
                self.answers.before(request, body);
            }
            Reply::Chunk(Serve { asker, image, chunk, priority, waited }) => {
                let body = Body::Chunk { image, chunk, waited };
                self.serve(image, Answer { request: asker.request, priority, body });
            }
            Reply::Freed(freed) => self.freed(freed),
            Reply::Account(asker, account) => self.answers.before(asker.request, Body::Account(account)),
            Reply::Refuse(asker, refusal) => self.answers.refuse(asker.request, refusal),
            Reply::Brought(brought) => self.brought(brought),
        }
    }

    /// Answers with bytes of an image; without it, with a refusal once the answer's turn comes.
    fn serve(&mut self, id: ImageId, answer: Answer) {
        match self.image(id) {
            Some(image) => self.answer(&image, answer),
            None => self.answers.push(answer),
        }
    }

    fn image(&mut self, id: ImageId) -> Option<Arc<LocalImage>> {
        if let Some(image) = self.image.upgrade().filter(|image| image.id() == id && !image.is_dropped()) {
            return Some(image);
        }
        let image = self.driver.image(id)?;
        self.image = Arc::downgrade(&image);
        Some(image)
    }
}

/// The deadline for a peer that has taken nothing of an answer since `stuck`, after `length` bytes
/// since `begun`.
fn taken_by(begun: Instant, stuck: Instant, length: u64) -> Instant {
    let whole = TAKEN_WITHIN + Duration::from_secs(length / TAKEN_RATE_MIN);
    (stuck + TAKEN_WITHIN).min(begun + whole)
}

/// Returns then; never without a time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The order of answers is by priority.
const _: () = assert!((Priority::Demand as usize) < (Priority::Fill as usize));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trickling_and_silent_readers_are_disconnected() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(taken_by(begun, begun, 64 << 10) - begun, TAKEN_WITHIN);
        assert_eq!(taken_by(begun, begun + second, 1 << 20) - begun, TAKEN_WITHIN + second);
        // However lately a byte was taken.
        for (length, seconds) in [(64 << 10, 24), (1 << 20, 84), (0, 20)] {
            assert_eq!(taken_by(begun, begun + 80 * second, length) - begun, seconds * second, "{length} bytes");
        }
    }
}

//! One client that has chosen an export: requests and answers until it leaves.
//!
//! Owns everything of a connection, in one task and without a lock. Invariants: a request gets
//! exactly one answer; nothing is taken on while the outbox is full or too much waits, so memory is
//! bounded by [`super::Limits`], [`OUTBOX_BYTES_MAX`](super::outbox::OUTBOX_BYTES_MAX) and one
//! window, whatever the client does; a request for present bytes is answered at once and never
//! waits behind another. The order of work is in [`Connection::poll`]: answer all that can be
//! answered, send it together, only then read again. A visit (`visit.rs`) begins one. How answers
//! are laid out is `answer.rs`'s business.

use super::Limits;
use super::access::{self, Rule};
use super::advice::Advice;
use super::answer::{Answers, Left};
use super::budget::Budget;
use super::catalogue::{Catalogue, Choice};
use super::codec::negotiation::Chosen;
use super::codec::request::{HEADER_BYTES, Request};
use super::codec::{Command, Errno, Next, Requests, Violation};
use super::handed::{Handed, State};
use super::inbox::Inbox;
use super::lock_step::{LockStep, Turn};
use super::pause::Pause;
use super::refusals::Refusals;
use super::session::{Change, Kind, Session, Verdict};
use super::socket::Socket;
use super::tls::Tls;
use super::upload::Upload;
use super::visit::Stop;
use std::fmt;
use std::future::{self, Future};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use vfield_block::source::{BlockSource, Piece};

/// Room for arrived requests: 292 of them, more than any client has under way on one connection.
pub(super) const INBOX_BYTES: usize = 8 << 10;

/// The same where clients write: eight requests with a page each in one read from the socket.
const INBOX_BYTES_WRITABLE: usize = 64 << 10;

/// Bytes sent before other tasks get a turn: 1 ms at the rate of one processor. A client that takes
/// everything at once would otherwise keep a thread to itself for as long as it has requests.
const TURN_BYTES: u64 = 8 << 20;

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) catalogue: Catalogue,
    pub(super) limits: Limits,
    pub(super) tls: Option<Tls>,
    pub(super) access: Vec<Rule>,
    pub(super) refusals: Refusals,
    /// True if clients have come by themselves, so that they count as users of a device.
    pub(super) counts_users: bool,
    /// What CACHE requests of all connections may have on their way.
    pub(super) advice: Budget,
    /// What their windows may keep in place while they wait.
    pub(super) held: Budget,
    /// The right to look for the next request of a client.
    pub(super) looking: Turn,
    pub(super) requests: AtomicU64,
    pub(super) errors: AtomicU64,
    /// Clients that come are told that the server takes none.
    pub(super) is_shut: AtomicBool,
    pub(super) sent_bytes: AtomicU64,
}

impl Shared {
    /// What a client may choose from.
    pub(super) fn choice_for(&self, socket: &Socket) -> io::Result<Choice> {
        let Some(peer) = socket.peer().filter(|_| !self.access.is_empty()).transpose()? else {
            return Ok(self.catalogue.choice(|_| true));
        };
        let choice = self.catalogue.choice(|names| access::allows(&self.access, names, peer));
        if choice.offers.is_empty() {
            self.refusals.log(peer);
        }
        Ok(choice)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("catalogue", &self.catalogue)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Why a connection ended, other than by the client's leaving.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the handshake took longer than {0:?}")]
    SlowHandshake(Duration),
    #[error("the handshake failed: {0}")]
    Handshake(&'static str),
    #[error("{0}")]
    Violation(#[from] Violation),
    #[error("an answer could not be finished: {0}")]
    Unfinished(String),
}

/// A client that has chosen an export.
pub(super) struct Entered<'a> {
    pub(super) socket: Socket,
    pub(super) choice: &'a Choice,
    pub(super) chosen: Chosen,
}

/// Answers requests: those of which bytes are in `inbox`, those that are `left`, and all that
/// follow. The `outbox` goes out first.
pub(super) async fn converse(
    Entered { socket, choice, chosen }: Entered<'_>,
    inbox: &[u8],
    left: Left,
    outbox: Vec<u8>,
    shared: &Shared,
    stop: impl Future<Output = Stop>,
) -> Result<Option<Handed>, End> {
    let mut stop = pin!(stop);
    let Some((source, mut gone)) = choice.enter(chosen.offer) else { return Ok(None) };
    let session = Session::new(source.size_bytes(), source.device().is_some(), chosen);
    let inbox = Inbox::with(inbox, if session.writable() { INBOX_BYTES_WRITABLE } else { INBOX_BYTES });
    let advice = Advice::new(shared.advice.clone(), shared.limits.advice_bytes);
    let device = source.device().filter(|_| shared.counts_users);
    let _user = device.map(|device| device.users().enter());
    let mut connection = Connection {
        socket,
        inbox,
        requests: Requests::default(),
        upload: None,
        window: Vec::new(),
        source: source.clone(),
        answers: Answers::new(source.clone(), session, advice, shared.held.clone()),
        pause: Pause::new(),
        lock_step: LockStep::new(&shared.looking),
        session,
        shared,
        input: Input::Open,
        uncounted: 0,
        counted_bytes: 0,
    };
    if !outbox.is_empty() {
        connection.answers.outbox.piece(Piece::Bytes(outbox.into()))?;
    }
    connection.answers.resume(left);
    let how = tokio::select! {
        // In this order: what a client sends after the end has begun is refused.
        biased;
        how = stop.as_mut() => how,
        _ = gone.wait_for(|gone| *gone) => Stop::Drain,
        done = future::poll_fn(|cx| connection.poll(cx)) => return done.map(|()| None),
    };
    match how {
        Stop::Drain => connection.drain().await.map(|()| None),
        Stop::HandOver => connection.hand_over(&choice.offers[chosen.offer].name, chosen).await,
    }
}

/// What may still come from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// The server is stopping: requests are refused.
    Draining,
    /// The client said that it leaves: answers are finished, bytes ignored.
    Leaving,
    /// The client's side is closed: queued answers are sent, waiting requests are dropped.
    Closed,
}

/// How far the answering came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worked {
    /// All that could be answered is.
    All,
    /// The outbox is full.
    Full,
}

struct Connection<'a> {
    socket: Socket,
    inbox: Inbox,
    requests: Requests,
    /// The write whose payload is coming.
    upload: Option<Upload>,
    /// The window of the write before, kept for its allocation.
    window: Vec<u8>,
    source: Arc<dyn BlockSource>,
    answers: Answers,
    session: Session,
    shared: &'a Shared,
    input: Input,
    /// Requests taken out of the inbox since the last `count`.
    uncounted: u64,
    counted_bytes: u64,
    pause: Pause,
    lock_step: LockStep<'a>,
}

impl Connection<'_> {
    /// Serves until the client has left, or until there is nothing to do right now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let polled = self.poll_served(cx);
        self.count();
        if polled.is_pending() && self.pause.is_long(&self.answers.outbox, cx) {
            self.answers.outbox.copy_out();
        }
        polled
    }

    fn poll_served(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            if self.answers.outbox.sent_bytes() - self.counted_bytes > TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let worked = self.work(cx)?;
            let flushed = self.answers.outbox.poll_flush(&mut self.socket, cx)?.is_ready();
            if flushed && matches!(self.input, Input::Leaving | Input::Closed) && self.answers.is_idle() {
                return Poll::Ready(Ok(()));
            }
            match worked {
                Worked::Full if self.answers.outbox.has_room() => continue,
                Worked::Full => return Poll::Pending,
                Worked::All => {}
            }
            if self.input == Input::Closed || self.inbox.is_full() {
                return Poll::Pending;
            }
            let Poll::Ready(received) = self.poll_receive(cx) else {
                if flushed && self.answers.is_idle() {
                    self.lock_step.rest(self.answers.outbox.sent_bytes(), cx);
                }
                return Poll::Pending;
            };
            self.lock_step.came();
            if received? == 0 {
                self.close();
            }
        }
    }

    /// Reads once from the socket: a payload to where it is wanted, anything else into the inbox.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &mut self.upload {
            Some(upload) if self.inbox.bytes().is_empty() && !upload.is_complete() => {
                let bytes = ready!(upload.poll_fill(&mut self.socket, self.source.device(), cx))?;
                self.requests.passed(bytes);
                Poll::Ready(Ok(bytes))
            }
            _ => self.inbox.poll_fill(&mut self.socket, cx),
        }
    }

    /// Answers requests while the outbox has room.
    fn work(&mut self, cx: &mut Context<'_>) -> Result<Worked, End> {
        while self.answers.outbox.has_room() {
            if self.answers.poll_waiting(cx)? {
                continue;
            }
            let limits = &self.shared.limits;
            if !self.answers.may_take_on(limits) || !self.next_request()? {
                return Ok(Worked::All);
            }
        }
        Ok(Worked::Full)
    }

    /// Takes one request, or a part of a payload, out of the inbox; false if there is none.
    fn next_request(&mut self) -> Result<bool, End> {
        if matches!(self.input, Input::Leaving | Input::Closed) {
            self.inbox.consume(self.inbox.bytes().len());
            return Ok(false);
        }
        if let Some(mut upload) = self.upload.take_if(|upload| upload.is_complete()) {
            self.window = upload.take_window();
            self.answers.finish(upload);
            return Ok(true);
        }
        match self.requests.next(self.inbox.bytes())? {
            Next::More => return Ok(false),
            Next::Payload(length) => {
                if let Some(upload) = &mut self.upload {
                    upload.take(&self.inbox.bytes()[..length], self.source.device());
                }
                self.inbox.consume(length);
            }
            Next::Request(request) => {
                self.inbox.consume(HEADER_BYTES);
                self.uncounted += 1;
                self.start(&request)?;
            }
        }
        Ok(true)
    }

    fn start(&mut self, request: &Request) -> Result<(), End> {
        let verdict = match self.session.judge(request) {
            Verdict::Disconnect => {
                self.input = Input::Leaving;
                self.answers.forget_advice();
                return Ok(());
            }
            _ if self.input == Input::Draining => Verdict::Refuse(Errno::Shutdown, "the server is stopping"),
            verdict => verdict,
        };
        if let Verdict::Refuse(errno, why) = verdict {
            self.shared.errors.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(?request, ?errno, why, "refused a request");
        }
        let mut window = || std::mem::take(&mut self.window);
        match verdict {
            Verdict::Change(change @ Change { kind: Kind::Write, .. }) => {
                let admitted = self.source.device().map_or(Ok(()), |device| device.admit(change.extent));
                self.upload = Some(Upload::new(request.cookie, change, window(), admitted));
                Ok(())
            }
            // Answered when its payload is gone.
            Verdict::Refuse(errno, why) if request.command == Command::Write => {
                self.upload = Some(Upload::refused(request.cookie, request.length, window(), (errno, why)));
                Ok(())
            }
            verdict => self.answers.start(request.cookie, verdict),
        }
    }

    fn close(&mut self) {
        if !self.requests.at_boundary() || !self.inbox.bytes().is_empty() {
            tracing::debug!("the client went away in the middle of a request");
        }
        self.input = Input::Closed;
        self.answers.give_up();
    }

    /// The conversation as it is, for another process; nothing of one that only this process can
    /// go on with, which ends here.
    async fn hand_over(mut self, export: &str, chosen: Chosen) -> Result<Option<Handed>, End> {
        let whole = self.input == Input::Open && self.upload.is_none() && self.requests.at_boundary();
        if !whole || self.session.writable() {
            return Ok(None);
        }
        // Less has to be carried.
        future::poll_fn(|cx| {
            let _ = self.answers.outbox.poll_flush(&mut self.socket, cx)?;
            Poll::Ready(io::Result::Ok(()))
        })
        .await?;
        let Some(left) = self.answers.leave() else { return Ok(None) };
        let state = State {
            export: export.to_owned(),
            structured: chosen.structured,
            allocation: chosen.allocation,
            inbox: self.inbox.bytes().to_vec(),
            outbox: self.answers.outbox.take_bytes()?,
            left,
        };
        Ok(self.socket.release().map(|socket| Handed { socket, state: state.encode() }))
    }

    /// Refuses new requests and finishes those under way, for as long as the limits allow.
    async fn drain(&mut self) -> Result<(), End> {
        if self.input == Input::Open {
            self.input = Input::Draining;
        }
        self.answers.forget_advice();
        let mut grace = pin!(tokio::time::sleep(self.shared.limits.grace));
        tokio::select! {
            biased;
            done = future::poll_fn(|cx| self.poll_drained(cx)) => return done,
            () = grace.as_mut() => {}
        }
        self.answers.refuse_waiting(Errno::Shutdown, "the server is stopping")?;
        // The server bounds this: a client that does not read is cut off.
        future::poll_fn(|cx| self.poll_drained(cx)).await
    }

    /// Ready when nothing is under way and the client has sent nothing that has no answer yet.
    fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if let Poll::Ready(done) = self.poll(cx) {
            return Poll::Ready(done);
        }
        // All input was read (or is ignored), as poll() otherwise goes on.
        let gone = self.answers.outbox.is_empty() && !self.socket.is_behind();
        let idle = self.upload.is_none() && self.answers.is_idle() && gone;
        if idle { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Adds this connection's counts to the server's, once per wake-up, since all connections write
    /// to the same place.
    fn count(&mut self) {
        let sent = self.answers.outbox.sent_bytes();
        if self.uncounted > 0 || sent > self.counted_bytes {
            self.shared.requests.fetch_add(std::mem::take(&mut self.uncounted), Ordering::Relaxed);
            self.shared.sent_bytes.fetch_add(sent - self.counted_bytes, Ordering::Relaxed);
            self.counted_bytes = sent;
        }
    }
}

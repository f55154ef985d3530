//! One client's visit: a handshake, or the state that another process has left, then a
//! conversation until the client leaves or is handed over.
//!
//! Invariant: a visit ends within the server's bounds however it began. The server starts one task
//! for each. How requests are answered is `connection`'s business.

use super::answer::Left;
use super::codec::OPTION_BYTES_MAX;
use super::codec::negotiation::{Chosen, Negotiation, Offer, Step};
use super::connection::{End, Entered, INBOX_BYTES, Shared, converse};
use super::handed::{Handed, State};
use super::inbox::Inbox;
use super::socket::Socket;
use std::future::{self, Future};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time in which a client that is just coming may finish its handshake before its connection is
/// handed over. Clients need a millisecond; the readers of all others wait as long.
const HANDSHAKE_LEFT: Duration = Duration::from_millis(100);

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its clients are told.
    Drain,
    /// Its clients notice nothing: another process goes on.
    HandOver,
}

/// Serves one client until it leaves, or until it is handed over. `stop` becomes ready when the
/// server is to end.
pub(super) async fn serve(
    socket: Socket,
    shared: &Shared,
    stop: impl Future<Output = Stop>,
) -> Result<Option<Handed>, End> {
    let mut stop = pin!(stop);
    let choice = shared.choice_for(&socket)?;
    let offers = &choice.offers;
    if offers.is_empty() {
        return Err(End::Handshake("there is nothing for a client from there"));
    }
    let offers = if shared.is_shut.load(Ordering::Relaxed) { Arc::from([]) } else { Arc::clone(offers) };
    let mut handshake = pin!(tokio::time::timeout(shared.limits.handshake, negotiate(socket, shared, &offers)));
    let slow = |_| End::SlowHandshake(shared.limits.handshake);
    let mut stopped = None;
    let negotiated = tokio::select! {
        biased;
        how = stop.as_mut() => match how {
            Stop::Drain => return Ok(None),
            Stop::HandOver => {
                stopped = Some(how);
                match tokio::time::timeout(HANDSHAKE_LEFT, handshake).await {
                    Ok(negotiated) => negotiated.map_err(slow)??,
                    Err(_) => return Ok(None),
                }
            }
        },
        negotiated = handshake.as_mut() => negotiated.map_err(slow)??,
    };
    let Some((socket, chosen, inbox)) = negotiated else { return Ok(None) };
    let entered = Entered { socket, choice: &choice, chosen };
    converse(entered, inbox.bytes(), Left::default(), Vec::new(), shared, async {
        match stopped {
            Some(how) => how,
            None => stop.await,
        }
    })
    .await
}

/// Serves a client that another process has left, as [`serve`] does.
pub(super) async fn resume(
    handed: Handed,
    shared: &Shared,
    stop: impl Future<Output = Stop>,
) -> Result<Option<Handed>, End> {
    let socket = Socket::adopt(handed.socket)?;
    let unknown = || End::Handshake("its state is not one of this version");
    let state = State::decode(&handed.state).filter(|state| state.inbox.len() <= INBOX_BYTES).ok_or_else(unknown)?;
    let choice = shared.choice_for(&socket)?;
    let Some(offer) = choice.offers.iter().position(|offer| offer.name == state.export) else {
        return Err(End::Handshake("its export is not there any more"));
    };
    if !state.fits(choice.offers[offer].size_bytes) {
        return Err(unknown());
    }
    let State { structured, allocation, inbox, outbox, left, .. } = state;
    let entered = Entered { socket, choice: &choice, chosen: Chosen { offer, structured, allocation } };
    converse(entered, &inbox, left, outbox, shared, stop).await
}

/// Agrees on an export. `None` if the client left instead.
async fn negotiate(
    mut socket: Socket,
    shared: &Shared,
    offers: &Arc<[Offer]>,
) -> Result<Option<(Socket, Chosen, Inbox)>, End> {
    // Clients of a unix socket are on this machine.
    let tls = shared.tls.as_ref().filter(|_| matches!(socket, Socket::Tcp(_)));
    let mut inbox = Inbox::new(16 + OPTION_BYTES_MAX as usize);
    let mut out = Vec::new();
    let mut negotiation = Negotiation::start(offers.clone(), tls.is_some(), &mut out);
    loop {
        let (used, step) = negotiation.step(inbox.bytes(), &mut out);
        inbox.consume(used);
        send(&mut socket, &mut out).await?;
        match step {
            Step::Answered => {}
            Step::Serve(chosen) => return Ok(Some((socket, chosen, inbox))),
            Step::Left => return Ok(None),
            Step::Refused(why) => return Err(End::Handshake(why)),
            Step::StartTls => {
                let Some(tls) = tls else { return Err(End::Handshake("there are no certificates")) };
                // Bytes before the encryption may be forged, and must not count as encrypted.
                if !inbox.bytes().is_empty() {
                    return Err(End::Handshake("bytes in the clear behind the start of TLS"));
                }
                socket = socket.start_tls(tls).await?;
            }
            Step::More => {
                if future::poll_fn(|cx| inbox.poll_fill(&mut socket, cx)).await? == 0 {
                    return Ok(None);
                }
            }
        }
    }
}

async fn send(socket: &mut Socket, out: &mut Vec<u8>) -> io::Result<()> {
    let mut rest = &out[..];
    while !rest.is_empty() {
        match socket.try_send(&[io::IoSlice::new(rest)], false) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                future::poll_fn(|cx| socket.poll_writable(cx)).await?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    out.clear();
    future::poll_fn(|cx| socket.poll_flush(cx)).await
}

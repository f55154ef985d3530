//! The header of an image: members prove it before this node joins the image, so no mere claim
//! decides about it.
//!
//! A [`HeaderProof`] fits into a packet, and every member that has joined an image has it. So a
//! room that is switched on asks one origin for a kilobyte a node, not for the top page.
//! [`crate::naming`] calls it.

use crate::driver::Driver;
use crate::entry::Met;
use crate::greet::GreetError;
use crate::interview::{self, Guest, Manner};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vfield_core::header_proof::HeaderProof;
use vfield_core::image::{Header, ImageId};
use vfield_core::node::Claim;
use vfield_core::wire::{self, FrameHeader, Kind, Refusal};

/// One member is asked after the other, since nearly always the first one has the proof. The pause
/// is longer than an origin's answer to thirty nodes that are started on one machine at once. A
/// shorter pause makes them ask others too.
const MANNER: Manner = Manner { at_once: 16, pace: Duration::from_millis(150), within: Duration::from_secs(10) };

/// A header that belongs to its id, and the proof.
#[derive(Debug, Clone)]
pub struct Proved {
    /// The proved header of the image.
    pub header: Header,
    /// Its proof; not there if only what an earlier process of this node left says so.
    pub proof: Option<HeaderProof>,
}

/// Failed answers in words, each with the address it came from.
pub type Tried = Vec<(SocketAddr, String)>;

/// Finds out the header of an image that members claim to have. When the turn of the member that is
/// `open` comes, it is asked over its connection: in a busy room each new one takes its time.
pub async fn prove(
    driver: &Arc<Driver>,
    id: ImageId,
    claims: &[&Claim],
    met: &[SocketAddr],
    open: Option<Met>,
) -> Result<Proved, Tried> {
    let (mut proved, mut tried) = (None, Tried::new());
    let open = Mutex::new(open);
    let ask = |addr| {
        let open = open.lock().unwrap_or_else(PoisonError::into_inner).take_if(|(at, _)| *at == addr);
        let driver = Arc::clone(driver);
        async move { of_member(&driver, addr, open, id).await }
    };
    interview::ask_all(interview::whom(driver, claims, met), MANNER, ask, |addr, answer| {
        match answer {
            // Without a claim that agrees, the image would have no name.
            Ok(found) if claims.iter().all(|claim| claim.subject.header != found.header.encode()) => {
                tried.push((addr, "it proves a header that no member claims".to_owned()));
            }
            Ok(found) => proved = Some(found),
            Err(why) => {
                tracing::debug!(%addr, why, "no header proof");
                tried.push((addr, why));
            }
        }
        proved.is_some()
    })
    .await;
    proved.ok_or(tried)
}

/// Asks one member.
async fn of_member(driver: &Driver, addr: SocketAddr, open: Option<Met>, id: ImageId) -> Result<Proved, String> {
    let (answer, body) = answer(driver, addr, open, id).await.map_err(|error| error.to_string())?;
    match (answer.kind, answer.refusal) {
        (Kind::HeaderProof, _) => {
            let proof = wire::decode_header_proof(&body).map_err(|error| error.to_string())?;
            let header = proof.verify(id).ok_or("its header is not the one of the image")?;
            Ok(Proved { header, proof: Some(proof) })
        }
        (_, Some(Refusal::NoSuchImage)) => Err("it has no such image".to_owned()),
        _ => Err("it cannot prove the header".to_owned()),
    }
}

async fn answer(
    driver: &Driver,
    addr: SocketAddr,
    open: Option<Met>,
    id: ImageId,
) -> Result<(FrameHeader, Vec<u8>), GreetError> {
    let question = wire::header_frame(0, id);
    // A connection may have ended while this node waited for an image.
    if let Some((_, mut guest)) = open
        && let Ok(answer) = guest.ask(&question).await
    {
        return Ok(answer);
    }
    Guest::at(driver, addr).await?.ask(&question).await
}

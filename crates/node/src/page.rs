//! The top page of an image, which proves that a header belongs to an id: both hash to it together.
//!
//! Members are asked for it before this node joins the image, so no mere claim decides about the
//! header.

use crate::driver::Driver;
use crate::greet::GreetError;
use crate::interview::{self, Guest, Manner};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::node::Claim;
use vfield_core::reach::Reach;
use vfield_core::wire::{self, Get, Kind, Priority, Refusal};

/// One member is asked after the other, since the page is as long as a chunk. The pause is a
/// hundred times the page's time on a LAN.
const MANNER: Manner = Manner { at_once: 16, pace: Duration::from_millis(150), within: Duration::from_secs(10) };
/// Retry pauses for a node to which an origin has just sent the page. When a room is switched on,
/// all nodes ask one origin, whose link is to carry each chunk once.
const PAUSES_MS: [u64; 4] = [10, 20, 40, 80];

/// A header that belongs to its id, and the page that shows it.
#[derive(Debug, Clone)]
pub struct Proved {
    /// The proved header of the image.
    pub header: Header,
    /// Its top page; not there if only what an earlier process of this node left says so.
    pub page: Option<Vec<u8>>,
}

/// Failed answers in words, each with the address it came from.
pub type Tried = Vec<(SocketAddr, String)>;

/// Finds out which of the claimed headers of an image is the right one.
pub async fn prove(driver: &Arc<Driver>, id: ImageId, claims: &[&Claim], met: &[SocketAddr]) -> Result<Proved, Tried> {
    let mut headers: Vec<(usize, Header)> = Vec::new();
    for claim in claims {
        let Ok(header) = Header::decode(&claim.subject.header) else { continue };
        match headers.iter_mut().find(|(_, known)| *known == header) {
            Some((tellers, _)) => *tellers += claim.tellers.len(),
            None => headers.push((claim.tellers.len(), header)),
        }
    }
    // The header with most tellers first: each answer is tried with all.
    headers.sort_by_key(|(tellers, _)| std::cmp::Reverse(*tellers));
    headers.truncate(HEADERS_MAX);
    let headers: Arc<[Header]> = headers.into_iter().map(|(_, header)| header).collect();
    let (mut proved, mut tried) = (None, Tried::new());
    let ask = |addr| {
        let (driver, headers) = (Arc::clone(driver), Arc::clone(&headers));
        async move { of_member(&driver, addr, id, &headers).await }
    };
    interview::ask_all(interview::whom(driver, claims, met), MANNER, ask, |addr, answer| {
        match answer {
            Ok(found) => proved = Some(found),
            Err(why) => tried.push((addr, why)),
        }
        proved.is_some()
    })
    .await;
    proved.ok_or(tried)
}

/// Most headers of one image that are tried; more of them are invented.
const HEADERS_MAX: usize = 8;

/// Asks one member, with each of the headers.
async fn of_member(driver: &Driver, addr: SocketAddr, id: ImageId, headers: &[Header]) -> Result<Proved, String> {
    let mut guest = Guest::at(driver, addr).await.map_err(|error| error.to_string())?;
    let mut why = "it has no such image".to_owned();
    for header in headers {
        match page(driver, &mut guest, id, header, 0).await {
            Ok(Some(page)) => return Ok(Proved { header: *header, page: Some(page) }),
            Ok(None) => {}
            Err(GreetError::TimedOut) => why = "no answer".to_owned(),
            // Nothing more can be asked over this connection.
            Err(error) => return Err(error.to_string()),
        }
    }
    if headers.len() > 1 { Err(format!("{why}, with any of {} claimed headers", headers.len())) } else { Err(why) }
}

/// The top page by one header, if the member sends it, or another to which it sends this node.
async fn page(
    driver: &Driver,
    guest: &mut Guest,
    id: ImageId,
    header: &Header,
    request: u64,
) -> Result<Option<Vec<u8>>, GreetError> {
    let geometry = Geometry::new(*header);
    let get = Get { image: id, chunk: geometry.top(), reach: Reach::READER };
    let right =
        |bytes: &[u8]| bytes.len() as u64 == geometry.length(geometry.top()) && ImageId::of(header, bytes) == id;
    let (answer, body) = guest.ask(&get.frame(request, Priority::Demand, false)).await?;
    match answer.kind {
        Kind::Data => return Ok(Some(body).filter(|body| right(body))),
        Kind::Redirect => {}
        _ => return Ok(None),
    }
    if let Some(body) = advised(driver, wire::decode_redirect(&body)?, &get).await.filter(|body| right(body)) {
        return Ok(Some(body));
    }
    let (answer, body) = guest.ask(&get.frame(request + 1, Priority::Demand, true)).await?;
    Ok(Some(body).filter(|body| answer.kind == Kind::Data && right(body)))
}

/// The page from a node to which an origin redirects this one.
async fn advised(driver: &Driver, node: NodeId, get: &Get) -> Option<Vec<u8>> {
    let members = driver.look(|core| core.members());
    let addr = members.iter().find(|member| member.identity.node == node)?.identity.addr;
    let mut guest = Guest::at(driver, addr).await.ok()?;
    let mut pauses = PAUSES_MS.into_iter().map(Duration::from_millis);
    loop {
        let (answer, body) = guest.ask(&get.frame(0, Priority::Demand, false)).await.ok()?;
        match (answer.kind, answer.refusal) {
            (Kind::Data, _) => return Some(body),
            (_, Some(Refusal::NoSuchImage | Refusal::NotHeld | Refusal::Busy)) => {
                tokio::time::sleep(pauses.next()?).await
            }
            _ => return None,
        }
    }
}

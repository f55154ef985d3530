//! Waits, followed from node to node: the questions of a [`Pursuit`], carried.
//!
//! Each goes over a connection of its own, to a member that this node knows, and is answered soon
//! or not at all. The answers are shown, and nothing depends on them.

use crate::driver::Driver;
use crate::explained::HopStatus;
use crate::interview::Guest;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::STAGES;
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;
use vfield_core::pursuit::{Account, Hop, Pursuit, Said, Wait};
use vfield_core::wire::{self, ACCOUNTS_SINCE, Kind};

/// Timeout of one node. A node that takes longer is what the reader waits for.
const ANSWER: Duration = Duration::from_millis(1000);

/// The nodes that wait for each other for a chunk's sake, the one that this node asked first.
pub async fn hops(driver: &Driver, image: ImageId, chunk: Chunk) -> Vec<HopStatus> {
    let begun = driver.look(|core| Some(Pursuit::new(core.me().node, &core.account(image, chunk)?)));
    let Some(mut pursuit) = begun else { return Vec::new() };
    while let Some((node, chunk)) = pursuit.next() {
        let said = match driver.look(|core| core.addr_of(node)) {
            Some(addr) => ask(driver, addr, image, chunk).await,
            None => Said::Nothing,
        };
        pursuit.said(said);
    }
    pursuit.hops().iter().map(|hop| shown(driver, hop)).collect()
}

/// Asks the node at an address.
async fn ask(driver: &Driver, addr: SocketAddr, image: ImageId, chunk: Chunk) -> Said {
    let question = wire::account_question_frame(0, image, chunk);
    let asked = async {
        let mut guest = Guest::at(driver, driver.whereabouts.way_to(addr)).await.ok()?;
        if guest.version() < ACCOUNTS_SINCE {
            return Some(Said::Refused);
        }
        let (header, body) = guest.ask(&question).await.ok()?;
        Some(match header.kind {
            Kind::Account => wire::decode_account(&body).map_or(Said::Refused, Said::Account),
            _ => Said::Refused,
        })
    };
    timeout(ANSWER, asked).await.ok().flatten().unwrap_or(Said::Nothing)
}

fn shown(driver: &Driver, hop: &Hop) -> HopStatus {
    let address = |node: NodeId| {
        let known = driver.look(|core| core.addr_of(node));
        known.map_or_else(|| format!("node {node}, which this node does not know"), |addr| addr.to_string())
    };
    let addr = address(hop.node);
    let says = |says: String| HopStatus { addr: addr.clone(), says, ..HopStatus::default() };
    let seconds = |ms: u32| Duration::from_millis(ms.into()).as_secs_f64();
    match hop.said {
        Said::Nothing => says("does not answer".to_owned()),
        Said::Refused => says("gives no account".to_owned()),
        Said::Account(Account { is_here: true, .. }) => says("has it: it or its link is slow".to_owned()),
        Said::Account(Account { wait: None, .. }) => says("neither has it nor fetches it".to_owned()),
        Said::Account(Account { chunk, wait: Some(Wait { stage, in_stage_ms, awaits }), .. }) => HopStatus {
            chunk: Some(chunk),
            stage_s: Some(seconds(in_stage_ms)),
            asked: awaits.map(|(node, _)| address(node)),
            asked_s: awaits.map(|(_, ms)| seconds(ms)),
            ..says(format!("waits, {}", STAGES[usize::from(stage)]))
        },
    }
}

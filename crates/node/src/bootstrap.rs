//! Bootstrap: entering a field through any of its members.

use crate::driver::Driver;
use crate::greet::GreetError;
use crate::interview::Guest;
use crate::twins;
use crate::whereabouts;
use std::net::SocketAddr;
use std::sync::Arc;
use vfield_core::node::Input;
use vfield_core::wire::{self, Kind, WireError};

/// Exchanges snapshots with one member; more can be asked over the connection.
pub async fn meet(driver: &Arc<Driver>, addr: SocketAddr) -> Result<Guest, GreetError> {
    if driver.look(|core| core.is_alone()) && driver.lasting_key {
        twins::look(driver, addr).await?;
    }
    let (mut guest, member, latest) = Guest::greet(driver, addr).await?;
    driver.apply(Input::Arrive(latest));
    let frame = wire::snapshot_frame(Kind::Sync, 0, driver.look(|core| core.question(&member.identity)));
    let (answer, body) = guest.ask(&frame).await?;
    if answer.kind != Kind::Synced {
        return Err(WireError::Field("kind").into());
    }
    let snapshot = wire::decode_snapshot(&body)?;
    whereabouts::check_member(driver, addr, member.identity).await;
    driver.apply(Input::Answered { addr, member });
    driver.apply(Input::Learned { from: member.identity.node, snapshot });
    Ok(guest)
}

/// Exchanges snapshots with the node at an address, if there is one.
pub async fn call(driver: Arc<Driver>, addr: SocketAddr) {
    if let Err(error) = meet(&driver, addr).await {
        if let GreetError::Twin(addr) = error {
            driver.outdone.send_replace(Some(addr));
        }
        tracing::debug!(%addr, %error, "call failed");
    }
}

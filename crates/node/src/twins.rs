//! Twins: other processes with this node's key, found before this node is a member.
//!
//! A copied file gives two machines one identity. To say so in the field would move the identity
//! from one machine to the other and back. So a node whose key outlives its process first asks as a
//! guest, which says nothing of itself, whether its identity is in use. If a process at another
//! address proves the key, this node does not begin. Processes that begin at the same time find
//! each other later ([`vfield_core::membership`]).

use crate::driver::Driver;
use crate::greet::{self, GreetError, Greeted, Me};
use crate::interview::Guest;
use std::net::SocketAddr;
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{self, Kind};

/// Asks the member at an address for this node's identity.
///
/// # Errors
///
/// If another process uses it, or the member cannot be asked.
pub async fn look(driver: &Driver, addr: SocketAddr) -> Result<(), GreetError> {
    let me = Me { guest: true, ..driver.me() };
    let Greeted { connection, .. } = match greet::dial(addr, me.clone()).await {
        Ok((met, _)) => met,
        Err(GreetError::Myself { generation }) if !is_mine(driver, generation) => return Err(GreetError::Twin(addr)),
        Err(error) => return Err(error),
    };
    let frame = wire::snapshot_frame(Kind::Sync, 0, Snapshot::default());
    let (answer, body) = Guest::over(connection).ask(&frame).await?;
    if answer.kind != Kind::Synced {
        // The member is too busy to tell; twins that both begin find each other later.
        return Ok(());
    }
    let (node, mine) = (driver.key.node(), me.member.identity.addr);
    let snapshot = wire::decode_snapshot(&body)?;
    let said = snapshot.members.iter().find(|member| member.identity.node == node && member.state.is_live());
    let Some(there) = said.map(|member| member.identity.addr).filter(|there| *there != mine) else { return Ok(()) };
    // An earlier process of this node may be known for a while.
    match greet::dial(there, me).await {
        Err(GreetError::Myself { generation }) if !is_mine(driver, generation) => Err(GreetError::Twin(there)),
        _ => Ok(()),
    }
}

/// A process that proved this node's key is this node, unless it is of another generation.
fn is_mine(driver: &Driver, generation: u64) -> bool {
    // Read after the greeting, since the generation may have changed meanwhile.
    driver.look(|core| core.me().generation) == generation
}

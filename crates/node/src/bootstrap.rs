//! Bootstrap: entering a field through any of its members.

use crate::driver::Driver;
use crate::greet::{self, GreetError, Met};
use crate::whereabouts;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use vfield_core::node::Input;
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{self, FrameHeader, HEADER, Kind, WireError};

/// Timeout for the snapshot of a member.
const SNAPSHOT: Duration = Duration::from_secs(5);

/// Exchanges snapshots with one member.
pub async fn meet(driver: &Arc<Driver>, addr: SocketAddr) -> Result<(), GreetError> {
    let (Met { mut connection, latest, .. }, member) = greet::dial(addr, driver.me()).await?;
    driver.apply(Input::Arrive(latest));
    let exchange = async {
        let frame = wire::snapshot_frame(Kind::Sync, 0, driver.look(|core| core.snapshot(&member.identity)));
        connection.send(&frame).await?;
        let head = connection.receive(HEADER).await?;
        let header = FrameHeader::decode(head.first_chunk().expect("as long as was asked for"))?;
        if header.kind != Kind::Synced {
            return Err(WireError::Field("kind").into());
        }
        let body = connection.receive(header.length as usize).await?;
        Ok::<Snapshot, GreetError>(wire::decode_snapshot(&body)?)
    };
    let snapshot = timeout(SNAPSHOT, exchange).await.map_err(|_| GreetError::TimedOut)??;
    whereabouts::check_member(driver, addr, member.identity).await;
    driver.apply(Input::Answered { addr, member });
    driver.learn(member.identity.node, snapshot).await;
    Ok(())
}

/// Exchanges snapshots with the node at an address, if there is one.
pub async fn call(driver: Arc<Driver>, addr: SocketAddr) {
    if let Err(error) = meet(&driver, addr).await {
        tracing::debug!(%addr, %error, "call failed");
    }
}

/// The address of this machine that leads to `peer`; no packet is sent to find out.
pub fn local_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

//! Which address of this machine leads to another one. Sends nothing: a connected UDP socket tells
//! which address the kernel would use.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address of this machine from which packets to `addr` would go.
///
/// # Errors
/// If there is no way to it.
pub fn local_towards(addr: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if addr.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(addr)?;
    socket.local_addr().map(|addr| addr.ip())
}

//! Which address of this machine leads to another one, and whether a socket does. Sends nothing: a
//! connected UDP socket tells which address the kernel would use.

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

/// True if a socket bound to `listen` can speak to `addr`: a socket bound to all IPv6 addresses
/// speaks IPv4 too.
pub fn speaks_to(listen: SocketAddr, addr: SocketAddr) -> bool {
    addr.is_ipv4() == listen.is_ipv4() || (addr.is_ipv4() && listen.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_on_all_addresses_of_ipv6_speaks_both() {
        let speaks = |listen: &str, addr: &str| speaks_to(listen.parse().unwrap(), addr.parse().unwrap());
        assert!(speaks("[::]:1", "198.18.0.1:1") && speaks("[::]:1", "[fd00::1]:1"));
        assert!(!speaks("[fd00::2]:1", "198.18.0.1:1") && !speaks("0.0.0.0:1", "[fd00::1]:1"));
    }
}

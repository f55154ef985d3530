//! Which address of this machine leads to another one, whether a socket does, and whether the
//! machine has an address. Sends nothing: a connected UDP socket tells which address the kernel
//! would use.

use std::io::{self, ErrorKind};
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

/// True unless this machine certainly does not have the address.
pub fn is_here(ip: IpAddr) -> bool {
    let bound = UdpSocket::bind((ip, 0));
    !bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
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
    fn a_machine_knows_its_own_addresses() {
        assert!(is_here(Ipv4Addr::LOCALHOST.into()) && is_here(Ipv4Addr::UNSPECIFIED.into()));
        // Of the networks for documents.
        assert!(!is_here([192, 0, 2, 1].into()) && !is_here("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn who_listens_on_all_addresses_of_ipv6_speaks_both() {
        let speaks = |listen: &str, addr: &str| speaks_to(listen.parse().unwrap(), addr.parse().unwrap());
        assert!(speaks("[::]:1", "198.18.0.1:1") && speaks("[::]:1", "[fd00::1]:1"));
        assert!(!speaks("[fd00::2]:1", "198.18.0.1:1") && !speaks("0.0.0.0:1", "[fd00::1]:1"));
    }
}

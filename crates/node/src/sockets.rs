//! The two sockets of a node, for chunks and for gossip, bound to one port.
//!
//! A keeper of sockets has both, so that the next process of this node listens where this one did.
//! Peers that connect in between wait.

use crate::config::NodeConfig;
use crate::node::StartError;
use crate::route;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};

/// The names under which a keeper has them.
pub const NAMES: [&str; 2] = ["node-tcp", "node-udp"];

/// Both sockets of an earlier process.
#[derive(Debug, Clone)]
pub struct Sockets {
    tcp: Arc<OwnedFd>,
    udp: Arc<OwnedFd>,
}

impl Sockets {
    /// In the order of [`NAMES`].
    pub fn new([tcp, udp]: [OwnedFd; 2]) -> Self {
        Self { tcp: Arc::new(tcp), udp: Arc::new(udp) }
    }

    /// Where they listen.
    ///
    /// # Errors
    /// If the first is no listening TCP socket.
    pub fn addr(&self) -> io::Result<SocketAddr> {
        std::net::TcpListener::from(self.tcp.try_clone()?).local_addr()
    }

    /// True if they are bound to an address that this machine no longer has: nobody reaches them.
    pub fn are_lost(&self) -> bool {
        self.addr().is_ok_and(|addr| !route::is_here(addr.ip()))
    }

    fn listen(&self) -> io::Result<(TcpListener, UdpSocket, SocketAddr)> {
        let nonblocking = |socket: &OwnedFd| {
            rustix::io::ioctl_fionbio(socket, true)?;
            socket.try_clone()
        };
        let listener = TcpListener::from_std(nonblocking(&self.tcp)?.into())?;
        let udp = UdpSocket::from_std(nonblocking(&self.udp)?.into())?;
        let addr = listener.local_addr()?;
        if udp.local_addr()? != addr {
            return Err(io::Error::other("two sockets that do not belong together"));
        }
        Ok((listener, udp, addr))
    }
}

/// The sockets of an earlier process, or new ones; a keeper of sockets has them.
pub async fn listen(config: &NodeConfig) -> Result<(TcpListener, UdpSocket, SocketAddr), StartError> {
    let bound = match &config.sockets {
        Some(sockets) => sockets.listen().map_err(|source| StartError::Listen { addr: config.listen, source }),
        None => bind_any(config).await,
    };
    if let (Ok((listener, udp, _)), Some(keeper)) = (&bound, &config.keeper)
        && keeper.keeps_sockets()
    {
        keeper.keep(NAMES[0], listener.as_fd());
        keeper.keep(NAMES[1], udp.as_fd());
    }
    bound
}

/// Binds both sockets to one port.
async fn bind_any(config: &NodeConfig) -> Result<(TcpListener, UdpSocket, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { addr: config.listen, source };
    match bind(config.listen).await {
        Err(error) if config.any_port && error.kind() == ErrorKind::AddrInUse => {
            // The free TCP port may be taken for UDP; a few tries find a port that is free for
            // both.
            let mut last = error;
            for _ in 0..8 {
                match bind(SocketAddr::new(config.listen.ip(), 0)).await {
                    Ok(bound) => return Ok(bound),
                    Err(error) => last = error,
                }
            }
            Err(failed(last))
        }
        bound => bound.map_err(failed),
    }
}

async fn bind(wanted: SocketAddr) -> io::Result<(TcpListener, UdpSocket, SocketAddr)> {
    let listener = TcpListener::bind(wanted).await?;
    let addr = listener.local_addr()?;
    Ok((listener, UdpSocket::bind(addr).await?, addr))
}

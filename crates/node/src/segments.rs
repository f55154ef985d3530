//! The length of TCP segments, where long packets are lost on the way.
//!
//! Machines with jumbo frames send packets that one switch between them may not carry, and tunnels
//! carry shorter ones than Ethernet. If nothing tells the kernel of that, it sends the same long
//! segment again and again: greetings pass, and chunks never come. So a connection that replaces a
//! silent one has shorter segments, unless long answers came on the silent one. If it is silent
//! too, the next one has still shorter ones. Segments that carry are remembered for a while, for
//! other connections to the same address.

use socket2::SockRef;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};

/// How long an address is remembered. A switch may be mended, and a peer that was only busy is not
/// to have short segments for days.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// Most addresses that something is remembered of. More have one cause, and each new connection
/// finds it again.
const KEPT_MAX: usize = 1024;
/// Longer segments than Ethernet's are those of jumbo frames.
const ETHERNET: u32 = 1460;
/// An answer of this length does not fit into a packet of Ethernet. So its connection has carried a
/// segment of full length, or one of jumbo frames.
pub const LONG: u32 = 2048;

/// How long the segments of a connection may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Segments {
    /// As the kernel takes the way to be.
    #[default]
    Path,
    /// As packets of 1500 bytes have room for, by IPv6 too.
    Ethernet,
    /// As packets of 1280 bytes have room for, which IPv6 needs everywhere.
    Least,
}

impl Segments {
    /// Those to try next. After the shortest ones, length was not the cause.
    pub const fn next(self) -> Self {
        match self {
            Self::Path => Self::Ethernet,
            Self::Ethernet => Self::Least,
            Self::Least => Self::Path,
        }
    }

    const fn bytes(self) -> Option<u32> {
        match self {
            Self::Path => None,
            Self::Ethernet => Some(1440),
            Self::Least => Some(1220),
        }
    }

    /// Connects with such segments, in both directions.
    ///
    /// # Errors
    /// Those of the kernel.
    pub async fn connect(self, to: SocketAddr) -> io::Result<TcpStream> {
        let Some(bytes) = self.bytes() else { return TcpStream::connect(to).await };
        let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        SockRef::from(&socket).set_tcp_mss(bytes)?;
        socket.connect(to).await
    }
}

/// The segments that carry, by address.
#[derive(Debug, Default)]
pub struct Carrying(Mutex<BTreeMap<SocketAddr, Found>>);

/// Knowledge of the way to an address.
#[derive(Debug, Clone, Copy)]
struct Found {
    segments: Segments,
    at: Instant,
    /// Seen twice in a row. A peer that was busy for a moment looks the same once.
    sure: bool,
}

impl Carrying {
    /// The segments to begin with.
    pub fn to(&self, addr: SocketAddr) -> Segments {
        let found = self.found().get(&addr).copied();
        found.filter(|found| found.sure && found.at.elapsed() < KEPT_FOR).map_or(Segments::Path, |found| found.segments)
    }

    /// Shorter segments carried than the kernel would take. True if it is sure now, and was not
    /// before.
    fn saw(&self, addr: SocketAddr, segments: Segments) -> bool {
        let before = self.found().get(&addr).copied().filter(|found| found.at.elapsed() < KEPT_FOR);
        let again = before.is_some_and(|before| before.segments == segments);
        self.keep(addr, segments, again);
        again && before.is_some_and(|before| !before.sure)
    }

    fn keep(&self, addr: SocketAddr, segments: Segments, sure: bool) {
        let mut known = self.found();
        if known.len() >= KEPT_MAX {
            known.retain(|_, found| found.at.elapsed() < KEPT_FOR);
        }
        if known.len() < KEPT_MAX || known.contains_key(&addr) {
            known.insert(addr, Found { segments, at: Instant::now(), sure });
        }
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a connection was made by this node.
#[derive(Debug, Clone)]
pub struct Dialled {
    /// To this address.
    pub to: SocketAddr,
    /// With these segments.
    pub segments: Segments,
    carrying: Arc<Carrying>,
}

impl Dialled {
    /// With the knowledge of all addresses so far.
    pub const fn new(to: SocketAddr, segments: Segments, carrying: Arc<Carrying>) -> Self {
        Self { to, segments, carrying }
    }

    /// An answer did not come in time: the next connection is made with other segments.
    pub fn is_stuck(&self) {
        self.carrying.keep(self.to, self.segments.next(), true);
    }

    /// A long answer came. `before` is the length of the segments of a connection that had carried
    /// none and was replaced by this one, in bytes. Returns the words to people if jumbo frames are
    /// the cause, once.
    pub fn carries(&self, before: Option<u32>) -> Option<String> {
        let ip = self.to.ip();
        let (Some(before), Some(bytes)) = (before, self.segments.bytes()) else {
            if self.segments == Segments::Path {
                self.carrying.found().remove(&self.to);
            }
            return None;
        };
        (self.carrying.saw(self.to, self.segments) && before > ETHERNET && before > bytes).then(|| {
            format!(
                "packets of more than 1500 bytes do not come from {ip}, shorter ones do: compare the MTU of both \
                 machines, and of the switches between them (ip link; ping -M do -s 8000 {ip})"
            )
        })
    }
}

/// The length of a connection's segments, in bytes; 0 if the kernel does not tell.
pub fn length(stream: &TcpStream) -> u32 {
    SockRef::from(stream).tcp_mss().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Both sides keep to what one of them asked for.
    #[tokio::test]
    async fn segments_are_as_long_as_was_asked_for() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = server.local_addr().unwrap();
        for segments in [Segments::Path, Segments::Ethernet, Segments::Least] {
            let stream = segments.connect(to).await.unwrap();
            let (accepted, _) = server.accept().await.unwrap();
            let most = segments.bytes().unwrap_or(u32::MAX);
            assert!((1..=most).contains(&length(&stream)) && length(&accepted) <= most, "{segments:?}");
            assert!(segments != Segments::Path || length(&stream) > ETHERNET, "loopback has long packets");
        }
    }

    #[test]
    fn what_carries_is_told_once_and_used_for_the_next_connection() {
        let (to, carrying) = (([198, 18, 0, 1], 4440).into(), Arc::new(Carrying::default()));
        assert_eq!(carrying.to(to), Segments::Path);
        let dialled = |segments| Dialled::new(to, segments, Arc::clone(&carrying));
        // Once, the peer may have been busy; and so it was if long segments carry the next time.
        assert_eq!((dialled(Segments::Ethernet).carries(Some(8948)), carrying.to(to)), (None, Segments::Path));
        assert_eq!(dialled(Segments::Path).carries(None), None);
        assert_eq!((dialled(Segments::Ethernet).carries(Some(8948)), carrying.to(to)), (None, Segments::Path));
        assert!(dialled(Segments::Ethernet).carries(Some(8948)).is_some_and(|said| said.contains("198.18.0.1")));
        assert_eq!((dialled(Segments::Ethernet).carries(Some(8948)), carrying.to(to)), (None, Segments::Ethernet));
        assert_eq!((dialled(Segments::Ethernet).carries(None), carrying.to(to)), (None, Segments::Ethernet));
        dialled(Segments::Ethernet).is_stuck();
        assert_eq!(carrying.to(to), Segments::Least);
        // Of usual packets nothing is told: something else may have been the cause.
        for _ in 0..3 {
            assert_eq!(dialled(Segments::Least).carries(Some(1440)), None);
        }
        dialled(Segments::Least).is_stuck();
        assert_eq!(carrying.to(to), Segments::Path, "length was not the cause");
    }

    #[test]
    fn addresses_are_bounded() {
        let carrying = Arc::new(Carrying::default());
        for port in 0..2 * KEPT_MAX as u16 {
            Dialled::new(([198, 18, 0, 1], port).into(), Segments::Path, Arc::clone(&carrying)).is_stuck();
        }
        assert_eq!(carrying.0.lock().unwrap().len(), KEPT_MAX);
    }
}

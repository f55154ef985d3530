//! Gossip's socket, with the seal on each datagram if the field has a key. Datagrams of strangers
//! are dropped unread.
//!
//! Other members may use up the numbers of this node's salt, so that its datagrams are dropped. It
//! then has to deny its death, and does so under another salt.

use crate::field_keys::FieldKeys;
use crate::whereabouts::plain;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use vfield_core::membership::message::DATAGRAM_MAX;
use vfield_trust::KeyRing;
use vfield_trust::envelope::{OVERHEAD, Opening, Sealing};

/// Longest datagram received; members send less than half of that.
const RECEIVE: usize = 4 << 10;
/// Another salt is drawn this often at most: a member that is slandered all the time does not fill
/// what others remember of senders.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Headers of IPv6 and UDP.
const HEADERS: usize = 48;

/// Most addresses in a line.
const NAMED_MAX: usize = 3;

/// The words to people if no datagrams come through to this member, and to `others`.
pub fn blocked(first: SocketAddr, others: &[SocketAddr]) -> String {
    let (named, port) = (named(first, others), first.port());
    format!(
        "no UDP packet comes through between this node and {named}: open UDP {port}, both ways; until then gossip \
         takes TCP"
    )
}

/// The words to people if this node has no way to this member, and to `others`.
pub fn parted(first: SocketAddr, others: &[SocketAddr]) -> String {
    let (named, port) = (named(first, others), first.port());
    format!(
        "no way to {named}, though other nodes have one: a switch or access point that isolates its ports, or a \
         firewall between rooms? open TCP and UDP {port}; until then their chunks come from elsewhere"
    )
}

/// Names the first few of some addresses.
pub fn named(first: SocketAddr, others: &[SocketAddr]) -> String {
    let all = std::iter::once(&first).chain(others);
    let named: Vec<String> = all.take(NAMED_MAX).map(|addr| addr.ip().to_string()).collect();
    match 1 + others.len() - named.len() {
        0 => named.join(", "),
        1 => format!("{} and 1 other", named.join(", ")),
        unnamed => format!("{} and {unnamed} others", named.join(", ")),
    }
}

/// The socket for gossip, and its seals.
#[derive(Debug)]
pub struct Gossip {
    socket: UdpSocket,
    keys: Arc<FieldKeys>,
    seals: Mutex<Seals>,
    start: Instant,
}

#[derive(Debug, Default)]
struct Seals {
    sealing: Option<Sealing>,
    /// When the salt was last drawn because others stopped accepting it.
    renewed: Option<Instant>,
    opening: Opening,
}

impl Gossip {
    /// Over a socket, with the keys of the field, which may change.
    pub fn new(socket: UdpSocket, keys: Arc<FieldKeys>) -> Self {
        let gossip = Self { socket, keys, seals: Mutex::default(), start: Instant::now() };
        gossip.keys_changed();
        gossip
    }

    /// Seals with the present first key, and forgets the senders that used removed keys.
    pub fn keys_changed(&self) {
        let Some(ring) = self.keys.ring() else { return };
        let mut seals = self.seals();
        seals.sealing = Some(sealing(&ring));
        seals.opening.keep(&ring);
    }

    /// Seals with another salt from now on: others may have stopped accepting the present one.
    pub fn renew(&self, now: Instant) {
        let Some(ring) = self.keys.ring() else { return };
        let mut seals = self.seals();
        if seals.renewed.is_none_or(|at| now.duration_since(at) >= RENEW_EVERY) {
            (seals.sealing, seals.renewed) = (Some(sealing(&ring)), Some(now));
        }
    }

    /// Sends a datagram. It may be lost, and a full socket buffer loses it too.
    pub fn send(&self, datagram: &[u8], to: SocketAddr) {
        let sealed = self.seals().sealing.as_mut().map(|sealing| sealing.seal(datagram, draw()));
        let _ = self.socket.try_send_to(sealed.as_deref().unwrap_or(datagram), to);
    }

    /// Waits for the next datagram of a member, and says where it came from, as members write it.
    pub async fn receive(&self) -> (Vec<u8>, SocketAddr) {
        let mut buffer = vec![0; RECEIVE];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, from)) => {
                    if let Some(datagram) = self.open(&mut buffer[..length], from) {
                        return (datagram, plain(from));
                    }
                }
                // An ICMP error for something sent earlier: the member's death is found by probes.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn open(&self, bytes: &mut [u8], from: SocketAddr) -> Option<Vec<u8>> {
        let Some(ring) = self.keys.ring() else { return Some(bytes.to_vec()) };
        match self.seals().opening.open(&ring, bytes, self.start.elapsed()) {
            Ok(datagram) => Some(datagram.to_vec()),
            Err(error) => {
                // A node without the field's key is reported by its connections.
                tracing::debug!(%from, %error, "gossip dropped");
                self.keys.dropped();
                None
            }
        }
    }

    fn seals(&self) -> MutexGuard<'_, Seals> {
        self.seals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws a new salt each time: a returning key must not meet the numbers it has used.
fn sealing(ring: &KeyRing) -> Sealing {
    Sealing::new(ring.spoken(), draw())
}

fn draw<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    drawn.expect("the system gave randomness when the node started");
    bytes
}

const _: () = assert!(DATAGRAM_MAX + OVERHEAD + HEADERS < 1500, "a sealed datagram fits an Ethernet frame");

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_trust::FieldKey;

    /// Datagrams that may overtake one.
    const HEARD: usize = 64;

    async fn member() -> Gossip {
        let ring = KeyRing::new([FieldKey::new([1; 32])]).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        Gossip::new(socket, Arc::new(FieldKeys::new(Some(ring))))
    }

    #[tokio::test]
    async fn a_socket_for_both_kinds_of_addresses_knows_where_members_are() {
        let open = || Arc::new(FieldKeys::new(None));
        let here = Gossip::new(UdpSocket::bind("[::]:0").await.unwrap(), open());
        let there = Gossip::new(UdpSocket::bind("127.0.0.1:0").await.unwrap(), open());
        let [port, addr] = [&here, &there].map(|gossip| gossip.socket.local_addr().unwrap());
        // A datagram that cannot be sent at once is dropped.
        there.socket.writable().await.unwrap();
        there.send(b"ping", SocketAddr::from(([127, 0, 0, 1], port.port())));
        let (datagram, from) = here.receive().await;
        assert_eq!((&datagram[..], from), (&b"ping"[..], addr));
        here.socket.writable().await.unwrap();
        here.send(b"ack", from);
        assert_eq!(&there.receive().await.0[..], b"ack");
    }

    /// A datagram that this member would send.
    fn said(member: &Gossip) -> Vec<u8> {
        member.seals().sealing.as_mut().unwrap().seal(b"news", [0; 4])
    }

    #[tokio::test]
    async fn a_member_whose_numbers_others_used_up_is_heard_again() {
        let (victim, listener) = (member().await, member().await);
        let from = victim.socket.local_addr().unwrap();
        let hears = |mut datagram: Vec<u8>| listener.open(&mut datagram, from).is_some();
        let first = said(&victim);
        // The salt travels in the clear.
        let salt: [u8; 8] = first[4..12].try_into().unwrap();
        let mut attacker = Sealing::new(&FieldKey::new([1; 32]), salt);
        let lies: Vec<Vec<u8>> = (0..=2 * HEARD).map(|_| attacker.seal(b"lies", [0; 4])).collect();
        let lie = lies.last().unwrap().clone();
        assert!(hears(first) && hears(lie) && !hears(said(&victim)));
        let now = Instant::now();
        victim.renew(now);
        assert!(hears(said(&victim)));
        // Not with each datagram.
        let salt_of = |datagram: &[u8]| datagram[4..12].to_vec();
        let salt = salt_of(&said(&victim));
        victim.renew(now + RENEW_EVERY / 2);
        assert_eq!(salt_of(&said(&victim)), salt);
        victim.renew(now + RENEW_EVERY);
        assert_ne!(salt_of(&said(&victim)), salt);
    }
}

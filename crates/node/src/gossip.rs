//! Gossip's socket, and the seal on each datagram if the field has a key. What strangers send is dropped unread.

use crate::field_keys::FieldKeys;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::UdpSocket;
use vfield_core::membership::message::DATAGRAM_MAX;
use vfield_trust::KeyRing;
use vfield_trust::envelope::{OVERHEAD, Opening, Sealing};

/// What arrives is cut to this; nobody sends half as much.
const RECEIVE: usize = 4 << 10;
/// Headers of IPv6 and UDP.
const HEADERS: usize = 48;

/// See the module.
#[derive(Debug)]
pub struct Gossip {
    socket: UdpSocket,
    keys: Arc<FieldKeys>,
    seals: Mutex<Seals>,
}

#[derive(Debug, Default)]
struct Seals {
    sealing: Option<Sealing>,
    opening: Opening,
}

impl Gossip {
    /// Over a socket, with the keys of the field, which may change.
    pub fn new(socket: UdpSocket, keys: Arc<FieldKeys>) -> Self {
        let gossip = Self { socket, keys, seals: Mutex::default() };
        gossip.keys_changed();
        gossip
    }

    /// Seals with what is the first key now, and forgets who spoke keys that are gone.
    pub fn keys_changed(&self) {
        let Some(ring) = self.keys.ring() else { return };
        let mut seals = self.seals();
        seals.sealing = Some(sealing(&ring));
        seals.opening.keep(&ring);
    }

    /// Sends a datagram. It may be lost, and a full socket buffer loses it too.
    pub fn send(&self, datagram: &[u8], to: SocketAddr) {
        let sealed = self.seals().sealing.as_mut().map(|sealing| sealing.seal(datagram));
        let _ = self.socket.try_send_to(sealed.as_deref().unwrap_or(datagram), to);
    }

    /// Waits for the next datagram of a member.
    pub async fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; RECEIVE];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, from)) => {
                    if let Some(datagram) = self.open(&mut buffer[..length], from) {
                        return datagram;
                    }
                }
                // An ICMP error for something sent earlier: the member's death is found by probes.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn open(&self, bytes: &mut [u8], from: SocketAddr) -> Option<Vec<u8>> {
        let Some(ring) = self.keys.ring() else { return Some(bytes.to_vec()) };
        match self.seals().opening.open(&ring, bytes) {
            Ok(datagram) => Some(datagram.to_vec()),
            Err(error) => {
                // Whoever is in the field by mistake without its key is told of by its connections.
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

/// A salt is drawn anew each time: a key that comes back must not meet the numbers it has used.
fn sealing(ring: &KeyRing) -> Sealing {
    let mut salt = [0; 8];
    let drawn = rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty());
    drawn.expect("the system gave randomness when the node started");
    Sealing::new(ring.spoken(), salt)
}

const _: () = assert!(DATAGRAM_MAX + OVERHEAD + HEADERS < 1500, "a sealed datagram fits an Ethernet frame");

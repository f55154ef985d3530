//! A driver for tests: of a node that is alone in its field.

use super::{Driver, Trust};
use crate::admissions::Admissions;
use crate::config::Tuning;
use crate::field_keys::FieldKeys;
use crate::gossip::Gossip;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use vfield_core::config::Config;
use vfield_core::identity::{Identity, Zone};
use vfield_core::node::Node as Core;
use vfield_trust::{KeyRing, NodeKey};

impl Driver {
    /// A node without images, and the listener of its address, which nobody serves yet.
    pub async fn alone(ring: Option<KeyRing>) -> (Arc<Self>, TcpListener) {
        let (socket, listener) = (UdpSocket::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
        let (socket, listener) = (socket.unwrap(), listener.unwrap());
        let key = Arc::new(NodeKey::draw().unwrap());
        let addr = listener.local_addr().unwrap();
        let me = Identity { addr, node: key.node(), generation: 1, zone: Zone::default() };
        let keys = Arc::new(FieldKeys::new(ring));
        let (gossip, signs) = (Gossip::new(socket, Arc::clone(&keys)), Arc::clone(&key));
        let trust = Trust { key, lasting_key: false, admissions: Admissions::new(None, None) };
        let core = |now| Core::new(me, signs, Config::default(), 1, now);
        (Self::new(core, gossip, keys, trust, Tuning::default(), false, Arc::new(|_| {})).0, listener)
    }
}

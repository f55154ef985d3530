//! The lobby: who comes while this node still hashes what it is to serve is told how far that is, and comes again.
//!
//! Kept by [`crate::node::Node::start`] with the listener that peers use afterwards. Nobody becomes a member here.

use crate::field_keys::FieldKeys;
use crate::greet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// So many are in the lobby at once, for a round trip each; others wait in the kernel.
const AT_ONCE: usize = 64;
/// After an error of the listener, most likely for want of descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Tells all who come that `percent` is done, for as long as it is polled.
pub async fn keep(listener: &TcpListener, keys: &FieldKeys, percent: &AtomicU32) -> Infallible {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut guests = JoinSet::new();
    loop {
        while guests.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
        let Ok((stream, addr)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let (keys, percent) = (keys.ring(), percent.load(Ordering::Relaxed));
        guests.spawn(async move {
            if let Err(error) = greet::put_off(stream, keys, percent).await {
                tracing::debug!(%addr, %error, "not put off");
            }
            drop(place);
        });
    }
}

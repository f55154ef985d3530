//! The lobby: while this node hashes its files, visitors hear of the progress, and come again.
//!
//! [`crate::node::Node::start`] runs it with the listener that peers use afterwards. It admits no
//! members.

use crate::field_keys::FieldKeys;
use crate::greet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Most visitors at once, for a round trip each; others wait in the kernel.
const AT_ONCE: usize = 64;
/// After an error of the listener, most likely for want of descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Tells all visitors that `percent` is done, for as long as it is polled. Visitors of that time
/// are answered after it too: the end of hashing is no reason to hang up on anybody.
pub async fn keep(listener: &TcpListener, keys: &FieldKeys, percent: &AtomicU32) -> Infallible {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
        let Ok((stream, addr)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let (keys, percent) = (keys.ring(), percent.load(Ordering::Relaxed));
        tokio::spawn(async move {
            if let Err(error) = greet::put_off(stream, keys, percent).await {
                tracing::debug!(%addr, %error, "answer in the lobby failed");
            }
            drop(place);
        });
    }
}

//! An opened object: its state at the opening, and reads that compare theirs with it.
//!
//! Invariant: the first answer of another state is noted, and from then on the object counts as
//! changed. Reads go on: the caller has hashes, and an object that was written again often has the
//! same bytes.

use crate::answer::{Asked, Pin};
use crate::client::Client;
use std::sync::OnceLock;
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError, ObjectReading};

/// An object, pinned to a state.
pub struct Pinned {
    client: Client,
    pin: Pin,
    changed: OnceLock<String>,
}

impl Pinned {
    /// Opens an object by asking for its first byte, which also shows whether ranges are served.
    pub async fn open(client: Client) -> Result<Self, ObjectError> {
        let (part, _) = client.read(Asked::All(Extent::from(0..1))).await?;
        Ok(Self { client, pin: part.pin, changed: OnceLock::new() })
    }
}

impl Object for Pinned {
    fn length_bytes(&self) -> u64 {
        self.pin.length_bytes
    }

    fn read(&self, extent: Extent) -> ObjectReading<'_> {
        Box::pin(async move {
            let read = self.client.read(Asked::All(extent)).await;
            match &read {
                Ok((part, _)) => {
                    if let Some(how) = self.pin.differs(&part.pin) {
                        // The first difference stays.
                        let _ = self.changed.set(how);
                    }
                }
                Err(ObjectError::Changed(how)) => {
                    let _ = self.changed.set(how.clone());
                }
                Err(ObjectError::Failed { .. }) => {}
            }
            read.map(|(_, bytes)| bytes)
        })
    }

    fn changed(&self) -> Option<String> {
        self.changed.get().cloned()
    }
}

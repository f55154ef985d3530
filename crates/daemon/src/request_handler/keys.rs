//! Field keys and the admission list, read again while the daemon runs: both are replaced, or
//! neither.

use super::RequestHandler;
use crate::reload;
use std::path::Path;
use std::sync::Arc;
use vfield_console::failure::Failure;
use vfield_console::log::EVENTS;
use vfield_control::message::Reply;
use vfield_node::Node;
use vfield_trust::KeyRing;
use vfield_trust::admission::Verified;

impl RequestHandler {
    /// Reads the files of the field keys and of the admission list again. The reply names the keys
    /// and the list in force.
    pub(super) async fn keys_again(&self, node: &Node) -> Reply {
        let refused = |failure: Failure| Reply::refused(failure.fact(), failure.hint_text().unwrap_or_default());
        // One after another: an older list does not replace a later one, and a disk that stands
        // still holds one thread, however often somebody asks.
        let turn = Arc::clone(&self.reloading).lock_owned().await;
        let (keys, admission) = (self.key_files.clone(), self.admission.clone());
        // Both, or neither.
        let read = move || (keys.read().and_then(|ring| Ok((ring, admission.read()?))), turn);
        let (read, _turn) = reload::read("the field keys", read).await;
        let (ring, list) = match read {
            Ok((None, None)) => {
                return Reply::refused("this node was started without a field key", "start it again with --field-key");
            }
            Ok(read) => read,
            Err(failure) => return refused(failure),
        };
        let ids: Vec<String> = ring.iter().flat_map(KeyRing::ids).map(|id| id.to_string()).collect();
        if let Some(ring) = ring {
            if let Err(error) = node.replace_keys(ring) {
                return Reply::refused(error.to_string(), "start it again with --field-key");
            }
            tracing::info!(target: EVENTS, event = "field_keys", keys = ?ids, "field keys changed");
        }
        match self.enforce(node, list) {
            Ok(admission) => Reply::Keys { ids, admission },
            Err(failure) => refused(failure),
        }
    }

    /// Enforces a list that was read; says which one is in force.
    fn enforce(&self, node: &Node, list: Option<Verified>) -> Result<Option<String>, Failure> {
        let Some(list) = list else { return Ok(None) };
        let read = list.version;
        let Some(list) = node.enforce(list) else { return Ok(None) };
        let (signed, allowed, revoked) = (list.version.timestamp, list.admission.allowed(), list.admission.revoked());
        if read < list.version {
            let path = self.admission.list.as_deref().unwrap_or(Path::new("")).display().to_string();
            let fact = format!("admission list {path}: signed at {}, and one of {signed} is in force", read.timestamp);
            return Err(Failure::failed(fact).hint("edit the latest list, and sign it again"));
        }
        Ok(Some(format!("admission list signed at {signed}: {allowed} allowed, {revoked} revoked")))
    }
}

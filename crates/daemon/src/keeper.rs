//! Who keeps the stores' memory files while the daemon is started again: its guard, or the
//! machine's service manager.
//!
//! Both are the same to a node ([`vfield_node::keeper::Keeper`]): a file is given away with a name,
//! and is there at the next start. The guard is asked over a line of its own ([`custody`]), the
//! service manager as `sd_notify(3)` and `sd_listen_fds(3)` describe it. Neither looks into a file:
//! the node judges its content.

pub mod custody;
mod inherited;
pub mod service_manager;
pub mod word;

use std::sync::Arc;
use vfield_node::keeper::Keeper;

/// Whoever keeps files for this process, if anybody does; `guarded` if its guard has started it. To
/// be called before it has opened any itself.
pub fn find(guarded: bool) -> Option<Arc<dyn Keeper>> {
    if guarded {
        return Some(Arc::new(custody::Line));
    }
    service_manager::FileStore::find().map(|store| Arc::new(store) as Arc<dyn Keeper>)
}

//! The estate of earlier daemons: files by their names, in the hands of a keeper.
//!
//! To the node it is a keeper of stores. The daemon takes out all else: events, mount, sockets. A
//! file that nobody has taken when everything is set up is of no use, and is forgotten.

use std::fmt::Display;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vfield_node::keeper::Keeper;
use vfield_node::sockets::{self, Sockets};

/// The names of stores begin with it.
const STORES: &str = "store-";
/// The events of this daemon and those before it.
pub const EVENTS: &str = "events";
/// The listening control socket.
pub const CONTROL: &str = "control";
/// What people ordered of earlier daemons.
pub const ORDERS: &str = "orders";
/// The mount: the kernel's end of it, and what the kernel knows.
pub const MOUNT: [&str; 2] = ["mount", "mount-table"];

/// True for what a daemon can use after the end of its guard: memory, and a mount. Listening
/// sockets are made anew, since the settings may be others then.
pub fn outlives_guard(name: &str) -> bool {
    name.starts_with(STORES) || name == EVENTS || MOUNT.contains(&name)
}

/// A keeper's files, as far as they are left.
#[derive(Debug, Default)]
pub struct Estate {
    keeper: Option<Arc<dyn Keeper>>,
    left: Mutex<Vec<(String, OwnedFd)>>,
    /// What stays where it was, though the settings say another place: a line each.
    stays: Mutex<Vec<String>>,
}

impl Estate {
    /// Takes all that a keeper has, if there is one. Blocks until it has said what that is.
    pub fn take(keeper: Option<Arc<dyn Keeper>>) -> Arc<Self> {
        let left = keeper.as_ref().map_or_else(Vec::new, |keeper| keeper.take());
        Arc::new(Self { keeper, left: Mutex::new(left), stays: Mutex::default() })
    }

    /// The keeper of the node, if there is one.
    pub fn of_node(self: &Arc<Self>) -> Option<Arc<dyn Keeper>> {
        self.keeper.is_some().then(|| Arc::clone(self) as Arc<dyn Keeper>)
    }

    /// Takes out the file of this name, if it is there.
    pub fn pick(&self, name: &str) -> Option<OwnedFd> {
        let mut left = self.left();
        let at = left.iter().position(|(other, _)| other == name)?;
        Some(left.swap_remove(at).1)
    }

    /// True if this file is there to be taken.
    pub fn has(&self, name: &str) -> bool {
        self.left().iter().any(|(other, _)| other == name)
    }

    /// The sockets of the node before. If the machine has lost their address, a node that may
    /// listen elsewhere has other ones.
    pub fn node_sockets(&self, may_move: bool) -> Option<Sockets> {
        let [tcp, udp] = sockets::NAMES.map(|name| self.pick(name));
        let sockets = Sockets::new([tcp?, udp?]);
        if may_move && sockets.are_lost() {
            sockets::NAMES.iter().for_each(|name| self.forget(name));
            return None;
        }
        Some(sockets)
    }

    /// Leaves a file to the next daemon of the same guard, if there is one: listening sockets, and
    /// orders. Whoever starts the guard itself again goes by the settings.
    pub fn keep_with_guard(&self, name: &str, file: BorrowedFd<'_>) {
        if self.keeps_sockets() {
            self.keep(name, file);
        }
    }

    /// Remembers that something listens at `place`, as the daemon before it did, though it is
    /// `wanted` elsewhere: clients that know the place go on.
    pub fn stays(&self, what: &str, place: impl Display, wanted: impl Display, is_there: bool) {
        if !is_there {
            let line = format!("{what} stays at {place}, and moves to {wanted} at a restart");
            self.stays.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    /// Takes the lines about what stays where it was.
    pub fn take_stays(&self) -> Vec<String> {
        std::mem::take(&mut *self.stays.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets what nobody has taken.
    pub fn drop_rest(&self) {
        for (name, _) in std::mem::take(&mut *self.left()) {
            tracing::debug!(name, "a file of an earlier daemon is not used");
            self.forget(&name);
        }
    }

    fn left(&self) -> MutexGuard<'_, Vec<(String, OwnedFd)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper for Estate {
    /// Gives away the stores, and nothing else.
    fn take(&self) -> Vec<(String, OwnedFd)> {
        self.left().extract_if(.., |(name, _)| name.starts_with(STORES)).collect()
    }

    fn keep(&self, name: &str, file: BorrowedFd<'_>) {
        if let Some(keeper) = &self.keeper {
            keeper.keep(name, file);
        }
    }

    fn forget(&self, name: &str) {
        if let Some(keeper) = &self.keeper {
            keeper.forget(name);
        }
    }

    fn keeps_sockets(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.keeps_sockets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::dup;
    use std::os::fd::AsFd as _;

    /// Has what it was given, and gives it to each daemon.
    #[derive(Debug, Default)]
    struct Shelf(Mutex<Vec<(String, OwnedFd)>>);

    impl Keeper for Shelf {
        fn take(&self) -> Vec<(String, OwnedFd)> {
            let files = self.0.lock().unwrap();
            files.iter().map(|(name, file)| (name.clone(), dup(file).unwrap())).collect()
        }

        fn keep(&self, name: &str, file: BorrowedFd<'_>) {
            let mut files = self.0.lock().unwrap();
            files.retain(|(other, _)| other != name);
            files.push((name.to_owned(), dup(file).unwrap()));
        }

        fn forget(&self, name: &str) {
            self.0.lock().unwrap().retain(|(other, _)| other != name);
        }
    }

    fn names(files: Vec<(String, OwnedFd)>) -> Vec<String> {
        files.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_node_has_its_stores_and_the_daemon_the_rest() {
        let shelf = Arc::new(Shelf::default());
        let keeper = || Some(Arc::clone(&shelf) as Arc<dyn Keeper>);
        let file = tempfile::tempfile().unwrap();
        let estate = Estate::take(keeper());
        assert!(!estate.has(EVENTS) && estate.pick(EVENTS).is_none());
        for name in ["store-1", EVENTS, "of another version"] {
            estate.keep(name, file.as_fd());
        }
        estate.keep_with_guard(CONTROL, file.as_fd());
        assert_eq!(shelf.0.lock().unwrap().len(), 3, "this keeper keeps no sockets");

        let estate = Estate::take(keeper());
        assert!(estate.pick(EVENTS).is_some());
        assert_eq!(names(estate.of_node().unwrap().take()), ["store-1"]);
        estate.drop_rest();
        assert_eq!(names(shelf.take()), ["store-1", EVENTS], "what nobody took is forgotten");
        assert!(Estate::take(None).of_node().is_none());
    }
}

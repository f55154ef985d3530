//! A keeper that has the events besides the stores. To a node it is a keeper of stores alone.

use super::Events;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use vfield_node::keeper::Keeper;

/// The name of the events among the kept files.
const NAME: &str = "events";

/// A keeper without the events, which were taken out.
#[derive(Debug)]
pub struct SharedKeeper {
    keeper: Arc<dyn Keeper>,
    /// The kept files of the node, until it takes them.
    rest: Mutex<Vec<(String, OwnedFd)>>,
}

impl SharedKeeper {
    /// Takes the events out of what `keeper` has, and has it keep the memory of those to come.
    pub fn split(keeper: Option<Arc<dyn Keeper>>) -> (Events, Option<Arc<dyn Keeper>>) {
        let Some(keeper) = keeper else { return (Events::take(None), None) };
        let (mut left, rest): (Vec<_>, Vec<_>) = keeper.take().into_iter().partition(|(name, _)| name == NAME);
        let events = Events::take(left.pop().map(|(_, file)| file));
        // A file that could not be read is not kept beside the new one.
        keeper.forget(NAME);
        if let Some(file) = events.file() {
            keeper.keep(NAME, file);
        }
        (events, Some(Arc::new(Self { keeper, rest: Mutex::new(rest) })))
    }
}

impl Keeper for SharedKeeper {
    fn take(&self) -> Vec<(String, OwnedFd)> {
        std::mem::take(&mut self.rest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, name: &str, file: BorrowedFd<'_>) {
        self.keeper.keep(name, file);
    }

    fn forget(&self, name: &str) {
        self.keeper.forget(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::dup;
    use std::os::fd::AsFd as _;

    /// Has what it was given, and gives it once to each daemon.
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

    #[test]
    fn a_node_sees_its_stores_and_the_next_daemon_the_events() {
        let shelf: Arc<dyn Keeper> = Arc::new(Shelf::default());
        let (events, keeper) = SharedKeeper::split(Some(Arc::clone(&shelf)));
        keeper.as_ref().unwrap().keep("store-1", tempfile::tempfile().unwrap().as_fd());
        events.add(1, "x", "the last thing");
        drop((events, keeper));
        let (events, keeper) = SharedKeeper::split(Some(shelf));
        let names: Vec<String> = keeper.unwrap().take().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["store-1"]);
        assert_eq!(events.after(0, 9)[0].text, "the last thing");
        assert!(SharedKeeper::split(None).1.is_none());
    }
}

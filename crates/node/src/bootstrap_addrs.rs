//! The bootstrap addresses: those that were configured, and those that their names have by now.
//!
//! A member that comes back may have another address, and the same name. While this node needs
//! others than it has, it looks names up again. That blocks a thread of the runtime for as long as
//! the resolver takes, so it is done for one name at a time. Invariant: the configured addresses
//! stay, and of all names together no more than [`FOUND_MAX`] are added.

use crate::config::NodeConfig;
use crate::driver::Driver;
use crate::event::Event;
use crate::route::speaks_to;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::lookup_host;
use vfield_core::doubling::Doubling;
use vfield_core::node::{Input, Node as Core};

/// Pauses before names are looked up, from when others are needed on: a machine that takes over is
/// found soon, and a room that waits for a night asks its name server once a minute and machine.
const PAUSES: Doubling = Doubling { first: Duration::from_secs(5), longest: Duration::from_secs(60) };
/// Most addresses that names add: a name server may answer with any number.
const FOUND_MAX: usize = 16;

/// The bootstrap addresses of a node.
#[derive(Debug)]
pub struct BootstrapAddrs {
    configured: Vec<SocketAddr>,
    names: Vec<(String, u16)>,
    listening: SocketAddr,
    /// What the names had that was not configured, when they were looked up last.
    found: Mutex<Vec<SocketAddr>>,
}

impl BootstrapAddrs {
    /// Those of a node that listens at this address.
    pub fn new(config: &NodeConfig, listening: SocketAddr) -> Self {
        let (configured, names) = (config.bootstrap.clone(), config.bootstrap_names.clone());
        Self { configured, names, listening, found: Mutex::default() }
    }

    /// All of them at this moment, the configured ones first.
    pub fn all(&self) -> Vec<SocketAddr> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        self.configured.iter().chain(&*found).copied().collect()
    }

    /// Keeps them up to date for as long as the node lives.
    pub async fn follow(self: Arc<Self>, driver: Arc<Driver>) {
        let mut looked = 0;
        while !self.names.is_empty() {
            tokio::time::sleep(PAUSES.pause(looked)).await;
            if !driver.look(Core::is_needy) {
                looked = 0;
                continue;
            }
            looked = looked.saturating_add(1);
            for (name, addr) in self.look_up().await {
                driver.event(Event::BootstrapFound { name, addr });
            }
            driver.apply(Input::Bootstrap(self.all()));
        }
    }

    /// Looks all names up, and returns the new addresses. A name that has no address now keeps
    /// those that it had, as an address is kept at which nobody answers.
    async fn look_up(&self) -> Vec<(String, SocketAddr)> {
        let (mut latest, mut complete) = (Vec::new(), true);
        for (name, port) in &self.names {
            match lookup_host((name.as_str(), *port)).await {
                Ok(addrs) => latest.extend(addrs.map(|addr| (name.clone(), addr))),
                Err(_) => complete = false,
            }
        }
        self.set(latest, complete)
    }

    fn set(&self, latest: Vec<(String, SocketAddr)>, complete: bool) -> Vec<(String, SocketAddr)> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *found);
        let mut news = Vec::new();
        for (name, addr) in latest {
            if self.add(&mut found, addr) && !before.contains(&addr) {
                news.push((name, addr));
            }
        }
        if !complete {
            for addr in before {
                self.add(&mut found, addr);
            }
        }
        news
    }

    /// True if this address is one that could be added.
    fn add(&self, found: &mut Vec<SocketAddr>, addr: SocketAddr) -> bool {
        let known = self.configured.contains(&addr) || found.contains(&addr);
        let adds = !known && found.len() < FOUND_MAX && speaks_to(self.listening, addr);
        found.extend(adds.then_some(addr));
        adds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(last: u8) -> SocketAddr {
        SocketAddr::from(([198, 18, 0, last], 4440))
    }

    fn of(last: u8) -> (String, SocketAddr) {
        ("lab".to_owned(), addr(last))
    }

    fn addrs() -> BootstrapAddrs {
        let (configured, listening) = (vec![addr(1)], addr(100));
        BootstrapAddrs { configured, names: Vec::new(), listening, found: Mutex::default() }
    }

    #[test]
    fn an_address_is_news_once_and_gone_with_its_name() {
        let addrs = addrs();
        assert_eq!(addrs.set(vec![of(1)], true), []);
        assert_eq!(addrs.all(), [addr(1)]);
        assert_eq!(addrs.set(vec![of(2), of(2)], true), [of(2)]);
        assert_eq!(addrs.set(vec![of(2)], true), []);
        assert_eq!(addrs.all(), [addr(1), addr(2)]);
        assert_eq!(addrs.set(vec![of(3)], true), [of(3)]);
        assert_eq!(addrs.all(), [addr(1), addr(3)]);
    }

    #[test]
    fn a_resolver_that_fails_takes_nothing_away() {
        let addrs = addrs();
        addrs.set(vec![of(2)], true);
        assert_eq!(addrs.set(vec![of(3)], false), [of(3)]);
        assert_eq!(addrs.set(Vec::new(), false), []);
        assert_eq!(addrs.all(), [addr(1), addr(3), addr(2)], "the latest come first");
    }

    #[test]
    fn a_name_with_thousands_of_addresses_adds_few() {
        let addrs = addrs();
        addrs.set((2..200).map(of).collect(), true);
        addrs.set((100..250).map(of).collect(), false);
        assert_eq!(addrs.all().len(), 1 + FOUND_MAX);
        assert!(addrs.all().contains(&addr(100)));
    }

    #[test]
    fn an_address_that_its_socket_cannot_speak_to_is_left_out() {
        let far = ("lab".to_owned(), "[fd00::2]:4440".parse().unwrap());
        assert_eq!(addrs().set(vec![far], true), []);
    }
}

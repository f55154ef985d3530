//! Chunks that are entrusted to their homes before they leave the memory of an origin.
//!
//! Once half of an origin's memory for its object is full of chunks that no store keeps, it tells
//! homes of those that will make room first. The homes come for them, as they would have anyway. So
//! a run is read once, however far apart the readers are, if the stores have room for the image.
//!
//! Owns which home was told of which chunk. Invariant: a home has at most [`ENTRUSTED_BYTES`] to
//! come for, or one chunk, and is told of a chunk again after [`AGAIN`] only. It sends nothing, and
//! the time comes from the caller.

use crate::driver::Driver;
use crate::image::LocalImage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfield_block::gather::Gather as _;
use vfield_core::chunk::Chunk;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::node::entrusted::{ENTRUSTED_BYTES, Keeper};
use vfield_core::wire;

/// After this time a home that has not come is told again, or the next home of the chunk. It is
/// more than a request takes on a busy link, and less than a full memory takes to turn over.
const AGAIN: Duration = Duration::from_secs(1);
/// Shortest time between two looks: a home's share crosses a link of 1 Gbit/s in 4 ms.
const PAUSE: Duration = Duration::from_millis(10);

/// What a home was told.
#[derive(Debug, Clone, Copy)]
struct Told {
    home: Option<NodeId>,
    at: Instant,
    attempts: usize,
}

/// The chunks that homes were told of.
#[derive(Debug, Default)]
pub struct Entrusting {
    told: BTreeMap<Chunk, Told>,
}

/// What to do about loose chunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Chunks that a store has announced.
    pub kept: Vec<Chunk>,
    /// Chunks to tell homes of.
    pub tell: BTreeMap<NodeId, (Identity, Vec<Chunk>)>,
    /// The number of chunks that homes are coming for.
    pub awaited: usize,
}

impl Entrusting {
    /// Decides about chunks in the order in which they make room, until `excess` of them have left
    /// or are on their way. A home may have `share` chunks to come for.
    pub fn steps(
        &mut self,
        loose: &[Chunk],
        excess: usize,
        share: usize,
        now: Instant,
        keeper: impl Fn(Chunk, usize) -> Keeper,
    ) -> Steps {
        // A chunk that is not loose any more has come to its home, or has left.
        let mut before = std::mem::take(&mut self.told);
        self.told = loose.iter().filter_map(|chunk| Some((*chunk, before.remove(chunk)?))).gathered();
        let mut owed: BTreeMap<NodeId, usize> = BTreeMap::new();
        let is_new = |told: &Told| now.saturating_duration_since(told.at) < AGAIN;
        for told in self.told.values().filter(|told| is_new(told)) {
            if let Some(home) = told.home {
                *owed.entry(home).or_default() += 1;
            }
        }
        let mut under_way: usize = owed.values().sum();
        let mut steps = Steps::default();
        for &chunk in loose {
            if under_way >= excess {
                break;
            }
            let before = self.told.get(&chunk).copied();
            if before.as_ref().is_some_and(is_new) {
                continue;
            }
            let attempts = before.map_or(0, |told| told.attempts);
            let home = match keeper(chunk, attempts) {
                Keeper::Has => {
                    steps.kept.push(chunk);
                    under_way += 1;
                    continue;
                }
                Keeper::ToBe(home) => Some(home),
                Keeper::Nobody => None,
            };
            if let Some(home) = home {
                let owed = owed.entry(home.node).or_default();
                if *owed >= share {
                    continue;
                }
                *owed += 1;
                under_way += 1;
                let (_, chunks) = steps.tell.entry(home.node).or_insert_with(|| (home, Vec::new()));
                chunks.push(chunk);
            }
            self.told.insert(chunk, Told { home: home.map(|home| home.node), at: now, attempts: attempts + 1 });
        }
        steps.awaited = owed.values().sum();
        steps
    }
}

/// Entrusts chunks of an object to their homes for as long as it is served.
pub async fn run(driver: Arc<Driver>, image: Arc<LocalImage>) {
    let Some(object) = image.object().cloned() else { return };
    let chunk_bytes = image.geometry().chunk_bytes();
    let share = (ENTRUSTED_BYTES / chunk_bytes).max(1) as usize;
    let mut entrusting = Entrusting::default();
    loop {
        let (loose, excess_bytes) = object.loose().await;
        let excess = excess_bytes.div_ceil(chunk_bytes) as usize;
        let steps = driver.look(|core| {
            let keeper = |chunk, attempt| core.keeper(image.id(), chunk, attempt);
            entrusting.steps(&loose, excess, share, Instant::now(), keeper)
        });
        object.await_homes(steps.awaited);
        steps.kept.into_iter().for_each(|chunk| object.kept(chunk));
        for (home, chunks) in steps.tell.into_values() {
            driver.links.ask(&driver, home, &wire::here_frame(image.id(), &chunks));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use vfield_core::identity::Zone;

    fn home(node: u64) -> Identity {
        let addr = SocketAddr::from(([198, 18, 0, node as u8], 4000));
        Identity { addr, node: NodeId(node), generation: 1, zone: Zone::default() }
    }

    /// Chunks of a hundred are to be kept by a home each; the next attempt goes to the next home.
    fn keeper(chunk: Chunk, attempt: usize) -> Keeper {
        Keeper::ToBe(home(chunk.0 / 100 + 10 * attempt as u64))
    }

    fn told(steps: &Steps) -> Vec<(u64, Vec<u64>)> {
        let numbers = |chunks: &[Chunk]| chunks.iter().map(|chunk| chunk.0).collect();
        steps.tell.iter().map(|(home, (_, chunks))| (home.0, numbers(chunks))).collect()
    }

    #[test]
    fn each_home_is_told_of_its_share_and_no_more_than_has_to_leave() {
        let (mut entrusting, now) = (Entrusting::default(), Instant::now());
        let loose = [1, 2, 3, 101, 102, 103, 104].map(Chunk);
        let steps = entrusting.steps(&loose, 3, 2, now, keeper);
        assert_eq!(told(&steps), [(0, vec![1, 2]), (1, vec![101])]);
        let waits = Steps { awaited: 3, ..Steps::default() };
        assert_eq!(entrusting.steps(&loose, 3, 2, now, keeper), waits, "as many are on their way");
        // Chunk 1 has come to its home.
        let steps = entrusting.steps(&loose[1..], 4, 2, now, keeper);
        assert_eq!(told(&steps), [(0, vec![3]), (1, vec![102])]);
    }

    #[test]
    fn a_home_that_does_not_come_has_others_told() {
        let (mut entrusting, now) = (Entrusting::default(), Instant::now());
        assert_eq!(told(&entrusting.steps(&[Chunk(1)], 9, 2, now, keeper)), [(0, vec![1])]);
        assert_eq!(told(&entrusting.steps(&[Chunk(1)], 9, 2, now + AGAIN / 2, keeper)), []);
        assert_eq!(told(&entrusting.steps(&[Chunk(1)], 9, 2, now + AGAIN, keeper)), [(10, vec![1])]);
    }

    #[test]
    fn what_a_store_announces_need_not_be_told_and_what_none_will_hold_cannot() {
        let (mut entrusting, now) = (Entrusting::default(), Instant::now());
        let loose = [1, 2, 3].map(Chunk);
        let keeper = |chunk: Chunk, _: usize| if chunk.0 == 2 { Keeper::Has } else { Keeper::Nobody };
        let steps = entrusting.steps(&loose, 9, 2, now, keeper);
        assert_eq!(steps, Steps { kept: vec![Chunk(2)], ..Steps::default() });
        let asked = |_: Chunk, _: usize| panic!("nobody is asked for again at once");
        assert_eq!(entrusting.steps(&[Chunk(1), Chunk(3)], 9, 2, now + AGAIN / 2, asked), Steps::default());
    }
}

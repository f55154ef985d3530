//! What machines read first of an image: noted for readers of this one, told to nodes that ask, and
//! followed shortly before the readers of this one come to it.
//!
//! A node asks when its readers begin, and so asks nobody while none does. What others say is a
//! hint. Each read earns only a few chunks of prefetch ([`Prefetcher`]), so a liar costs little.

use crate::driver::Driver;
use crate::image::LocalImage;
use crate::interview::{self, Guest, Manner};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use vfield_block::extent::Extent;
use vfield_core::doubling::Doubling;
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, ImageId};
use vfield_core::node::Claim;
use vfield_core::prefetch::{LISTS_MAX, PrefetchList, Prefetcher, Recorder};
use vfield_core::time::Time;
use vfield_core::wire::{self, Kind, PREFETCH_SINCE};

/// Members asked. Each tells what it knows from others too, so a few tell what all know.
const ASKED: usize = 4;
/// A boot goes on meanwhile, and a late answer is of less use.
const MANNER: Manner = Manner { at_once: ASKED, pace: Duration::ZERO, within: Duration::from_secs(5) };
/// The pauses of an origin between its rounds: a boot takes minutes, and nobody waits for it.
const COLLECT_AFTER: Doubling = Doubling { first: Duration::from_secs(5), longest: Duration::from_secs(60) };

/// The name of what an earlier process knew. It stands for no node: ids are hashes of keys.
const EARLIER: NodeId = NodeId(0);

/// What this machine and others read first of one image.
pub struct Learned {
    chunks: u64,
    noting: AtomicBool,
    recorder: Mutex<Recorder>,
    /// Told when the first reader comes.
    began: Notify,
    /// The lists of others.
    heard: Mutex<BTreeMap<NodeId, PrefetchList>>,
    /// Chunks that came with the lists of others.
    gained: AtomicU64,
    leading: AtomicBool,
    prefetcher: Mutex<Option<Prefetcher>>,
}

impl Learned {
    /// For an image that no machine has read yet.
    pub fn new(geometry: &Geometry) -> Self {
        let chunks = geometry.data_chunks();
        Self {
            chunks,
            noting: AtomicBool::new(true),
            recorder: Mutex::new(Recorder::new(chunks, geometry.chunk_bytes())),
            began: Notify::new(),
            heard: Mutex::default(),
            gained: AtomicU64::new(0),
            leading: AtomicBool::new(false),
            prefetcher: Mutex::default(),
        }
    }

    /// Notes a read of this machine. Of two at one moment one goes unnoted, rather than wait.
    pub fn note(&self, extent: Extent, now: impl FnOnce() -> Time) {
        if !self.noting.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut recorder) = self.recorder.try_lock() else { return };
        let (now, is_first) = (now(), recorder.is_new());
        recorder.note(extent.start()..extent.end(), now);
        if recorder.is_over(now) {
            self.noting.store(false, Ordering::Relaxed);
        }
        drop(recorder);
        if is_first {
            self.began.notify_one();
        }
    }

    /// The chunks to fetch because of a read of `chunks`, in order, and whether the list leads
    /// there ([`Prefetcher::leads`]).
    pub fn ahead(&self, chunks: Range<u64>) -> (Vec<Range<u64>>, bool) {
        let nothing = (Vec::new(), false);
        if !self.leading.load(Ordering::Relaxed) {
            return nothing;
        }
        let Ok(mut known) = self.prefetcher.try_lock() else { return nothing };
        let Some(prefetcher) = known.as_mut() else { return nothing };
        let ahead = prefetcher.note(chunks.clone());
        let leads = prefetcher.leads(chunks);
        if prefetcher.is_over() {
            *known = None;
            self.leading.store(false, Ordering::Relaxed);
        }
        (ahead, leads)
    }

    /// Takes what a member says that machines read, the member itself or others. True if that is
    /// news.
    fn hear(&self, lists: Vec<(NodeId, Vec<u8>)>) -> bool {
        let mut heard = lock(&self.heard);
        let mut news = false;
        for (node, bytes) in lists {
            let Ok(list) = PrefetchList::decode(&bytes, self.chunks) else { continue };
            // A list grows while its machine starts. Nobody displaces those of other machines.
            let known = heard.get(&node).map(PrefetchList::len);
            if list.len() > known.unwrap_or(0) && (known.is_some() || heard.len() < LISTS_MAX) {
                self.gained.fetch_add(list.len() - known.unwrap_or(0), Ordering::Relaxed);
                heard.insert(node, list);
                news = true;
            }
        }
        news
    }

    /// Takes what was known before this node was started, in the place of one machine's list.
    pub fn remember(&self, list: Vec<u8>) {
        self.hear(vec![(EARLIER, list)]);
    }

    fn is_empty(&self) -> bool {
        lock(&self.heard).is_empty()
    }

    /// Leads the readers along what most others read, at most `window` chunks ahead.
    fn lead(&self, window: u64) {
        let agreed = PrefetchList::agreed(&lock(&self.heard).values().collect::<Vec<_>>());
        let prefetcher = Prefetcher::new(&agreed, window);
        self.leading.store(!prefetcher.is_over(), Ordering::Relaxed);
        *lock(&self.prefetcher) = Some(prefetcher);
    }

    /// The lists of this machine, whose node is `me`, and of others.
    fn lists(&self, me: NodeId) -> Vec<(NodeId, PrefetchList)> {
        let own = lock(&self.recorder).list();
        let heard = lock(&self.heard);
        let others = heard.iter().filter(|(node, _)| **node != me).map(|(node, list)| (*node, list.clone()));
        std::iter::once((me, own)).filter(|(_, own)| !own.is_empty()).chain(others).take(LISTS_MAX).collect()
    }

    /// A number that rises whenever [`Self::agreed`] may have changed, and costs no merge.
    pub fn extent(&self) -> u64 {
        self.gained.load(Ordering::Relaxed) + lock(&self.recorder).worth()
    }

    /// How many machines have told what they read first, this one among them, and what half of them
    /// agree on.
    pub fn agreed(&self, me: NodeId) -> (usize, PrefetchList) {
        let lists = self.lists(me);
        (lists.len(), PrefetchList::agreed(&lists.iter().map(|(_, list)| list).collect::<Vec<_>>()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The encoded lists of an image that this node knows. A version of which nobody has read anything
/// yet has those of the one before, since most chunks are at the same place. None if this node
/// tells nothing.
pub fn told(driver: &Driver, id: ImageId) -> Option<Vec<(NodeId, Vec<u8>)>> {
    let image = driver.image(id).filter(|_| driver.learns)?;
    let me = driver.look(|core| core.me().node);
    let lists = image.learned().lists(me);
    let lists = if lists.is_empty() { of_relatives(driver, &image, me) } else { lists };
    Some(lists.into_iter().map(|(node, list)| (node, list.encode())).collect())
}

fn of_relatives(driver: &Driver, image: &LocalImage, me: NodeId) -> Vec<(NodeId, PrefetchList)> {
    let others = driver.images().into_iter().filter(|other| other.id() != image.id());
    let versions = others.filter(|other| other.store().is_relative(image.store()));
    versions.map(|other| other.learned().lists(me)).find(|lists| !lists.is_empty()).unwrap_or_default()
}

/// Asks others what machines read first, once the readers of this one begin, and leads these.
pub async fn run(driver: Arc<Driver>, image: Arc<LocalImage>) {
    let learned = image.learned();
    learned.began.notified().await;
    let window = driver.look(|core| core.chunks_ahead(image.id()));
    if !learned.is_empty() {
        learned.lead(window);
    }
    ask_some(&driver, &image, || learned.lead(window)).await;
}

/// Asks others again and again, until nobody has news: an origin remembers what machines read that
/// are switched off since.
pub async fn collect(driver: Arc<Driver>, image: Arc<LocalImage>) {
    for round in 0.. {
        tokio::time::sleep(COLLECT_AFTER.pause(round)).await;
        let mut news = false;
        ask_some(&driver, &image, || news = true).await;
        if !news && lock(&image.learned().heard).len() == LISTS_MAX {
            return;
        }
    }
}

/// Asks a few members, and says when one has news.
async fn ask_some(driver: &Arc<Driver>, image: &Arc<LocalImage>, mut news: impl FnMut()) {
    let learned = image.learned();
    let claims = driver.look(|core| core.claims());
    let claims: Vec<&Claim> = claims.iter().filter(|claim| claim.subject.image == image.id()).collect();
    let mut whom = interview::whom(driver, &claims, &[]);
    whom.truncate(ASKED);
    let ask = |addr| {
        let (driver, id) = (Arc::clone(driver), image.id());
        async move { of_member(&driver, addr, id).await.unwrap_or_default() }
    };
    interview::ask_all(whom, MANNER, ask, |_, lists: Vec<(NodeId, Vec<u8>)>| {
        if learned.hear(lists) {
            news();
        }
        false
    })
    .await;
}

/// The lists that a member tells of; none if it does not answer, or knows none.
async fn of_member(driver: &Driver, addr: SocketAddr, id: ImageId) -> Option<Vec<(NodeId, Vec<u8>)>> {
    let mut guest = Guest::at(driver, driver.whereabouts.way_to(addr)).await.ok()?;
    if guest.version() < PREFETCH_SINCE {
        return None;
    }
    let (header, body) = guest.ask(&wire::prefetch_question_frame(0, id)).await.ok()?;
    (header.kind == Kind::PrefetchLists).then(|| wire::decode_prefetch_lists(&body).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::chunk::ChunkSize;
    use vfield_core::image::Header;

    const CHUNK: u64 = 64 << 10;

    fn learned() -> Learned {
        Learned::new(&Geometry::new(Header::new(1000 * CHUNK, ChunkSize::DEFAULT, 1000).expect("an image")))
    }

    fn read(learned: &Learned, chunks: Range<u64>) {
        learned.note(Extent::from(chunks.start * CHUNK..chunks.end * CHUNK), || Time::ZERO);
    }

    fn told_of(learned: &Learned, node: u64) -> Vec<(NodeId, Vec<u8>)> {
        learned.lists(NodeId(node)).into_iter().map(|(node, list)| (node, list.encode())).collect()
    }

    #[test]
    fn what_one_machine_reads_leads_the_next_one() {
        let (first, next) = (learned(), learned());
        read(&first, 7..9);
        read(&first, 100..101);
        read(&first, 3..4);
        read(&next, 7..8);
        next.hear(told_of(&first, 1));
        next.lead(8);
        assert_eq!(next.ahead(8..9), (vec![100..101, 3..4], false), "it came before the list");
        assert_eq!(next.ahead(100..101), (vec![], true));
        assert_eq!(next.ahead(101..102), (vec![], false), "nobody has read that");
        assert_eq!(next.agreed(NodeId(2)).0, 2);
    }

    #[test]
    fn lists_are_bounded_and_nobody_displaces_those_of_others() {
        let (teller, hearer) = (learned(), learned());
        read(&teller, 5..6);
        for node in 1..20 {
            hearer.hear(told_of(&teller, node));
        }
        let extent = hearer.extent();
        assert!(!hearer.hear(told_of(&teller, 1)), "it has heard that");
        assert_eq!(hearer.extent(), extent);
        read(&teller, 9..10);
        assert!(!hearer.hear(told_of(&teller, 19)), "there is no room for it");
        assert!(hearer.hear(told_of(&teller, 1)), "a machine goes on");
        assert_eq!(hearer.extent(), extent + 1);
        let heard = lock(&hearer.heard);
        assert_eq!(heard.values().map(PrefetchList::len).collect::<Vec<_>>(), [2, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn what_an_earlier_process_knew_is_one_list() {
        let (before, now) = (learned(), learned());
        read(&before, 7..9);
        assert!(now.is_empty());
        now.remember(before.agreed(NodeId(1)).1.encode());
        now.remember(vec![0xff; 5]);
        assert_eq!((now.agreed(NodeId(1)).0, now.agreed(NodeId(1)).1.len()), (1, 2));
    }

    #[test]
    fn rubbish_is_not_kept() {
        let hearer = learned();
        hearer.hear(vec![(NodeId(1), vec![0xff; 5]), (NodeId(2), Vec::new()), (NodeId(3), vec![0])]);
        assert!(lock(&hearer.heard).is_empty());
    }
}

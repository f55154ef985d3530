//! The table of all fetches, with the lines and the peers that they wait for.
//!
//! Invariant: a fetch is in exactly one [`Stage`], and all that follows from its stage is here.
//!
//! | stage | where it is found | requests | left by |
//! |---|---|---|---|
//! | needs its parent | among the children of its page's fetch | none | `queue` |
//! | queued | in the line of its [`Turn`] | none | `requested`, `park`, `wait` |
//! | parked | among those parked for its peer | none | `overdue`, `unpark`, `urge` |
//! | requested | | one or more | `failed`, `supersede`, `pause` |
//! | paused | | none | `queue` |
//! | waiting | | none | `queue` |
//!
//! Each stage is also left by [`Fetches::end`]. Only this module writes a stage. A fetch leaves no
//! entry in its line behind: peers that ask and cancel all the time would fill the memory. Parked
//! chunks may have entries of fetches that went on by another way, at most one for each chunk and
//! peer. They are passed over when their turn comes.
//!
//! Each change of a stage is noted in the fetch's [`super::Trail`], and among the moves if somebody
//! looks on.
//!
//! The node owns one table; it sets the timers, and decides. The table knows no peers' states.

use super::{Beneficiary, Fetch, ImageNumber, RequestId, Stage, Turn, Why};
use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::node::TimerKey;
use crate::peers::Flow;
use crate::reach::Reach;
use crate::small_list::SmallList;
use crate::time::Time;
use crate::wire::Priority;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The goal of a fetch: a chunk of an image.
pub type Goal = (ImageNumber, Chunk);

/// A change of a fetch: its new stage, or none once it has ended.
pub type Move = (Goal, Option<Stage>);

/// All fetches of a node.
#[derive(Debug, Default)]
pub struct Fetches {
    /// Moves that were not taken yet, in their order; `None` while nobody looks on.
    moves: Option<Vec<Move>>,
    /// The present time, for the trails.
    now: Time,
    /// By number of the image.
    images: Vec<BTreeMap<Chunk, Box<Fetch>>>,
    /// By place in the line; new places are before the first one, or after the last.
    lines: [BTreeMap<i64, Goal>; Turn::ALL.len()],
    /// By peer, in the order of the image, since readers come in that order.
    parked: BTreeMap<NodeId, [BTreeSet<Goal>; Turn::ALL.len()]>,
}

impl Fetches {
    /// It is now that time.
    pub const fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// Notes each move from now on, beginning with the present stages; or none any more.
    pub fn note_moves(&mut self, noted: bool) {
        let images = || (0..).take(self.images.len()).map(ImageNumber);
        let stage = |image| move |(chunk, fetch): (Chunk, &Fetch)| ((image, chunk), Some(fetch.stage));
        self.moves = noted.then(|| images().flat_map(|image| self.of(image).map(stage(image))).collect());
    }

    /// The moves since they were taken last, which is to be after each input.
    pub fn take_moves(&mut self) -> Vec<Move> {
        self.moves.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn moved(&mut self, goal: Goal, stage: Option<Stage>) {
        if let Some(moves) = &mut self.moves {
            moves.push((goal, stage));
        }
    }

    /// The fetch of a goal.
    pub fn get(&self, (image, chunk): Goal) -> Option<&Fetch> {
        self.images.get(image.0 as usize)?.get(&chunk).map(Box::as_ref)
    }

    /// The same, to change fields on which its stage does not depend.
    pub fn get_mut(&mut self, (image, chunk): Goal) -> Option<&mut Fetch> {
        self.images.get_mut(image.0 as usize)?.get_mut(&chunk).map(Box::as_mut)
    }

    /// The fetches of an image, by chunk.
    pub fn of(&self, image: ImageNumber) -> impl Iterator<Item = (Chunk, &Fetch)> {
        let table = self.images.get(image.0 as usize);
        table.into_iter().flatten().map(|(chunk, fetch)| (*chunk, fetch.as_ref()))
    }

    /// The same, to change fields on which their stages do not depend.
    pub fn of_mut(&mut self, image: ImageNumber) -> impl Iterator<Item = (Chunk, &mut Fetch)> {
        let table = self.images.get_mut(image.0 as usize);
        table.into_iter().flatten().map(|(chunk, fetch)| (*chunk, fetch.as_mut()))
    }

    /// The fetches of a part of an image, the last one first.
    pub fn back_from(&self, image: ImageNumber, chunks: Range<Chunk>) -> impl Iterator<Item = &Fetch> {
        let table = self.images.get(image.0 as usize);
        table.into_iter().flat_map(move |table| table.range(chunks.clone()).rev()).map(|(_, fetch)| fetch.as_ref())
    }

    /// The number of fetches of an image.
    pub fn count(&self, image: ImageNumber) -> usize {
        self.images.get(image.0 as usize).map_or(0, BTreeMap::len)
    }

    /// The fetches of all images, image by image.
    pub fn iter(&self) -> impl Iterator<Item = &Fetch> {
        self.images.iter().flat_map(BTreeMap::values).map(Box::as_ref)
    }

    /// The number of entries in lines, and of parked ones, those of them included that are out of
    /// date.
    pub fn entries(&self) -> (usize, usize) {
        let lines = self.lines.iter().map(BTreeMap::len).sum();
        (lines, self.parked.values().flatten().map(BTreeSet::len).sum())
    }

    /// The peers for which chunks are parked.
    pub fn parked_for(&self) -> Vec<NodeId> {
        self.parked.keys().copied().collect()
    }

    /// True if chunks are parked for a peer.
    pub fn has_parked(&self, peer: NodeId) -> bool {
        self.parked.contains_key(&peer)
    }

    /// Begins a fetch that does not exist yet. Its caller queues it at once, or lets it wait for
    /// its page.
    pub fn begin(&mut self, (image, chunk): Goal, priority: Priority, beneficiary: Beneficiary) {
        let at = image.0 as usize;
        if self.images.len() <= at {
            self.images.resize_with(at + 1, BTreeMap::new);
        }
        let fetch = Fetch::new(priority, beneficiary, self.now);
        self.moved((image, chunk), Some(fetch.stage));
        self.images[at].insert(chunk, Box::new(fetch));
    }

    /// Takes a fetch off the table.
    pub fn end(&mut self, (image, chunk): Goal) -> Option<Box<Fetch>> {
        self.leave_line((image, chunk));
        let ended = self.images.get_mut(image.0 as usize)?.remove(&chunk)?;
        self.moved((image, chunk), None);
        Some(ended)
    }

    /// Takes all fetches of an image off the table.
    pub fn end_all(&mut self, image: ImageNumber) -> BTreeMap<Chunk, Box<Fetch>> {
        self.lines.iter_mut().for_each(|line| line.retain(|_, goal| goal.0 != image));
        let ended = self.images.get_mut(image.0 as usize).map(std::mem::take).unwrap_or_default();
        ended.keys().for_each(|chunk| self.moved((image, *chunk), None));
        ended
    }

    /// Somebody else wants the chunk too. A fetch whose turn comes earlier now stands at the end of
    /// that line, parked or not. True if its page has to come earlier too.
    pub fn urge(&mut self, goal: Goal, priority: Priority, beneficiary: Beneficiary) -> bool {
        let Some(fetch) = self.get_mut(goal) else { return false };
        let before = fetch.turn();
        fetch.priority = fetch.priority.min(priority);
        fetch.beneficiary = fetch.beneficiary.max(beneficiary);
        let (stage, rises) = (fetch.stage, fetch.turn() < before);
        if rises && matches!(stage, Stage::Queued | Stage::Parked(_)) {
            self.queue(goal);
        }
        rises && stage == Stage::NeedsParent
    }

    /// Puts a fetch without requests at the end of its line.
    pub fn queue(&mut self, goal: Goal) {
        self.put_in_line(goal, |line| line.last_key_value().map_or(0, |(last, _)| last + 1));
    }

    /// Puts a fetch without requests at the front of its line.
    pub fn queue_first(&mut self, goal: Goal) {
        self.put_in_line(goal, |line| line.first_key_value().map_or(0, |(first, _)| first - 1));
    }

    fn put_in_line(&mut self, goal: Goal, place: impl Fn(&BTreeMap<i64, Goal>) -> i64) {
        let Some(fetch) = self.enter(goal, Stage::Queued) else { return };
        debug_assert!(fetch.requests.is_empty(), "its requests are to be ended first");
        let turn = fetch.turn();
        let line = &mut self.lines[turn as usize];
        let place = place(line);
        line.insert(place, goal);
        if let Some(fetch) = self.get_mut(goal) {
            fetch.place = Some((turn, place));
        }
    }

    /// Moves a fetch to a stage, out of its line if it is in one.
    fn enter(&mut self, goal: Goal, stage: Stage) -> Option<&mut Fetch> {
        self.leave_line(goal);
        let now = self.now;
        if self.get(goal)?.stage != stage {
            self.moved(goal, Some(stage));
        }
        let fetch = self.get_mut(goal)?;
        fetch.enter(stage, now);
        Some(fetch)
    }

    fn leave_line(&mut self, goal: Goal) {
        if let Some((turn, place)) = self.get_mut(goal).and_then(|fetch| fetch.place.take()) {
            self.lines[turn as usize].remove(&place);
        }
    }

    /// Lets a new fetch, or a queued one, wait for the fetch of its page.
    pub fn await_parent(&mut self, goal: Goal) {
        self.enter(goal, Stage::NeedsParent);
    }

    /// Takes the next queued fetch out of a line. It stays queued until its caller decides.
    pub fn next(&mut self, turn: Turn) -> Option<Goal> {
        self.next_but(turn, &[])
    }

    /// As [`Fetches::next`], but for those of these images.
    pub fn next_but(&mut self, turn: Turn, images: &[ImageNumber]) -> Option<Goal> {
        let line = &mut self.lines[turn as usize];
        let place = line.iter().find(|(_, goal)| !images.contains(&goal.0)).map(|(place, _)| *place)?;
        let goal = line.remove(&place)?;
        if let Some(fetch) = self.get_mut(goal) {
            fetch.place = None;
        }
        Some(goal)
    }

    /// True if a fetch of the image stands in this line.
    pub fn is_queued(&self, image: ImageNumber, turn: Turn) -> bool {
        self.lines[turn as usize].values().any(|goal| goal.0 == image)
    }

    /// Lets a queued fetch wait until `peer` can take more.
    pub fn park(&mut self, goal: Goal, peer: NodeId) {
        let Some(fetch) = self.enter(goal, Stage::Parked(peer)) else { return };
        debug_assert!(fetch.requests.is_empty(), "what is under way is not parked");
        let turn = fetch.turn();
        self.parked.entry(peer).or_default()[turn as usize].insert(goal);
    }

    /// Notes the timer of a parked or paused fetch, in place of its former one. It stays if the
    /// fetch is unparked before it is due.
    pub(crate) fn set_timer(&mut self, goal: Goal, timer: TimerKey) {
        if let Some(fetch) = self.get_mut(goal) {
            fetch.timer = Some(timer);
        }
    }

    /// The timer of a fetch has come: a parked one may ask others, and goes to the front of its
    /// line. True if it has paused for long enough.
    pub fn is_due(&mut self, goal: Goal) -> bool {
        let Some(fetch) = self.get_mut(goal) else { return false };
        fetch.timer = None;
        if matches!(fetch.stage, Stage::Parked(_)) {
            fetch.overdue = true;
            self.queue_first(goal);
            return false;
        }
        fetch.stage == Stage::Paused
    }

    /// The images of which chunks are parked for a peer.
    pub fn images_parked(&self, peer: NodeId) -> Vec<ImageNumber> {
        let mut images = Vec::new();
        for line in self.parked.get(&peer).into_iter().flatten() {
            let mut next = line.first();
            while let Some((image, _)) = next {
                if !images.contains(image) {
                    images.push(*image);
                }
                next = line.range((ImageNumber(image.0 + 1), Chunk(0))..).next();
            }
        }
        images
    }

    /// The first chunk of an image that is parked for a peer in this turn; it may be out of date.
    pub fn first_parked(&self, (peer, image): Flow, turn: Turn) -> Option<Goal> {
        let of_image = (image, Chunk(0))..=(image, Chunk(u64::MAX));
        self.parked.get(&peer)?[turn as usize].range(of_image).next().copied()
    }

    /// Takes that chunk out, to be put at the front of its line. `None` if it is out of date.
    pub fn unpark(&mut self, flow: Flow, turn: Turn) -> Option<Goal> {
        let (goal, peer) = (self.first_parked(flow, turn)?, flow.0);
        self.parked.get_mut(&peer)?[turn as usize].remove(&goal);
        let fetch = self.get(goal)?;
        (fetch.stage == Stage::Parked(peer) && fetch.turn() == turn).then_some(goal)
    }

    /// Forgets a peer for which nothing is parked any more.
    pub fn forget_unparked(&mut self, peer: NodeId) {
        if self.parked.get(&peer).is_some_and(|parked| parked.iter().all(BTreeSet::is_empty)) {
            self.parked.remove(&peer);
        }
    }

    /// A request of this rank was sent to `peer`.
    pub fn requested(&mut self, goal: Goal, request: RequestId, peer: NodeId, rank: Option<Reach>) {
        let Some(fetch) = self.enter(goal, Stage::Requested) else { return };
        fetch.rank = if fetch.requests.is_empty() { rank } else { fetch.rank.max(rank) };
        fetch.overdue = false;
        fetch.tried.push(peer);
        fetch.requests.push(request);
    }

    /// A request has failed. Without another one the fetch goes to the front of its line.
    pub fn failed(&mut self, goal: Goal, request: RequestId) {
        let Some(fetch) = self.get_mut(goal) else { return };
        fetch.requests.retain(|other| *other != request);
        fetch.trail.failed();
        if fetch.requests.is_empty() && fetch.stage == Stage::Requested {
            self.queue_first(goal);
        }
    }

    /// Takes the requests out of a fetch that is to be queued anew, with its page.
    pub fn supersede(&mut self, goal: Goal) -> Option<SmallList<RequestId>> {
        self.get_mut(goal).map(|fetch| std::mem::take(&mut fetch.requests))
    }

    /// Lets a fetch pause before it is queued again, after an answer that could not be used.
    /// Returns the requests that are to be ended, and how many such answers there were before.
    pub fn pause(&mut self, goal: Goal) -> Option<(SmallList<RequestId>, u32)> {
        let fetch = self.enter(goal, Stage::Paused)?;
        let before = fetch.setbacks;
        fetch.setbacks = before.saturating_add(1);
        Some((std::mem::take(&mut fetch.requests), before))
    }

    /// Lets a fetch wait that has no peer to ask.
    pub fn wait(&mut self, goal: Goal, why: Why, now: Time) {
        let Some(fetch) = self.enter(goal, Stage::Waiting) else { return };
        debug_assert!(fetch.requests.is_empty(), "a request under way is waited for");
        let since = fetch.waiting.map_or(now, |(since, _)| since);
        fetch.waiting = Some((since, why));
    }

    /// True if a reader of this machine waits for a chunk, or for one whose hash is in it.
    pub fn has_reader(&self, goal: Goal) -> bool {
        // As deep as the hash tree is high.
        self.get(goal).is_some_and(|fetch| {
            !fetch.waiters.is_empty() || fetch.children.iter().any(|child| self.has_reader((goal.0, *child)))
        })
    }

    /// The first fetch that is not in exactly one stage; see the invariant.
    pub fn first_astray(&self) -> Option<Goal> {
        let numbered = |at: usize| ImageNumber(u32::try_from(at).unwrap_or(u32::MAX));
        let all = self.images.iter().enumerate();
        let mut all =
            all.flat_map(|(at, table)| table.iter().map(move |(chunk, fetch)| ((numbered(at), *chunk), fetch)));
        let astray = all.find(|(goal, fetch)| {
            let at = fetch.turn() as usize;
            let in_line = |(turn, place): (Turn, i64)| self.lines[turn as usize].get(&place) == Some(goal);
            let is_there = match fetch.stage {
                Stage::Queued => fetch.place.is_some_and(|place| place.0 == fetch.turn() && in_line(place)),
                Stage::Parked(peer) => self.parked.get(&peer).is_some_and(|parked| parked[at].contains(goal)),
                Stage::NeedsParent => {
                    self.images[goal.0.0 as usize].values().any(|page| page.children.contains(&goal.1))
                }
                Stage::Requested | Stage::Paused | Stage::Waiting => true,
            };
            !is_there
                || (fetch.stage == Stage::Requested) == fetch.requests.is_empty()
                || (fetch.stage == Stage::Queued) == fetch.place.is_none()
        });
        astray.map(|(goal, _)| goal)
    }
}

//! Slices for readers of this machine: a short read asks one node for the part that it reads.
//!
//! A slice belongs to no fetch. It has one request, to a node that has the chunk for sure. If that
//! refuses, breaks, or is late, the readers wait for the whole chunk instead, which knows all other
//! ways. Invariant: a reader waits for a slice, or for a fetch, or for a bound of its image to open
//! ([`super::bounds`]). The shell verifies slices and gives them to their readers; they are in no
//! store.

use super::requests::Asked;
use super::{Node, Output};
use crate::chunk::Chunk;
use crate::fetch::{Beneficiary, Fetch, Goal, ImageNumber, RequestId, Stage, Token};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::reach::Reach;
use crate::slice::{Groups, PAGES_MAX, Slice};
use crate::small_list::SmallList;
use crate::wire::Priority;
use std::collections::{BTreeMap, VecDeque};

/// Pages remembered that slices were asked for. A page that is wanted again so soon is fetched as a
/// whole: it then serves all reads below it. In an image of 8 TiB in chunks of 64 KiB, one random
/// read in a thousand finds its page here by chance.
const PAGES_KEPT: usize = 64;

/// The slices under way.
#[derive(Debug, Default)]
pub(super) struct Slices {
    open: BTreeMap<(Goal, Groups), Open>,
    /// Pages that slices were asked for lately, the latest last.
    pages: VecDeque<Goal>,
}

/// A slice under way.
#[derive(Debug)]
struct Open {
    request: RequestId,
    peer: NodeId,
    waiters: SmallList<Token>,
}

impl Slices {
    /// The slice under way that has these groups.
    fn with(&mut self, goal: Goal, groups: Groups) -> Option<&mut Open> {
        let mut of_chunk = self.open.range_mut((goal, Groups::FIRST)..=(goal, Groups::LAST));
        of_chunk.find(|((_, open), _)| open.contains(groups)).map(|(_, open)| open)
    }

    /// Takes out the slice of a request.
    fn take(&mut self, goal: Goal, request: RequestId) -> Option<Open> {
        let mut of_chunk = self.open.range((goal, Groups::FIRST)..=(goal, Groups::LAST));
        let key = of_chunk.find(|(_, open)| open.request == request).map(|(key, _)| *key)?;
        self.open.remove(&key)
    }

    /// A reader no longer waits; returns the request that nobody waits for any more.
    fn forget(&mut self, goal: Goal, token: Token) -> Option<RequestId> {
        let mut of_chunk = self.open.range_mut((goal, Groups::FIRST)..=(goal, Groups::LAST));
        let (key, open) = of_chunk.find(|(_, open)| open.waiters.contains(&token))?;
        open.waiters.retain(|waiter| *waiter != token);
        let (key, request, unwanted) = (*key, open.request, open.waiters.is_empty());
        if unwanted {
            self.open.remove(&key);
        }
        unwanted.then_some(request)
    }

    /// The image is gone, and its requests with it.
    pub(super) fn drop_image(&mut self, image: ImageNumber) {
        self.open.retain(|(goal, _), _| goal.0 != image);
        self.pages.retain(|goal| goal.0 != image);
    }

    /// Notes that a slice of a page is asked for; true if that was so a moment ago.
    fn comes_again(&mut self, page: Goal) -> bool {
        let known = self.pages.contains(&page);
        self.pages.retain(|goal| *goal != page);
        self.pages.push_back(page);
        if self.pages.len() > PAGES_KEPT {
            self.pages.pop_front();
        }
        known
    }
}

impl Node {
    pub(super) fn read_slice(&mut self, token: Token, id: ImageId, chunk: Chunk, groups: Groups) {
        self.reads_now();
        let now = self.now;
        let asked = self.goal(id, chunk).filter(|_| !self.comes_whole(id, chunk)).is_some_and(|goal| {
            self.joins_slice(token, goal, groups)
                || self.bounds.hold(goal, token, groups, now)
                || self.asks_for_slice(token, id, chunk, groups).is_some()
        });
        if !asked {
            return self.read(token, id, chunk.0..chunk.0 + 1);
        }
        self.note_reader(token, id, chunk);
    }

    /// True if the whole chunk is here, or is under way anyway.
    fn comes_whole(&self, id: ImageId, chunk: Chunk) -> bool {
        let Some(image) = self.images.get(&id) else { return true };
        let fetch = self.fetch_of(id, chunk);
        image.inventory.is_here(chunk)
            || fetch.is_some_and(|fetch| fetch.stage() == Stage::Requested || !fetch.waiters.is_empty())
    }

    fn joins_slice(&mut self, token: Token, goal: Goal, groups: Groups) -> bool {
        let open = self.slices.with(goal, groups);
        open.map(|open| open.waiters.push(token)).is_some()
    }

    /// Asks a node that has the chunk for a slice of it. `None` if no such node can be asked.
    fn asks_for_slice(&mut self, token: Token, id: ImageId, chunk: Chunk, groups: Groups) -> Option<()> {
        if !self.has_window(Priority::Demand) || self.now < self.gathers_until {
            return None;
        }
        let slice = Slice { groups, pages: self.missing_pages(id, chunk)? };
        let bytes = slice.length(self.images.get(&id)?.inventory.geometry(), chunk)? as u64;
        let peer = self.directly(id, chunk, bytes)?;
        let (identity, image) = (*self.identity_of(peer)?, self.images.get(&id)?);
        let (goal, origin) = ((image.number, chunk), image.map.origins().contains(&peer));
        let (priority, reach) = (Priority::Demand, Reach::HOLDER);
        let asked = Asked { peer, chunk, priority, reach, hedge: false, check: false, slice: Some(slice) };
        let request = self.open_request(id, asked)?;
        self.surprised_now();
        self.slices.open.insert((goal, groups), Open { request, peer, waiters: SmallList::One(token) });
        self.out(Output::RequestSlice { request, peer: identity, image: id, chunk, slice, origin });
        if slice.pages > 0 {
            self.note_page(id, chunk);
        }
        Some(())
    }

    /// The number of pages above a chunk that are not here. `None` if the top page is among them,
    /// or there are too many for one answer.
    fn missing_pages(&self, id: ImageId, chunk: Chunk) -> Option<u8> {
        let inventory = &self.images.get(&id)?.inventory;
        let (mut pages, mut below) = (0, chunk);
        loop {
            let (page, _) = inventory.geometry().parent(below)?;
            if inventory.is_here(page) {
                return Some(pages);
            }
            if pages == PAGES_MAX || page == inventory.geometry().top() {
                return None;
            }
            (pages, below) = (pages + 1, page);
        }
    }

    /// Fetches the page of a chunk as a whole if slices of it are asked for again and again.
    fn note_page(&mut self, id: ImageId, chunk: Chunk) {
        let Some(image) = self.images.get(&id) else { return };
        let Some((page, _)) = image.inventory.geometry().parent(chunk) else { return };
        if self.slices.comes_again((image.number, page)) {
            self.want(id, page, Priority::ReadAhead, Beneficiary::Store);
        }
    }

    /// The slice of a request came, and the shell has given it to its readers.
    pub(super) fn slice_arrived(&mut self, request: RequestId, id: ImageId, chunk: Chunk) {
        let Some(goal) = self.goal(id, chunk) else { return };
        let Some(open) = self.slices.take(goal, request) else { return };
        for token in open.waiters.iter().copied() {
            self.reads.remove(&token);
            self.out(Output::Answer(token, Ok(())));
        }
    }

    /// The slice of a request will not come: its readers wait for the whole chunk. If the peer
    /// `delivers` whole chunks it may be asked again, else another node is asked first.
    pub(super) fn slice_failed(&mut self, request: RequestId, id: ImageId, chunk: Chunk, delivers: bool) {
        let Some(goal) = self.goal(id, chunk) else { return };
        let Some(Open { peer, waiters, .. }) = self.slices.take(goal, request) else { return };
        for token in waiters.iter().copied() {
            self.reads.remove(&token);
            self.read(token, id, chunk.0..chunk.0 + 1);
        }
        let is_new = |fetch: &&mut Fetch| fetch.requests().is_empty() && !fetch.tried.contains(&peer);
        if let Some(fetch) = self.fetches.get_mut(goal).filter(is_new)
            && !delivers
        {
            fetch.tried.push(peer);
        }
    }

    /// A reader no longer waits for its slice.
    pub(super) fn forget_slice(&mut self, id: ImageId, chunk: Chunk, token: Token) {
        let Some(goal) = self.goal(id, chunk) else { return };
        if let Some(request) = self.slices.forget(goal, token) {
            self.orphan(request);
        }
    }
}

//! News under way: the items that each partner is still to get.
//!
//! Each item goes once to every partner but its sender. A member passes on only items that are new
//! to it, so distribution ends by itself. An item is kept once, with a mark for each partner that
//! has not got it: a room that is switched on makes an item for each member, for half a dozen
//! partners each.

use super::rings::Partners;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::record::{RecordKey, Subject};
use crate::time::Time;
use std::cmp::Ordering;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc as Shared;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// Age of the news that a new partner gets: it may have passed the partner on its way.
const RECENT: Duration = Duration::from_secs(2);
/// Most items kept for new partners.
const RECENT_MAX: usize = 1 << 10;

/// The subject of an item. Its content is looked up when it is sent, so only the latest goes out.
#[derive(Clone, Debug)]
pub enum Topic {
    /// A member's state, this node's own too.
    Member(NodeId),
    /// What a member has. Of the subject only the image counts.
    Record(NodeId, Shared<Subject>),
}

const _: () = assert!(size_of::<Topic>() == 16, "while a room is switched on each node has a thousand of them");

impl Topic {
    /// The member; and the image, if the item is about what the member has.
    fn key(&self) -> (NodeId, Option<&ImageId>) {
        match self {
            Self::Member(node) => (*node, None),
            Self::Record(node, subject) => (*node, Some(&subject.image)),
        }
    }

    /// The record that it is about, if any.
    pub fn record(&self) -> Option<RecordKey> {
        let (node, image) = self.key();
        image.map(|image| RecordKey { node, image: *image })
    }
}

impl PartialEq for Topic {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Topic {}

impl PartialOrd for Topic {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Topic {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A mark for each partner, by its [`Partner::mark`].
type Marks = u8;

const _: () = assert!(Partners::MAX <= Marks::BITS as usize, "each partner has a mark");

/// One item of news.
#[derive(Debug)]
struct Piece {
    topic: Topic,
    /// When it became news.
    at: Time,
    /// The partners that are still to get it.
    unsent: Marks,
}

/// A member that news goes to.
#[derive(Debug, Clone, Copy)]
struct Partner {
    /// One bit, unique among the partners.
    mark: Marks,
    /// All items before this number have been sent to it.
    from: u64,
}

/// All items that some partner is still to get, and recent ones.
#[derive(Debug, Default)]
pub struct News {
    partners: BTreeMap<NodeId, Partner>,
    /// Unsent and recent items, the oldest first.
    pieces: VecDeque<Piece>,
    /// The number of the first of them.
    first: u64,
    /// The numbers of the unsent items.
    unsent: BTreeMap<Topic, u64>,
}

impl News {
    /// Replaces the partners, at most [`Partners::MAX`]. Those that stay keep their unsent items;
    /// new ones get the recent news.
    pub fn set_partners(&mut self, partners: &BTreeSet<NodeId>, now: Time) {
        self.partners.retain(|node, _| partners.contains(node));
        let mut taken = self.partners.values().fold(0, |marks, partner| marks | partner.mark);
        self.keep_marks(taken);
        for node in partners {
            if let Entry::Vacant(place) = self.partners.entry(*node) {
                let mark = 1 << (!taken).trailing_zeros();
                taken |= mark;
                place.insert(Partner { mark, from: self.first });
                self.mark_recent(mark, now);
            }
        }
    }

    /// Drops all marks but these.
    fn keep_marks(&mut self, marks: Marks) {
        for piece in &mut self.pieces {
            if piece.unsent != 0 && piece.unsent & marks == 0 {
                self.unsent.remove(&piece.topic);
            }
            piece.unsent &= marks;
        }
    }

    /// Marks all recent items as unsent for the partner with this mark.
    fn mark_recent(&mut self, mark: Marks, now: Time) {
        let (first, unsent) = (self.first, &mut self.unsent);
        for (number, piece) in (first..).zip(&mut self.pieces).filter(|(_, piece)| now - piece.at <= RECENT) {
            // The same may have been news twice.
            if *unsent.entry(piece.topic.clone()).or_insert(number) == number {
                piece.unsent |= mark;
            }
        }
    }

    /// Adds an item that `from` has already.
    pub fn push(&mut self, topic: Topic, from: Option<NodeId>, now: Time) {
        self.forget(now);
        let others = self.partners.iter_mut().filter(|(node, _)| Some(**node) != from);
        let number = self.unsent.get(&topic).copied();
        let place = number.unwrap_or(self.first + self.pieces.len() as u64);
        let marks = others.fold(0, |marks, (_, partner)| {
            partner.from = partner.from.min(place);
            marks | partner.mark
        });
        match number {
            Some(number) => {
                let piece = &mut self.pieces[(number - self.first) as usize];
                (piece.at, piece.unsent) = (now, piece.unsent | marks);
            }
            None => {
                if marks != 0 {
                    self.unsent.insert(topic.clone(), place);
                }
                self.pieces.push_back(Piece { topic, at: now, unsent: marks });
            }
        }
    }

    /// Drops items that all partners have got, unless they are recent.
    fn forget(&mut self, now: Time) {
        while self.pieces.front().is_some_and(|piece| piece.unsent == 0 && now - piece.at > RECENT) {
            self.pieces.pop_front();
            self.first += 1;
        }
        if self.pieces.len() >= self.unsent.len() + RECENT_MAX {
            self.first += (self.pieces.len() - self.unsent.len()) as u64;
            self.pieces.retain(|piece| piece.unsent != 0);
            self.unsent = (self.first..).zip(&self.pieces).map(|(at, piece)| (piece.topic.clone(), at)).gathered();
            self.partners.values_mut().for_each(|partner| partner.from = self.first);
        }
    }

    /// The next item for a partner.
    pub fn peek(&self, partner: NodeId) -> Option<&Topic> {
        self.next(partner).map(|number| &self.pieces[number].topic)
    }

    /// The position of the next item for a partner.
    fn next(&self, partner: NodeId) -> Option<usize> {
        let &Partner { mark, from } = self.partners.get(&partner)?;
        let from = from.saturating_sub(self.first) as usize;
        self.pieces.range(from.min(self.pieces.len())..).position(|piece| piece.unsent & mark != 0).map(|at| from + at)
    }

    /// Marks the next item as sent to a partner.
    pub fn pop(&mut self, partner: NodeId) {
        let Some(number) = self.next(partner) else { return };
        let Some(partner) = self.partners.get_mut(&partner) else { return };
        partner.from = self.first + number as u64 + 1;
        let piece = &mut self.pieces[number];
        piece.unsent &= !partner.mark;
        if piece.unsent == 0 {
            self.unsent.remove(&piece.topic);
        }
        if self.unsent.is_empty() {
            // A room that is switched on makes much news, and hardly any afterwards.
            self.pieces.shrink_to(2 * self.pieces.len());
        }
    }

    /// True if no partner has unsent items.
    pub fn all_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// The ids of the partners.
    pub fn partners(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.partners.keys().copied()
    }

    /// True if this is a partner.
    pub fn is_partner(&self, node: NodeId) -> bool {
        self.partners.contains_key(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(partners: &[u64]) -> News {
        let mut news = News::default();
        set(&mut news, partners, 0);
        news
    }

    fn set(news: &mut News, partners: &[u64], ms: u64) {
        news.set_partners(&partners.iter().copied().map(NodeId).collect(), at(ms));
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// All items that a partner is still to get.
    fn sent_to(news: &mut News, partner: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(Topic::Member(node)) = news.peek(NodeId(partner)) {
            sent.push(node.0);
            news.pop(NodeId(partner));
        }
        sent
    }

    fn push(news: &mut News, topic: u64, from: Option<u64>, ms: u64) {
        news.push(Topic::Member(NodeId(topic)), from.map(NodeId), at(ms));
    }

    #[test]
    fn each_partner_but_the_sender_gets_news_once() {
        let mut news = news(&[1, 2, 3]);
        push(&mut news, 10, Some(2), 0);
        push(&mut news, 11, None, 0);
        assert_eq!(sent_to(&mut news, 1), [10, 11]);
        push(&mut news, 10, Some(3), 1);
        assert_eq!(sent_to(&mut news, 1), [10], "it is news again");
        assert_eq!(sent_to(&mut news, 2), [10, 11]);
        assert!(!news.all_sent());
        assert_eq!(sent_to(&mut news, 3), [10, 11], "once, though it was news twice");
        assert!(news.all_sent() && news.peek(NodeId(4)).is_none());
    }

    #[test]
    fn a_new_partner_gets_recent_news() {
        let mut news = news(&[1]);
        push(&mut news, 10, None, 0);
        push(&mut news, 11, None, 1500);
        push(&mut news, 12, None, 1500);
        assert_eq!(sent_to(&mut news, 1), [10, 11, 12]);
        push(&mut news, 11, None, 1600);
        set(&mut news, &[1, 2], 3000);
        assert_eq!(sent_to(&mut news, 2), [12, 11]);
        assert_eq!(sent_to(&mut news, 1), [11]);
        set(&mut news, &[2], 3000);
        assert!(news.all_sent() && !news.is_partner(NodeId(1)));
    }

    #[test]
    fn sent_news_is_forgotten_behind_unsent_news() {
        let mut news = news(&[1, 2]);
        push(&mut news, 7, Some(2), 0);
        for number in 0..5000 {
            push(&mut news, 10 + number % 3, Some(1), number);
            assert_eq!(sent_to(&mut news, 2), [10 + number % 3]);
        }
        assert!(news.pieces.len() <= RECENT_MAX + 1, "{}", news.pieces.len());
        assert_eq!(sent_to(&mut news, 1), [7]);
    }
}

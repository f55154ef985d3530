//! News on its way: what each partner is still to be told. Each piece goes to every partner once, except to
//! the one it came from; whoever learns nothing from it does not pass it on, so it ends by itself.
//!
//! A piece is kept once, with a mark for each partner that has not been told: a room that is switched on makes news of all its
//! members, for half a dozen partners each.

use super::rings::Neighbours;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::record::{RecordKey, Subject};
use crate::time::Time;
use std::cmp::Ordering;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc as Shared;
use std::time::Duration;

/// A new partner is told what was news within this time: it may have been on its way past it.
const RECENT: Duration = Duration::from_secs(2);
/// At most so much is kept for that.
const RECENT_MAX: usize = 1 << 10;

/// What a piece of news is about. What it says is looked up when it is sent: only the latest is ever told.
#[derive(Clone, Debug)]
pub enum Topic {
    /// A member's state, this node's own too.
    Member(NodeId),
    /// What a member has. Of the subject only the image counts.
    Record(NodeId, Shared<Subject>),
}

const _: () = assert!(size_of::<Topic>() == 16, "while a room is switched on each node has a thousand of them");

impl Topic {
    /// Of whom it is, and of which image, if it is about what a member has.
    fn key(&self) -> (NodeId, Option<&ImageId>) {
        match self {
            Self::Member(node) => (*node, None),
            Self::Record(node, subject) => (*node, Some(&subject.image)),
        }
    }

    /// Which record, if it is about one.
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

const _: () = assert!(Neighbours::MAX <= Marks::BITS as usize, "each partner has a mark");

/// One piece of news.
#[derive(Debug)]
struct Piece {
    topic: Topic,
    /// When it was news.
    at: Time,
    /// Who is to be told.
    untold: Marks,
}

/// One to whom news goes.
#[derive(Debug, Clone, Copy)]
struct Partner {
    /// One bit, which no other has.
    mark: Marks,
    /// Whatever is older than the piece with this number it has been told.
    from: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct News {
    partners: BTreeMap<NodeId, Partner>,
    /// What somebody is to be told, and what was news lately; the oldest first.
    pieces: VecDeque<Piece>,
    /// The number of the first of them.
    first: u64,
    /// The numbers of those that somebody is to be told.
    untold: BTreeMap<Topic, u64>,
}

impl News {
    /// Names the partners, at most [`Neighbours::MAX`]; those who stay are told what they are still to be told, others what was news lately.
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

    /// Nobody but those with these marks is to be told anything.
    fn keep_marks(&mut self, marks: Marks) {
        for piece in &mut self.pieces {
            if piece.untold != 0 && piece.untold & marks == 0 {
                self.untold.remove(&piece.topic);
            }
            piece.untold &= marks;
        }
    }

    /// Whoever has this mark is to be told of all that was news lately.
    fn mark_recent(&mut self, mark: Marks, now: Time) {
        let (first, untold) = (self.first, &mut self.untold);
        for (number, piece) in (first..).zip(&mut self.pieces).filter(|(_, piece)| now - piece.at <= RECENT) {
            // The same may have been news twice.
            if *untold.entry(piece.topic.clone()).or_insert(number) == number {
                piece.untold |= mark;
            }
        }
    }

    /// Something has happened, and `from` knows it.
    pub fn push(&mut self, topic: Topic, from: Option<NodeId>, now: Time) {
        self.forget(now);
        let others = self.partners.iter_mut().filter(|(node, _)| Some(**node) != from);
        let number = self.untold.get(&topic).copied();
        let place = number.unwrap_or(self.first + self.pieces.len() as u64);
        let marks = others.fold(0, |marks, (_, partner)| {
            partner.from = partner.from.min(place);
            marks | partner.mark
        });
        match number {
            Some(number) => {
                let piece = &mut self.pieces[(number - self.first) as usize];
                (piece.at, piece.untold) = (now, piece.untold | marks);
            }
            None => {
                if marks != 0 {
                    self.untold.insert(topic.clone(), place);
                }
                self.pieces.push_back(Piece { topic, at: now, untold: marks });
            }
        }
    }

    /// Drops what all have been told, unless it was news lately.
    fn forget(&mut self, now: Time) {
        while self.pieces.front().is_some_and(|piece| piece.untold == 0 && now - piece.at > RECENT) {
            self.pieces.pop_front();
            self.first += 1;
        }
        if self.pieces.len() >= self.untold.len() + RECENT_MAX {
            self.first += (self.pieces.len() - self.untold.len()) as u64;
            self.pieces.retain(|piece| piece.untold != 0);
            self.untold = (self.first..).zip(&self.pieces).map(|(at, piece)| (piece.topic.clone(), at)).collect();
            self.partners.values_mut().for_each(|partner| partner.from = self.first);
        }
    }

    /// The next that a partner is to be told.
    pub fn peek(&self, partner: NodeId) -> Option<&Topic> {
        self.next(partner).map(|number| &self.pieces[number].topic)
    }

    /// Where it is.
    fn next(&self, partner: NodeId) -> Option<usize> {
        let &Partner { mark, from } = self.partners.get(&partner)?;
        let from = from.saturating_sub(self.first) as usize;
        self.pieces.range(from.min(self.pieces.len())..).position(|piece| piece.untold & mark != 0).map(|at| from + at)
    }

    /// It has been told.
    pub fn pop(&mut self, partner: NodeId) {
        let Some(number) = self.next(partner) else { return };
        let Some(partner) = self.partners.get_mut(&partner) else { return };
        partner.from = self.first + number as u64 + 1;
        let piece = &mut self.pieces[number];
        piece.untold &= !partner.mark;
        if piece.untold == 0 {
            self.untold.remove(&piece.topic);
        }
        if self.untold.is_empty() {
            // A room that is switched on makes much news, and hardly any afterwards.
            self.pieces.shrink_to(2 * self.pieces.len());
        }
    }

    /// True if nobody is to be told anything.
    pub fn is_told(&self) -> bool {
        self.untold.is_empty()
    }

    /// The partners.
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

    /// All that a partner is to be told.
    fn told(news: &mut News, partner: u64) -> Vec<u64> {
        let mut told = Vec::new();
        while let Some(Topic::Member(node)) = news.peek(NodeId(partner)) {
            told.push(node.0);
            news.pop(NodeId(partner));
        }
        told
    }

    fn push(news: &mut News, topic: u64, from: Option<u64>, ms: u64) {
        news.push(Topic::Member(NodeId(topic)), from.map(NodeId), at(ms));
    }

    #[test]
    fn each_partner_is_told_once_but_for_whom_it_came_from() {
        let mut news = news(&[1, 2, 3]);
        push(&mut news, 10, Some(2), 0);
        push(&mut news, 11, None, 0);
        assert_eq!(told(&mut news, 1), [10, 11]);
        push(&mut news, 10, Some(3), 1);
        assert_eq!(told(&mut news, 1), [10], "it is news again");
        assert_eq!(told(&mut news, 2), [10, 11]);
        assert!(!news.is_told());
        assert_eq!(told(&mut news, 3), [10, 11], "once, though it was news twice");
        assert!(news.is_told() && news.peek(NodeId(4)).is_none());
    }

    #[test]
    fn who_becomes_a_partner_is_told_what_was_news_lately() {
        let mut news = news(&[1]);
        push(&mut news, 10, None, 0);
        push(&mut news, 11, None, 1500);
        push(&mut news, 12, None, 1500);
        assert_eq!(told(&mut news, 1), [10, 11, 12]);
        push(&mut news, 11, None, 1600);
        set(&mut news, &[1, 2], 3000);
        assert_eq!(told(&mut news, 2), [12, 11]);
        assert_eq!(told(&mut news, 1), [11]);
        set(&mut news, &[2], 3000);
        assert!(news.is_told() && !news.is_partner(NodeId(1)));
    }

    #[test]
    fn what_was_told_is_forgotten_also_behind_what_was_not() {
        let mut news = news(&[1, 2]);
        push(&mut news, 7, Some(2), 0);
        for number in 0..5000 {
            push(&mut news, 10 + number % 3, Some(1), number);
            assert_eq!(told(&mut news, 2), [10 + number % 3]);
        }
        assert!(news.pieces.len() <= RECENT_MAX + 1, "{}", news.pieces.len());
        assert_eq!(told(&mut news, 1), [7]);
    }
}

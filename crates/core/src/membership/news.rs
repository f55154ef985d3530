//! News on its way: what each partner is still to be told. Each piece goes to every partner once, except to
//! the one it came from; whoever learns nothing from it does not pass it on, so it ends by itself.

use crate::identity::NodeId;
use crate::image::ImageId;
use crate::record::{RecordKey, Subject};
use crate::time::Time;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Topic>,
    queued: BTreeSet<Topic>,
}

impl Line {
    fn push(&mut self, topic: Topic) {
        if self.queued.insert(topic.clone()) {
            self.waiting.push_back(topic);
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct News {
    lines: BTreeMap<NodeId, Line>,
    recent: VecDeque<(Time, Topic)>,
}

impl News {
    /// Names the partners; those who stay keep their lines.
    pub fn set_partners(&mut self, partners: &BTreeSet<NodeId>, now: Time) {
        self.lines.retain(|node, _| partners.contains(node));
        for node in partners {
            let recent = self.recent.iter().filter(|(at, _)| now - *at <= RECENT);
            self.lines.entry(*node).or_insert_with(|| {
                let mut line = Line::default();
                recent.for_each(|(_, topic)| line.push(topic.clone()));
                line
            });
        }
    }

    /// Something has happened, and `from` knows it.
    pub fn push(&mut self, topic: Topic, from: Option<NodeId>, now: Time) {
        while self.recent.front().is_some_and(|(at, _)| now - *at > RECENT) || self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, topic.clone()));
        for (_, line) in self.lines.iter_mut().filter(|(node, _)| Some(**node) != from) {
            line.push(topic.clone());
        }
    }

    /// The next that a partner is to be told.
    pub fn peek(&self, partner: NodeId) -> Option<&Topic> {
        self.lines.get(&partner)?.waiting.front()
    }

    /// It has been told.
    pub fn pop(&mut self, partner: NodeId) {
        if let Some(line) = self.lines.get_mut(&partner)
            && let Some(topic) = line.waiting.pop_front()
        {
            line.queued.remove(&topic);
            if line.waiting.is_empty() {
                // A room that is switched on makes much news, and hardly any afterwards.
                line.waiting = VecDeque::new();
            }
        }
    }

    /// True if nobody is to be told anything.
    pub fn is_told(&self) -> bool {
        self.lines.values().all(|line| line.waiting.is_empty())
    }

    /// The partners.
    pub fn partners(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.lines.keys().copied()
    }

    /// True if this is a partner.
    pub fn is_partner(&self, node: NodeId) -> bool {
        self.lines.contains_key(&node)
    }
}

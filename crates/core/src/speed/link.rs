//! What a node says of its link, and the classes of a room that follow from it.

use super::{DIFFER, Speed};

/// What a node says of its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// What it carries, as the node measured it.
    pub measured: Speed,
    /// What the machine's network card says. The network behind it may carry less.
    pub card: Speed,
    /// What an operator lets its way out carry. Not known, it is taken to be as fast as the way in.
    pub out: Speed,
}

impl Link {
    /// What it takes in, as far as anything is known. A measurement is rough, and no link is faster
    /// than its card.
    pub const fn speed(self) -> Speed {
        match (self.measured, self.card) {
            (Speed(0), card) => card,
            (measured, Speed(0)) => measured,
            (measured, card) if measured.0 < card.0 => measured,
            (_, card) => card,
        }
    }

    /// What it passes on: no more than it takes in.
    pub const fn passes_on(self) -> Speed {
        match (self.speed(), self.out) {
            (speed, Speed(0)) => speed,
            (Speed(0), out) => out,
            (speed, out) if speed.0 < out.0 => speed,
            (_, out) => out,
        }
    }

    /// The slowest speed of the class in which this link is the fastest.
    fn least_of_class(self) -> Speed {
        let (Speed(speed), Speed(card)) = (self.passes_on(), self.card);
        let is_exact = card != 0 && card - speed < DIFFER;
        let (fastest, steps) = if is_exact { (card, CLASS_STEPS_BELOW_CARD) } else { (speed, CLASS_STEPS) };
        Speed(fastest.saturating_sub(steps).max(1))
    }

    /// The same of both.
    pub fn map(self, change: impl Fn(Speed) -> Speed) -> Self {
        Self { measured: change(self.measured), card: change(self.card), out: change(self.out) }
    }
}

/// Place of a node in the order of a chain, by what it passes on: 0 for the fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Class {
    /// The number of bits that are used.
    pub const BITS: u32 = 5;
    const MAX: u8 = (1 << Self::BITS) - 1;
}

/// Steps by which nodes of one class differ at most: 2.8 times. More than [`DIFFER`], since what a
/// node announces may be off by so much: with 1.5 times, rooms of equal machines that were short of
/// processors fell into classes and took 1.4 times as long.
const CLASS_STEPS: u8 = 12;
/// The same where a card says how fast the fastest is, which no burst makes faster: 2.2 times. So
/// cards of 1 and of 2.5 Gbit/s differ, and so does a link of a quarter that is measured half too
/// high.
const CLASS_STEPS_BELOW_CARD: u8 = 9;
const _: () =
    assert!(CLASS_STEPS > CLASS_STEPS_BELOW_CARD && CLASS_STEPS_BELOW_CARD > DIFFER, "equal links are one class");

/// The classes of the nodes of a room. All nodes that know the same links have the same classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// The slowest speed of each class, fastest class first.
    least: Vec<Speed>,
}

impl Classes {
    /// The classes of nodes with these links. Each begins with the fastest that is left.
    pub fn of(links: impl Iterator<Item = Link>) -> Self {
        let mut links: Vec<Link> = links.filter(|link| link.passes_on().is_known()).collect();
        links.sort_unstable_by_key(|link| (link.passes_on(), link.card));
        let mut least: Vec<Speed> = Vec::new();
        for link in links.into_iter().rev() {
            if least.last().is_none_or(|least| link.passes_on() < *least) {
                least.push(link.least_of_class());
            }
        }
        Self { least }
    }

    /// True for a leaf: a node that takes in more than it passes on.
    pub fn is_leaf(&self, link: Link) -> bool {
        self.intake(link) < self.class(link)
    }

    /// The class of a node with this link.
    pub fn class(&self, link: Link) -> Class {
        self.of_speed(link.passes_on())
    }

    /// The slowest class from which a node with this link can take as much as it takes in. It is
    /// the node's own one unless its way out is narrower than its way in.
    pub fn intake(&self, link: Link) -> Class {
        self.of_speed(link.speed())
    }

    fn of_speed(&self, speed: Speed) -> Class {
        if !speed.is_known() {
            return Class::default();
        }
        let faster = self.least.partition_point(|least| *least > speed);
        Class(u8::try_from(faster).unwrap_or(u8::MAX).min(Class::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(mbit: u64) -> Speed {
        Speed::of(mbit * 125_000)
    }

    fn measured(mbit: u64) -> Link {
        Link { measured: speed(mbit), ..Link::default() }
    }

    fn card(mbit: u64) -> Link {
        Link { card: speed(mbit), ..Link::default() }
    }

    fn class_of(links: &[Link]) -> Vec<u8> {
        let classes = Classes::of(links.iter().copied());
        links.iter().map(|link| classes.class(*link).0).collect()
    }

    #[test]
    fn equal_links_are_one_class_and_the_others_follow_by_speed() {
        assert_eq!(class_of(&[1000, 750, 94, 70, 88, 10, 9].map(measured)), [0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(class_of(&[Link::default(), measured(94), measured(10)]), [0, 0, 1]);
        assert_eq!(Classes::default().class(measured(5)), Class(0));
    }

    #[test]
    fn a_card_tells_before_anything_is_measured() {
        assert_eq!(class_of(&[card(1000), card(100), Link::default(), card(10)]), [0, 1, 0, 2]);
        // A card of 2.5 Gbit/s is beside those of 1 Gbit/s when its network is as slow as theirs.
        assert_eq!(class_of(&[card(2500), card(1000)]), [0, 1]);
        assert_eq!(class_of(&[Link { measured: speed(940), ..card(2500) }, card(1000)]), [0, 0]);
    }

    #[test]
    fn nothing_is_faster_than_its_card_says() {
        let burst = Link { measured: speed(150), ..card(100) };
        assert_eq!(burst.speed(), speed(100));
        assert_eq!(class_of(&[card(1000), burst, card(100)]), [0, 1, 1]);
    }

    /// A measurement may be half too high: below a measured fastest link a class reaches further.
    #[test]
    fn a_class_below_a_card_is_narrower() {
        assert_eq!(class_of(&[measured(100), measured(40)]), [0, 0]);
        assert_eq!(class_of(&[card(100), measured(40)]), [0, 1]);
        assert_eq!(class_of(&[Link { measured: speed(94), ..card(100) }, measured(40), measured(60)]), [0, 1, 0]);
    }

    #[test]
    fn a_narrow_way_out_counts_for_others_and_not_for_the_node_itself() {
        let narrow = Link { out: speed(10), ..measured(100) };
        let links = [measured(100), narrow, measured(10)];
        assert_eq!(class_of(&links), [0, 1, 1]);
        let classes = Classes::of(links.into_iter());
        assert_eq!(links.map(|link| classes.intake(link).0), [0, 0, 1]);
        // Before anything is measured, only what an operator bounds is known.
        let bound = Link { out: speed(10), ..Link::default() };
        assert_eq!((classes.class(bound), classes.intake(bound)), (Class(1), Class(0)));
        assert_eq!(Link { out: Speed(u8::MAX), ..measured(100) }.passes_on(), speed(100));
    }
}

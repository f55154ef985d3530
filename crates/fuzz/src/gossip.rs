//! Gossip datagrams in the clear.
//!
//! Promises: a parsed datagram is written and parsed again as the same, no longer than before but
//! for numbers in short form; an unbelievable record is not passed on, nor its successors.

use crate::wire::{member, record};
use vfield_core::identity::NodeId;
use vfield_core::membership::message::{self, DATAGRAM_MAX, Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member, State};

/// The input is a datagram.
pub fn target(bytes: &[u8]) {
    let Some((head, items)) = message::parse(bytes) else { return };
    assert_eq!(message::level(bytes), Some(head.level), "both read the same");
    let items: Vec<Item> = items.collect();
    for item in &items {
        assert!(!matches!(item, Item::Record(record) if !record.is_sound()), "{item:?}");
    }
    let mut draft = Draft::new(&head);
    let fitted = items.iter().take_while(|item| draft.add(item)).count();
    let again = draft.finish();
    assert!(again.len() <= DATAGRAM_MAX, "{} bytes", again.len());
    assert!(fitted == items.len() || bytes.len() > DATAGRAM_MAX, "nothing grows");
    let (head_again, items_again) = message::parse(&again).expect("it was just made");
    assert_eq!(head_again, head);
    assert!(items_again.eq(items[..fitted].iter().cloned()));
}

/// A datagram of each purpose.
pub fn seeds() -> Vec<Vec<u8>> {
    let purposes = [
        Purpose::News,
        Purpose::Ping(5),
        Purpose::Ack(5),
        Purpose::Relay(NodeId(3), 5),
        Purpose::PingFor(NodeId(3), 5),
        Purpose::AckFor(NodeId(3), 5),
        Purpose::Vouch(NodeId(3), 5),
        Purpose::Introduce,
    ];
    let datagram = |(number, purpose)| {
        let level = if number == 0 { Level::Backbone } else { Level::Zone };
        let mut draft = Draft::new(&Head { level, from: NodeId(1), life: (1, 2), to: NodeId(2), purpose });
        draft.add(&Item::Member(Member { state: State::Suspect, ..member(4) }));
        draft.add(&Item::Record(record(4)));
        draft.finish()
    };
    purposes.into_iter().enumerate().map(datagram).collect()
}

//! A peer's record of faults.

use super::at;
use std::time::Duration;
use vfield_core::standing::Standing;

/// Refuses an announced chunk so often that the peer's claims are false.
fn refuse_all(standing: &mut Standing, now: u64) {
    assert!((0..31).all(|_| !standing.claimed_falsely(at(now))));
    assert!(standing.claimed_falsely(at(now)));
}

#[test]
fn each_kind_of_fault_has_its_own_bans() {
    let mut standing = Standing::default();
    let lies = [standing.lied(at(0)), standing.lied(at(0))].map(|ban| ban.as_secs());
    let timeouts = [0; 12].map(|_| standing.timed_out(at(0)).as_secs());
    assert_eq!((lies, timeouts), ([60, 120], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]));
    assert!(standing.is_banned(at(299_999)) && standing.has_lied());
    assert!(standing.is_blamed(at(119_999)) && !standing.is_blamed(at(120_000)) && !standing.is_banned(at(300_000)));
}

#[test]
fn the_worst_fault_is_shown() {
    let mut standing = Standing::default();
    assert_eq!((standing.trouble(at(0)), standing.has_lied()), (None, false));
    refuse_all(&mut standing, 0);
    assert_eq!(standing.trouble(at(0)), Some("doubted"));
    standing.timed_out(at(0));
    assert_eq!(standing.trouble(at(0)), Some("dragging"));
    standing.lied(at(0));
    assert_eq!(standing.trouble(at(0)), Some("blamed"));
}

/// A peer with false claims counts again once it has delivered as much, or ten minutes later.
#[test]
fn false_claims_are_made_up_for() {
    let mut standing = Standing::default();
    assert!(standing.counts(at(0)) && standing.is_believed(at(0)));
    refuse_all(&mut standing, 0);
    assert!(!standing.counts(at(0)) && !standing.is_believed(at(999)) && standing.is_believed(at(1000)));
    for _ in 0..31 {
        standing.delivered_as_claimed();
        assert!(!standing.counts(at(2000)));
    }
    standing.delivered_as_claimed();
    assert!(standing.counts(at(2000)));
    refuse_all(&mut standing, 10_000);
    assert!(!standing.is_believed(at(11_999)) && standing.is_believed(at(12_000)), "twice as long");
    assert!(!standing.counts(at(609_999)) && standing.counts(at(610_000)));
    standing.lied(at(700_000));
    assert!(!standing.counts(at(700_000)) && standing.counts(at(760_000)));
}

#[test]
fn while_doubted_nothing_more_is_counted() {
    let mut standing = Standing::default();
    refuse_all(&mut standing, 0);
    assert!((0..100).all(|_| !standing.claimed_falsely(at(999))));
    assert!(standing.claimed_falsely(at(1000)), "it went on all the time");
    // Deliveries and refusals are weighed against each other.
    let mut standing = Standing::default();
    for _ in 0..200 {
        assert!(!standing.claimed_falsely(at(0)));
        standing.delivered_as_claimed();
    }
    assert_eq!(standing.lied(at(0)), Duration::from_secs(60));
}

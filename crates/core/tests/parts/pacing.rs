//! What paces a node: when a peer lags, is late, or stalls, and how much it may be asked for.

use super::at;
use std::time::Duration;
use vfield_core::fetch::ImageNumber;
use vfield_core::identity::NodeId;
use vfield_core::peers::Peers;
use vfield_core::reach::Reach;
use vfield_core::speed::{Shown, Speed, Transit};
use vfield_core::wire::Priority;

const IMAGE: ImageNumber = ImageNumber(0);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const CHUNK: u64 = 64 << 10;
/// The most that is requested at once, over all peers.
const WINDOW: u64 = 64 << 20;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Whole answers of a peer in a row, one in so many milliseconds, each sent at once.
fn answers(peers: &mut Peers, node: NodeId, from: u64, count: u64, every: u64) -> u64 {
    for answer in 0..count {
        let then = from + answer * every;
        peers.asked((node, IMAGE), CHUNK, Priority::ReadAhead, at(then));
        peers.ended((node, IMAGE), CHUNK, Priority::ReadAhead, Some(ms(every)), at(then + every));
        peers.paced(node, CHUNK, at(then), at(then + every));
    }
    from + count * every
}

/// Peers of which A and B have delivered a chunk each 10 ms for two seconds, and are in step.
fn fast() -> (Peers, u64) {
    let mut peers = Peers::new(true);
    for node in [A, B] {
        answers(&mut peers, node, 0, 200, 10);
        peers.in_step(node);
        assert!(!peers.lags(node, at(2000)));
    }
    assert!(peers.is_in_step(A) && peers.may_be_in_step(A, at(2000)));
    (peers, 2000)
}

#[test]
fn a_peer_that_has_become_slow_is_left_for_longer_each_time() {
    let (mut peers, mut now) = fast();
    // A tenth of its rate; two spans of 0.2 s at least, of three answers each.
    let slow = answers(&mut peers, A, now, 3, 100);
    assert!(!peers.lags(A, at(slow)), "one slow span may be a moment");
    now = answers(&mut peers, A, slow, 3, 100);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        assert!(peers.lags(A, at(now)));
        assert!(!peers.lags(A, at(now)), "once");
        assert!(!peers.is_in_step(A) && !peers.may_begin(A, at(now)), "it has begun long ago");
        let pause = peers.backoff_left(A, at(now));
        pauses.push(pause.as_secs());
        let over = now + pause.as_millis() as u64;
        assert!(!peers.may_be_in_step(A, at(over - 1)) && peers.may_be_in_step(A, at(over)));
        // Tried again, it is judged at once.
        now = answers(&mut peers, A, over, 3, 100);
    }
    assert_eq!(pauses, [4, 8, 16, 30, 30]);
    assert!(!peers.lags(C, at(now)), "unknown");
}

/// An origin is in no chain. While it has become slow its chunks come from others, or from it: they
/// do not wait as for one that only begins.
#[test]
fn a_slow_peer_that_never_passed_a_chunk_on_does_not_begin() {
    let mut peers = Peers::new(true);
    let now = answers(&mut peers, A, 0, 200, 10);
    let now = answers(&mut peers, A, now, 6, 100);
    assert!(peers.lags(A, at(now)) && !peers.may_be_in_step(A, at(now)));
    assert!(!peers.may_begin(A, at(now)));
}

#[test]
fn a_peer_that_recovers_is_followed_again() {
    let (mut peers, now) = fast();
    let now = answers(&mut peers, A, now, 6, 100);
    assert!(peers.lags(A, at(now)));
    let now = answers(&mut peers, A, now, 50, 10);
    peers.in_step(A);
    assert!(!peers.lags(A, at(now)) && peers.is_in_step(A) && peers.may_be_in_step(A, at(now)));
}

/// If two peers lag at about the same time, this node's own link is slow.
#[test]
fn two_that_lag_within_half_a_minute_are_no_laggards() {
    for (later, own_fault) in [(29_999, true), (30_000, false)] {
        let (mut peers, now) = fast();
        answers(&mut peers, B, now, 6, 100);
        let now = answers(&mut peers, A, now, 6, 100);
        assert!(peers.lags(A, at(now)));
        assert_eq!(peers.lags(B, at(now + later)), !own_fault, "{later}");
        assert_eq!(peers.is_in_step(B), own_fault);
        // The node then expects its present rate of it.
        let now = answers(&mut peers, B, now + later, 20, 100);
        assert_eq!(peers.lags(B, at(now)), !own_fault);
    }
    // The same peer twice is one peer.
    let (mut peers, now) = fast();
    let now = answers(&mut peers, A, now, 6, 100);
    assert!(peers.lags(A, at(now)));
    let now = answers(&mut peers, A, now + 4000, 3, 100);
    assert!(peers.lags(A, at(now)));
    // The peer that lagged last is the one that counts.
    answers(&mut peers, B, 2000, 6, 100);
    assert!(!peers.lags(B, at(now + 10_000)), "A has lagged 10 s before");
}

/// Refusals to pass chunks on: the first few may mean that the peer only begins.
#[test]
fn a_peer_that_never_passed_a_chunk_on_may_only_begin() {
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 1, Priority::Fill, at(0));
    let mut now = 0;
    let mut begins = Vec::new();
    for _ in 0..12 {
        peers.out_of_step(A, at(now));
        peers.out_of_step(A, at(now));
        begins.push((peers.may_begin(A, at(now)), peers.backoff_left(A, at(now)).as_millis()));
        now += begins.last().map_or(0, |(_, left)| *left as u64);
        assert!(!peers.may_begin(A, at(now)), "its pause is over");
    }
    let pauses: Vec<u128> = begins.iter().map(|(_, left)| *left).collect();
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000, 2000]);
    assert_eq!(begins.iter().filter(|(begins, _)| *begins).count(), 4);
    peers.begin();
    peers.out_of_step(A, at(now));
    assert_eq!(peers.backoff_left(A, at(now + 3)), ms(7), "the room begins anew");
    assert!(peers.may_begin(A, at(now)));
    peers.begin();
    assert!(peers.may_be_in_step(A, at(now)));
    peers.in_step(A);
    peers.out_of_step(A, at(now));
    assert!(!peers.may_begin(A, at(now)) && !peers.is_in_step(A));
    assert_eq!((peers.backoff_left(B, at(now)), peers.may_begin(B, at(now))), (Duration::ZERO, false));
}

#[test]
fn peers_in_step_and_origins_are_counted_on() {
    let mut peers = Peers::new(true);
    for node in [A, B, C] {
        peers.asked((node, IMAGE), 1, Priority::Fill, at(0));
    }
    let first = 128 << 10;
    assert_eq!(
        (peers.passing(IMAGE, &[]), peers.passing(IMAGE, &[A]), peers.passing(IMAGE, &[A, NodeId(9)])),
        (0, first, first)
    );
    peers.in_step(A);
    peers.in_step(B);
    assert_eq!(
        (peers.passing(IMAGE, &[]), peers.passing(IMAGE, &[A]), peers.passing(IMAGE, &[C])),
        (2 * first, 2 * first, 3 * first)
    );
    peers.out_of_step(B, at(1));
    assert_eq!(peers.passing(IMAGE, &[]), first);
}

/// The mean of the delays moves by an eighth, and their deviation by a quarter (RFC 6298).
#[test]
fn patience_is_the_usual_delay_and_four_deviations() {
    let mut peers = Peers::new(true);
    let mut answer = |delay: u64| {
        peers.asked((A, IMAGE), 1, Priority::Demand, at(0));
        peers.ended((A, IMAGE), 1, Priority::Demand, Some(ms(delay)), at(delay));
        peers.of(A).expect("known").patience().as_micros()
    };
    assert_eq!([answer(20), answer(40), answer(40)], [20_000 + 4 * 10_000, 22_500 + 4 * 12_500, 24_688 + 4 * 13_750]);
    // A request without an answer is no delay.
    peers.asked((A, IMAGE), 1, Priority::Demand, at(0));
    peers.ended((A, IMAGE), 1, Priority::Demand, None, at(9000));
    assert_eq!(peers.of(A).expect("known").patience().as_micros(), 24_688 + 4 * 13_750);
}

#[test]
fn an_answer_later_than_all_recent_ones_is_late_alone() {
    let mut peers = Peers::new(true);
    assert!(!peers.is_late_alone(ms(60_000), at(100)), "there is nothing to compare it with");
    peers.asked((A, IMAGE), 1, Priority::Demand, at(0));
    peers.ended((A, IMAGE), 1, Priority::Demand, Some(ms(100)), at(100));
    assert!(!peers.is_late_alone(ms(299), at(150)) && peers.is_late_alone(ms(300), at(150)));
    assert!(peers.is_late_alone(ms(300), at(1199)) && !peers.is_late_alone(ms(300), at(1300)), "not for ever");
}

/// A window moves towards the bytes of 0.4 s.
#[test]
fn windows_grow_by_what_came_and_shrink_by_an_eighth() {
    let window = |bytes: u64, delay: u64, owed: u64, most: u64| {
        let mut peers = Peers::new(true);
        peers.asked((A, IMAGE), bytes, Priority::Demand, at(0));
        peers.delivered((A, IMAGE), bytes, ms(delay), owed, most);
        peers.passing(IMAGE, &[A])
    };
    let first = 128 << 10;
    for (bytes, delay, owed, most, expected) in [
        (CHUNK, 400, first, WINDOW, first),
        (CHUNK, 350, first, WINDOW, first * 400 / 350),
        (CHUNK, 200, first, WINDOW, first + CHUNK),
        (CHUNK, 0, first, WINDOW, first + CHUNK),
        (CHUNK, 420, first, WINDOW, first * 400 / 420),
        (CHUNK, 4000, first, WINDOW, first / 8 * 7),
        (CHUNK, 1, first, 150_000, 150_000),
        (1 << 20, 4000, first, WINDOW, 1 << 20),
        (1 << 20, 1, 1 << 20, 500_000, 1 << 20),
    ] {
        assert_eq!(window(bytes, delay, owed, most), expected, "{bytes} {delay} {owed} {most}");
    }
    let mut peers = Peers::new(true);
    peers.delivered((A, IMAGE), CHUNK, ms(1), CHUNK, WINDOW);
    assert_eq!(peers.passing(IMAGE, &[A]), 0, "of a stranger nothing is kept");
}

/// Requests of a priority have the room that those before them leave.
#[test]
fn urgent_requests_have_room_before_others() {
    let priorities = [Priority::Demand, Priority::ReadAhead, Priority::Fill];
    for (filled, expected) in [
        (Priority::Demand, [false, false, false]),
        (Priority::ReadAhead, [true, false, false]),
        (Priority::Fill, [true, true, false]),
    ] {
        let mut peers = Peers::new(true);
        peers.asked((A, IMAGE), 2 * CHUNK, filled, at(0));
        assert_eq!(priorities.map(|priority| peers.has_room((A, IMAGE), CHUNK, priority)), expected, "{filled:?}");
        assert_eq!(priorities.map(|priority| peers.room((A, IMAGE), priority) > 0), expected);
        assert_eq!((peers.owed((A, IMAGE)), peers.owed((B, IMAGE))), (2 * CHUNK, 0));
        assert!(
            priorities.iter().all(|priority| peers.has_room((B, IMAGE), WINDOW, *priority)),
            "of a stranger nothing is known"
        );
        assert_eq!(peers.room((B, IMAGE), filled), 2 * CHUNK);
        // A stalled peer is asked for what nobody else has.
        peers.stalled(A, at(600));
        assert!(peers.has_room((A, IMAGE), CHUNK, filled));
    }
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), CHUNK, Priority::Demand, at(0));
    assert!(
        peers.has_room((A, IMAGE), CHUNK, Priority::Demand) && !peers.has_room((A, IMAGE), CHUNK + 1, Priority::Demand)
    );
}

/// A slow image of a peer takes no room from another one.
#[test]
fn each_image_of_a_peer_has_a_window_of_its_own() {
    const OTHER: ImageNumber = ImageNumber(1);
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 2 * CHUNK, Priority::Demand, at(0));
    assert!(!peers.has_room((A, IMAGE), CHUNK, Priority::Demand));
    assert!(peers.has_room((A, OTHER), CHUNK, Priority::Fill));
    peers.asked((A, OTHER), CHUNK, Priority::Fill, at(0));
    assert_eq!((peers.owed((A, IMAGE)), peers.owed((A, OTHER))), (2 * CHUNK, CHUNK));
    // Slow answers of the one make its window smaller, and no other.
    for _ in 0..20 {
        peers.delivered((A, IMAGE), CHUNK, ms(4000), CHUNK, WINDOW);
    }
    assert_eq!((peers.passing(IMAGE, &[A]), peers.passing(OTHER, &[A])), (CHUNK, 2 * CHUNK));
    peers.ended((A, OTHER), CHUNK, Priority::Fill, None, at(1));
    assert!(peers.owes(A), "the answers of the other image");
    peers.drop_image(IMAGE);
    assert_eq!((peers.owed((A, IMAGE)), peers.owes(A)), (0, true));
    peers.ended((A, IMAGE), 2 * CHUNK, Priority::Demand, None, at(1));
    assert!(!peers.owes(A));
}

/// Parked demands wait for no batch; other parked chunks do, once the window is nearly full.
#[test]
fn batches_begin_when_the_window_is_full() {
    for (asked, priority, waits) in [
        (CHUNK, Priority::ReadAhead, false),
        (2 * CHUNK - CHUNK / 4, Priority::ReadAhead, false),
        (2 * CHUNK - CHUNK / 4 + 1, Priority::ReadAhead, true),
        (2 * CHUNK, Priority::Fill, true),
        (2 * CHUNK, Priority::Demand, false),
    ] {
        let mut peers = Peers::new(true);
        peers.asked((A, IMAGE), asked, priority, at(0));
        let before = peers.room((A, IMAGE), priority);
        peers.waited_for((A, IMAGE), priority);
        let after = peers.room((A, IMAGE), priority);
        assert_eq!(after, if waits { 0 } else { before }, "{asked} {priority:?}");
        peers.ended((A, IMAGE), asked / 2, priority, None, at(1));
        assert_eq!(peers.has_room((A, IMAGE), 1, priority), !waits, "{asked} {priority:?}");
    }
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 2 * CHUNK - 9, Priority::Demand, at(0));
    peers.set_credit((A, IMAGE), Priority::Demand, Some(5));
    assert!(peers.has_room((A, IMAGE), 9, Priority::Demand), "demands have no batches");
    peers.asked((B, IMAGE), 2 * CHUNK - 9, Priority::Fill, at(0));
    peers.set_credit((B, IMAGE), Priority::Fill, Some(5));
    assert!(peers.has_room((B, IMAGE), 5, Priority::Fill) && !peers.has_room((B, IMAGE), 6, Priority::Fill));
}

/// Nothing whole for so long: two seconds, and two chunks at half a megabit; relays have longer.
#[test]
fn timeouts_follow_from_the_reach_and_the_length() {
    for (reach, bytes, within) in
        [(Reach::HOLDER, CHUNK, 4000), (Reach::HOLDER, CHUNK / 4, 2500), (Reach::GATEWAY, CHUNK, 10_000)]
    {
        let times_out = |age: u64, answered: u64| {
            let mut peers = Peers::new(true);
            peers.asked((A, IMAGE), bytes, Priority::Demand, at(answered));
            peers.times_out(A, reach, bytes, ms(age), at(answered + within))
        };
        assert!(times_out(within, 1000) && times_out(within + 1, 0));
        assert!(!times_out(within - 1, 1000), "the request is younger");
        let mut peers = Peers::new(true);
        peers.asked((A, IMAGE), bytes, Priority::Demand, at(0));
        peers.asked((A, IMAGE), bytes, Priority::Demand, at(0));
        peers.ended((A, IMAGE), bytes, Priority::Demand, Some(ms(1)), at(1));
        assert!(!peers.times_out(A, reach, bytes, ms(within), at(within)));
        assert!(peers.times_out(A, reach, bytes, ms(within + 1), at(within + 1)));
        assert!(!peers.times_out(A, reach, bytes, ms(within + 1), at(within + 1)), "the ban counts once");
    }
    assert!(!Peers::new(true).times_out(A, Reach::HOLDER, 1, ms(60_000), at(60_000)), "never asked");
}

/// A peer that stalled or timed out is given up until it answers, for a minute.
#[test]
fn only_an_answer_ends_giving_a_peer_up() {
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), CHUNK, Priority::Demand, at(0));
    assert!(!peers.is_given_up(A, at(600)) && !peers.is_given_up(B, at(600)));
    assert!(peers.stalled(A, at(600)));
    peers.progressed(A, at(700));
    assert!(peers.is_given_up(A, at(60_599)) && !peers.is_given_up(A, at(60_600)));
    peers.ended((A, IMAGE), CHUNK, Priority::Demand, Some(ms(900)), at(900));
    assert!(!peers.is_given_up(A, at(901)));
    peers.asked((A, IMAGE), CHUNK, Priority::Demand, at(1000));
    assert!(peers.times_out(A, Reach::HOLDER, CHUNK, ms(4000), at(5000)) && peers.is_given_up(A, at(5000)));
    // Still stalled when it is tried again: that is news once more.
    peers.asked((B, IMAGE), CHUNK, Priority::Demand, at(0));
    let news = [600, 1599, 1600, 1601].map(|now| peers.stalled(B, at(now)));
    assert_eq!(news, [true, false, true, false]);
    assert!(!peers.is_usable(B, at(3_599)) && peers.is_usable(B, at(3_600)));
}

/// Of more than three candidates two are drawn, so the best is taken only as often as it is drawn.
#[test]
fn of_many_candidates_two_are_compared() {
    let mut peers = Peers::new(true);
    let all: Vec<NodeId> = (1..=5).map(NodeId).collect();
    for node in &all {
        peers.asked((*node, IMAGE), 1, Priority::Demand, at(0));
        peers.ended((*node, IMAGE), 1, Priority::Demand, Some(ms(if *node == A { 1 } else { 100 })), at(100));
    }
    let taken = |candidates: &[NodeId]| (0..1000).filter(|dice| peers.choose(candidates, dice * 16) == Some(A)).count();
    assert_eq!(taken(&all[..3]), 1000);
    assert!((330..=470).contains(&taken(&all)), "two of five: {}", taken(&all));
    // What a peer owes counts as much as how late it is.
    let mut peers = Peers::new(true);
    for (node, delay, owes) in [(A, 10, 5), (B, 50, 0), (C, 11, 6)] {
        peers.asked((node, IMAGE), 1, Priority::Demand, at(0));
        peers.ended((node, IMAGE), 1, Priority::Demand, Some(ms(delay)), at(delay));
        (0..owes).for_each(|_| peers.asked((node, IMAGE), 1, Priority::Demand, at(100)));
    }
    assert_eq!(peers.choose(&[A, C], 7), Some(A), "six times 10 ms against seven times 11");
    assert_eq!(peers.choose(&[A, B], 7), Some(B), "against once 50");
}

/// A peer is told the speed of its answers when it changes by four steps, or nearly each second.
#[test]
fn speeds_are_told_when_they_are_news() {
    let told = |answers: &[(u64, u8)]| {
        let mut peers = Peers::new(true);
        peers.asked((A, IMAGE), CHUNK, Priority::Demand, at(0));
        let mut answer = |&(now, step): &(u64, u8)| {
            // The bytes of a fifth of a second, a little above the least rate of the step.
            let bytes = Speed(step).bytes_per_s().expect("known") / 5 * 51 / 50;
            let (shown, told) = peers.carried(A, bytes, Transit { took: ms(200), beside: 0 }, at(now));
            assert!(matches!(shown, Some(Shown::Rate(window)) if window.all == Speed(step)));
            told.map(|speed| speed.0)
        };
        answers.iter().map(&mut answer).collect::<Vec<_>>()
    };
    let steps = [(1000, 80), (1200, 80), (1400, 83), (1600, 84), (1800, 80), (2000, 83)];
    assert_eq!(told(&steps), [Some(80), None, None, Some(84), Some(80), None]);
    assert_eq!(told(&[(1000, 80), (1899, 80)]), [Some(80), None]);
    assert_eq!(told(&[(1000, 80), (1900, 80)]), [Some(80), Some(80)]);
    assert_eq!(Peers::new(true).carried(B, CHUNK, Transit::default(), at(1)), (None, None), "a stranger");
}

#[test]
fn departed_peers_are_forgotten_unless_they_owe_or_lied() {
    let mut peers = Peers::new(true);
    for node in [A, B, C] {
        peers.asked((node, IMAGE), CHUNK, Priority::Demand, at(0));
    }
    for node in [A, C] {
        peers.ended((node, IMAGE), CHUNK, Priority::Demand, Some(ms(1)), at(1));
    }
    peers.lied(C, at(1));
    for node in [A, B, C] {
        peers.forget(node);
    }
    assert_eq!([A, B, C].map(|node| peers.of(node).is_some()), [false, true, true]);
}

//! The state of peers, and the choices that follow from it.

use super::at;
use std::time::Duration;
use vfield_core::fetch::ImageNumber;
use vfield_core::identity::NodeId;
use vfield_core::misdeed::Misdeed;
use vfield_core::peers::Peers;
use vfield_core::reach::Reach;
use vfield_core::tuning::STALL;
use vfield_core::wire::Priority;

const IMAGE: ImageNumber = ImageNumber(0);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// How often each candidate is chosen.
fn shares(peers: &Peers, candidates: &[NodeId]) -> Vec<usize> {
    let chosen: Vec<Option<NodeId>> = (0..1000).map(|dice| peers.choose(candidates, dice * 16)).collect();
    candidates.iter().map(|node| chosen.iter().filter(|chosen| **chosen == Some(*node)).count()).collect()
}

#[test]
fn equals_take_turns() {
    let peers = Peers::new(true);
    assert_eq!(peers.choose(&[], 1), None);
    let candidates: Vec<NodeId> = (0..5).map(NodeId).collect();
    let shares = shares(&peers, &candidates);
    assert!(shares.iter().all(|share| *share > 120 && *share < 280), "{shares:?}");
}

#[test]
fn of_two_that_never_answered_the_idle_one_is_asked() {
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 1, Priority::Demand, at(0));
    assert_eq!(shares(&peers, &[A, B]), [0, 1000]);
}

/// Until something comes from it, or membership says that it is back.
#[test]
fn a_peer_whose_link_broke_is_unreached() {
    let mut peers = Peers::new(true);
    assert!(!peers.is_unreached(A));
    peers.broken(A, at(0));
    assert!(peers.is_unreached(A) && !peers.is_usable(A, at(1)));
    assert!(peers.is_unreached(A) && peers.is_usable(A, at(600)), "it may be tried again");
    peers.is_back(A);
    assert!(!peers.is_unreached(A) && peers.is_usable(A, at(1)));
    peers.broken(A, at(1000));
    peers.progressed(A, at(1001));
    assert!(!peers.is_unreached(A));
}

#[test]
fn without_turns_the_first_is_taken() {
    let peers = Peers::new(false);
    assert_eq!(shares(&peers, &[B, A]), [1000, 0]);
}

#[test]
fn the_loaded_and_the_slow_are_asked_less() {
    let mut peers = Peers::new(true);
    for node in [A, B] {
        peers.asked((node, IMAGE), 1, Priority::Demand, at(0));
        peers.ended((node, IMAGE), 1, Priority::Demand, Some(ms(1)), at(1));
    }
    for _ in 0..10 {
        peers.asked((A, IMAGE), 1, Priority::Demand, at(1));
    }
    assert_eq!(shares(&peers, &[A, B]), [0, 1000]);
    for _ in 0..10 {
        peers.ended((A, IMAGE), 1, Priority::Demand, Some(ms(50)), at(50));
    }
    assert_eq!((peers.of(A).map(|peer| peer.outstanding), peers.owed((A, IMAGE))), (Some(0), 0));
    assert_eq!(shares(&peers, &[A, B]), [0, 1000], "it was slow");
}

#[test]
fn patience_follows_the_delay() {
    let mut peers = Peers::new(true);
    for step in 0..50 {
        peers.asked((A, IMAGE), 1, Priority::Demand, at(step * 100));
        peers.ended((A, IMAGE), 1, Priority::Demand, Some(ms(20)), at(step * 100 + 20));
    }
    let patience = peers.of(A).expect("known").patience();
    assert!(patience >= ms(20) && patience < ms(30), "{patience:?}");
}

/// Silence counts from the first request that is owed, and any byte ends it.
#[test]
fn only_debtors_are_silent() {
    let mut peers = Peers::new(true);
    assert_eq!(peers.silent_for(A, at(5000)), Duration::ZERO);
    peers.asked((A, IMAGE), 1, Priority::Demand, at(5000));
    peers.asked((A, IMAGE), 1, Priority::Demand, at(5400));
    assert_eq!(peers.silent_for(A, at(5500)), ms(500));
    peers.progressed(A, at(5600));
    assert_eq!(peers.silent_for(A, at(5700)), ms(100));
    peers.ended((A, IMAGE), 1, Priority::Demand, None, at(5700));
    peers.ended((A, IMAGE), 1, Priority::Demand, None, at(5700));
    assert_eq!(peers.silent_for(A, at(9000)), Duration::ZERO);
}

#[test]
fn silence_is_measured_by_how_late_all_answers_are() {
    let mut peers = Peers::new(true);
    let mut answer = |delay: u64, now: u64| {
        peers.asked((A, IMAGE), 1, Priority::Demand, at(now - delay));
        peers.ended((A, IMAGE), 1, Priority::Demand, Some(ms(delay)), at(now));
        peers.stall(at(now))
    };
    assert_eq!(answer(20, 1000), STALL);
    assert_eq!(answer(3000, 4000), ms(3000));
    assert_eq!(answer(100, 4500), ms(3000));
    assert_eq!(answer(60_000, 70_000), ms(5000), "not for ever");
    assert_eq!(peers.stall(at(70_700)), ms(5000));
    assert_eq!(peers.stall(at(71_300)), STALL, "when nothing comes, the link is not full");
}

#[test]
fn the_stalled_are_asked_again_when_they_deliver_or_after_a_while() {
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 1, Priority::Demand, at(0));
    assert!(peers.stalled(A, at(700)), "news");
    assert!(!peers.stalled(A, at(750)), "no news");
    assert!(!peers.is_usable(A, at(800)));
    assert_eq!(peers.trouble(A, at(800)), Some("stalled"));
    peers.progressed(A, at(900));
    assert!(peers.is_usable(A, at(900)));
    assert_eq!(peers.trouble(A, at(900)), None);

    // It shows as long as it is left alone, then as long as it owes something.
    assert!(peers.stalled(A, at(1_000)), "news");
    assert_eq!(peers.trouble(A, at(2_000)), Some("stalled"), "it owes a chunk");
    peers.ended((A, IMAGE), 1, Priority::Demand, None, at(2_000));
    assert_eq!(peers.trouble(A, at(2_000)), None, "all was called off, and it may be asked again");
    peers.progressed(A, at(2_000));

    // All that it owes may have been called off while it was busy. It is tried again soon, then
    // less and less often.
    let mut now = 3_000;
    for pause in [1_000, 2_000, 4_000, 5_000, 5_000] {
        assert!(peers.stalled(A, at(now)), "news");
        assert!(!peers.is_usable(A, at(now + pause - 1)) && !peers.stalled(A, at(now + pause - 1)));
        assert!(peers.is_usable(A, at(now + pause)));
        now += pause + 700;
    }
    peers.progressed(A, at(now));
    assert!(peers.stalled(A, at(now)) && peers.is_usable(A, at(now + 1_000)));
}

#[test]
fn broken_links_are_tried_again_soon() {
    let mut peers = Peers::new(true);
    peers.broken(A, at(0));
    assert!(!peers.is_usable(A, at(400)));
    assert_eq!(peers.trouble(A, at(400)), Some("unreachable"));
    assert!(peers.is_usable(A, at(500)));
}

/// Each lie costs twice as long as the one before; only time helps, and death is no way out.
#[test]
fn lies_cost_more_each_time() {
    let mut peers = Peers::new(true);
    let mut last = Duration::ZERO;
    for _ in 0..30 {
        let pause = peers.lied(A, at(0));
        assert!(pause >= last && pause <= Duration::from_secs(86_400));
        last = pause;
    }
    assert_eq!(last, Duration::from_secs(86_400));
    peers.progressed(A, at(1));
    peers.forget(A);
    assert!(!peers.is_usable(A, at(1000)));
    assert_eq!(peers.trouble(A, at(1000)), Some("blamed"));
    assert!(peers.is_usable(B, at(1000)));
}

/// Bytes that trickle in, and signs of life, do not make up for answers that never come.
#[test]
fn peers_that_time_out_are_banned_for_longer_each_time() {
    const CHUNK: u64 = 64 << 10;
    let mut peers = Peers::new(true);
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..12 {
        let asked = now;
        peers.asked((A, IMAGE), CHUNK, Priority::Demand, at(asked));
        while !peers.times_out(A, Reach::HOLDER, CHUNK, ms(now - asked), at(now)) {
            now += 50;
            peers.progressed(A, at(now));
            assert!(now - asked < 5000, "it trickles for ever");
        }
        assert_eq!((peers.is_usable(A, at(now)), peers.trouble(A, at(now))), (false, Some("dragging")));
        let aside = now;
        while !peers.is_usable(A, at(now)) {
            now += 500;
        }
        pauses.push(now - aside);
    }
    assert!(pauses.is_sorted() && pauses[0] == 1000 && pauses[11] == 300_000, "{pauses:?}");
    assert_eq!(peers.tally().of(Misdeed::Drags), 12);
    // A peer that answers slowly does not time out; nor does a relaying peer that waits for others.
    peers.asked((B, IMAGE), CHUNK, Priority::Demand, at(0));
    peers.asked((B, IMAGE), CHUNK, Priority::Demand, at(0));
    assert!(!peers.times_out(B, Reach::READER, CHUNK, ms(5000), at(5000)));
    peers.ended((B, IMAGE), CHUNK, Priority::Demand, Some(ms(3500)), at(3500));
    assert!(!peers.times_out(B, Reach::HOLDER, CHUNK, ms(5000), at(5000)));
}

#[test]
fn peers_that_refuse_claimed_chunks_are_believed_less_each_time() {
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 1, Priority::Demand, at(0));
    let until_doubted = |peers: &mut Peers, now: u64| {
        (1..100).find(|_| {
            peers.claimed_falsely(A, at(now));
            !peers.is_believed(A, at(now))
        })
    };
    assert_eq!(until_doubted(&mut peers, 0), Some(32));
    assert_eq!((peers.trouble(A, at(999)), peers.trouble(A, at(1000))), (Some("doubted"), None));
    assert!(peers.is_usable(A, at(0)), "it is asked when there is nobody else");
    assert_eq!(until_doubted(&mut peers, 1000), Some(32));
    assert!(!peers.is_believed(A, at(2999)) && peers.is_believed(A, at(3000)));
    // A peer that now and then has evicted a chunk, or moved its store, delivers in the main.
    for _ in 0..1000 {
        peers.claimed_falsely(A, at(3000));
        peers.delivered_as_claimed(A);
    }
    assert!(peers.is_believed(A, at(3000)) && peers.tally().of(Misdeed::FalseClaims) == 1064);
}

/// Ids are free to choose: the memory of liars is bounded, and keeps those that are still banned.
#[test]
fn memory_of_liars_is_bounded() {
    let mut peers = Peers::new(true);
    peers.lied(A, at(0));
    for id in 100..50_000 {
        peers.lied(NodeId(id), at(id));
    }
    let known = (100..50_000).filter(|id| peers.of(NodeId(*id)).is_some()).count();
    assert!((1000..=4096).contains(&known), "{known}");
    peers.lied(NodeId(99), at(200_000));
    assert!(peers.of(NodeId(99)).is_some(), "there is room again");
}

/// Members come and go for months; of departed ones only lies are remembered.
#[test]
fn departed_peers_are_forgotten() {
    const CHUNK: u64 = 64 << 10;
    let mut peers = Peers::new(true);
    for id in 100..1100 {
        let node = NodeId(id);
        peers.asked((node, IMAGE), CHUNK, Priority::Demand, at(id));
        peers.broken(node, at(id));
        // It dies while it owes something, which is found lost a moment later.
        peers.forget(node);
        peers.ended((node, IMAGE), CHUNK, Priority::Demand, None, at(id));
    }
    peers.asked((A, IMAGE), CHUNK, Priority::Demand, at(2000));
    peers.lied(B, at(2000));
    peers.broken(NodeId(50), at(2000));
    peers.sweep(|node| node == NodeId(50));
    let known: Vec<u64> = (0..1100).filter(|id| peers.of(NodeId(*id)).is_some()).collect();
    assert_eq!(known, [A.0, B.0, 50], "who owes something, who has lied, who is a member");
}

/// A window is what a peer delivers in the time that an answer may take.
#[test]
fn windows_follow_what_is_delivered() {
    const CHUNK: u64 = 64 << 10;
    let mut peers = Peers::new(true);
    let asks = |peers: &mut Peers| {
        let mut asked = 0;
        while peers.has_room((A, IMAGE), CHUNK, Priority::Demand) && asked < 1000 {
            peers.asked((A, IMAGE), CHUNK, Priority::Demand, at(0));
            asked += 1;
        }
        asked
    };
    let first = asks(&mut peers);
    assert_eq!(first, 2, "little is asked of a stranger");
    assert!(peers.has_room((A, IMAGE), CHUNK, Priority::Demand) || !peers.has_room((A, IMAGE), CHUNK, Priority::Fill));
    // It delivers 10 MB a second, however much it owes: 4 MB in 0.4 s.
    for _ in 0..1000 {
        let owed = peers.owed((A, IMAGE));
        peers.ended((A, IMAGE), CHUNK, Priority::Demand, None, at(0));
        peers.delivered((A, IMAGE), CHUNK, Duration::from_micros(owed / 10), owed, 64 << 20);
        asks(&mut peers);
    }
    let owed = peers.owed((A, IMAGE));
    assert!((3_500_000..4_500_000).contains(&owed), "{owed} bytes are asked for");
}

/// Parked chunks are requested an eighth of a full window at a time, and nothing overtakes them.
/// Demand chunks need not wait for that.
#[test]
fn parked_chunks_are_requested_in_batches() {
    const CHUNK: u64 = 1 << 10;
    const WINDOW: u64 = 128 * CHUNK;
    let mut peers = Peers::new(true);
    for _ in 0..128 {
        assert!(peers.has_room((A, IMAGE), CHUNK, Priority::ReadAhead));
        peers.asked((A, IMAGE), CHUNK, Priority::ReadAhead, at(0));
    }
    assert!(!peers.has_room((A, IMAGE), CHUNK, Priority::ReadAhead));
    peers.waited_for((A, IMAGE), Priority::ReadAhead);
    for free in 1..=16 {
        assert_eq!(peers.room((A, IMAGE), Priority::ReadAhead), 0, "{free} chunks are not a batch yet");
        peers.ended((A, IMAGE), CHUNK, Priority::ReadAhead, None, at(1));
        assert!(!peers.has_room((A, IMAGE), CHUNK, Priority::ReadAhead), "what waits comes first");
        assert!(peers.has_room((A, IMAGE), CHUNK, Priority::Demand));
    }
    assert_eq!(peers.room((A, IMAGE), Priority::ReadAhead), WINDOW / 8);
    peers.set_credit((A, IMAGE), Priority::ReadAhead, Some(10 * CHUNK));
    for _ in 0..10 {
        assert!(peers.has_room((A, IMAGE), CHUNK, Priority::ReadAhead));
        peers.asked((A, IMAGE), CHUNK, Priority::ReadAhead, at(2));
    }
    assert!(!peers.has_room((A, IMAGE), CHUNK, Priority::ReadAhead), "more waits, and there is room for six: no batch");
    assert_eq!(peers.room((A, IMAGE), Priority::ReadAhead), 0);
    peers.set_credit((A, IMAGE), Priority::ReadAhead, None);
    assert!(peers.has_room((A, IMAGE), 6 * CHUNK, Priority::ReadAhead), "nothing waits any more");
    assert!(!peers.has_room((A, IMAGE), 7 * CHUNK, Priority::ReadAhead));
}

/// A peer that owes nothing sends no more answers, so nothing may wait for its deliveries.
#[test]
fn peers_that_owe_nothing_are_not_waited_for() {
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 128 << 10, Priority::Fill, at(0));
    peers.waited_for((A, IMAGE), Priority::Fill);
    assert!(!peers.has_room((A, IMAGE), 1, Priority::Fill));
    peers.ended((A, IMAGE), 128 << 10, Priority::Fill, None, at(1));
    assert!(peers.has_room((A, IMAGE), 64 << 20, Priority::Fill));
    assert_eq!(peers.room((A, IMAGE), Priority::Fill), u64::MAX);
}

/// An upstream that passes no chunks on backs off for longer each time, and is forgiven at once.
#[test]
fn an_upstream_out_of_step_backs_off_for_longer_each_time() {
    let mut peers = Peers::new(true);
    peers.asked((A, IMAGE), 1, Priority::Demand, at(0));
    for (time, pause) in [(0, 10), (100, 20), (300, 40)] {
        peers.out_of_step(A, at(time));
        peers.out_of_step(A, at(time + 1));
        assert!(!peers.may_be_in_step(A, at(time + pause - 1)));
        assert!(peers.may_be_in_step(A, at(time + pause)));
    }
    peers.in_step(A);
    assert!(peers.is_in_step(A) && peers.may_be_in_step(A, at(301)));
}

//! The table of fetches: each is in exactly one stage, and every way from one to the next.

use vfield_core::chunk::Chunk;
use vfield_core::fetch::{Beneficiary, Fetch, Fetches, Goal, ImageNumber, RequestId, Stage, Turn, Why};
use vfield_core::identity::NodeId;
use vfield_core::placement::mix;
use vfield_core::reach::Reach;
use vfield_core::time::Time;
use vfield_core::wire::Priority;

const IMAGE: ImageNumber = ImageNumber(0);
const PEER: NodeId = NodeId(7);
const OTHER: NodeId = NodeId(8);

const fn goal(chunk: u64) -> Goal {
    (IMAGE, Chunk(chunk))
}

/// A table with these chunks queued, each read by this machine.
fn queued(chunks: &[u64], priority: Priority) -> Fetches {
    let mut fetches = Fetches::default();
    for chunk in chunks {
        fetches.begin(goal(*chunk), priority, Beneficiary::Store);
        fetches.queue(goal(*chunk));
    }
    fetches
}

/// All that a line has, in its order.
fn line(fetches: &mut Fetches, turn: Turn) -> Vec<u64> {
    std::iter::from_fn(|| fetches.next(turn)).map(|(_, chunk)| chunk.0).collect()
}

fn stage(fetches: &Fetches, chunk: u64) -> Stage {
    fetches.get(goal(chunk)).expect("it is in the table").stage()
}

#[test]
fn a_line_is_first_come_first_served_but_for_what_failed() {
    let mut fetches = queued(&[1, 3, 2], Priority::ReadAhead);
    assert_eq!(fetches.next(Turn::ReadAhead), Some(goal(1)));
    fetches.requested(goal(1), RequestId(1), PEER, None);
    fetches.requested(goal(1), RequestId(2), OTHER, None);
    assert_eq!(fetches.get(goal(1)).unwrap().tried[..], [PEER, OTHER]);
    fetches.failed(goal(1), RequestId(1));
    assert_eq!((stage(&fetches, 1), fetches.get(goal(1)).unwrap().requests()), (Stage::Requested, &[RequestId(2)][..]));
    fetches.failed(goal(1), RequestId(9));
    assert_eq!(stage(&fetches, 1), Stage::Requested, "of an earlier fetch");
    fetches.failed(goal(1), RequestId(2));
    assert_eq!(stage(&fetches, 1), Stage::Queued);
    assert_eq!(line(&mut fetches, Turn::ReadAhead), [1, 3, 2]);
    assert_eq!(line(&mut fetches, Turn::Fill), []);
}

#[test]
fn a_more_urgent_fetch_changes_its_line() {
    let mut fetches = queued(&[1, 2, 3, 4], Priority::Fill);
    fetches.park(goal(2), PEER);
    fetches.requested(goal(3), RequestId(1), PEER, None);
    fetches.await_parent(goal(4));
    let mut urge = |chunk, priority, whom| fetches.urge(goal(chunk), priority, whom);
    let urged = [1, 2, 3, 4].map(|chunk| urge(chunk, Priority::Demand, Beneficiary::Peers));
    assert_eq!(urged, [false, false, false, true], "only a page has to come earlier");
    // A beneficiary that is in no hurry makes nothing less urgent.
    assert!(!urge(1, Priority::Fill, Beneficiary::Store) && !urge(4, Priority::Demand, Beneficiary::Peers));
    assert_eq!([2, 3, 4].map(|chunk| stage(&fetches, chunk)), [Stage::Queued, Stage::Requested, Stage::NeedsParent]);
    assert_eq!(line(&mut fetches, Turn::Fill), []);
    assert_eq!(line(&mut fetches, Turn::Demand), [1, 2]);
    assert!(!fetches.urge(goal(9), Priority::Demand, Beneficiary::Peers), "unknown");
    let mut fetches = queued(&[1], Priority::Demand);
    fetches.urge(goal(1), Priority::Fill, Beneficiary::Reader);
    assert_eq!(fetches.get(goal(1)).unwrap().turn(), Turn::Reader);
    assert_eq!((line(&mut fetches, Turn::Demand), line(&mut fetches, Turn::Reader)), (vec![], vec![1]));
}

#[test]
fn parked_chunks_come_back_in_the_order_of_the_image() {
    let mut fetches = queued(&[5, 3, 4], Priority::ReadAhead);
    while let Some(goal) = fetches.next(Turn::ReadAhead) {
        fetches.park(goal, PEER);
    }
    assert!(!fetches.is_due(goal(4)));
    assert_eq!((fetches.entries(), fetches.parked_for()), ((1, 3), vec![PEER]));
    assert!(fetches.get(goal(4)).unwrap().is_overdue() && !fetches.get(goal(3)).unwrap().is_overdue());
    assert_eq!(fetches.first_parked((PEER, IMAGE), Turn::ReadAhead), Some(goal(3)));
    assert_eq!(
        fetches.first_parked((PEER, IMAGE), Turn::Fill).or(fetches.first_parked((OTHER, IMAGE), Turn::ReadAhead)),
        None
    );
    let back = [3, 4, 5].map(|_| fetches.unpark((PEER, IMAGE), Turn::ReadAhead));
    assert_eq!(back, [Some(goal(3)), None, Some(goal(5))], "4 is in its line already");
    assert_eq!(fetches.unpark((PEER, IMAGE), Turn::ReadAhead), None);
    back.into_iter().flatten().rev().for_each(|goal| fetches.queue_first(goal));
    assert!(fetches.has_parked(PEER) && !fetches.has_parked(OTHER));
    fetches.forget_unparked(PEER);
    assert!(!fetches.has_parked(PEER));
    assert_eq!(fetches.first_astray(), None);
    assert_eq!(line(&mut fetches, Turn::ReadAhead), [3, 5, 4]);
    fetches.requested(goal(4), RequestId(1), OTHER, None);
    assert!(!fetches.get(goal(4)).unwrap().is_overdue(), "it is under way");
    assert!(!fetches.is_due(goal(3)));
    assert!(!fetches.get(goal(3)).unwrap().is_overdue(), "it was not parked any more");
}

/// A peer may ask and cancel all the time, and a reader may come to wait for what a fill wants.
#[test]
fn a_line_has_one_entry_for_each_queued_fetch() {
    let mut fetches = queued(&[1, 2], Priority::Fill);
    for _ in 0..100 {
        assert!(fetches.end(goal(1)).is_some());
        fetches.begin(goal(1), Priority::Fill, Beneficiary::Peers);
        fetches.queue(goal(1));
        fetches.queue_first(goal(2));
    }
    assert!(!fetches.urge(goal(2), Priority::Demand, Beneficiary::Reader));
    assert_eq!(fetches.entries(), (2, 0));
    assert_eq!(fetches.first_astray(), None);
    assert_eq!((line(&mut fetches, Turn::Reader), line(&mut fetches, Turn::Fill)), (vec![2], vec![1]));
    let mut fetches = queued(&[1, 2, 3], Priority::Fill);
    fetches.await_parent(goal(1));
    fetches.wait(goal(2), Why::NoHolder, Time::ZERO);
    assert_eq!(fetches.entries(), (1, 0));
    assert_eq!((fetches.end_all(IMAGE).len(), fetches.entries()), (3, (0, 0)));
}

#[test]
fn the_rank_is_that_of_all_requests_under_way() {
    let mut fetches = queued(&[1], Priority::Demand);
    let rank = |fetches: &Fetches| fetches.get(goal(1)).unwrap().rank;
    fetches.requested(goal(1), RequestId(1), PEER, Some(Reach::GATEWAY));
    fetches.requested(goal(1), RequestId(2), OTHER, Some(Reach::HOLDER));
    assert_eq!(rank(&fetches), Some(Reach::GATEWAY));
    assert_eq!(fetches.supersede(goal(1)).map(|requests| requests.to_vec()), Some(vec![RequestId(1), RequestId(2)]));
    fetches.queue(goal(1));
    fetches.requested(goal(1), RequestId(3), OTHER, Some(Reach::HOLDER));
    assert_eq!(rank(&fetches), Some(Reach::HOLDER));
}

/// Two nodes that wait for each other wait for ever.
#[test]
fn only_askers_with_more_reach_join_a_fetch() {
    let mut fetches = queued(&[1], Priority::Demand);
    let joins = |fetches: &Fetches| {
        [Reach::HOLDER, Reach::GATEWAY, Reach::HOME, Reach::READER]
            .map(|reach| fetches.get(goal(1)).unwrap().may_join(reach))
    };
    assert_eq!(joins(&fetches), [false, true, true, true]);
    fetches.park(goal(1), PEER);
    assert_eq!(joins(&fetches), [false, true, true, true]);
    fetches.queue(goal(1));
    fetches.requested(goal(1), RequestId(1), PEER, Some(Reach::GATEWAY));
    assert_eq!(joins(&fetches), [false, false, true, true]);
    fetches.supersede(goal(1));
    fetches.queue(goal(1));
    fetches.requested(goal(1), RequestId(2), PEER, None);
    assert_eq!(joins(&fetches), [true; 4], "an origin has it for sure");
    fetches.supersede(goal(1));
    fetches.queue(goal(1));
    fetches.wait(goal(1), Why::NoHolder, Time::ZERO);
    assert_eq!(joins(&fetches), [false; 4], "nobody is asked");
}

#[test]
fn the_images_that_wait_for_a_peer_are_found() {
    let mut fetches = Fetches::default();
    let goals = [(0, 1, Priority::Demand), (0, 2, Priority::Fill), (2, 1, Priority::Fill), (2, 5, Priority::Fill)];
    for (image, chunk, priority) in goals {
        let goal = (ImageNumber(image), Chunk(chunk));
        fetches.begin(goal, priority, Beneficiary::Store);
        fetches.queue(goal);
        let turn = fetches.get(goal).expect("it is in the table").turn();
        assert_eq!(fetches.next(turn), Some(goal));
        fetches.park(goal, PEER);
    }
    assert_eq!(fetches.images_parked(PEER), [0, 2].map(ImageNumber));
    assert_eq!(fetches.images_parked(OTHER), []);
}

#[test]
fn setbacks_count_and_a_wait_keeps_its_beginning() {
    let mut fetches = queued(&[1], Priority::Demand);
    let mut before = || {
        fetches.requested(goal(1), RequestId(1), PEER, None);
        let (requests, before) = fetches.pause(goal(1)).expect("it is there");
        assert_eq!((requests.to_vec(), stage(&fetches, 1)), (vec![RequestId(1)], Stage::Paused));
        fetches.queue(goal(1));
        before
    };
    assert_eq!([before(), before(), before()], [0, 1, 2]);
    let second = |seconds| Time::ZERO + std::time::Duration::from_secs(seconds);
    fetches.wait(goal(1), Why::NoHolder, second(3));
    fetches.queue(goal(1));
    fetches.wait(goal(1), Why::Refused, second(5));
    assert_eq!(fetches.get(goal(1)).unwrap().waiting, Some((second(3), Why::Refused)));
    assert_eq!((stage(&fetches, 1), line(&mut fetches, Turn::Demand)), (Stage::Waiting, vec![]));
}

#[test]
fn images_are_apart() {
    let mut fetches = queued(&[1, 2, 3], Priority::Fill);
    let other = (ImageNumber(3), Chunk(2));
    fetches.begin(other, Priority::Fill, Beneficiary::Store);
    fetches.queue(other);
    assert_eq!((fetches.count(IMAGE), fetches.count(ImageNumber(1)), fetches.count(other.0)), (3, 0, 1));
    assert_eq!(fetches.of(IMAGE).map(|(chunk, _)| chunk.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(fetches.back_from(IMAGE, Chunk(1)..Chunk(3)).count(), 2);
    fetches.of_mut(other.0).for_each(|(_, fetch)| fetch.fill = true);
    assert_eq!(fetches.iter().filter(|fetch| fetch.fill).count(), 1);
    fetches.get_mut(goal(1)).unwrap().children.push(Chunk(2));
    assert!(!fetches.has_reader(goal(1)));
    fetches.get_mut(goal(2)).unwrap().waiters.push(vfield_core::fetch::Token(1));
    assert!(fetches.has_reader(goal(1)) && fetches.has_reader(goal(2)) && !fetches.has_reader(goal(3)));
    assert_eq!(fetches.end_all(IMAGE).len(), 3);
    assert_eq!(fetches.next(Turn::Fill), Some(other));
    assert!(fetches.end(other).is_some() && fetches.end(other).is_none());
    assert!(fetches.end((ImageNumber(9), Chunk(0))).is_none() && fetches.iter().next().is_none());
}

#[test]
fn any_way_through_the_stages_leaves_each_fetch_in_one() {
    let priorities = [Priority::Demand, Priority::ReadAhead, Priority::Fill];
    let beneficiaries = [Beneficiary::Peers, Beneficiary::Store, Beneficiary::Reader];
    let (mut fetches, mut seen) = (Fetches::default(), [0; 6]);
    for step in 0..20_000 {
        let dice = |sides: u64, use_: u64| mix(step * 8 + use_) % sides;
        let goal = (ImageNumber(dice(2, 0) as u32), Chunk(dice(6, 1)));
        let peer = NodeId(dice(3, 2));
        let Some((stage, request)) = fetches.get(goal).map(|fetch| (fetch.stage(), fetch.requests().first().copied()))
        else {
            fetches.begin(goal, priorities[dice(3, 3) as usize], beneficiaries[dice(3, 4) as usize]);
            fetches.queue(goal);
            continue;
        };
        seen[match stage {
            Stage::NeedsParent => 0,
            Stage::Queued => 1,
            Stage::Parked(_) => 2,
            Stage::Requested => 3,
            Stage::Paused => 4,
            Stage::Waiting => 5,
        }] += 1;
        match (stage, request, dice(6, 5)) {
            (_, _, 0) => drop(fetches.end(goal)),
            (_, _, 1) => drop(fetches.urge(goal, Priority::Demand, beneficiaries[dice(3, 4) as usize])),
            (Stage::Queued, ..) => match (fetches.get(goal).map(Fetch::turn), dice(3, 6)) {
                (Some(turn), 0) => {
                    let next = fetches.next(turn).expect("one at least is queued");
                    fetches.park(next, peer);
                }
                (Some(turn), 1) => {
                    let next = fetches.next(turn).expect("one at least is queued");
                    fetches.requested(next, RequestId(step), peer, None);
                }
                _ => fetches.wait(goal, Why::NoHolder, Time::ZERO),
            },
            (Stage::Parked(_), _, 2) => drop(fetches.is_due(goal)),
            (Stage::Parked(at), ..) => {
                for turn in Turn::ALL {
                    let back: Vec<Goal> = std::iter::from_fn(|| {
                        fetches.first_parked((at, goal.0), turn)?;
                        Some(fetches.unpark((at, goal.0), turn))
                    })
                    .flatten()
                    .collect();
                    back.into_iter().for_each(|goal| fetches.queue_first(goal));
                }
                fetches.forget_unparked(at);
            }
            (Stage::Requested, Some(request), 2 | 3) => fetches.failed(goal, request),
            (Stage::Requested, _, 4) => drop(fetches.pause(goal)),
            (Stage::Requested, ..) => {
                fetches.supersede(goal);
                fetches.queue(goal);
            }
            (Stage::Paused | Stage::Waiting | Stage::NeedsParent, ..) => fetches.queue(goal),
        }
        assert_eq!(fetches.first_astray(), None, "after step {step}");
    }
    assert!(seen[1..].iter().all(|count| *count > 100), "{seen:?}");
}

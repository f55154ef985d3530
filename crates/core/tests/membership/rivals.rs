//! Two processes with one key: an earlier one is outbid, and of two live ones one yields.

use crate::room::{Room, room};
use crate::signed::keys;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::identity::Identity;
use vfield_core::membership::{Effects, Level, Membership, Rival};

/// Starts another process with the key of a member, at another address, with this generation.
fn twin(room: &mut Room, of: usize, generation: u64) -> usize {
    let at = room.join();
    let addr = SocketAddr::from(([198, 18, 200, at as u8], 4000));
    let me = Identity { addr, generation, ..*room.members[of].me() };
    room.members[at] = Membership::new(Level::Zone, me, keys(me.node), room.now);
    at
}

/// Where most members see the node of both.
fn seen(room: &Room, of: usize, but: &[usize]) -> Vec<SocketAddr> {
    let node = room.members[of].me().node;
    let others = room.members.iter().enumerate().filter(|(at, _)| !but.contains(at) && !room.dead.contains(at));
    others.filter_map(|(_, member)| member.live().get(&node).map(|seen| seen.addr)).collect()
}

/// A process that was killed and starts again at another address is a member at once, also if its
/// clock went back meanwhile.
#[test]
fn a_process_that_starts_again_outbids_the_one_before() {
    for generation in [900, 1012, 5000] {
        let mut room = room(20);
        room.dead.insert(12);
        let again = twin(&mut room, 12, generation);
        room.run(Duration::from_secs(8));
        let here = room.members[again].me().addr;
        assert_eq!(seen(&room, again, &[again]), vec![here; 19], "generation {generation}");
        assert!(!room.members[again].has_left());
        assert!(room.rivals.iter().all(|(_, rival)| !rival.yields), "{:?}", room.rivals);
    }
}

/// Of two that live, one yields within seconds, and the field sees the other from then on.
#[test]
fn of_two_live_processes_one_yields() {
    for generation in [900, 1012, 5000] {
        let mut room = room(20);
        let other = twin(&mut room, 12, generation);
        let both = [12, other];
        room.run(Duration::from_secs(20));
        let left: Vec<usize> = both.into_iter().filter(|at| room.members[*at].has_left()).collect();
        assert_eq!(left.len(), 1, "generation {generation}: {:?}", room.rivals);
        let stays = both[0] + both[1] - left[0];
        let addr = room.members[stays].me().addr;
        assert_eq!(seen(&room, stays, &both), vec![addr; 19], "generation {generation}");
        assert!(room.rivals.contains(&(left[0], Rival { addr, yields: true })), "{:?}", room.rivals);
        // Nothing changes from then on.
        let told = room.rivals.len();
        room.run(Duration::from_secs(20));
        assert_eq!(seen(&room, stays, &both), vec![addr; 19]);
        assert_eq!(room.rivals.len(), told);
    }
}

#[test]
fn who_yields_says_nothing_more() {
    let mut room = room(3);
    room.members[1].vanish();
    assert_eq!(room.members[1].next_wake(), None);
    let Effects { datagrams, .. } = room.members[1].leave(room.now);
    assert!(datagrams.is_empty(), "a farewell in the other's name");
}

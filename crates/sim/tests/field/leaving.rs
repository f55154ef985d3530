//! Departures without any loss, and returns.

use crate::{field_of, filled_field, ms, secs};
use vfield_core::inquiry::Purpose;
use vfield_core::node::Input;
use vfield_sim::field::Field;

#[test]
fn a_leaving_node_hands_over_what_only_it_holds() {
    for (seed, count, capacity) in [(1, 3, 402), (2, 4, 250), (3, 6, 160), (119, 10, 80), (127, 5, 200)] {
        let (mut field, mut nodes) = filled_field(seed, count, capacity);
        field.kill(0, true);
        field.run(secs(5));
        let going = nodes.remove(0);
        field.input(going, Input::Leave);
        field.until("handed over", secs(15), |field| field.machines[going].node.sole_chunks() == 0);
        field.input(going, Input::Gone);
        field.run(ms(200));
        field.kill(going, true);
        assert_eq!(field.bare(0), 0);
        let readers = field.read_all(&nodes, 0);
        field.until_read(&readers, secs(10));
    }
}

/// A goodbye is known to all at once, without probes.
#[test]
fn a_goodbye_is_heard() {
    let (mut field, nodes) = filled_field(4, 4, 300);
    let going = field.machines[nodes[0]].identity;
    field.input(nodes[0], Input::Leave);
    field.input(nodes[0], Input::Gone);
    field.kill(nodes[0], false);
    let others = nodes[1..].to_vec();
    field.until("all know", secs(1), |field| {
        others.iter().all(|&node| field.machines[node].down_notice(going).is_some())
    });
}

/// The same address, another process: it is a new member, and the old one is gone.
#[test]
fn a_node_that_comes_back_at_its_address_is_a_new_one() {
    let (mut field, nodes) = filled_field(5, 3, 300);
    let old = field.machines[nodes[1]].identity;
    field.kill(nodes[1], true);
    let back = field.rejoin(nodes[1], nodes[0], &[(0, 300)]);
    field.until("all know the new one", secs(3), |field| {
        let alive = |host: &&vfield_sim::machine::Machine| host.alive;
        let knows = |host: &vfield_sim::machine::Machine| {
            let members = host.node.members();
            members.iter().filter(|member| member.identity.addr == old.addr).count() == 1
                && members.iter().all(|member| member.identity.node != old.node)
        };
        field.machines.iter().filter(alive).all(knows)
    });
    field.until("filled", secs(10), |field| field.filled(&[back]));
}

/// An origin left or died, and restarts with an empty memory: its former peers call it.
#[test]
fn a_returning_origin_is_found_by_its_former_peers() {
    for (seed, count, capacity, away, politely) in
        [(6, 1, 0, 5, true), (7, 3, 603, 5, true), (8, 1, 100, 900, true), (9, 2, 100, 900, false)]
    {
        let (mut field, nodes) = filled_field(seed, count, capacity);
        if politely {
            field.input(0, Input::Leave);
            field.input(0, Input::Gone);
            field.run(ms(200));
        }
        field.kill(0, true);
        field.run(secs(away));
        assert!(nodes.iter().all(|&node| field.machines[node].node.members().len() == count), "they know that it went");
        let back = field.serve_again(0, &[0]);
        let all = [&nodes[..], &[back]].concat();
        let know = |field: &Field| all.iter().all(|&one| field.machines[one].node.members().len() == count + 1);
        let took = field.until("all know each other", secs(40), know);
        assert!(away > 60 || took < secs(3), "seed {seed}: found after {took:?}");
        if capacity > 0 && capacity < 603 {
            let readers = field.read_all(&nodes, 0);
            field.until_read(&readers, secs(10));
        }
    }
}

/// A node that others cannot connect to holds nothing that counts, and gets no requests; later all
/// of it counts.
#[test]
fn unreachable_holders_do_not_count() {
    let (mut field, nodes) = filled_field(10, 3, 603);
    let counted = |field: &Field, copies| {
        let view = |at: usize| field.machines[at].node.images()[0].coverage.multiplicity_min;
        [0].iter().chain(&nodes).all(|&at| view(at) == copies)
    };
    assert!(counted(&field, 3));
    for &node in &nodes {
        field.input(node, Input::Reachable(false));
    }
    field.until("nothing counts", secs(3), |field| counted(field, 0));
    assert!(field.machines[0].node.sole_chunks() > 0, "the origin may not leave");
    let late = field.join(0, &[(0, 0)]);
    let sent = |field: &Field| nodes.iter().map(|&node| field.machines[node].sent_of(0)).sum::<u64>();
    let before = sent(&field);
    let readers = field.read_all(&[late], 0);
    field.until_read(&readers, secs(10));
    assert_eq!(sent(&field), before, "nobody asked those");
    for &node in &nodes {
        field.input(node, Input::Reachable(true));
    }
    field.until("all of it counts", secs(3), |field| counted(field, 3));
    field.input(0, Input::Inquire { times: 1, purpose: Purpose::Wait });
    field.until("the origin may leave", secs(3), |field| field.machines[0].node.sole_chunks() == 0);
}

/// A node that is drained gets no request while others can serve, also of readers that come later;
/// it goes on reading. Taken back, it serves as before.
#[test]
fn a_drained_node_is_asked_last() {
    for (seed, count, capacity) in [(11, 4, 603), (12, 9, 300), (13, 12, 603)] {
        let (mut field, nodes) = filled_field(seed, count, capacity);
        let drained = nodes[1];
        field.input(drained, Input::Drain(true));
        let hears = |field: &Field, state: &str| {
            let id = field.machines[drained].identity.node;
            let knows = |node: &usize| {
                let members = field.machines[*node].node.members();
                members.iter().any(|member| member.identity.node == id && member.state == state)
            };
            nodes.iter().filter(|node| **node != drained).all(&knows) && knows(&0)
        };
        field.until("all know", secs(3), |field| hears(field, "leaving"));
        let before = field.machines[drained].sent_of(0);
        let late = field.join(0, &[(0, 0)]);
        field.run(secs(1));
        let readers = field.read_all(&[&nodes[..], &[late]].concat(), 0);
        field.until_read(&readers, secs(20));
        assert_eq!(field.machines[drained].sent_of(0), before, "seed {seed}: it was asked");
        field.input(drained, Input::Drain(false));
        field.until("all know that it stays", secs(3), |field| hears(field, "alive"));
    }
}

/// What only it holds is fetched from it, and it gives up nothing before others have it.
#[test]
fn a_drained_node_hands_over_and_may_go() {
    for (seed, count, capacity) in [(14, 4, 402), (15, 9, 160)] {
        let (mut field, mut nodes) = filled_field(seed, count, capacity);
        field.kill(0, true);
        field.run(secs(5));
        let going = nodes.remove(0);
        field.input(going, Input::Drain(true));
        let readers = field.read_all(&nodes, 0);
        field.until("handed over", secs(30), |field| field.machines[going].node.sole_chunks() == 0);
        field.until_read(&readers, secs(20));
        field.kill(going, true);
        assert_eq!(field.bare(0), 0);
        let readers = field.read_all(&nodes, 0);
        field.until_read(&readers, secs(10));
    }
}

/// A store that was not full when its node was drained fetches no more, and goes on when that is
/// taken back.
#[test]
fn a_drained_store_fills_no_further() {
    let (mut field, nodes) = field_of(16, 3, 603);
    let going = nodes[1];
    let stored = |field: &Field| field.machines[going].node.images()[0].stored;
    field.until("some of it is there", secs(10), |field| stored(field) > 20);
    field.input(going, Input::Drain(true));
    // Chunks that were asked for come.
    field.run(secs(1));
    let then = stored(&field);
    assert!(then < 603, "the test has to be earlier");
    field.until("the others are full", secs(30), |field| field.filled(&[nodes[0], nodes[2]]));
    field.run(secs(1));
    assert_eq!(stored(&field), then);
    field.input(going, Input::Drain(false));
    field.until("it is full", secs(20), |field| field.filled(&[going]));
}

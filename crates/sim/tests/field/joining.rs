//! Joins through any member, stores that fill, coverage.

use crate::{field_of, filled_field, ms, one_image, secs};
use vfield_core::inquiry::Purpose;
use vfield_core::node::Input;
use vfield_sim::checks::Checks;
use vfield_sim::field::{Arrival, Field};
use vfield_sim::machine::Machine;
use vfield_sim::original::Original;

/// Each machine joins through the one before it; all learn of all, though a fifth of the gossip is
/// lost.
#[test]
fn joining_through_any_member_leads_to_all() {
    let mut field = one_image(1);
    field.links.loss_percent = 20;
    for via in 0..9 {
        field.join(via, &[(0, 100)]);
        field.run(ms(50));
    }
    field.until("all know all", secs(5), |field| field.machines.iter().all(|host| host.node.members().len() == 10));
    let images = |field: &Field| {
        field.machines.iter().all(|host| host.node.images()[0].origins + u64::from(host.node.images()[0].origin) == 1)
    };
    field.until("all know the origin", secs(5), images);
}

/// Of a crowd each newcomer is told of 128 members, and they tell each other the rest.
#[test]
fn a_crowd_knows_itself_soon() {
    let mut field = one_image(1);
    field.checks = Checks::rare();
    for _ in 0..200 {
        let arrival = Arrival { via: Some(0), origin: false, images: vec![(0, 10)], reads: None };
        field.arrive(ms(0), arrival);
    }
    let known = |host: &Machine| host.node.members().len();
    field.until("all have joined", secs(1), |field| field.waiting_to_join() == 0);
    assert!(field.machines.iter().any(|host| known(host) < 200), "nobody was told of a part");
    field.until("all know all", secs(3), |field| field.machines.iter().all(|host| known(host) == 201));
}

#[test]
fn fills_complete_and_coverage_is_announced() {
    let (mut field, nodes) = field_of(2, 4, 240);
    field.until("stores filled", secs(10), |field| field.filled(&nodes));
    field.until("coverage known", secs(2), |field| field.covered(&nodes));
    // While nobody asks, an origin takes its time.
    field.input(0, Input::Inquire { times: 1, purpose: Purpose::Wait });
    field.run(ms(300));
    assert_eq!(field.bare(0), 0);
    let id = field.images[0].id;
    let told = |host: &Machine| host.coverage_notice(id, true).is_some();
    assert!(told(&field.machines[0]), "the origin does not know that it may leave");
    field.verified(&nodes);
    field.run(ms(300));
    assert!(field.verified(&nodes) && field.machines.iter().all(told), "nobody was told that the origin may leave");
    for &node in &nodes {
        let view = &field.machines[node].node.images()[0];
        assert_eq!((view.stored, view.capacity), (240, 240));
        assert_eq!(view.coverage.share, 1.0);
    }
    assert_eq!(field.machines[0].node.sole_chunks(), 0, "the origin may leave");
}

/// Nodes never believe in more coverage than there is.
#[test]
fn coverage_is_never_claimed_too_early() {
    let (mut field, nodes) = field_of(3, 5, 150);
    for _ in 0..400 {
        field.run(ms(10));
        assert!(!field.covered(&nodes[..1]) || field.bare(0) == 0, "covered, they say\n{}", field.describe());
    }
    assert!(field.covered(&nodes));
}

/// A fill costs the origin each chunk about once, however many copies the stores are to have.
#[test]
fn fills_load_the_origin_once() {
    let (field, nodes) = filled_field(4, 6, 603);
    assert!(field.filled(&nodes));
    let sent = field.machines[0].sent_of(0);
    assert!(sent <= 603 * 11 / 10, "the origin sent {sent} chunks of 603");
}

/// A sparse image: zeros are neither sent nor stored, and pages over zeros neither.
#[test]
fn holes_cost_nothing() {
    let image = Original::sparse(1, 5000, &[100..200, 4000..4050]);
    let populated = image.populated();
    assert!(populated < 200);
    let mut field = Field::new(5, vec![image]);
    field.origin(None, &[0]);
    let nodes = [field.join(0, &[(0, 5100)]), field.join(0, &[(0, 5100)])];
    field.until("stores filled", secs(10), |field| field.filled(&nodes));
    for node in nodes {
        assert_eq!(field.machines[node].node.images()[0].stored, populated);
    }
    let readers = field.read_all(&nodes, 0);
    field.until_read(&readers, secs(5));
    assert!(field.machines[0].sent_of(0) <= populated * 12 / 10);
}

/// One zero chunk in an image does not leave stores half empty: two of 60 % hold all of it.
#[test]
fn a_few_zeros_leave_no_store_half_empty() {
    let image = Original::sparse(1, 200, &[0..150, 151..200]);
    let capacity = image.populated() * 6 / 10;
    let mut field = Field::new(7, vec![image]);
    field.origin(None, &[0]);
    let nodes = [field.join(0, &[(0, capacity)]), field.join(0, &[(0, capacity)])];
    field.until("stores filled", secs(10), |field| field.filled(&nodes));
    for node in nodes {
        let stored = field.machines[node].node.images()[0].stored;
        assert!(stored * 10 >= capacity * 9, "{stored} of {capacity} chunks held");
    }
    field.until("together they hold all of it", secs(20), |field| field.covered(&nodes));
}

/// Two images on different nodes, one node with both.
#[test]
fn images_do_not_mix() {
    let mut field = Field::new(6, vec![Original::dense(1, 300), Original::dense(2, 200)]);
    let first = field.origin(None, &[0]);
    let second = field.origin(Some(first), &[1]);
    let both = field.join(first, &[(0, 303), (1, 203)]);
    let one = field.join(second, &[(0, 303)]);
    let other = field.join(both, &[(1, 203)]);
    let nodes = [both, one, other];
    let readers = [field.read(both, 1, 0..200), field.read(one, 0, 0..300), field.read(other, 1, 0..200)];
    field.until_read(&readers, secs(5));
    field.until("stores filled", secs(10), |field| field.filled(&nodes));
    field.until("covered", secs(3), |field| field.covered(&nodes));
    assert_eq!(field.machines[one].node.images().len(), 1);
    assert_eq!(field.machines[second].sent_of(0), 0);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let (mut field, nodes) = field_of(seed, 4, 200);
        field.links.loss_percent = 10;
        let readers = field.read_all(&nodes, 0);
        field.until_read(&readers, secs(20));
        field.kill(nodes[1], true);
        field.run(secs(3));
        field.trace()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

//! Malicious members: each attack, beside all other faults, and checkers that can fail.

use std::time::Duration;
use vfield_core::membership::Member;
use vfield_core::node::Input;

use vfield_core::signing::Simulated;
use vfield_core::snapshot::Snapshot;
use vfield_sim::checks::{self, Pairs, Violation};
use vfield_sim::faults::Fault;
use vfield_sim::field::Field;
use vfield_sim::machine;
use vfield_sim::malicious::{Attack, Plan};
use vfield_sim::original::Original;
use vfield_sim::scenario::chaos::{Chaos, Malicious};
use vfield_sim::trial;

/// Seeds of each attack. More of them are for `scripts/seeds` and searches by hand.
const SEEDS: [u64; 1] = [3];

/// Seeds that once failed with an attack, each with its finding.
const FAILED: [(Attack, u64, &str); 5] = [
    (
        Attack::Boasts,
        101,
        "a zone was asked for ever because of a false origin in it, and others that had the chunk never",
    ),
    (Attack::Headers, 101, "the same"),
    (Attack::Versions, 101, "the same"),
    (Attack::Silence, 51, "a machine whose zone's gateways were all silent got nothing"),
    (Attack::Boasts, 12, "a store that evaded spot checks was asked without a pause, until the links were full"),
];

#[test]
fn attacks_that_once_succeeded_do_not_succeed() {
    for (attack, seed, once) in FAILED {
        let found = trial::run(&Chaos::drawn_from(seed, Malicious::Only(attack))).violation;
        let found = found.map(|violation| violation.to_string());
        let attack = attack.name();
        let end = seed + 1;
        assert_eq!(
            found, None,
            "which failed before ({once}): cargo sim -- chaos --attack {attack} --seeds {seed}..{end}"
        );
    }
}

#[test]
fn no_attack_breaks_a_promise() {
    for &attack in Attack::all() {
        for seed in SEEDS {
            let chaos = Chaos::drawn_from(seed, Malicious::Only(attack));
            assert!(chaos.has_malice());
            let found = trial::run(&chaos).violation.map(|violation| violation.to_string());
            let option = chaos.malicious.option();
            assert_eq!(found, None, "cargo sim -- chaos --seeds {seed}..{}{option}", seed + 1);
        }
    }
}

/// Malicious members are drawn apart: all else of a seed is as it is without them.
#[test]
fn malicious_members_change_nothing_else_of_a_seed() {
    let mut with = 0;
    for seed in 0..40 {
        let (honest, drawn) = (Chaos::drawn_from(seed, Malicious::None), Chaos::drawn_from(seed, Malicious::Drawn));
        let others = |chaos: &Chaos| {
            let mut faults = chaos.in_words().faults;
            faults.retain(|fault| !fault.contains("Turn("));
            faults
        };
        with += u32::from(drawn.has_malice());
        assert_eq!(drawn.in_words().field, honest.in_words().field);
        assert!(others(&honest).iter().all(|fault| others(&drawn).contains(fault)), "seed {seed}");
        let turned = drawn.faults.iter().filter(|planned| matches!(planned.fault, Fault::Turn(..))).count();
        assert!(turned <= (drawn.starts.len() + 1) / 3, "seed {seed}: {turned}");
        if !drawn.has_malice() && seed < 4 {
            assert_eq!(trial::run(&drawn).trace, trial::run(&honest).trace);
        }
    }
    assert!((5..25).contains(&with), "{with} of 40 seeds have malicious members");
}

#[test]
fn a_seed_with_malicious_members_is_repeated_to_the_byte() {
    for attack in [Attack::Contests, Attack::Boasts] {
        let chaos = Chaos::drawn_from(9, Malicious::Only(attack));
        let runs = [(); 2].map(|()| trial::run(&chaos));
        assert_eq!((runs[0].steps, &runs[0].trace), (runs[1].steps, &runs[1].trace), "{attack:?}");
    }
}

/// An origin, and nodes that hold all, so every one of them knows the others and the image.
fn room(count: usize) -> (Field, Vec<usize>) {
    let mut field = Field::new(7, vec![Original::dense(1, 100)]);
    field.checks.blame = true;
    field.strict = false;
    field.origin(None, &[0]);
    let nodes: Vec<usize> = (0..count).map(|_| field.join(0, &[(0, 103)])).collect();
    field.until("filled", Duration::from_secs(20), |field| field.filled(&nodes));
    field.run(Duration::from_secs(2));
    (field, nodes)
}

fn turn(field: &mut Field, machine: usize, attack: Attack) {
    field.turn(machine, &Plan { attack, every: Duration::from_millis(100), seed: 1 });
}

/// Looks at all pairs for this long, as a trial does; `spoil` does something each time.
fn look(field: &mut Field, time: Duration, mut spoil: impl FnMut(&mut Field)) -> Option<Violation> {
    let (end, mut pairs) = (field.now() + time, Pairs::default());
    while field.now() < end {
        spoil(field);
        field.run(Duration::from_millis(250));
        if let Err(violation) = pairs.look(field) {
            return Some(violation);
        }
    }
    None
}

fn learn(field: &mut Field, machine: usize, from: usize, members: Vec<Member>) {
    let from = field.machines[from].identity.node;
    let snapshot = Snapshot { members, ..Snapshot::default() };
    field.input(machine, Input::Learned { from, snapshot });
}

#[test]
fn an_honest_room_with_a_rumour_monger_is_well() {
    let (mut field, nodes) = room(4);
    turn(&mut field, nodes[0], Attack::Rumours);
    assert_eq!(look(&mut field, Duration::from_secs(40), |_| {}), None);
}

/// A core that believes a farewell which its member never said: here somebody has that one's key.
#[test]
fn an_expelled_machine_is_found() {
    let (mut field, nodes) = room(4);
    let [victim, at] = [nodes[1], nodes[2]];
    let found = look(&mut field, Duration::from_secs(60), |field| {
        let said = *field.machines[victim].node.myself();
        let by = Simulated(said.identity.node);
        let left = Member::signed(said.identity, said.incarnation, true, &by);
        learn(field, at, nodes[0], vec![left]);
    });
    assert_eq!(found.map(|found| found.checker), Some("expelled"));
}

/// All others believe an address that is not the machine's, as the checker is told.
#[test]
fn an_impersonated_machine_is_found() {
    let (mut field, nodes) = room(4);
    field.machines[nodes[1]].identity.addr.set_port(1);
    let found = look(&mut field, Duration::from_secs(60), |_| {});
    assert_eq!(found.map(|found| found.checker), Some("impersonated"));
}

/// Refusals of announced chunks, without any fault that would excuse them.
#[test]
fn a_framed_machine_is_found() {
    let (mut field, nodes) = room(3);
    let (boaster, reader) = (nodes[0], field.join(0, &[(0, 0)]));
    field.run(Duration::from_secs(2));
    // The shell refuses what the core announces; the fault is kept from the checker.
    let found = look(&mut field, Duration::from_secs(60), |field| {
        field.set_fault(boaster, machine::Fault::Boasting);
        field.read(reader, 0, 0..100);
        field.run(Duration::from_millis(200));
        field.set_fault(boaster, machine::Fault::None);
        field.machines[boaster].had_fault = false;
    });
    assert_eq!(found.map(|found| found.checker), Some("framed"));
}

#[test]
fn an_innocent_that_is_blamed_is_found() {
    let (mut field, nodes) = room(3);
    let innocent = field.machines[nodes[1]].identity.node;
    field.input(nodes[2], Input::Misbehaved(innocent));
    assert_eq!(field.violation.take().map(|found| found.checker), Some("blame"));
    turn(&mut field, nodes[1], Attack::Garbage);
    field.input(nodes[2], Input::Misbehaved(innocent));
    assert_eq!(field.violation, None, "a malicious member may be blamed");
}

/// A node that dials every named one: its machine counts more dials than it may make.
#[test]
fn a_bound_that_is_exceeded_is_found() {
    let (mut field, nodes) = room(3);
    field.checks.every = 1;
    field.machines[nodes[1]].abroad.dials = 100;
    field.run(Duration::from_secs(30));
    assert_eq!(field.violation.map(|found| found.checker), Some("bounds"));
}

/// A member claims all and holds nothing, and there is no other store. The claims say that the
/// image is covered, and the checker sees that it is not. What nodes verified does not say so.
#[test]
fn coverage_that_is_only_claimed_is_found() {
    let words = |seed| {
        let mut field = Field::new(7, vec![Original::dense(1, 100)]);
        field.origin(None, &[0]);
        let nodes: Vec<usize> = (0..3).map(|_| field.join(0, &[(0, 10)])).collect();
        field.run(Duration::from_secs(5));
        assert_eq!(checks::covered_as_claimed(&field), Ok(()));
        field.turn(nodes[0], &Plan { attack: Attack::Boasts, every: Duration::from_millis(100), seed });
        field.run(Duration::from_secs(10));
        field.verified(&nodes[1..]);
        field.run(Duration::from_secs(2));
        assert_eq!(checks::converged(&field), None, "what was verified is true");
        checks::covered_as_claimed(&field)
    };
    // Some claim to be origins instead.
    let found: Vec<_> = (0..4).filter_map(|seed| words(seed).err()).collect();
    assert!(found.iter().all(|(_, what)| what.contains("believes that all is covered")));
    assert!((1..4).contains(&found.len()), "{found:?}");
}

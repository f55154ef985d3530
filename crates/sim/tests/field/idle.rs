//! An idle field: the state of its cores does not grow.

use crate::secs;
use vfield_sim::field::Field;
use vfield_sim::original::Original;

#[test]
fn timers_stay_few_while_nodes_come_and_go() {
    let mut field = Field::new(1, vec![Original::usual(1, 64)]);
    field.links.zone_size = 4;
    field.origin(None, &[0]);
    let nodes: Vec<usize> = (0..7).map(|_| field.join(0, &[(0, 32)])).collect();
    field.run(secs(60));
    let timers = |field: &Field| nodes.iter().map(|node| field.machines[*node].node.load().timers).max();
    let before = timers(&field);
    for _ in 0..100 {
        let guest = field.join(0, &[(0, 0)]);
        field.run(secs(2));
        field.kill(guest, true);
        field.run(secs(4));
    }
    field.run(secs(60));
    assert!(timers(&field) <= before.map(|before| before + 2), "{before:?} timers became {:?}", timers(&field));
}

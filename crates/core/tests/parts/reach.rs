//! The scale of all requests.

use vfield_core::placement::chain::Distance;
use vfield_core::reach::Reach;

const FIRST_OUTSIDE: Reach = Reach(1);
const LAST_OUTSIDE: Reach = Reach((1 << 63) - 1);

#[test]
fn distances_have_their_part_of_the_scale() {
    assert_eq!(
        [0, 1, 41, u64::MAX].map(|far| Reach::outside(Distance(far))),
        [FIRST_OUTSIDE, Reach(2), Reach(42), LAST_OUTSIDE]
    );
    let inside = [0, 1, 41, u64::MAX].map(|far| Reach::in_zone(Distance(far)));
    assert_eq!(
        inside,
        [1, 2, 42].map(|far| Reach((1 << 63) + far)).into_iter().chain([Reach::CHAIN_MAX]).collect::<Vec<_>>()[..]
    );
}

#[test]
fn each_part_of_the_scale_is_told_from_the_others() {
    let chain = Reach::in_zone(Distance(0));
    // Relay, gateway, chain, outside.
    for (reach, is) in [
        (Reach::HOLDER, [false, false, false, false]),
        (FIRST_OUTSIDE, [false, false, true, true]),
        (LAST_OUTSIDE, [false, false, true, true]),
        (Reach::GATEWAY, [false, true, true, false]),
        (chain, [false, false, true, false]),
        (Reach::CHAIN_MAX, [false, false, true, false]),
        (Reach::HOME, [true, false, false, false]),
        (Reach::READER, [true, false, false, false]),
    ] {
        assert_eq!([reach.is_relay(), reach.is_gateway(), reach.is_chain(), reach.is_outside()], is, "{reach:?}");
    }
    assert_eq!([Reach(0), Reach(1), Reach::READER].map(Reach::less), [Reach(0), Reach(0), Reach::HOME]);
}

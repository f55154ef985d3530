//! What a node measures of its link: it tells its peers, says it of itself, and has it checked.

use crate::company::{Asked, Company, DATA, STEP, Says};
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::node::Output;
use vfield_core::speed::Speed;

const FAST: Speed = Speed(90);
/// A chunk comes within a quarter of a second.
const TOOK: Duration = Duration::from_millis(250);
const RATE: u64 = 4 * ChunkSize::MIN.bytes();

/// Which peers were told a speed since somebody last looked.
fn told(company: &mut Company) -> Vec<(u64, Speed)> {
    let of = |output| if let Output::TellSpeed(node, speed) = output { Some((node.0, speed)) } else { None };
    std::mem::take(&mut company.others).into_iter().filter_map(of).collect()
}

/// Two chunks that are far apart are read one after the other. Returns the requests that follow.
fn reads_two(company: &mut Company) -> Vec<Asked> {
    let first = company.read(0)[0];
    company.after(TOOK);
    company.arrives(first, TOOK);
    assert_eq!(company.node.measured_bytes_per_s(), None, "the other's link may be the slow one");
    let second = company.read(40)[0];
    assert_ne!(first.peer, second.peer);
    company.after(TOOK);
    company.arrives(second, TOOK)
}

#[test]
fn the_rate_of_busy_links_is_told_and_announced() {
    let mut company = Company::settled(&[Says::store(3), Says::store(4)]);
    assert_eq!(reads_two(&mut company), []);
    assert_eq!(told(&mut company), [(3, Speed::of(RATE)), (4, Speed::of(RATE))]);
    assert_eq!(company.node.measured_bytes_per_s().map(Speed::of), Some(Speed::of(RATE)));
}

/// Both partners may have been slow. What it has in common with a faster one is the page. Others
/// that say nothing of their speed may be no faster.
#[test]
fn a_node_that_is_taken_for_slow_asks_a_faster_one() {
    let silent = (4..20).map(Says::store);
    let mut company = Company::settled(&[Says::store(3).at(FAST)].into_iter().chain(silent).collect::<Vec<_>>());
    let probe = reads_two(&mut company);
    assert!(!probe.is_empty() && probe.iter().all(|asked| asked.peer == 3), "{probe:?}");
    assert!(probe.iter().all(|asked| asked.chunk.0 >= DATA && asked.chunk == probe[0].chunk), "{probe:?}");
    told(&mut company);
    // Both links carry more than this node had measured.
    for asked in &probe {
        company.now = company.now + STEP / 10;
        company.arrives(*asked, STEP / 10);
    }
    let told = told(&mut company);
    assert!(told.iter().any(|(node, speed)| *node == probe[0].peer && *speed > Speed::of(100 * RATE)), "{told:?}");
    assert!(company.node.measured_bytes_per_s() > Some(100 * RATE));
}

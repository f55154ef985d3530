//! Gateways of a zone: chunks that wait for them while they change.

use crate::company::{Asked, Company, STEP, Says, chunks};
use std::time::Duration;
use vfield_core::node::Output;

fn zone(stores: bool) -> Vec<Says> {
    (10..15).map(if stores { Says::store } else { Says::reader }).collect()
}

/// Two members that came before all others appear; returns the requests that follow.
fn gateways_change(company: &mut Company) -> Vec<Asked> {
    company.others.clear();
    [3, 4].map(Says::reader).into_iter().for_each(|elder| company.hears(elder));
    company.after(20 * STEP)
}

#[test]
fn while_a_zone_is_switched_on_its_chunks_follow_the_gateways() {
    let mut company = Company::of_zone(&zone(false));
    company.after(Duration::from_millis(500));
    let asked = company.read(5);
    assert_eq!(asked.len(), 1);
    let anew = gateways_change(&mut company);
    assert!(!anew.is_empty() && chunks(&anew).iter().all(|chunk| *chunk == 5), "{anew:?}");
    let is_cancelled =
        |output: &Output| matches!(output, Output::CancelRequest(request, _) if *request == asked[0].request);
    assert!(company.others.iter().any(is_cancelled), "{:?}", company.others);
    // A holder has the chunk whoever the gateways are.
    let mut company = Company::of_zone(&zone(true));
    company.after(Duration::from_millis(500));
    assert_eq!(company.read(5).len(), 1);
    assert_eq!(gateways_change(&mut company), []);
    // Later the upstream stays.
    let mut company = Company::of_zone(&zone(false));
    company.after(Duration::from_secs(3));
    let asked = company.read(5);
    assert_eq!(asked.len(), 1);
    assert_eq!(gateways_change(&mut company), []);
}

//! A chunk that all refuse is requested again after pauses that grow. News does not shorten them.

use crate::company::{Company, STEP, Says};
use crate::one_origin::{IMAGE, origin_says};
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::fetch::{Asker, Beneficiary, ConnectionId, Fetch, Token};
use vfield_core::image::Header;
use vfield_core::node::{Input, Output};
use vfield_core::reach::Reach;
use vfield_core::time::Time;
use vfield_core::tuning::{ROUND_PAUSE, WAIT_RETRY};
use vfield_core::wire::{Priority, Refusal};

fn header() -> Header {
    Header::new(600 * ChunkSize::MIN.bytes(), ChunkSize::MIN, 600).expect("a header")
}

/// The member refuses each request, and says something new every 50 ms. Pauses of 10 ms that double
/// up to half a second make about thirty rounds in ten seconds.
#[test]
fn a_member_that_makes_news_is_not_asked_more_often_than_others() {
    let (mut node, mut now) = crate::one_origin::joined(header());
    node.handle(now, Input::Read { token: Token(1), image: IMAGE, chunks: 0..1 });
    let (end, mut asked, mut version) = (now + Duration::from_secs(10), 0, 1);
    while now < end {
        now = now + Duration::from_millis(10);
        if now.since_start().as_millis().is_multiple_of(50) {
            version += 1;
            node.handle(now, origin_says(header(), version));
        }
        node.handle(now, Input::Wake);
        while let Some(output) = node.poll() {
            if let Output::Request { request, .. } = output {
                asked += 1;
                node.handle(now, Input::Refused(request, Refusal::Busy));
            }
        }
    }
    assert!((15..=40).contains(&asked), "asked {asked} times in ten seconds");
}

/// Nobody says anything new: a chunk that waits out its pause is not forgotten.
#[test]
fn without_news_all_are_asked_again_after_each_pause() {
    let mut company = Company::settled(&[Says::origin(1), Says::store(3)]);
    let (mut asked, mut times) = (company.read(5), Vec::new());
    for _ in 0..1000 {
        for request in std::mem::take(&mut asked) {
            times.push(company.now);
            asked.extend(company.refuse(request));
        }
        asked.extend(company.after(STEP));
    }
    let longest = times.windows(2).map(|two| two[1] - two[0]).max().expect("it asked more than once");
    assert!(longest <= ROUND_PAUSE.longest + WAIT_RETRY + 2 * STEP, "{longest:?}");
    assert!((30..=80).contains(&times.len()), "both are asked {} times in ten seconds", times.len());
}

/// A peer with little reach limits whom a fetch may ask, and so all others that wait for it. It is
/// refused before they are.
#[test]
fn the_asker_with_the_least_reach_is_refused_first() {
    let fetch = |beneficiary, askers: &[(u64, Reach)]| {
        let mut fetch = Fetch::new(Priority::Fill, beneficiary, Time::ZERO);
        for &(request, reach) in askers {
            fetch.askers.push((Asker { connection: ConnectionId(1), request, reach }, Time::ZERO));
            fetch.reach = fetch.reach.min(reach.less());
        }
        fetch
    };
    let askers = [(1, Reach(1)), (2, Reach::GATEWAY), (3, Reach(1))];
    let mut of_peers = fetch(Beneficiary::Peers, &askers);
    let refused =
        |fetch: &mut Fetch| fetch.refuse_the_nearest().iter().map(|asker| asker.request).collect::<Vec<u64>>();
    assert_eq!((refused(&mut of_peers), of_peers.reach), (vec![1, 3], Reach::GATEWAY.less()));
    assert_eq!(refused(&mut of_peers), Vec::<u64>::new(), "nobody else waits");
    // This machine's own store does.
    let mut of_store = fetch(Beneficiary::Store, &askers[1..2]);
    assert_eq!((refused(&mut of_store), of_store.reach), (vec![2], Reach::READER));
}

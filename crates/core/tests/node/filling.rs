//! Fills: a store takes its share of the time, and no more.

use crate::company::{Asked, Company, DATA, STEP, Says};
use std::collections::VecDeque;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::Config;
use vfield_core::identity::Zone;
use vfield_core::node::{Notice, Output};
use vfield_core::time::Time;

/// Every answer takes so long.
const TOOK: Duration = Duration::from_millis(20);

/// How long it takes until the store is full.
fn fills_in(join_boost: u8) -> Duration {
    let config = Config { join_boost, ..Config::default() };
    let mut company = Company::with(&[Says::origin(1)], Zone::default(), config, 2 * DATA * ChunkSize::MIN.bytes());
    let (start, mut open) = (company.now, VecDeque::<(Time, Asked)>::new());
    let is_filled = |output: &Output| matches!(output, Output::Notice(Notice::Filled(_)));
    while !company.others.iter().any(is_filled) {
        open.extend(company.passes(STEP));
        while open.front().is_some_and(|(since, _)| company.now - *since >= TOOK)
            && let Some((_, asked)) = open.pop_front()
        {
            let now = company.now;
            open.extend(company.arrives(asked, TOOK).into_iter().map(|asked| (now, asked)));
        }
        assert!(company.now - start < Duration::from_secs(1000), "boost {join_boost}");
    }
    company.now - start
}

/// Answers that come together count once, and less time for the fill makes it longer.
#[test]
fn a_fill_takes_longer_at_a_lower_boost() {
    let times = [0, 2, 5, 8].map(fills_in);
    assert!(times.is_sorted_by(|slow, fast| slow > fast) && times[0] > 15 * times[3], "{times:?}");
    // Fewer chunks at once make it seven times as long, and pauses the rest.
    // A pause for each answer would make it nine times as long as all of them, one after the other.
    assert!(times[0] < TOOK * DATA as u32, "{times:?}");
}

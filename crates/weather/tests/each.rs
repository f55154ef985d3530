//! What single machines have besides links: the same grammar, and values of their own.

use std::time::Duration;
use vfield_weather::{Busy, Thinks};

#[test]
fn busy_machines_have_a_share_of_a_processor() {
    let busy: Busy = "20@3,4@5..9/2".parse().expect("two entries");
    let divisors = [0, 3, 4, 5, 6, 9].map(|machine| busy.of(machine).map(|share| share.divisor()));
    assert_eq!(divisors, [None, Some(20), None, Some(4), None, Some(4)]);
    assert_eq!(busy.to_string().parse(), Ok(busy));
    for text in ["0@3", "1001@3", "1.5@3", "x@3", "20@3,2@3", ""] {
        let line = text.parse::<Busy>().expect_err(text);
        assert!(line.lines().count() == 1 && line.contains("factor"), "{text}: {line}");
    }
}

#[test]
fn readers_have_a_time_for_each_block() {
    let thinks: Thinks = "10ms,250ms@3".parse().expect("two entries");
    let times = [1, 3].map(|machine| thinks.of(machine));
    assert_eq!(times, [10, 250].map(|ms| Some(Duration::from_millis(ms))));
    assert_eq!(thinks.to_string(), "0.01s,0.25s@3");
    assert_eq!(thinks.to_string().parse(), Ok(thinks));
    for text in ["-1s@3", "1d@3", "fast", "1s,2s"] {
        assert!(text.parse::<Thinks>().is_err_and(|line| line.lines().count() == 1), "{text}");
    }
}

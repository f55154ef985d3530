//! Links as they are typed: each is read back as it is written, and what makes no sense is refused
//! in one line.

use vfield_weather::each::Machines;
use vfield_weather::{Link, Links, Rate};

const USUAL: Rate = Rate::of_bits(1_000_000_000).unwrap();

fn links(text: &str) -> Links {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Bits a second down and up, of a machine.
fn bits(text: &str, machine: usize) -> (u64, u64) {
    let rates = links(text).rates(machine, USUAL, 1);
    (rates.down.bits(), rates.up.bits())
}

#[track_caller]
fn refused(text: &str, what: &str) {
    let line = text.parse::<Links>().expect_err(text);
    assert!(line.lines().count() == 1 && line.contains(what), "{text}: {line}");
}

#[test]
fn a_machine_has_its_own_link_or_that_of_all() {
    let text = "100M,10M@3,1G/100M@5..9,20M@12..17/2";
    let (all, slow, wide, every_other) =
        ((100_000_000, 100_000_000), (10_000_000, 10_000_000), (1_000_000_000, 100_000_000), (20_000_000, 20_000_000));
    for (machines, expected) in [
        (&[0, 1, 2, 4, 10, 11, 13, 15, 17, 18, 99][..], all),
        (&[3], slow),
        (&[5, 6, 9], wide),
        (&[12, 14, 16], every_other),
    ] {
        for machine in machines {
            assert_eq!(bits(text, *machine), expected, "machine {machine}");
        }
    }
    assert_eq!(bits("10M@3", 2), (USUAL.bits(), USUAL.bits()), "nothing is said of the others");
}

#[test]
fn links_are_read_as_they_are_written() {
    for text in ["100M", "10M@3", "100M,10M@3,1G/100M@5..9", "1G:32", "64K,2.5G/64K@0..20/2,1T:1000@21", "1.234567G"] {
        assert_eq!(links(text).to_string(), text);
    }
    for (text, written) in [
        ("2500Mbit", "2.5G"),
        ("1000K/1M", "1M"),
        ("1G:1", "1G"),
        ("5M@3..3", "5M@3"),
        (" 5M@3 , 1G", "1G,5M@3"),
        ("1G # all\n\n5M@3,6M@4 # two\n", "1G,5M@3,6M@4"),
    ] {
        assert_eq!((links(text).to_string().as_str(), links(written)), (written, links(text)), "{text:?}");
    }
}

/// Any list, built from numbers that look drawn.
#[test]
fn any_links_are_read_back_as_they_are_written() {
    let mut state = 1_u64;
    let mut drawn = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    for _ in 0..2_000 {
        let mut entries = Vec::new();
        let mut machine = 0;
        for _ in 0..drawn(6) {
            let first = machine + usize::try_from(drawn(50)).unwrap();
            machine = first + usize::try_from(drawn(50)).unwrap() + 1;
            let step = usize::try_from(drawn(4)).unwrap() + 1;
            entries.push(Machines::new(first, machine - 1, step));
        }
        if entries.is_empty() || drawn(2) == 0 {
            entries.push(None);
        }
        let entries = entries.into_iter().map(|machines| {
            let factor = u32::try_from(drawn(40)).unwrap() + 1;
            let least = Rate::MIN_BITS * u64::from(factor);
            let mut rate = || Rate::of_bits(least + drawn(1 << 20) * drawn(1 << 19)).unwrap();
            (machines, Link::new(rate(), rate(), factor).unwrap())
        });
        let list = Links::new(entries).unwrap();
        assert_eq!(list.to_string().parse(), Ok(list.clone()), "{list}");
    }
}

#[test]
fn what_is_no_link_is_refused() {
    for text in ["fast", "100", "0", "9T", "-1M", "1G/", "/1G", "1G/1M/1K", "1Q", "nan", "100M,,1G", "100M,"] {
        refused(text, "is no rate");
    }
    refused("", "has no link");
    refused("# nothing\n", "has no link");
    for text in ["1G:", "1G:0", "1G:-2", "1G:1.5", "1G:32:32", "1G:99999999999"] {
        refused(text, "factor");
    }
    refused("1M:32", "below 64K");
    for text in ["1M@", "1M@x", "1M@9..5", "1M@5..", "1M@..5", "1M@1..5/0", "1M@1..5/", "1M@1@2", "1M@9999999", "1M@-1"]
    {
        refused(text, "after @");
    }
    refused("1M,2M@1,3M", "1M and 3M are both for all machines");
    refused("1M@3,2M@1..5", "machine 3 has two links");
    refused("1M@1..9/2,2M@5", "machine 5 has two links");
    assert_eq!(bits("1M@1..9/2,2M@4", 4).0, 2_000_000);
}

#[test]
fn machines_that_are_not_there_are_named() {
    let list = links("100M,10M@3..9/2");
    assert_eq!(list.check(10), Ok(()));
    let line = list.check(9).expect_err("machine 9 is the last of ten");
    assert_eq!(line, "10M@3..9/2: there is no such machine; the last one is 8");
    assert_eq!(links("100M,10M@3..8/2").check(8), Ok(()), "the range ends at 7");
}

#[test]
fn drawn_links_are_spread_evenly_over_the_magnitudes() {
    let list = links("1G/500M:32");
    let mut octaves = [0; 5];
    for machine in 0..5_000 {
        let rates = list.rates(machine, USUAL, 7);
        assert_eq!(rates, list.rates(machine, USUAL, 7));
        assert!(rates.down.bits().abs_diff(2 * rates.up.bits()) <= 1, "one factor divides both: {rates:?}");
        let factor = USUAL.bits() / (rates.down.bits() + 1);
        octaves[factor.checked_ilog2().unwrap_or(0).min(4) as usize] += 1;
    }
    assert!(octaves.iter().all(|count| (900..1100).contains(count)), "{octaves:?} of a thousand each");
    assert_ne!(list.rates(3, USUAL, 1), list.rates(3, USUAL, 2), "the seed counts");
}

#[test]
fn the_tightest_link_bounds_a_room() {
    let bound = |down: &[u64], up: &[u64], origin| vfield_weather::link::bound_s(120, down, up.iter().copied(), origin);
    let close = |bound: f64, expected: f64| assert!((bound - expected).abs() < 1e-9, "{bound}, not {expected}");
    close(bound(&[10, 10, 10], &[10; 4], Some(10)), 12.0);
    close(bound(&[10, 2, 10], &[10; 4], Some(10)), 60.0);
    close(bound(&[10, 10, 10], &[4, 1, 1, 4], Some(4)), 36.0);
    close(bound(&[10, 10, 10], &[1, 20, 20, 20], Some(1)), 120.0);
    close(bound(&[10, 10, 10], &[1, 20, 20, 20], None), 12.0);
}

#[test]
fn a_file_has_the_same_words() {
    let file = |name: &str, text: &str| {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let path = file("links", "# a room\n100M\n10M@3, 5M@4 # two cables\n");
    assert_eq!(Links::typed(&path), Ok(links("100M,10M@3,5M@4")));
    let line = Links::typed(&file("wrong", "100M\n\nfast@3\n")).expect_err("no rate");
    assert!(line.contains("line 3") && line.contains("is no rate") && line.lines().count() == 1, "{line}");
    let line = Links::typed("fast@3").expect_err("no file");
    assert!(line.contains("neither") && line.lines().count() == 1, "{line}");
    assert_eq!(Links::typed(&file("empty", "# nothing\n")), Ok(Links::default()));
}

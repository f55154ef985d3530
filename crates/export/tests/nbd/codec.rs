//! The NBD codec against arbitrary bytes: no panic, bounded output, and the same result however
//! they are cut.

use proptest::prelude::*;
use std::sync::Arc;
use vfield_export::nbd::codec::{
    Command, Negotiation, Next, OPTION_BYTES_MAX, Offer, Request, Requests, Step, Violation,
};

fn offers() -> Arc<[Offer]> {
    let offer = |name: &str| Offer {
        name: name.to_owned(),
        description: "an image".to_owned(),
        size_bytes: 1 << 20,
        preferred_bytes: 65536,
        writable: name == "b",
    };
    [offer("a"), offer("b")].into()
}

/// Negotiates with the bytes arriving in the given portions; returns the answers and the last step.
fn negotiate(input: &[u8], cuts: &[usize]) -> (Vec<u8>, Step, usize) {
    let mut out = Vec::new();
    let mut negotiation = Negotiation::start(offers(), false, &mut out);
    let (mut used, mut arrived) = (0, 0);
    let mut cuts = cuts.iter().cycle();
    loop {
        let before = out.len();
        let (more, step) = negotiation.step(&input[used..arrived], &mut out);
        used += more;
        assert!(used <= arrived, "used more than there was");
        assert!(out.len() - before < 1024, "one step wrote {} bytes", out.len() - before);
        assert!(arrived - used <= 16 + OPTION_BYTES_MAX as usize || step != Step::More, "wants too much at once");
        match step {
            Step::Answered => {}
            Step::More if arrived < input.len() => {
                arrived = input.len().min(arrived + 1 + cuts.next().copied().unwrap_or(0));
            }
            last => return (out, last, used),
        }
    }
}

/// Requests, how many bytes of payload came in all, and what ended it.
fn requests(input: &[u8], cuts: &[usize]) -> (Vec<Request>, usize, Option<Violation>) {
    let (mut parser, mut found, mut payload) = (Requests::default(), Vec::new(), 0);
    let (mut used, mut arrived) = (0, 0);
    let mut cuts = cuts.iter().cycle();
    loop {
        match parser.next(&input[used..arrived]) {
            Err(violation) => return (found, payload, Some(violation)),
            Ok(Next::Request(request)) => {
                used += 28;
                found.push(request);
            }
            Ok(Next::Payload(length)) => {
                used += length;
                payload += length;
            }
            Ok(Next::More) => {
                assert!(arrived - used < 28, "a request was not seen");
                if arrived == input.len() {
                    return (found, payload, None);
                }
                arrived = input.len().min(arrived + 1 + cuts.next().copied().unwrap_or(0));
            }
        }
    }
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    let string = prop_oneof![
        Just(b"".to_vec()),
        Just(b"a".to_vec()),
        Just(b"b".to_vec()),
        Just(b"zz".to_vec()),
        Just(b"base:".to_vec()),
        Just(b"base:allocation".to_vec()),
        Just(vec![b'x'; 4097]),
    ];
    let strings = prop::collection::vec(string, 0..4).prop_map(|strings| {
        let mut data = Vec::new();
        for (index, string) in strings.iter().enumerate() {
            data.extend_from_slice(&(string.len() as u32).to_be_bytes());
            data.extend_from_slice(string);
            if index == 0 {
                data.extend_from_slice(&(strings.len() as u32 - 1).to_be_bytes());
            }
        }
        data
    });
    let infos = prop::collection::vec(0_u16..5, 0..5).prop_map(|infos| {
        let mut data = b"\0\0\0\x01b".to_vec();
        data.extend_from_slice(&(infos.len() as u16).to_be_bytes());
        infos.iter().for_each(|info| data.extend_from_slice(&info.to_be_bytes()));
        data
    });
    let data = prop_oneof![Just(vec![]), strings, infos, prop::collection::vec(any::<u8>(), 0..40)];
    let lie = prop_oneof![9 => Just(None), 1 => any::<u32>().prop_map(Some)];
    (0_u32..13, data, lie).prop_map(|(option, data, lie)| {
        let length = lie.unwrap_or(data.len() as u32).to_be_bytes();
        [b"IHAVEOPT", &option.to_be_bytes()[..], &length, &data].concat()
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![8 => 0_u32..200, 1 => any::<u32>()];
    (prop_oneof![19 => Just(0x2560_9513_u32), 1 => any::<u32>()], any::<u16>(), 0_u16..10, any::<u64>(), length)
        .prop_map(|(magic, flags, command, number, length)| {
            let fields =
                [&flags.to_be_bytes()[..], &command.to_be_bytes(), &number.to_be_bytes(), &number.to_be_bytes()];
            let payload = if command == 1 && length < 200 { vec![7; length as usize] } else { vec![] };
            [&magic.to_be_bytes()[..], &fields.concat(), &length.to_be_bytes(), &payload].concat()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_are_survived_and_cuts_do_not_matter(
        input in prop::collection::vec(any::<u8>(), 0..600),
        cuts in prop::collection::vec(0_usize..40, 1..9),
    ) {
        prop_assert_eq!(negotiate(&input, &cuts), negotiate(&input, &[input.len()]));
        prop_assert_eq!(requests(&input, &cuts), requests(&input, &[input.len()]));
    }

    #[test]
    fn plausible_negotiations_are_cut_anywhere(
        options in prop::collection::vec(option(), 0..8),
        cuts in prop::collection::vec(0_usize..40, 1..9),
    ) {
        let input = [&3_u32.to_be_bytes()[..], &options.concat()].concat();
        prop_assert_eq!(negotiate(&input, &cuts), negotiate(&input, &[input.len()]));
    }

    #[test]
    fn plausible_requests_are_cut_anywhere(
        requests_sent in prop::collection::vec(request(), 0..12),
        cuts in prop::collection::vec(0_usize..90, 1..9),
    ) {
        let input = requests_sent.concat();
        prop_assert_eq!(requests(&input, &cuts), requests(&input, &[input.len()]));
    }
}

#[test]
fn a_payload_is_told_from_requests() {
    let header = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16], &100_u32.to_be_bytes()].concat();
    let mut parser = Requests::default();
    let found = parser.next(&header);
    assert!(matches!(found, Ok(Next::Request(Request { command: Command::Write, length: 100, .. }))), "{found:?}");
    assert!(!parser.at_boundary());
    assert_eq!(parser.next(&[]), Ok(Next::More));
    assert_eq!(parser.next(&[0; 60]), Ok(Next::Payload(60)));
    parser.passed(39);
    assert_eq!(parser.next(&[0; 50]), Ok(Next::Payload(1)));
    assert!(parser.at_boundary());
}

#[test]
fn a_write_that_would_never_end_is_a_violation() {
    let header = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16], &u32::MAX.to_be_bytes()].concat();
    assert_eq!(Requests::default().next(&header), Err(Violation::WriteTooLong(u32::MAX)));
}

#[test]
fn a_wrong_magic_number_is_seen_before_the_whole_header_is_there() {
    assert_eq!(Requests::default().next(b"GET "), Err(Violation::Magic(0x4745_5420)));
}

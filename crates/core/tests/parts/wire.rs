//! The wire format: golden bytes, round trips, and hostile bytes.

use crate::signed::{alive, said};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::greeting::{self, Greeting};
use vfield_core::header_proof::HeaderProof;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::{Member, State};
use vfield_core::names::NAME_BYTES_MAX;
use vfield_core::placement::{Arc, Filled};
use vfield_core::reach::Reach;
use vfield_core::record::{Record, Records, Subject};
use vfield_core::signing::{PublicKey, Signature, Simulated};
use vfield_core::snapshot::{self, Known, Snapshot};
use vfield_core::wire::{
    self, Codec, DialledBack, FrameHeader, Get, HEADER, Kind, Priority, Proof, Refusal, WireError,
};

const KINDS: [Kind; 27] = [
    Kind::Get,
    Kind::Data,
    Kind::Refuse,
    Kind::Cancel,
    Kind::Sync,
    Kind::Synced,
    Kind::Redirect,
    Kind::Patience,
    Kind::Prove,
    Kind::Proof,
    Kind::DialBack,
    Kind::DialledBack,
    Kind::Header,
    Kind::HeaderProof,
    Kind::AdmissionQuestion,
    Kind::AdmissionList,
    Kind::Speed,
    Kind::GetSlice,
    Kind::Slice,
    Kind::Compressed(Codec::Lz4),
    Kind::AccountQuestion,
    Kind::Account,
    Kind::Here,
    Kind::PrefetchQuestion,
    Kind::PrefetchLists,
    Kind::Compressed(Codec::Zstd),
    Kind::Gossip,
];

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn identity() -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, 7], 4321));
    Identity { addr, node: NodeId(0x0102_0304_0506_0708), generation: 1_700_000_000_000, zone: Zone::default() }
}

/// A statement with a key and a signature that can be told apart.
fn member(state: State) -> Member {
    Member { identity: identity(), incarnation: 3, state, key: PublicKey([0xaa; 32]), signature: signature() }
}

fn signature() -> Signature {
    Signature([[0xee; 32], [0xff; 32]])
}

fn subject() -> Subject {
    Subject {
        image: ImageId([0xab; 32]),
        names: "viver".into(),
        header: Header::new(1 << 30, ChunkSize::DEFAULT, 16_000).expect("a header").encode(),
    }
}

fn named(name: impl Into<String>) -> Record {
    Record { subject: Subject { names: name.into().into(), ..subject() }.into(), ..record() }
}

fn record() -> Record {
    Record {
        node: NodeId(0x0102_0304_0506_0708),
        version: 300,
        progress: 130,
        subject: subject().into(),
        origin: false,
        arc: Arc { start: 129, length: 5000 },
        filled: Filled { from: 1, count: 16_386 },
        leaving: true,
        signature: signature(),
    }
}

/// Nodes of one protocol version have to agree on these bytes. **Changing this breaks nodes of the
/// same protocol version: bump [`wire::VERSION`].**
mod golden {
    use super::*;

    #[test]
    fn greeting() {
        let (key, nonce, you) = (PublicKey([0xaa; 32]), [0xbb; 32], SocketAddr::from(([10, 0, 0, 1], 80)));
        let member = Some(member(State::Alive));
        let bytes = greeting::greeting(&Greeting { key, nonce, member, you, latest: 300 });
        let said = [
            "01",
            "00c6120007e121",
            "888e98a8c0e0808101",
            "80d095ffbc31",
            "00",
            "03",
            "00",
            &"aa".repeat(32),
            &"ee".repeat(32),
            &"ff".repeat(32),
        ];
        let head = ["564649454c440d0a", "0c000000", "c200", "0800"].concat();
        let rest = "000a00000150ac02";
        let expected = [head, "aa".repeat(32), "bb".repeat(32), said.concat(), rest.to_owned()].concat();
        assert_eq!(hexadecimal(&bytes), expected);
        let guest = greeting::greeting(&Greeting { key, nonce, member: None, you, latest: 0 });
        let head = ["564649454c440d0a", "0c000000", "4800", "0800"].concat();
        assert_eq!(
            hexadecimal(&guest),
            [head, "aa".repeat(32), "bb".repeat(32), "00000a0000015000".to_owned()].concat()
        );
    }

    /// The signed hash of two greetings, and the channel's part in it.
    #[test]
    fn a_transcript() {
        let transcript = greeting::Transcript::new(&[1; 32], b"dialled", b"answered");
        let proof = transcript.prove(true, &Simulated(NodeId(7)));
        let said = Greeting {
            key: Simulated::key_of(NodeId(7)),
            nonce: [0; 32],
            member: None,
            you: identity().addr,
            latest: 0,
        };
        assert_eq!(transcript.prover(true, &said, &proof, &Simulated(NodeId(1))), Some(NodeId(7)));
        assert!(
            format!("{transcript:?}").starts_with("Transcript([5, 45, 221, 138, 252, 202, 16, 69"),
            "{transcript:?}"
        );
    }

    #[test]
    fn get() {
        let get = Get { image: ImageId([0xcd; 32]), chunk: Chunk(0x1122_3344), reach: Reach(0x0708_090a) };
        let payload = format!("{}44332211000000000a09080700000000", "cd".repeat(32));
        let expected = format!("01020000300000000807060504030201{payload}");
        assert_eq!(hexadecimal(&get.frame(0x0102_0304_0506_0708, Priority::Fill, false)), expected);
        let expected = format!("01800000300000000807060504030201{payload}");
        assert_eq!(hexadecimal(&get.frame(0x0102_0304_0506_0708, Priority::Demand, true)), expected);
    }

    #[test]
    fn proofs() {
        let prove = wire::prove_frame(0x0102, ImageId([0xcd; 32]));
        assert_eq!(hexadecimal(&prove), format!("09000000200000000201000000000000{}", "cd".repeat(32)));
        let proof = Proof { statement: "said".to_owned(), signature: "signed".to_owned() };
        let frame = wire::proof_frame(0x0102, &proof);
        assert_eq!(hexadecimal(&frame), "0a0000000c0000000201000000000000047361696406 7369676e6564".replace(' ', ""));
        assert_eq!(wire::decode_proof(&frame[HEADER..]), Ok(proof));
        assert_eq!(wire::decode_prove(&prove[HEADER..]), Ok(ImageId([0xcd; 32])));
        let long = Proof { statement: "x".repeat(5000), signature: String::new() };
        assert!(!long.fits());
    }

    #[test]
    fn dialling_back() {
        let asked = wire::dial_back_frame(0x0102, true);
        assert_eq!(hexadecimal(&asked), "0b00000001000000020100000000000001");
        assert_eq!(wire::decode_dial_back(&asked[HEADER..]), Ok(true));
        assert_eq!(wire::decode_dial_back(&[2]), Err(WireError::Payload));
        let answers = [DialledBack::Reached, DialledBack::Silence, DialledBack::Refused, DialledBack::Another];
        for (number, what) in answers.into_iter().enumerate() {
            let frame = wire::dialled_back_frame(0x0102, what);
            assert_eq!(hexadecimal(&frame), format!("0c0000000100000002010000000000000{number}"));
            assert_eq!(wire::decode_dialled_back(&frame[HEADER..]), Ok(what));
        }
        assert_eq!(wire::decode_dialled_back(&[4]), Err(WireError::Payload));
    }

    #[test]
    fn header_proofs() {
        let asked = wire::header_frame(0x0102, ImageId([0xcd; 32]));
        assert_eq!(hexadecimal(&asked), format!("0d000000200000000201000000000000{}", "cd".repeat(32)));
        assert_eq!(wire::decode_header(&asked[HEADER..]), Ok(ImageId([0xcd; 32])));
        let header = Header::new(1, ChunkSize::MIN, 1).expect("a header");
        let proof = HeaderProof::of(&header, &[0xef; 32]);
        let frame = wire::header_proof_frame(0x0102, &proof);
        let leaf = format!("{}{}", hexadecimal(&header.encode()), "ef".repeat(32));
        assert_eq!(hexadecimal(&frame), format!("0e000000400000000201000000000000{leaf}"));
        assert_eq!(wire::decode_header_proof(&frame[HEADER..]), Ok(proof));
        assert_eq!(wire::decode_header_proof(&frame[HEADER + 1..]), Err(WireError::Payload));
    }

    #[test]
    fn not_ready_yet() {
        let head = greeting::starting(27);
        assert_eq!(hexadecimal(&head), "56462d574149540a0c0000001b000000");
        assert_eq!(greeting::length(&head), Err(WireError::Starting { percent: 27 }));
        assert_eq!(greeting::length(&greeting::starting(u32::MAX)), Err(WireError::Starting { percent: 100 }));
    }

    #[test]
    fn headers() {
        let header = |kind| hexadecimal(&FrameHeader::new(kind, 5, 0x1234).encode());
        assert_eq!(header(Kind::Data), "02000000341200000500000000000000");
        let late = |waited| hexadecimal(&FrameHeader::data(5, 0x1234, Duration::from_millis(waited)).encode());
        assert_eq!(late(0x0102), "02000201341200000500000000000000");
        assert_eq!(late(1 << 40), "0200ffff341200000500000000000000");
        let compressed = |codec| FrameHeader::compressed(codec, 5, 0x1234, Duration::from_millis(0x0102)).encode();
        assert_eq!(hexadecimal(&compressed(Codec::Lz4)), "14000201341200000500000000000000");
        assert_eq!(hexadecimal(&compressed(Codec::Zstd)), "1a000201341200000500000000000000");
        assert_eq!(header(Kind::Sync), "05000000341200000500000000000000");
        assert_eq!(header(Kind::Synced), "06000000341200000500000000000000");
        assert_eq!(hexadecimal(&FrameHeader::new(Kind::Cancel, 6, 0).encode()), "04000000000000000600000000000000");
        assert_eq!(hexadecimal(&FrameHeader::new(Kind::Patience, 0, 0).encode()), "08000000000000000000000000000000");
        let refusals = [Refusal::NotHeld, Refusal::NoSuchImage, Refusal::SourceChanged, Refusal::Busy];
        for (code, refusal) in (1..).zip(refusals) {
            let expected = format!("030000{code:02x}000000000700000000000000");
            assert_eq!(hexadecimal(&FrameHeader::refuse(7, refusal).encode()), expected);
        }
    }

    #[test]
    fn redirect() {
        let frame = wire::redirect_frame(9, NodeId(0x0102_0304_0506_0708));
        assert_eq!(hexadecimal(&frame), "070000000800000009000000000000000807060504030201");
    }

    #[test]
    fn a_record() {
        let expected = format!(
            "{}{}{}{}{}{}{}",
            "888e98a8c0e0808101ac028201",
            "ab".repeat(32),
            "057669766572",
            "562d4649454c440001000000000001000000004000000000803e000000000000",
            "00810188270182800101",
            "ee".repeat(32),
            "ff".repeat(32)
        );
        assert_eq!(hexadecimal(&record().encode()), expected);
    }

    #[test]
    fn a_snapshot() {
        let snapshot = Snapshot {
            members: vec![member(State::Alive)],
            records: vec![record()],
            gateways: Vec::new(),
            outside: Vec::new(),
            backbone: false,
            known: vec![Known { node: NodeId(300), digest: 200 }],
        };
        let image = "ab".repeat(32);
        let signature = ["ee".repeat(32), "ff".repeat(32)].concat();
        let key = "aa".repeat(32);
        let expected = [
            "0500000022010000",
            "0000000000000000",
            // One image, its name, its header.
            "01",
            &image,
            "057669766572",
            "562d4649454c440001000000000001000000004000000000803e000000000000",
            // One member.
            "01",
            "00c6120007e121",
            "888e98a8c0e0808101",
            "80d095ffbc31",
            "00",
            "03",
            "00",
            &key,
            &signature,
            // One record of that image.
            "01",
            "888e98a8c0e0808101",
            "00",
            "ac02",
            "8201",
            "00810188270182800101",
            &signature,
            "00",
            "00",
            "00",
            // One statement is known.
            "01",
            "ac02",
            "c801",
        ]
        .concat();
        assert_eq!(hexadecimal(&wire::snapshot_frame(Kind::Sync, 0, snapshot)), expected);
    }
}

#[test]
fn lengths_are_bounded_by_kind() {
    for kind in KINDS {
        let with = |length| FrameHeader::decode(&FrameHeader { length, ..header_of(kind) }.encode());
        assert!(matches!(with(u32::MAX), Err(WireError::Length { .. })), "{kind:?}");
        let most = (0..=21).rev().map(|power| 1u32 << power).find(|length| with(*length).is_ok());
        assert!(most.is_none_or(|most| most <= 1 << 20), "{kind:?} of {most:?}");
    }
    let data = |length| FrameHeader::decode(&FrameHeader::new(Kind::Data, 1, length).encode());
    assert!(data(1 << 20).is_ok());
    assert_eq!(data((1 << 20) + 1), Err(WireError::Length { length: (1 << 20) + 1, max: 1 << 20 }));
    for length in (0..48).chain(49..60) {
        assert!(FrameHeader::decode(&FrameHeader::new(Kind::Get, 1, length).encode()).is_err());
    }
    for length in (0..8).chain(9..20) {
        assert!(FrameHeader::decode(&FrameHeader::new(Kind::Redirect, 1, length).encode()).is_err());
    }
}

/// A header that decodes, of each kind.
fn header_of(kind: Kind) -> FrameHeader {
    match kind {
        Kind::Refuse => FrameHeader::refuse(1, Refusal::Busy),
        Kind::Get => FrameHeader::new(kind, 1, 48),
        Kind::GetSlice => FrameHeader::new(kind, 1, 45),
        Kind::AccountQuestion => FrameHeader::new(kind, 1, 40),
        Kind::Redirect => FrameHeader::new(kind, 1, 8),
        Kind::Prove | Kind::Header | Kind::PrefetchQuestion => FrameHeader::new(kind, 1, 32),
        Kind::DialBack | Kind::DialledBack | Kind::Speed => FrameHeader::new(kind, 1, 1),
        _ => FrameHeader::new(kind, 1, 0),
    }
}

#[test]
fn every_field_is_checked() {
    for kind in KINDS {
        let good = header_of(kind).encode();
        assert_eq!(FrameHeader::decode(&good), Ok(header_of(kind)));
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            FrameHeader::decode(&bytes)
        };
        for later in (28..=255).chain([0]) {
            assert!(with(0, later).is_ok_and(|header| header.kind == Kind::Unknown(later)));
        }
        for bad in (3..=127).chain(131..=255) {
            assert_eq!(with(1, bad), Err(WireError::Field("priority")));
        }
        if kind == Kind::Get {
            assert!(with(1, 0x82).is_ok_and(|header| header.insists && header.priority == Priority::Fill));
        } else {
            assert_eq!(with(1, 0x80), Err(WireError::Field("priority")));
        }
        if matches!(kind, Kind::Data | Kind::Compressed(_)) {
            assert!(with(2, 5).is_ok_and(|header| header.waited_ms == 5));
            assert!(with(3, 255).is_ok_and(|header| header.waited_ms == 255 << 8));
            continue;
        }
        for bad in 6..=255 {
            assert_eq!(with(3, bad), Err(WireError::Field("refusal")));
        }
        assert_eq!(with(2, 1), Err(WireError::Field("refusal")));
        assert_eq!(with(3, if kind == Kind::Refuse { 0 } else { 1 }), Err(WireError::Field("refusal")));
    }
}

#[test]
fn greetings_of_others_are_told_apart() {
    let (key, you) = (PublicKey([0xaa; 32]), identity().addr);
    let good = greeting::greeting(&Greeting { key, nonce: [0; 32], member: None, you, latest: 0 });
    let head = |change: fn(&mut [u8; greeting::HEAD])| {
        let mut head: [u8; greeting::HEAD] = *good.first_chunk().expect("a head");
        change(&mut head);
        greeting::length(&head)
    };
    assert_eq!(head(|_| {}), Ok(good.len() - greeting::HEAD));
    assert_eq!(head(|head| head[..4].copy_from_slice(b"GET ")), Err(WireError::NotVfield));
    assert_eq!(head(|head| head[8] = 7), Err(WireError::Version { theirs: 7 }));
    assert_eq!(head(|head| head[13] = 9), Err(WireError::Length { length: 2377, max: 1024 }));
}

/// An oversized item is left out; the other side would refuse the frame.
#[test]
fn a_record_of_no_image_is_refused() {
    let frame = wire::snapshot_frame(Kind::Sync, 0, Snapshot { records: vec![record()], ..Snapshot::default() });
    let body = &frame[HEADER..];
    // Behind the image's number: a version of two bytes, the rest of the record, two empty lists
    // and a flag.
    let at = body.len() - 83;
    let with = |subject| [&body[..at], &[subject], &body[at + 1..]].concat();
    assert_eq!(wire::decode_snapshot(&with(0)).map(|snapshot| snapshot.records), Ok(vec![record()]));
    assert!(wire::decode_snapshot(&with(1)).is_err());
}

#[test]
fn a_long_name_is_refused() {
    let said = |name: String| Snapshot { records: vec![named(name); 3], ..Snapshot::default() };
    let decoded = |name| wire::decode_snapshot(&wire::snapshot_frame(Kind::Sync, 0, said(name))[HEADER..]);
    assert!(decoded("x".repeat(NAME_BYTES_MAX)).is_ok());
    assert!(decoded("x".repeat(NAME_BYTES_MAX + 1)).is_err());
}

#[test]
fn more_records_than_fit_into_memory_are_left_out_and_refused() {
    let records = vec![record(); snapshot::RECORDS_MAX + 1];
    let outside = Snapshot { outside: records.clone(), ..Snapshot::default() };
    assert!(wire::decode_snapshot(&postcard::to_stdvec(&outside).expect("plain data")).is_err());
    let frame = wire::snapshot_frame(Kind::Sync, 0, Snapshot { records, ..Snapshot::default() });
    let told = wire::decode_snapshot(&frame[HEADER..]).expect("a snapshot");
    assert_eq!(told.records.len(), snapshot::RECORDS_MAX);
}

#[test]
fn a_snapshot_of_a_huge_field_still_fits() {
    let member = |node| Identity { node: NodeId(node), ..identity() };
    let members = (0..20_000).map(|node| alive(member(node))).collect();
    let records = (0..10_000).map(|node| Record { node: NodeId(node), ..record() }).collect();
    let frame = wire::snapshot_frame(Kind::Synced, 1, Snapshot { members, records, ..Snapshot::default() });
    let head: [u8; HEADER] = frame[..HEADER].try_into().expect("a header");
    let header = FrameHeader::decode(&head).expect("a frame that can be sent");
    assert_eq!(header.length as usize, frame.len() - HEADER);
    let snapshot = wire::decode_snapshot(&frame[HEADER..]).expect("a snapshot");
    assert!(snapshot.members.len() > 1000 && snapshot.records.len() > 1000);
}

#[test]
fn unsound_records_are_refused() {
    let with = |change: fn(&mut Subject)| {
        let mut subject = subject();
        change(&mut subject);
        let record = Record { subject: subject.into(), ..record() };
        assert!(!Records::default().learn(record.clone()), "{record:?}");
        Record::decode(&record.encode())
    };
    assert_eq!(with(|subject| subject.names = "".into()), None);
    assert_eq!(with(|subject| subject.names = "b/a".into()), None);
    assert_eq!(with(|subject| subject.names = "a\0".into()), None);
    assert_eq!(with(|subject| subject.names = "x".repeat(NAME_BYTES_MAX + 1).into()), None);
    assert_eq!(with(|subject| subject.header[0] = 0), None);
    assert!(named("x".repeat(NAME_BYTES_MAX)).is_sound());
    assert!(!named("\u{1b}[2Jx").is_sound(), "names are shown on terminals");
    assert!(!named("..").is_sound(), "names become file names");
}

#[test]
fn only_newer_records_are_news() {
    let mut records = Records::default();
    let at = |version| Record { version, ..record() };
    assert!(records.learn(at(5)));
    let changes = records.changes();
    assert!(!records.learn(at(5)) && !records.learn(at(4)));
    assert_eq!(records.changes(), changes);
    assert!(records.learn(at(6)));
    let progressed = Record { progress: 131, ..at(6) };
    assert!(records.learn(progressed.clone()) && !records.learn(progressed) && !records.learn(at(6)));
    assert_ne!(records.changes(), changes);
    records.retain(|_| false);
    assert_eq!(records.iter().count(), 0);
}

prop_compose! {
    fn any_identity()(v4: bool, ip: [u8; 4], ip6: [u8; 16], port: u16, node: u64, generation: u64) -> Identity {
        let addr = if v4 { SocketAddr::from((ip, port)) } else { SocketAddr::from((ip6, port)) };
        Identity { addr, node: NodeId(node), generation, zone: Zone::default() }
    }
}

prop_compose! {
    fn any_member()(identity in any_identity(), incarnation: u32, state in 0usize..4) -> Member {
        let state = [State::Alive, State::Suspect, State::Down, State::Left][state];
        said(identity, incarnation, state)
    }
}

prop_compose! {
    fn any_record()(
        (node, version, progress, image) in any::<(u64, u64, u64, [u8; 32])>(),
        name in "n[^/\\p{Cc}]{0,60}",
        (length, power) in (1u64..1 << 40, 14u32..=20),
        (start, places, from, count) in any::<(u64, u64, u64, u64)>(),
        (origin, leaving) in any::<(bool, bool)>(),
    ) -> Record {
        let header = Header::new(length, ChunkSize::new(1 << power).expect("a size"), 0).expect("a header").encode();
        let (arc, filled) = (Arc { start, length: places }, Filled { from, count });
        let subject = Subject { image: ImageId(image), names: name.into(), header }.into();
        let (node, signature) = (NodeId(node), signature());
        Record { node, version, progress, subject, origin, arc, filled, leaving, signature }
    }
}

proptest! {
    #[test]
    fn any_header_decodes_to_itself_or_fails(mut bytes: [u8; HEADER], low: bool) {
        if low {
            // Otherwise hardly any would decode.
            bytes[0] %= 17;
            bytes[1] %= 3;
            bytes[3] = if bytes[0] == 3 { bytes[3] % 5 } else { 0 };
            bytes[6..8].fill(0);
        }
        if let Ok(header) = FrameHeader::decode(&bytes)
            && !matches!(header.kind, Kind::Unknown(_))
        {
            prop_assert_eq!(header.encode(), bytes);
        }
    }

    #[test]
    fn gets_survive_the_wire(image: [u8; 32], chunk: u64, request: u64, reach: u64, insists: bool, priority in 0usize..3) {
        let priority = [Priority::Demand, Priority::ReadAhead, Priority::Fill][priority];
        let get = Get { image: ImageId(image), chunk: Chunk(chunk), reach: Reach(reach) };
        let frame = get.frame(request, priority, insists);
        let head: [u8; HEADER] = frame[..HEADER].try_into().expect("a header");
        let header = FrameHeader::decode(&head).expect("a header");
        prop_assert_eq!((header.kind, header.priority, header.request), (Kind::Get, priority, request));
        prop_assert_eq!(header.insists, insists);
        prop_assert_eq!(Get::decode(&frame[HEADER..]), Ok(get));
        for cut in 0..frame.len() - HEADER {
            prop_assert_eq!(Get::decode(&frame[HEADER..HEADER + cut]), Err(WireError::Payload));
        }
        prop_assert_eq!(Get::decode(&[&frame[HEADER..], &[0]].concat()), Err(WireError::Payload));
    }

    #[test]
    fn redirects_survive_the_wire(node: u64, request: u64, junk in prop::collection::vec(any::<u8>(), 0..20)) {
        let frame = wire::redirect_frame(request, NodeId(node));
        prop_assert_eq!(wire::decode_redirect(&frame[HEADER..]), Ok(NodeId(node)));
        prop_assert_eq!(wire::decode_redirect(&junk).is_ok(), junk.len() == 8);
    }

    #[test]
    fn records_survive_the_wire(record in any_record()) {
        let bytes = record.encode();
        prop_assert_eq!(Record::decode(&bytes), Some(record));
        for cut in 0..bytes.len() {
            prop_assert_eq!(Record::decode(&bytes[..cut]), None);
        }
        prop_assert_eq!(Record::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn snapshots_survive_the_wire(
        members in prop::collection::vec(any_member(), 0..5),
        records in prop::collection::vec(any_record(), 0..5),
        request: u64,
        cut: u16,
    ) {
        let snapshot = Snapshot { members, records, ..Snapshot::default() };
        let frame = wire::snapshot_frame(Kind::Synced, request, snapshot.clone());
        let body = &frame[HEADER..];
        prop_assert_eq!(wire::decode_snapshot(body), Ok(snapshot));
        prop_assert!(wire::decode_snapshot(&body[..cut as usize % body.len()]).is_err());
        prop_assert!(wire::decode_snapshot(&[body, &[0]].concat()).is_err());
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (greeting::decode(&bytes), wire::decode_snapshot(&bytes), Get::decode(&bytes), Record::decode(&bytes));
        if let Some(head) = bytes.first_chunk::<{ greeting::HEAD }>() {
            prop_assert!(greeting::length(head).is_err() || head[..8] == greeting::MAGIC);
        }
    }

    /// A length that lies inside a payload must not make anybody reserve memory for it.
    #[test]
    fn lying_counts_cost_nothing(count in prop::collection::vec(0x80u8..=0xff, 4..9), rest in prop::collection::vec(any::<u8>(), 0..30)) {
        let mut bytes = count;
        bytes.push(1);
        bytes.extend(rest);
        prop_assert!(wire::decode_snapshot(&bytes).is_err());
    }
}

//! A conversation of two nodes of protocol version 8, as programs of that version wrote it, to the
//! byte: `version_8.txt`.
//!
//! This version reads it, with all signatures and seals, and says the same where it says the same
//! things. So machines of a field can be updated one after the other. **The file never changes.** A
//! later version gets a file of its own beside it, and this one goes when that version no longer
//! speaks version 8.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::admission::Version;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::greeting::{self, Greeting, HEAD, PROOF, Transcript};
use vfield_core::header_proof::HeaderProof;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::message::{self, Draft, Head, Item, Purpose};
use vfield_core::membership::{Level, Member, State};
use vfield_core::placement::{Arc, Filled};
use vfield_core::reach::Reach;
use vfield_core::record::{Record, Subject};
use vfield_core::signing::{Signature, Signatures};
use vfield_core::snapshot::{Known, Snapshot};
use vfield_core::speed::{Link, Speed};
use vfield_core::wire::{
    self, DialledBack, FrameHeader, Get, HEADER, Kind, ListQuestion, Priority, Proof, Refusal, SignedList,
};
use vfield_trust::envelope::{Opening, Sealing};
use vfield_trust::{FieldKey, KeyRing, NodeKey};

/// Each name with its recorded bytes.
fn recorded() -> BTreeMap<&'static str, Vec<u8>> {
    let lines = include_str!("version_8.txt").lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(": ").expect("a name and bytes"));
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("digits");
    pairs.map(|(name, digits)| (name, digits.as_bytes().chunks(2).map(byte).collect())).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The keys of the node that dials and of the one that answers.
fn keys() -> [NodeKey; 2] {
    [NodeKey::from_seed(&[1; 32]), NodeKey::from_seed(&[2; 32])]
}

/// A node's statement about itself: the dialling one lives in a zone, at an IPv6 address.
fn myself(at: usize) -> Member {
    let (key, zone) = (&keys()[at], Zone::named(["rack1", ""][at]).expect("a name"));
    let six = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 7], 4441));
    let addr = [six, SocketAddr::from(([198, 18, 0, 2], 4440))][at];
    let identity = Identity { addr, node: key.node(), generation: 1_763_000_000_000 + at as u64, zone };
    Member::signed(identity, 3, false, key)
}

/// The farewell of the dialling node.
fn farewell() -> Member {
    Member::signed(myself(0).identity, 4, true, &keys()[0])
}

fn greets(at: usize) -> Greeting {
    let (key, you) = (keys()[at].key(), SocketAddr::from(([198, 18, 0, 9], 4440)));
    Greeting { key, nonce: [at as u8 + 7; 32], member: Some(myself(at)), you, latest: 1_763_000_000_009 }
}

fn guest() -> Greeting {
    Greeting { member: None, latest: 0, ..greets(0) }
}

fn header() -> Header {
    Header::new(96 << 20, ChunkSize::DEFAULT, 1500).expect("a header")
}

/// The top page of an image of 1536 chunks.
fn page() -> Vec<u8> {
    (0..1536 * 32).map(|at| (at % 251) as u8).collect()
}

fn image() -> ImageId {
    ImageId::of(&header(), &page())
}

/// The record of a node about the image, signed by it.
fn record(at: usize) -> Record {
    let subject = Subject { image: image(), names: "viver.squash".into(), header: header().encode() };
    let record = Record {
        node: keys()[at].node(),
        version: 5,
        progress: Record::progress(2, Link { measured: Speed(77), ..Link::default() }),
        subject: subject.into(),
        origin: at == 1,
        arc: Arc { start: 300, length: 700 },
        filled: Filled { from: 1, count: 129 },
        leaving: at == 0,
        signature: Signature::default(),
    };
    record.signed(&keys()[at])
}

fn snapshot(at: usize) -> Snapshot {
    Snapshot {
        members: vec![myself(at), Member { state: State::Suspect, ..myself(1 - at) }],
        records: vec![record(at)],
        gateways: vec![myself(1)],
        outside: vec![record(1)],
        backbone: at == 1,
        known: vec![Known { node: keys()[1 - at].node(), digest: 0xdead_beef }],
    }
}

/// The purposes of datagrams; the first brings news.
fn purposes() -> [(&'static str, Purpose); 8] {
    let other = keys()[1].node();
    [
        ("news", Purpose::News),
        ("ping", Purpose::Ping(500)),
        ("ack", Purpose::Ack(500)),
        ("relay", Purpose::Relay(other, 5)),
        ("ping for", Purpose::PingFor(other, 5)),
        ("ack for", Purpose::AckFor(other, 5)),
        ("vouch", Purpose::Vouch(other, 5)),
        ("introduce", Purpose::Introduce),
    ]
}

fn head(purpose: Purpose) -> Head {
    let [from, to] = keys().map(|key| key.node());
    let level = if purpose == Purpose::News { Level::Backbone } else { Level::Zone };
    Head { level, from, life: (1_763_000_000_000, 3), to, purpose }
}

fn news(purpose: Purpose) -> Vec<Item> {
    let down = Member { state: State::Down, ..myself(1) };
    let all = [Item::Member(down), Item::Member(farewell()), Item::Record(record(0))];
    all.into_iter().filter(|_| purpose == Purpose::News).collect()
}

fn datagram(purpose: Purpose) -> Vec<u8> {
    let mut draft = Draft::new(&head(purpose));
    assert!(news(purpose).iter().all(|item| draft.add(item)));
    draft.finish()
}

fn field_key() -> FieldKey {
    FieldKey::new([9; 32])
}

fn sealed() -> Vec<u8> {
    Sealing::new(&field_key(), [7; 8]).seal(&datagram(Purpose::Ping(500)), [1, 2, 3, 4])
}

fn question() -> ListQuestion {
    ListQuestion { version: Version { timestamp: 1_763_000_000, digest: 300 }, signers: vec![7, 1 << 40] }
}

fn list() -> SignedList {
    SignedList { text: "vfield-admission 1\n".to_owned(), signature: "signed".to_owned() }
}

fn proof_of_image() -> Proof {
    Proof { statement: "vfield-image 1\n".to_owned(), signature: "signed".to_owned() }
}

const GET: Get = Get { image: ImageId([0xcd; 32]), chunk: Chunk(70_000), reach: Reach(1 << 63) };

/// Gets of each priority.
const GETS: [(&str, Priority, bool); 3] = [
    ("get", Priority::Demand, false),
    ("get ahead", Priority::ReadAhead, false),
    ("get to fill, insisting", Priority::Fill, true),
];

const REFUSALS: [(&str, Refusal); 4] = [
    ("not held", Refusal::NotHeld),
    ("no such image", Refusal::NoSuchImage),
    ("source changed", Refusal::SourceChanged),
    ("busy", Refusal::Busy),
];

/// The frames of the conversation with their names.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let empty = |kind, request| FrameHeader::new(kind, request, 0).encode().to_vec();
    let late = FrameHeader::data(2, 5, Duration::from_millis(258)).encode();
    let mut frames = vec![
        ("sync", wire::snapshot_frame(Kind::Sync, 1, snapshot(0))),
        ("synced", wire::snapshot_frame(Kind::Synced, 1, snapshot(1))),
        ("data", [&late[..], b"bytes"].concat()),
        ("cancel", empty(Kind::Cancel, 2)),
        ("redirect", wire::redirect_frame(2, NodeId(77))),
        ("patience", empty(Kind::Patience, 0)),
        ("prove", wire::prove_frame(3, image())),
        ("proof", wire::proof_frame(3, &proof_of_image())),
        ("dial back", wire::dial_back_frame(4, true)),
        ("dialled back", wire::dialled_back_frame(4, DialledBack::Refused)),
        ("header", wire::header_frame(5, image())),
        ("header proof", wire::header_proof_frame(5, &HeaderProof::of(&header(), &page()))),
        ("admission question", wire::list_question_frame(6, &question())),
        ("admission list", wire::list_frame(6, &list())),
        ("speed", wire::speed_frame(Speed(77)).to_vec()),
    ];
    frames.extend(GETS.map(|(name, priority, insists)| (name, GET.frame(2, priority, insists).to_vec())));
    frames.extend(REFUSALS.map(|(name, refusal)| (name, FrameHeader::refuse(9, refusal).encode().to_vec())));
    frames
}

/// The conversation as this version has it, with proofs of the recorded greetings.
fn conversation() -> Vec<(&'static str, Vec<u8>)> {
    let heard = recorded();
    let of = |name: &str| heard.get(name).cloned().unwrap_or_default();
    let transcript = Transcript::new(&[0; 32], &of("greeting, dialling"), &of("greeting, answering"));
    let proof = |at: usize| transcript.prove(at == 0, &keys()[at]).bytes().to_vec();
    let mut said = vec![
        ("greeting, dialling", greeting::greeting(&greets(0))),
        ("greeting, answering", greeting::greeting(&greets(1))),
        ("greeting of a guest", greeting::greeting(&guest())),
        ("starting", greeting::starting(27).to_vec()),
        ("proof, dialling", proof(0)),
        ("proof, answering", proof(1)),
    ];
    said.extend(frames());
    said.extend(purposes().map(|(name, purpose)| (name, datagram(purpose))));
    said.push(("sealed ping", sealed()));
    said
}

/// In digits, but for the latest version that the sender of a greeting speaks.
fn shown(name: &str, bytes: &[u8]) -> String {
    let mut bytes = bytes.to_vec();
    if name.starts_with("greeting") || name == "starting" {
        bytes[8..12].fill(0);
    }
    hexadecimal(&bytes)
}

#[test]
fn this_version_says_what_version_8_said() {
    let (now, then) = (conversation(), recorded());
    for (name, bytes) in &now {
        let before = then.get(name).map(|bytes| shown(name, bytes));
        assert_eq!(Some(shown(name, bytes)), before, "{name}");
    }
    assert_eq!(now.len(), then.len());
}

#[test]
fn greetings_and_proofs_of_version_8_are_believed() {
    let heard = recorded();
    let names = ["greeting, dialling", "greeting, answering"];
    let transcript = Transcript::new(&[0; 32], &heard[names[0]], &heard[names[1]]);
    for (at, proof) in ["proof, dialling", "proof, answering"].into_iter().enumerate() {
        let (head, body) = heard[names[at]].split_first_chunk::<HEAD>().expect("a greeting");
        assert_eq!(head[8..12], [8, 0, 0, 0]);
        assert_eq!(greeting::length(head), Ok(body.len()), "this program speaks a version of the sender's");
        let said = greeting::decode(body).expect("a greeting");
        assert_eq!(said, greets(at));
        let proof: [u8; PROOF] = heard[proof][..].try_into().expect("a signature");
        // The other side verifies it.
        let keys = keys();
        assert_eq!(transcript.prover(at == 0, &said, &proof.into(), &keys[1 - at]), Some(keys[at].node()));
    }
    assert_eq!(greeting::decode(&heard["greeting of a guest"][HEAD..]), Ok(guest()));
    let starting = heard["starting"].first_chunk().expect("a head");
    assert_eq!(greeting::length(starting), Err(wire::WireError::Starting { percent: 27 }));
}

#[test]
fn frames_of_version_8_are_understood() {
    let heard = recorded();
    let header = |name: &str| FrameHeader::decode(heard[name].first_chunk().expect("a frame")).expect("a header");
    let payload = |name: &str, kind: Kind| {
        let (header, payload) = (header(name), &heard[name][HEADER..]);
        assert_eq!((header.kind, header.length as usize), (kind, payload.len()), "{name}");
        payload
    };
    for (at, (name, kind)) in [("sync", Kind::Sync), ("synced", Kind::Synced)].into_iter().enumerate() {
        let said = wire::decode_snapshot(payload(name, kind)).expect("a snapshot");
        assert!(said == snapshot(at), "{name}: {said:#?}");
        let keys = keys();
        assert!(said.members.iter().chain(&said.gateways).all(|member| member.is_genuine(&keys[0])));
        assert!(said.records.iter().all(|record| record.is_genuine(&keys[at].key(), &keys[0]) && record.is_sound()));
    }
    for (name, priority, insists) in GETS {
        assert_eq!(Get::decode(payload(name, Kind::Get)), Ok(GET));
        assert_eq!((header(name).priority, header(name).insists), (priority, insists), "{name}");
    }
    for (name, refusal) in REFUSALS {
        assert_eq!(header(name), FrameHeader::refuse(9, refusal));
    }
    assert_eq!((payload("data", Kind::Data), header("data").waited_ms), (&b"bytes"[..], 258));
    assert_eq!((payload("cancel", Kind::Cancel), payload("patience", Kind::Patience)), (&[][..], &[][..]));
    assert_eq!(wire::decode_redirect(payload("redirect", Kind::Redirect)), Ok(NodeId(77)));
    assert_eq!(wire::decode_prove(payload("prove", Kind::Prove)), Ok(image()));
    assert_eq!(wire::decode_proof(payload("proof", Kind::Proof)), Ok(proof_of_image()));
    assert_eq!(wire::decode_dial_back(payload("dial back", Kind::DialBack)), Ok(true));
    assert_eq!(wire::decode_dialled_back(payload("dialled back", Kind::DialledBack)), Ok(DialledBack::Refused));
    assert_eq!(wire::decode_header(payload("header", Kind::Header)), Ok(image()));
    let proof = wire::decode_header_proof(payload("header proof", Kind::HeaderProof)).expect("a proof");
    assert_eq!(proof.verify(image()), Some(self::header()));
    assert_eq!(wire::decode_list_question(payload("admission question", Kind::AdmissionQuestion)), Ok(question()));
    assert_eq!(wire::decode_list(payload("admission list", Kind::AdmissionList)), Ok(list()));
    assert_eq!(wire::decode_speed(payload("speed", Kind::Speed)), Ok(Speed(77)));
}

#[test]
fn gossip_of_version_8_is_understood() {
    let heard = recorded();
    for (name, purpose) in purposes() {
        let (said, items) = message::parse(&heard[name]).expect("a datagram");
        assert_eq!((said, items.collect::<Vec<_>>()), (head(purpose), news(purpose)), "{name}");
    }
    assert!(farewell().is_genuine(&keys()[1]));
    let ring = KeyRing::new([field_key()]).expect("a key");
    let mut sealed = heard["sealed ping"].clone();
    let opened = Opening::default().open(&ring, &mut sealed, Duration::ZERO).expect("the key is there");
    assert_eq!(opened, heard["ping"]);
}

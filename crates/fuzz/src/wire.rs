//! What a node says over TCP: a greeting, then frames.
//!
//! Promises: a length passed on is valid for its kind; parsed input is written and parsed again as
//! the same, and as the same bytes where only one encoding exists (headers, requests, ids).

use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::greeting::{self, Greeting};
use vfield_core::header_proof::HeaderProof;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::{Member, message};
use vfield_core::placement::{Arc, Filled};
use vfield_core::prefetch::PrefetchList;
use vfield_core::reach::Reach;
use vfield_core::record::{Record, Subject};
use vfield_core::signing::{Signature, Simulated};
use vfield_core::snapshot::Snapshot;
use vfield_core::wire::{
    self, FrameHeader, GET_FRAME, Get, GetSlice, HEADER, Kind, ListQuestion, Priority, Proof, Refusal, SignedList,
};
use vfield_node::compression;

/// A stream: of greetings if it begins with the magic, else of frames.
pub fn target(bytes: &[u8]) {
    if bytes.starts_with(&greeting::MAGIC) {
        greet(bytes);
        return;
    }
    let mut rest = bytes;
    while let Some((head, later)) = rest.split_first_chunk::<HEADER>() {
        let Ok(header) = FrameHeader::decode(head) else { return };
        assert_eq!(header.encode(), *head, "a header has one encoding");
        assert!(u64::from(header.length) <= ChunkSize::MAX.bytes(), "{header:?}");
        let Some((payload, later)) = later.split_at_checked(header.length as usize) else { return };
        frame(&header, payload);
        rest = later;
    }
}

fn greet(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<{ greeting::HEAD }>() else { return };
    let Ok(length) = greeting::length(head) else { return };
    assert!(length <= 1 << 10, "a greeting of {length} bytes");
    let Some(Ok(said)) = rest.get(..length).map(greeting::decode) else { return };
    let again = greeting::greeting(&said);
    assert_eq!(greeting::decode(&again[greeting::HEAD..]), Ok(said));
}

fn frame(header: &FrameHeader, payload: &[u8]) {
    let request = header.request;
    match header.kind {
        Kind::Get => {
            let get = Get::decode(payload).expect("its length was checked");
            let again = get.frame(request, header.priority, header.insists);
            assert_eq!(again[..HEADER], header.encode());
            assert_eq!(again[HEADER..], *payload);
        }
        Kind::GetSlice => {
            let Ok(get) = GetSlice::decode(payload) else { return };
            assert_eq!(get.frame(request)[HEADER..], *payload);
        }
        Kind::Redirect => {
            let node = wire::decode_redirect(payload).expect("its length was checked");
            assert_eq!(wire::redirect_frame(request, node)[HEADER..], *payload);
        }
        Kind::Prove => {
            let image = wire::decode_prove(payload).expect("its length was checked");
            assert_eq!(wire::prove_frame(request, image)[HEADER..], *payload);
        }
        Kind::Proof => {
            let Ok(proof) = wire::decode_proof(payload) else { return };
            assert!(proof.fits());
            assert_eq!(wire::decode_proof(&wire::proof_frame(request, &proof)[HEADER..]), Ok(proof));
        }
        Kind::Sync | Kind::Synced => {
            let Ok(snapshot) = wire::decode_snapshot(payload) else { return };
            let again = wire::snapshot_frame(header.kind, request, snapshot.clone());
            assert_eq!(wire::decode_snapshot(&again[HEADER..]), Ok(snapshot));
        }
        Kind::DialBack => {
            let Ok(lost) = wire::decode_dial_back(payload) else { return };
            assert_eq!(wire::dial_back_frame(request, lost)[HEADER..], *payload);
        }
        Kind::DialledBack => {
            let Ok(what) = wire::decode_dialled_back(payload) else { return };
            assert_eq!(wire::dialled_back_frame(request, what)[HEADER..], *payload);
        }
        Kind::Header => {
            let image = wire::decode_header(payload).expect("its length was checked");
            assert_eq!(wire::header_frame(request, image)[HEADER..], *payload);
        }
        Kind::HeaderProof => {
            let Ok(proof) = wire::decode_header_proof(payload) else { return };
            assert_eq!(wire::header_proof_frame(request, &proof)[HEADER..], *payload);
        }
        Kind::AdmissionQuestion => {
            let Ok(question) = wire::decode_list_question(payload) else { return };
            assert_eq!(
                wire::decode_list_question(&wire::list_question_frame(request, &question)[HEADER..]),
                Ok(question)
            );
        }
        Kind::AdmissionList => {
            let Ok(list) = wire::decode_list(payload) else { return };
            assert_eq!(wire::decode_list(&wire::list_frame(request, &list)[HEADER..]), Ok(list));
        }
        Kind::Speed => {
            let speed = wire::decode_speed(payload).expect("its length was checked");
            assert_eq!(wire::speed_frame(speed)[HEADER..], *payload);
        }
        Kind::Compressed(codec) => {
            let mut plain = vec![0; 64 << 10];
            if compression::unpack(codec, payload, &mut plain) {
                assert!(payload.len() < plain.len());
            }
        }
        Kind::AccountQuestion => {
            let (image, chunk) = wire::decode_account_question(payload).expect("its length was checked");
            assert_eq!(wire::account_question_frame(request, image, chunk)[HEADER..], *payload);
        }
        Kind::Account => {
            let Ok(account) = wire::decode_account(payload) else { return };
            assert_eq!(wire::decode_account(&wire::account_frame(request, &account)[HEADER..]), Ok(account));
        }
        Kind::Here => {
            let Ok((image, chunks)) = wire::decode_here(payload) else { return };
            assert_eq!(wire::here_frame(image, &chunks)[HEADER..], *payload);
        }
        Kind::Gossip => {
            assert_eq!(wire::gossip_frame(payload)[HEADER..], *payload);
            if let Some((_, items)) = message::parse(payload) {
                items.for_each(drop);
            }
        }
        Kind::PrefetchQuestion => {
            let image = wire::decode_prefetch_question(payload).expect("its length was checked");
            assert_eq!(wire::prefetch_question_frame(request, image)[HEADER..], *payload);
        }
        Kind::PrefetchLists => {
            let Ok(lists) = wire::decode_prefetch_lists(payload) else { return };
            for list in lists.iter().filter_map(|(_, bytes)| PrefetchList::decode(bytes, u64::MAX).ok()) {
                assert_eq!(PrefetchList::decode(&list.encode(), u64::MAX), Ok(list));
            }
            assert_eq!(wire::decode_prefetch_lists(&wire::prefetch_lists_frame(request, &lists)[HEADER..]), Ok(lists));
        }
        Kind::Refuse => assert!(header.refusal.is_some() && payload.is_empty()),
        Kind::Cancel | Kind::Patience => assert!(payload.is_empty()),
        Kind::Data | Kind::Slice | Kind::Unknown(_) => {}
    }
}

/// A member for seeds.
pub(crate) fn identity(node: u64) -> Identity {
    let zone = Zone::named("rack-7").unwrap_or_default();
    Identity { addr: ([198, 18, 0, node as u8], 4000).into(), node: NodeId(node), generation: 1, zone }
}

/// What a member says, for seeds.
pub(crate) fn record(node: u64) -> Record {
    let record = Record {
        node: NodeId(node),
        version: 3,
        progress: 2,
        subject: Subject {
            image: ImageId([0; 32]),
            names: "os".into(),
            header: Header::new(600 * ChunkSize::MIN.bytes(), ChunkSize::MIN, 600).expect("a header").encode(),
        }
        .into(),
        origin: false,
        arc: Arc { start: 5, length: 100 },
        filled: Filled { from: 0, count: 50 },
        leaving: false,
        signature: Signature::default(),
    };
    record.signed(&Simulated(NodeId(node)))
}

/// What a member says of itself, for seeds.
pub(crate) fn member(node: u64) -> Member {
    Member::signed(identity(node), 2, false, &Simulated(NodeId(node)))
}

/// What nodes know of a field of two, for seeds.
pub(crate) fn snapshot() -> Snapshot {
    Snapshot { members: vec![member(1), member(2)], records: vec![record(1)], ..Snapshot::default() }
}

fn greeting(member: Option<Member>) -> Vec<u8> {
    let (key, you) = (Simulated::key_of(NodeId(1)), ([198, 18, 0, 2], 4000).into());
    greeting::greeting(&Greeting { key, nonce: [7; 32], member, you, latest: 1 })
}

/// A greeting, and one frame of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let get = Get { image: ImageId([7; 32]), chunk: Chunk(12), reach: Reach::READER };
    let get: [u8; GET_FRAME] = get.frame(1, Priority::ReadAhead, true);
    let data = [&FrameHeader::new(Kind::Data, 1, 3).encode()[..], b"abc"].concat();
    let proof = Proof { statement: "a statement".to_owned(), signature: "a signature".to_owned() };
    let header = Header::new(600 * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT, 600).expect("a header");
    vec![
        greeting(Some(member(1))),
        greeting(None),
        get.to_vec(),
        data,
        FrameHeader::refuse(1, Refusal::SourceChanged).encode().to_vec(),
        FrameHeader::new(Kind::Cancel, 1, 0).encode().to_vec(),
        FrameHeader::new(Kind::Patience, 1, 0).encode().to_vec(),
        wire::redirect_frame(1, NodeId(2)),
        wire::prove_frame(1, ImageId([7; 32])),
        wire::proof_frame(1, &proof),
        wire::header_frame(1, ImageId([7; 32])),
        wire::header_proof_frame(1, &HeaderProof::of(&header, &[9; 600 * 32])),
        wire::list_question_frame(1, &ListQuestion { signers: vec![7], ..ListQuestion::default() }),
        wire::list_frame(1, &SignedList { text: "a list".to_owned(), signature: "a signature".to_owned() }),
        wire::snapshot_frame(Kind::Sync, 1, snapshot()),
        wire::snapshot_frame(Kind::Synced, 1, Snapshot::default()),
    ]
}

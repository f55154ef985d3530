//! A core that is told anything, by peers and by its own shell, in any order.
//!
//! Promises: it keeps its capacity, comes to rest without time going on, says no more than a
//! bounded number of things about one input, and keeps its own identity.

use crate::wire::{identity, member, record};
use arbitrary::{Result, Unstructured};
use std::sync::Arc;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::{Asker, ConnectionId, RequestId, Token};
use vfield_core::identity::NodeId;
use vfield_core::image::{Header, ImageId};
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::reach::Reach;
use vfield_core::signing::Simulated;
use vfield_core::speed::{Speed, Transit};
use vfield_core::time::Time;
use vfield_core::wire::{self, Priority, Refusal};

const ME: u64 = 3;
/// As many steps as a node can be told in a moment.
const STEPS_MAX: usize = 64;
/// So many things may follow from one step: the image has 600 chunks, and everybody may wait for
/// each.
const OUTPUTS_MAX: usize = 10_000;
const CHUNKS: u64 = 600;

/// What happens, step by step.
pub fn target(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut now = Time::after_start(Duration::from_secs(1));
    let config = Config {
        window_bytes: 8 * ChunkSize::MIN.bytes(),
        transient_bytes: 8 * ChunkSize::MIN.bytes(),
        io_timeout: Some(Duration::from_secs(1)),
        ..Config::default()
    };
    let mut node = Node::new(identity(ME), Arc::new(Simulated(NodeId(ME))), config, 42, now);
    let header = Header::decode(&record(1).subject.header).expect("its own");
    for (image, origin, chunks) in [(0, false, 200), (1, true, 0)] {
        let (id, capacity_bytes) = (ImageId([image; 32]), chunks * ChunkSize::MIN.bytes());
        node.add_image(
            now,
            ImageConfig { id, names: format!("image-{image}").into(), header, origin, capacity_bytes, kept: None },
        );
    }
    let mut open: Vec<RequestId> = Vec::new();
    for token in 0..STEPS_MAX as u64 {
        let Ok(happened) = step(&mut input, &mut now, token, &mut open) else { break };
        node.handle(now, happened);
        let mut wakes = 0;
        while node.next_wake().is_some_and(|next| next <= now) {
            wakes += 1;
            assert!(wakes < 1_000, "it spins");
            node.handle(now, Input::Wake);
        }
        let mut said = 0;
        while let Some(output) = node.poll() {
            said += 1;
            assert!(said < OUTPUTS_MAX, "it does not come to rest");
            if let Output::Request { request, .. } = output {
                open.push(request);
            }
        }
        for view in node.images() {
            assert!(view.stored <= view.capacity && (0.0..=1.0).contains(&view.coverage.share), "{view:?}");
        }
        assert_eq!(node.me().node, NodeId(ME));
        let _ = (node.members(), node.sole_chunks(), node.is_filled(), node.is_covered(1));
    }
}

fn step(input: &mut Unstructured<'_>, now: &mut Time, token: u64, open: &mut Vec<RequestId>) -> Result<Input> {
    if input.is_empty() {
        return Err(arbitrary::Error::NotEnoughData);
    }
    let image = |number: u8| ImageId([number % 3; 32]);
    let node = |number: u8| NodeId(u64::from(number % 7));
    Ok(match input.arbitrary::<u8>()? % 16 {
        0 => {
            *now = *now + Duration::from_micros(u64::from(input.arbitrary::<u32>()?));
            Input::Wake
        }
        1 | 2 => {
            let length = usize::from(input.arbitrary::<u8>()?).min(input.len());
            let message = [b"VFG\x03", input.bytes(length)?].concat();
            if input.ratio(1u8, 2u8)? {
                Input::Gossip(NodeId(2), message)
            } else {
                Input::Datagram(identity(2).addr, message)
            }
        }
        3 | 4 => {
            let length = usize::from(input.arbitrary::<u16>()?).min(input.len());
            let learned = |snapshot| Input::Learned { from: NodeId(1), snapshot };
            wire::decode_snapshot(input.bytes(length)?).map_or(Input::Wake, learned)
        }
        5 => Input::Met(member(u64::from(input.arbitrary::<u8>()? % 7))),
        6 => {
            let (of, start) = (image(input.arbitrary()?), u64::from(input.arbitrary::<u16>()?) % CHUNKS);
            let end = (start + 1 + u64::from(input.arbitrary::<u8>()? % 16)).min(CHUNKS);
            Input::Read { token: Token(token), image: of, chunks: start..end }
        }
        7 => Input::CancelRead(Token(u64::from(input.arbitrary::<u8>()?))),
        8 => {
            let connection = ConnectionId(u64::from(input.arbitrary::<u8>()? % 4));
            let asker = Asker { connection, request: token, reach: Reach(input.arbitrary()?) };
            let chunk = Chunk(u64::from(input.arbitrary::<u16>()?) % 700);
            Input::Asked { asker, image: image(input.arbitrary()?), chunk, priority: Priority::Demand }
        }
        9 => Input::AskerGone(ConnectionId(u64::from(input.arbitrary::<u8>()? % 4))),
        10 => Input::Broken(node(input.arbitrary()?)),
        11 => Input::Misbehaved(node(input.arbitrary()?)),
        12 => Input::Progress(node(input.arbitrary()?)),
        14 => Input::Delivers(node(input.arbitrary()?), Speed(input.arbitrary()?)),
        15 => {
            let chunks =
                (0..input.arbitrary::<u8>()? % 8).map(|_| Ok(Chunk(u64::from(input.arbitrary::<u16>()?) % 700)));
            let chunks = chunks.collect::<arbitrary::Result<Vec<_>>>()?;
            Input::Here { from: node(input.arbitrary()?), image: image(input.arbitrary()?), chunks }
        }
        13 if input.arbitrary::<u8>()? % 16 == 0 => Input::Leave,
        _ if open.is_empty() => Input::Wake,
        _ => {
            let request = open.swap_remove(usize::from(input.arbitrary::<u16>()?) % open.len());
            match input.arbitrary::<u8>()? % 7 {
                0 => Input::Corrupt(request),
                1 => Input::Unusable(request),
                2 => Input::Refused(request, Refusal::NotHeld),
                3 => Input::Refused(request, Refusal::SourceChanged),
                4 => Input::Redirected(request, node(input.arbitrary()?)),
                5 => Input::Lost(request),
                _ => {
                    let waited = Duration::from_millis(input.arbitrary()?);
                    let took = Duration::from_micros(input.arbitrary::<u32>()?.into());
                    let transit = Transit { took, beside: input.arbitrary()? };
                    Input::Arrived { request, waited, transit, zeros: Vec::new() }
                }
            }
        }
    })
}

/// A field that is learnt of and read from; gossip; askers.
pub fn seeds() -> Vec<Vec<u8>> {
    let snapshot = wire::snapshot_frame(wire::Kind::Sync, 1, crate::wire::snapshot());
    let snapshot = &snapshot[wire::HEADER..];
    let mut learn = vec![3];
    learn.extend((snapshot.len() as u16).to_le_bytes());
    learn.extend(snapshot);
    let read = [&learn[..], &[6, 0, 5, 0, 9, 0, 0, 0, 1, 0, 15, 0, 0, 6, 15, 0, 0, 6, 14]].concat();
    let gossip = crate::gossip::seeds().into_iter().flat_map(|datagram| {
        let body = &datagram[4..];
        [&[1, body.len() as u8], body].concat()
    });
    let asked = [&learn[..], &[8, 1, 255, 255, 255, 255, 7, 0, 0, 9, 1, 10, 1, 0, 255, 255, 255, 0]].concat();
    vec![read, gossip.collect(), asked]
}

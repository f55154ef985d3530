//! Turns the state of a node's parts into a [`Status`].

use super::keeping;
use crate::driver::Driver;
use crate::gossip;
use crate::image::LocalImage;
use crate::namesakes::{self, Namesake};
use crate::origin::OriginState;
use crate::source::Source;
use crate::status::{
    AdmissionStatus, FieldStatus, GoneStatus, IdentityStatus, ImageStatus, NamesakeStatus, NodeStatus, RiskStatus,
    SignatureStatus, Sole, SourceStatus, Status, WaitingChunk, ZoneStatus,
};
use crate::waits::LONG;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;
use vfield_block::gather::Gather as _;
use vfield_core::chunk::Chunk;
use vfield_core::hex::hex;
use vfield_core::identity::Identity;
use vfield_core::image::ImageId;
use vfield_core::misdeed::Tally;
use vfield_core::node::{Claim, ImageView, LongestWait, MemberView, Node as Core, Rubbish, Waited, ZonesView};
use vfield_core::signing::Signatures as _;
use vfield_trust::KeyRing;
use vfield_trust::admission::Verified;

/// Most waiting chunks listed for each image.
const WAITING_MAX: usize = 64;
/// How long departed members are shown.
const GONE_FOR: Duration = Duration::from_secs(600);

/// The words for tables of records that are nearly full.
const FULL: &str = "the field has more images on more nodes than this node remembers: of images that it does not \
                    read, it knows some holders only";

/// The node's view at this moment.
pub fn status(driver: &Driver, uptime: Duration) -> Status {
    let (images, waits, members, zones, claims) =
        driver.look(|core| (core.images(), core.longest_waits(LONG), core.members(), core.zones(), core.claims()));
    let (traffic, peers) = driver.counters.report();
    let mut warnings = driver.warnings();
    warnings.extend(driver.whereabouts.unreached());
    warnings.extend(driver.whereabouts.shut(&members));
    let addrs = |members: &mut dyn Iterator<Item = Identity>| members.map(|member| member.addr).collect::<Vec<_>>();
    let (no_datagrams, no_way) =
        driver.look(|core| (addrs(&mut core.without_datagrams()), addrs(&mut core.without_a_way())));
    warnings.extend(no_datagrams.split_first().map(|(first, others)| gossip::blocked(*first, others)));
    warnings.extend(no_way.split_first().map(|(first, others)| gossip::parted(*first, others)));
    if driver.look(Core::remembers_no_more) {
        warnings.push(FULL.to_owned());
    }
    let addr = |node| members.iter().find(|member| member.identity.node == node).map(|member| member.identity.addr);
    let mut rubbish: BTreeMap<ImageId, Rubbish> = driver.look(Core::rubbish).into_iter().gathered();
    let images: Vec<ImageStatus> = images
        .into_iter()
        .filter_map(|view| {
            let risk = view.at_risk.and_then(|(node, share)| Some(RiskStatus { addr: addr(node)?.to_string(), share }));
            let dependents =
                view.dependents.iter().filter_map(|node| addr(*node)).map(|addr| addr.to_string()).collect();
            let local = driver.image(view.id)?;
            let rubbish = rubbish.remove(&view.id).map(|rubbish| keeping::rubbish(&local, rubbish));
            let waiting = waiting(&view.waiting, waits.iter().find(|longest| longest.image == view.id));
            Some(ImageStatus { at_risk: risk, dependents, rubbish, waiting, ..image(driver, &local, view, &claims) })
        })
        .collect();
    let me = members.first().map(|me| me.identity);
    Status {
        node: me.map_or_else(String::new, |me| me.node.to_string()),
        addr: me.map_or_else(String::new, |me| me.addr.to_string()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: uptime.as_secs_f64(),
        draining: driver.look(Core::is_draining),
        images,
        zone: zone(members.first(), &zones),
        nodes: nodes(members, &zones),
        gone: gone(driver),
        traffic,
        peers,
        field: field(driver),
        identity: IdentityStatus { key: hex(&driver.key.key().0), lasting: driver.lasting_key },
        admission: driver.admissions.in_force().map(|list| admission_list(driver, &list)),
        tags: Vec::new(),
        misdeeds: misdeeds(driver),
        warnings,
    }
}

fn field(driver: &Driver) -> FieldStatus {
    let ring = driver.keys.ring();
    FieldStatus {
        closed: ring.is_some(),
        keys: ring.iter().flat_map(KeyRing::ids).map(|id| id.to_string()).collect(),
        turned_away: driver.keys.turned_away_count(),
        dropped_datagrams: driver.keys.dropped_count(),
    }
}

fn admission_list(driver: &Driver, list: &Verified) -> AdmissionStatus {
    AdmissionStatus {
        timestamp: list.version.timestamp,
        signer: list.signed.key.clone(),
        allowed: list.admission.allowed() as u64,
        revoked: list.admission.revoked() as u64,
        turned_away: driver.admissions.turned_away_count(),
    }
}

/// The counts of the core and those of connections.
fn misdeeds(driver: &Driver) -> Tally {
    let mut tally = driver.look(Core::misdeeds);
    tally.extend(driver.misdeeds.all());
    tally
}

fn namesake(Namesake { name, id, addr, served, nodes }: Namesake) -> NamesakeStatus {
    let addr = addr.map(|addr| addr.to_string()).unwrap_or_default();
    NamesakeStatus { name, id: id.to_string(), addr, served, nodes: nodes as u64 }
}

fn image(driver: &Driver, image: &LocalImage, view: ImageView, claims: &[Claim]) -> ImageStatus {
    let chunk = image.geometry().chunk_bytes();
    let source = image.source().map(source);
    let signed = driver.proofs.signed(view.id);
    ImageStatus {
        name: image.name().to_owned(),
        names: image.names().iter().map(str::to_owned).collect(),
        id: view.id.to_string(),
        size_bytes: image.geometry().header().length_bytes(),
        chunk_size_bytes: chunk,
        coverage: view.coverage.share,
        multiplicity_min: view.coverage.multiplicity_min,
        verified: view.verified.share,
        origin_may_leave: view.coverage.multiplicity_min > 0
            && view.verified.multiplicity_min > 0
            && view.dependents.is_empty(),
        dependents: Vec::new(),
        at_risk: None,
        origins: view.origins + u64::from(view.origin),
        source,
        capacity_bytes: view.capacity.min(image.geometry().stored_max()) * chunk,
        held_bytes: view.stored * chunk,
        filled: view.filled,
        taken_over_bytes: image.store().adopted_bytes(),
        on_disk: image.store().is_on_disk(),
        large_pages: image.store().is_in_large_pages(),
        compressed_bytes: image.store().compressed_memory_bytes(),
        spoiled_chunks: image.store().spoiled(),
        withheld_chunks: image.store().withheld_chunks(),
        shared_bytes: image.store().lent_bytes(),
        transient_bytes: view.transient * chunk,
        signed: signed.map(|signed| SignatureStatus { key: signed.key, timestamp: signed.timestamp }),
        namesakes: namesakes::of(image, claims).into_iter().map(namesake).collect(),
        needed: keeping::needed(driver, view.id),
        rubbish: None,
        waiting: Vec::new(),
    }
}

/// The chunks that nobody can be asked for, and that of the read that waits longest, if for long: a
/// holder may be silent.
fn waiting(vain: &[Waited], longest: Option<&LongestWait>) -> Vec<WaitingChunk> {
    let chunk = |chunk: Chunk, wait: Duration, why: &dyn Display| WaitingChunk {
        chunk: chunk.0,
        for_s: wait.as_secs_f64(),
        why: why.to_string(),
    };
    let longest = longest.filter(|longest| vain.iter().all(|waited| waited.chunk != longest.chunk));
    let longest = longest.map(|longest| chunk(longest.chunk, longest.wait, &longest.held_up));
    let vain = vain.iter().map(|waited| chunk(waited.chunk, waited.wait, &waited.why));
    longest.into_iter().chain(vain).take(WAITING_MAX).collect()
}

/// The data that would be lost with this node, by image.
pub fn sole(driver: &Driver) -> Vec<Sole> {
    let sole = driver.look(Core::sole);
    let of_image = |(id, chunks): (ImageId, u64)| {
        let image = driver.image(id)?;
        let geometry = image.geometry();
        let bytes = (chunks * geometry.chunk_bytes()).min(geometry.header().length_bytes());
        let share = (chunks as f64 / geometry.chunks() as f64).min(1.0);
        Some(Sole { image: image.name().to_owned(), bytes, share })
    };
    sole.into_iter().filter_map(of_image).collect()
}

fn source(source: &Source) -> SourceStatus {
    let (state, why) = match source.state() {
        OriginState::Intact => ("intact", String::new()),
        OriginState::Checked => ("checked", String::new()),
        OriginState::Changed { .. } => ("changed", String::new()),
        OriginState::Unreachable { why } => ("unreachable", why),
    };
    let moved = source.moved().map(|moved| moved.to_string()).unwrap_or_default();
    SourceStatus { path: source.path().display().to_string(), state: state.to_owned(), why, moved }
}

fn zone(me: Option<&MemberView>, zones: &ZonesView) -> ZoneStatus {
    ZoneStatus {
        name: me.map_or_else(String::new, |me| me.identity.zone.to_string()),
        gateway: zones.is_gateway,
        zones: zones.zones as u64,
        gateways: (zones.near.len() + zones.far.len()) as u64,
    }
}

fn nodes(members: Vec<MemberView>, zones: &ZonesView) -> Vec<NodeStatus> {
    let near = members.into_iter().map(|member| NodeStatus {
        gateway: zones.near.contains(&member.identity.node),
        key: hex(&member.key.0),
        capacity_bytes: member.capacity_bytes,
        held_bytes: member.held_bytes,
        origin_of: member.origin_of,
        link_bytes_per_s: member.speed.bytes_per_s(),
        ..node(&member.identity, member.state)
    });
    let far = zones.far.iter().map(|(gateway, state)| NodeStatus { gateway: true, ..node(gateway, state) });
    near.chain(far).collect()
}

/// Recently departed members, the latest first.
fn gone(driver: &Driver) -> Vec<GoneStatus> {
    let former = driver.look(Core::former).into_iter().rev();
    let lately = former.filter(|(_, ago)| *ago < GONE_FOR);
    let gone = lately.map(|(former, ago)| GoneStatus {
        id: former.identity.node.to_string(),
        addr: former.identity.addr.to_string(),
        how: former.how.name().to_owned(),
        ago_s: ago.as_secs_f64(),
    });
    gone.collect()
}

fn node(identity: &Identity, state: &str) -> NodeStatus {
    NodeStatus {
        id: identity.node.to_string(),
        addr: identity.addr.to_string(),
        state: state.to_owned(),
        zone: identity.zone.to_string(),
        ..NodeStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::fetch::Why;
    use vfield_core::node::HeldUp;

    fn silent(chunk: u64) -> LongestWait {
        LongestWait {
            image: ImageId([7; 32]),
            chunk: Chunk(chunk),
            wait: Duration::from_secs(12),
            held_up: HeldUp::Answers(vec!["192.0.2.1:4440".parse().expect("an address")]),
            holder: None,
        }
    }

    fn vain(chunk: u64) -> Waited {
        Waited { chunk: Chunk(chunk), wait: Duration::from_secs(3), why: Why::NoHolder }
    }

    #[test]
    fn a_read_of_a_holder_that_says_nothing_is_shown_beside_those_that_wait_in_vain() {
        let shown = |vain: &[Waited], longest: &LongestWait| {
            let chunks = waiting(vain, Some(longest)).into_iter();
            chunks.map(|waited| (waited.chunk, waited.for_s, waited.why)).collect::<Vec<_>>()
        };
        let asked = (5, 12.0, "no answer has come from 192.0.2.1:4440".to_owned());
        let nobody = |chunk| (chunk, 3.0, "no live node holds it".to_owned());
        assert_eq!(waiting(&[], None), []);
        assert_eq!(shown(&[vain(2), vain(9)], &silent(5)), [asked, nobody(2), nobody(9)]);
        // The same chunk once, however it is known.
        assert_eq!(shown(&[vain(5)], &silent(5)), [nobody(5)]);
        let many: Vec<Waited> = (10..200).map(vain).collect();
        assert_eq!(waiting(&many, Some(&silent(5))).len(), WAITING_MAX);
    }
}

//! `vfield status` for people: aligned text on 80 columns.
//!
//! Turns a [`DaemonStatus`] into lines; asks no daemon. It shows coverage, whether the origin may
//! leave and why, waiting reads and the sources of bytes.

use crate::limit;
use crate::rubbish::stays;
use vfield_console::text::{aligned, clean, line};
use vfield_console::values::duration;
use vfield_console::values::size::human;
use vfield_control::message::{DaemonStatus, FollowingStatus, OverlayStatus};
use vfield_control::offer::MemoryStatus;
use vfield_control::shares::{apart_text, some_percent};
use vfield_control::slow_links::slow_links;
use vfield_core::misdeed::Tally;
use vfield_node::status::{
    AdmissionStatus, FieldStatus, GoneStatus, ImageStatus, NamesakeStatus, NodeStatus, PeerTraffic, Status, Traffic,
    VersionStatus, WaitingChunk, ZoneStatus,
};

/// A line of a terminal; a longer list has a line for each part.
const COLUMNS: usize = 80;
/// More waiting chunks, nodes, nodes that went or peers than this are counted, not listed.
const WAITING_SHOWN: usize = 5;
const NODES_SHOWN: usize = 50;
const GONE_SHOWN: usize = 10;
const PEERS_SHOWN: usize = 10;

/// All of it.
pub fn text(status: &DaemonStatus) -> String {
    let node = &status.node;
    let mut out = format!(
        "node {} at {}, up {}, version {}\n",
        clean(&node.node),
        clean(&node.addr),
        duration::human(node.uptime_s),
        clean(&node.version)
    );
    if node.draining {
        line(&mut out, "  drained: other nodes ask this one last; `vfield drain --undo` takes it back");
    }
    line(&mut out, &format!("  field  {}", field_text(&node.field)));
    if let Some(text) = identity_text(node) {
        line(&mut out, &format!("  nodes  {text}"));
    }
    if let Some(zone) = zone_text(&node.zone) {
        line(&mut out, &format!("  zone   {zone}"));
    }
    if !status.sandbox.is_empty() {
        let parts: Vec<String> = status.sandbox.iter().map(|part| clean(part)).collect();
        let one = format!("  sandbox  {}", parts.join("; "));
        let fits = one.chars().count() <= COLUMNS;
        line(&mut out, &if fits { one } else { format!("  sandbox  {}", parts.join("\n           ")) });
    }
    for export in &status.exports {
        line(&mut out, &format!("  export {}", clean(&export.to_string())));
    }
    line(&mut out, &format!("  memory {}", memory_text(&status.memory)));
    if status.limits.is_any() {
        line(&mut out, &format!("  limits {}", limit::text(&status.limits.up, &status.limits.down)));
    }
    for absent in status.limits.images.iter().filter(|limits| !limits.is_here) {
        line(&mut out, &format!("  limits of {}, which is not here", clean(&absent.image)));
    }
    if let Some(misdeeds) = misdeeds_text(&node.misdeeds) {
        line(&mut out, &format!("  misdeeds  {misdeeds}"));
    }
    for warning in &node.warnings {
        line(&mut out, &format!("  warning: {}", clean(warning)));
    }
    for image in &node.images {
        line(&mut out, "");
        out.push_str(&image_text(image));
        if let Some(limits) = status.limits.of_image(&image.names) {
            line(&mut out, &format!("  limits     {}", limit::text(&limits.up, &limits.down)));
        }
        for overlay in status.overlays.iter().filter(|overlay| overlay.id == image.id) {
            line(&mut out, &format!("  written    {}", overlay_text(overlay)));
        }
    }
    if node.images.is_empty() {
        line(&mut out, "\nno images");
    }
    out.push_str(&tags_text(status));
    out.push_str(&nodes_text(&node.nodes, &node.zone.name));
    out.push_str(&gone_text(&node.gone));
    out.push_str(&traffic_text(node));
    out
}

/// What it takes, and how much it may.
fn memory_text(memory: &MemoryStatus) -> String {
    let MemoryStatus { store_bytes, transient_bytes, process_bytes, limit_bytes, limit_by } = memory;
    let limit = match (limit_bytes, limit_by) {
        (Some(bytes), Some(by)) => format!("{} limit {}", clean(by), human(*bytes)),
        _ => "no limit".to_owned(),
    };
    let (stores, transient, process) = (human(*store_bytes), human(*transient_bytes), human(*process_bytes));
    format!("store {stores}, transient {transient}, process {process}, {limit}")
}

/// Who may be in the field.
fn field_text(field: &FieldStatus) -> String {
    let Some((spoken, others)) = field.keys.split_first() else {
        return "open: every machine that reaches this node can join; see `vfield key`".to_owned();
    };
    let others = match others {
        [] => String::new(),
        others => format!(", also accepts {}", clean(&others.join(", "))),
    };
    let turned_away = match field.turned_away {
        0 => String::new(),
        1 => "; 1 connection rejected".to_owned(),
        count => format!("; {count} connections rejected"),
    };
    format!("closed, encrypted, key {}{others}{turned_away}", clean(spoken))
}

/// Who this node is, and whom it admits; nothing for a drawn identity without a list.
fn identity_text(node: &Status) -> Option<String> {
    let lasting = node.identity.lasting.then(|| format!("this one has the lasting key {}", clean(&node.identity.key)));
    let list = node.admission.as_ref().map(|list| {
        let turned_away = match list.turned_away {
            0 => String::new(),
            count => format!(", {count} rejected"),
        };
        let AdmissionStatus { timestamp, allowed, revoked, .. } = list;
        format!("list signed at {timestamp}: {allowed} allowed, {revoked} revoked{turned_away}")
    });
    let said: Vec<String> = lasting.into_iter().chain(list).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// What strangers and peers did that they should not have; nothing if they behaved.
fn misdeeds_text(misdeeds: &Tally) -> Option<String> {
    let some: Vec<String> = misdeeds.counted().map(|(kind, count)| format!("{count} {}", kind.words())).collect();
    (!some.is_empty()).then(|| some.join(", "))
}

/// The zone it is in, and how many it knows; nothing where there is but one.
fn zone_text(zone: &ZoneStatus) -> Option<String> {
    let name = match zone.name.as_str() {
        "" if zone.zones <= 1 => return None,
        "" => "no name".to_owned(),
        name => clean(name),
    };
    let role = if zone.gateway { ", this node is a gateway" } else { "" };
    let counted = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    Some(format!("{name}{role}; knows {}, {}", counted(zone.zones, "zone"), counted(zone.gateways, "gateway")))
}

fn image_text(image: &ImageStatus) -> String {
    let id = image.id.get(..12).unwrap_or(&image.id);
    let mut out = format!(
        "image {}: {}, chunks of {} KiB, id {}\n",
        clean(&if image.names.is_empty() { image.name.clone() } else { image.names.join(", ") }),
        human(image.size_bytes),
        image.chunk_size_bytes >> 10,
        clean(id)
    );
    line(
        &mut out,
        &format!(
            "  coverage   {}, lowest multiplicity {}{}",
            percent(image.coverage),
            image.multiplicity_min,
            verified_text(image)
        ),
    );
    line(&mut out, &format!("  the origin may leave: {}", may_leave(image)));
    out.push_str(&risk_text(image));
    let fill = match (image.capacity_bytes, image.filled) {
        (0, _) if image.source.is_some() => "all of it, in the source".to_owned(),
        (0, _) => "nothing, its size is 0".to_owned(),
        (capacity, true) => format!("{} of {}, filled", human(image.held_bytes), human(capacity)),
        (capacity, false) => format!("{} of {}, filling", human(image.held_bytes), human(capacity)),
    };
    let transient = match image.transient_bytes {
        0 => String::new(),
        bytes => format!(", and {} transient", human(bytes)),
    };
    let place = match (image.on_disk, image.compressed_bytes) {
        (true, _) if image.capacity_bytes > 0 => ", on the disk".to_owned(),
        (false, Some(bytes)) => format!(", compressed to {}", human(bytes)),
        (false, None) if image.large_pages => ", in large pages".to_owned(),
        _ => String::new(),
    };
    line(&mut out, &format!("  held here  {fill}{place}{transient}"));
    if image.on_disk && image.spoiled_chunks > 0 {
        line(
            &mut out,
            &format!("  spoiled    {} chunks on the disk, which were fetched again or left out", image.spoiled_chunks),
        );
    }
    if image.withheld_chunks > 0 {
        let chunks = image.withheld_chunks;
        line(&mut out, &format!("  withheld   {chunks} chunks, which the disk does not deliver: others are asked"));
    }
    if image.taken_over_bytes > 0 {
        line(&mut out, &format!("  taken over {} from the daemon before this one", human(image.taken_over_bytes)));
    }
    if image.shared_bytes > 0 {
        line(&mut out, &format!("  shared     {} lie in the memory of other versions", human(image.shared_bytes)));
    }
    if let Some(rubbish) = &image.rubbish {
        let since = duration::human(rubbish.since_s);
        line(&mut out, &format!("  rubbish    nobody has needed it for {since}; {}", stays(rubbish)));
    }
    if let Some(signed) = &image.signed {
        line(&mut out, &format!("  signed     by {}, timestamp {}", clean(&signed.key), signed.timestamp));
    }
    for NamesakeStatus { name, id, addr, served, .. } in &image.namesakes {
        let (name, id, has) = (clean(name), clean(id.get(..12).unwrap_or(id)), if *served { "serves" } else { "has" });
        line(&mut out, &format!("  namesake   {} {has} another {name}; to join it: --image {name}={id}", clean(addr)));
    }
    if let Some(source) = &image.source {
        let unreachable = format!("DOES NOT DELIVER ({}): reads go on from stores, or wait", source.why);
        let state = match source.state.as_str() {
            "changed" => "CHANGED since it was published: its readers get errors",
            "intact" => "intact, writers are kept out",
            "checked" => "checked at each read",
            "unreachable" => &*unreachable,
            other => other,
        };
        line(&mut out, &format!("  source     {}: {}", clean(&source.path), clean(state)));
        if !source.moved.is_empty() {
            let moved = clean(&source.moved);
            line(
                &mut out,
                &format!("             was {moved}: the file that was opened is served until the daemon ends"),
            );
        }
    }
    out.push_str(&waiting_text(image));
    out
}

/// The tags: the image of each, the nodes that have it, and how far this node follows.
fn tags_text(status: &DaemonStatus) -> String {
    let mut out = String::new();
    for tag in &status.node.tags {
        let named = tag.image.as_deref().map_or("removed", |image| image.get(..12).unwrap_or(image));
        let rollout = if tag.rollout < 100 { format!(", for {} % of the nodes", tag.rollout) } else { String::new() };
        line(&mut out, &format!("\ntag {}: serial {}, {}{rollout}", clean(&tag.name), tag.serial, clean(named)));
        for version in &tag.versions {
            let VersionStatus { serial, nodes, filled, .. } = version;
            let noun = if *nodes == 1 { "node" } else { "nodes" };
            line(&mut out, &format!("  serial {serial}   on {nodes} {noun}, {filled} filled"));
        }
    }
    for following in &status.following {
        let FollowingStatus { tag, serial, image, state, why, .. } = following;
        let here =
            if image.is_empty() { "nothing yet".to_owned() } else { format!("serial {serial}, {}", clean(image)) };
        let state = if why.is_empty() { clean(state) } else { format!("{}: {}", clean(state), clean(why)) };
        line(&mut out, &format!("follows {}: {here}; {state}", clean(tag)));
    }
    out
}

/// How much was written, and how much may be.
pub fn overlay_text(overlay: &OverlayStatus) -> String {
    let place = if overlay.place == "ram" { "memory".to_owned() } else { clean(&overlay.place) };
    let zeros = match overlay.zero_bytes {
        0 => String::new(),
        bytes => format!(", and {} of zeros", human(bytes)),
    };
    let refused = match overlay.refused_bytes {
        0 => "",
        _ => {
            "; writes were refused, so flushes fail: `vfield overlay reset`, or save it and start again with it and a larger \
             --overlay-size"
        }
    };
    format!("{} of {}, in {place}{zeros}{refused}", human(overlay.held_bytes), human(overlay.max_bytes))
}

/// Whose death would cost most, once the stores hold everything.
fn risk_text(image: &ImageStatus) -> String {
    let Some(risk) = image.at_risk.as_ref().filter(|_| image.origin_may_leave) else { return String::new() };
    let until = if image.origins > 0 { ", if the origin is gone too" } else { "" };
    format!("  one copy   if {} dies, {} is lost{until}\n", clean(&risk.addr), some_percent(risk.share))
}

/// How much of the announced coverage this node has verified, once that matters.
fn verified_text(image: &ImageStatus) -> String {
    let announced = image.multiplicity_min > 0 && !image.origin_may_leave;
    if announced { format!("; {} verified", percent(image.verified)) } else { String::new() }
}

/// Whether, and why.
fn may_leave(image: &ImageStatus) -> String {
    let unverified = image.multiplicity_min > 0;
    if let Some(apart) = apart_text(&image.dependents) {
        return format!("{} {apart}", if image.origins > 0 { "no," } else { "it is gone;" });
    }
    match (image.origin_may_leave, image.origins) {
        (true, 0) => "it is gone, the stores hold all of it".to_owned(),
        (true, _) => "yes, the stores hold all of it".to_owned(),
        (false, 0) if unverified => "it is gone; this node is still verifying what the stores announce".to_owned(),
        (false, _) if unverified => "not yet, this node is still verifying what the stores announce".to_owned(),
        (false, 0) => format!("it is gone, {} of the chunks are in no store", missing(image.coverage)),
        (false, _) => format!("no, {} of the chunks are in no store yet", missing(image.coverage)),
    }
}

fn waiting_text(image: &ImageStatus) -> String {
    let mut waiting: Vec<_> = image.waiting.iter().collect();
    waiting.sort_unstable_by(|one, other| other.for_s.total_cmp(&one.for_s));
    let Some(longest) = waiting.first() else { return "  waiting    nothing\n".to_owned() };
    let chunks =
        if waiting.len() == 1 { "1 chunk".to_owned() } else { format!("{} chunks, the longest", waiting.len()) };
    let mut out = format!("  waiting    {chunks} for {}\n", duration::human(longest.for_s));
    for chunk in waiting.iter().take(WAITING_SHOWN) {
        line(
            &mut out,
            &format!("    {} for {}: {}", what(image, chunk), duration::human(chunk.for_s), clean(&chunk.why)),
        );
    }
    if waiting.len() > WAITING_SHOWN {
        line(&mut out, &format!("    and {} more", waiting.len() - WAITING_SHOWN));
    }
    out
}

/// A chunk for people: where it lies in the image; hash pages, whose numbers follow those of the
/// data, lie nowhere in it.
fn what(image: &ImageStatus, waiting: &WaitingChunk) -> String {
    let data = image.size_bytes.div_ceil(image.chunk_size_bytes.max(1));
    match waiting.chunk.checked_sub(data) {
        Some(page) => format!("hash page {page}"),
        None => format!("chunk {} at {}", waiting.chunk, human(waiting.chunk * image.chunk_size_bytes)),
    }
}

/// The nodes it knows; of which zones they are, if there is more than the one without a name.
fn nodes_text(nodes: &[NodeStatus], here: &str) -> String {
    let mut table = vec![["NODE", "ADDRESS", "STATE", "HELD", "OF", "ORIGIN OF"].map(str::to_owned).to_vec()];
    let zoned = nodes.iter().any(|node| !node.zone.is_empty());
    if zoned {
        table[0].push("ZONE (* GATEWAY)".to_owned());
    }
    for node in nodes.iter().take(NODES_SHOWN) {
        // What those of other zones hold is not known.
        let bytes = |bytes: u64| if node.zone == here { human(bytes) } else { String::new() };
        let mut row = vec![
            clean(node.id.get(..8).unwrap_or(&node.id)),
            clean(&node.addr),
            clean(&node.state),
            bytes(node.held_bytes),
            bytes(node.capacity_bytes),
            clean(&node.origin_of.join(", ")),
        ];
        if zoned {
            row.push(format!("{}{}", clean(&node.zone), if node.gateway { " *" } else { "" }));
        }
        table.push(row);
    }
    let mut out = format!("\n{}", aligned(&table, &[3, 4]));
    if nodes.len() > NODES_SHOWN {
        line(&mut out, &format!("and {} more nodes", nodes.len() - NODES_SHOWN));
    }
    let links = nodes.iter().filter_map(|node| Some((&*node.addr, node.link_bytes_per_s?)));
    for slow in slow_links(links).iter().take(GONE_SHOWN) {
        line(&mut out, &slow.to_string());
    }
    out
}

/// Who went lately.
fn gone_text(gone: &[GoneStatus]) -> String {
    let mut out = String::new();
    for node in gone.iter().take(GONE_SHOWN) {
        line(&mut out, &format!("{} {} {} ago", clean(&node.addr), clean(&node.how), duration::human(node.ago_s)));
    }
    if gone.len() > GONE_SHOWN {
        line(&mut out, &format!("and {} more went", gone.len() - GONE_SHOWN));
    }
    out
}

/// What compression gained, in each direction in which a chunk crossed compressed.
fn compressed_text(traffic: &Traffic) -> Option<String> {
    let part = |carried: u64, plain: u64, verb: &str| {
        (carried > 0)
            .then(|| format!("{} {verb} as {} ({:.1} x)", human(plain), human(carried), plain as f64 / carried as f64))
    };
    let came = part(traffic.from_compressed_bytes, traffic.from_compressed_plain_bytes, "came");
    let went = part(traffic.to_compressed_bytes, traffic.to_compressed_plain_bytes, "went");
    let parts: Vec<String> = came.into_iter().chain(went).collect();
    (!parts.is_empty()).then(|| format!("compressed: {}", parts.join(", ")))
}

fn traffic_text(status: &Status) -> String {
    let traffic = &status.traffic;
    let mut table = vec![["TRAFFIC", "FROM", "TO"].map(str::to_owned).to_vec()];
    let mut row = |name: &str, from: Option<u64>, to: Option<u64>| {
        let cell = |bytes: Option<u64>| bytes.map(human).unwrap_or_default();
        table.push(vec![name.to_owned(), cell(from), cell(to)]);
    };
    // What a reader here got without asking anybody: an origin has its file, a node without a store
    // what it keeps for a while.
    let origins = status.images.iter().filter(|image| image.source.is_some()).count();
    let own = match (origins, status.images.len() - origins) {
        (0, _) => "own memory",
        (_, 0) => "own file",
        _ => "own file and memory",
    };
    row(own, Some(traffic.from_store_bytes), None);
    row("peers", Some(traffic.from_peers_bytes), Some(traffic.to_peers_bytes));
    row("origin", Some(traffic.from_origin_bytes), None);
    for PeerTraffic { addr, zone, origin, received_bytes, sent_bytes, .. } in status.peers.iter().take(PEERS_SHOWN) {
        let zone = match zone.as_str() {
            same if same == status.zone.name => String::new(),
            "" => " (no zone)".to_owned(),
            other => format!(" (zone {})", clean(other)),
        };
        let name = format!("  {}{}{zone}", clean(addr), if *origin { " (origin)" } else { "" });
        row(&name, Some(*received_bytes), Some(*sent_bytes));
    }
    let mut out = format!("\n{}", aligned(&table, &[1, 2]));
    if status.peers.len() > PEERS_SHOWN {
        line(&mut out, &format!("  and {} more", status.peers.len() - PEERS_SHOWN));
    }
    if let Some(gained) = compressed_text(traffic) {
        line(&mut out, &gained);
    }
    out
}

/// `share`, 0 to 1, rounded down to a tenth: 100 % means all, and a share above 0 is never shown as
/// 0.
fn percent(share: f64) -> String {
    let tenths = (share.clamp(0.0, 1.0) * 1000.0 + 1e-9).floor();
    if share > 0.0 && tenths < 1.0 { "under 0.1 %".to_owned() } else { format!("{:.1} %", tenths / 10.0) }
}

/// The rest, rounded up to a tenth: both shares that are shown have the sum of 100 %.
fn missing(share: f64) -> String {
    let tenths = ((1.0 - share.clamp(0.0, 1.0)) * 1000.0 - 1e-9).ceil();
    if share > 0.999 && share < 1.0 { "under 0.1 %".to_owned() } else { format!("{:.1} %", tenths.abs() / 10.0) }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;

//! The table of all metrics. To add one: a row here, and one in `docs/reference/metrics.md`.

use super::Kind::{Counter, Gauge, Histogram};
use super::{Family, Kind, Samples};
use crate::view::View;
use std::borrow::Cow;
use vfield_control::limits::LimitStatus;
use vfield_core::misdeed::Misdeed;
use vfield_node::delays::BOUNDS_MS;
use vfield_node::status::{ImageStatus, NodeStatus};

/// States of a member, as `vfield status --json` names them; others are counted as `other`.
const STATES: [&str; 8] = ["alive", "leaving", "suspect", "stalled", "unreachable", "doubted", "dragging", "blamed"];

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static str,
    help: &'static str,
    samples: fn(&View, &mut Samples<'_>),
) -> Family {
    Family { name, kind, labels, help, samples }
}

/// A sample for each image.
fn images(view: &View, samples: &mut Samples<'_>, value: fn(&ImageStatus) -> f64) {
    for image in &view.status.node.images {
        samples.of(&[("image", &label(view, image))], value(image));
    }
}

/// The name of an image, with the beginning of its id if another image has that name as well: no
/// two series are alike.
fn label<'a>(view: &View, image: &'a ImageStatus) -> Cow<'a, str> {
    let alike = view.status.node.images.iter().filter(|other| other.name == image.name).count();
    match image.id.get(..12) {
        Some(id) if alike > 1 => Cow::Owned(format!("{}={id}", image.name)),
        _ => Cow::Borrowed(&image.name),
    }
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn members(view: &View) -> impl Iterator<Item = &NodeStatus> {
    view.status.node.nodes.iter().filter(|node| node.state != "self")
}

fn limits(view: &View) -> [(&'static str, &LimitStatus); 2] {
    let limits = &view.status.limits;
    [("up", &limits.up), ("down", &limits.down)]
}

/// A sample for each direction of each image that has limits of its own, if there is a value.
fn image_limits(view: &View, samples: &mut Samples<'_>, value: fn(&LimitStatus) -> Option<f64>) {
    for image in &view.status.node.images {
        let Some(limits) = view.status.limits.of_image(&image.names) else { continue };
        for (direction, limit) in [("up", &limits.up), ("down", &limits.down)] {
            if let Some(value) = value(limit) {
                samples.of(&[("image", &label(view, image)), ("direction", direction)], value);
            }
        }
    }
}

/// All families, in the order of the document.
pub const FAMILIES: [Family; 53] = [
    family(
        "vfield_build_info",
        Gauge,
        "version",
        "Always 1; the label has the version of the program.",
        |view, out| {
            out.of(&[("version", &view.status.node.version)], 1.0);
        },
    ),
    family("vfield_uptime_seconds", Gauge, "", "Time since the node started.", |view, out| {
        out.value(view.status.node.uptime_s);
    }),
    family("process_cpu_seconds_total", Counter, "", "Processor time of the daemon, user and system.", |view, out| {
        out.value(view.processor_s);
    }),
    family("process_resident_memory_bytes", Gauge, "", "Resident memory of the daemon.", |view, out| {
        out.value(view.status.memory.process_bytes as f64);
    }),
    family(
        "vfield_memory_limit_bytes",
        Gauge,
        "",
        "Lowest memory limit below the machine's memory; absent without one.",
        |view, out| {
            out.known(view.status.memory.limit_bytes);
        },
    ),
    family(
        "vfield_received_bytes_total",
        Counter,
        "source",
        "Chunks received, by source: peer or origin.",
        |view, out| {
            let traffic = &view.status.node.traffic;
            out.of(&[("source", "peer")], traffic.from_peers_bytes as f64);
            out.of(&[("source", "origin")], traffic.from_origin_bytes as f64);
        },
    ),
    family(
        "vfield_limit_bytes_per_second",
        Gauge,
        "direction",
        "Limit in force of the traffic with other nodes, by direction: up or down; absent without one.",
        |view, out| {
            for (direction, limit) in limits(view) {
                out.of_known(&[("direction", direction)], limit.bytes_per_s);
            }
        },
    ),
    family(
        "vfield_limit_held_seconds_total",
        Counter,
        "direction",
        "Time that bytes waited for a limit, summed over connections, by direction: up or down.",
        |view, out| {
            for (direction, limit) in limits(view) {
                out.of(&[("direction", direction)], limit.held_s);
            }
        },
    ),
    family("vfield_sent_bytes_total", Counter, "", "Chunks sent to peers.", |view, out| {
        out.value(view.status.node.traffic.to_peers_bytes as f64);
    }),
    family(
        "vfield_compressed_bytes_total",
        Counter,
        "direction",
        "Chunks that crossed links compressed, in bytes on the link, by direction: up or down.",
        |view, out| {
            let traffic = &view.status.node.traffic;
            out.of(&[("direction", "up")], traffic.to_compressed_bytes as f64);
            out.of(&[("direction", "down")], traffic.from_compressed_bytes as f64);
        },
    ),
    family(
        "vfield_compressed_plain_bytes_total",
        Counter,
        "direction",
        "Bytes that these chunks have plain, by direction: up or down.",
        |view, out| {
            let traffic = &view.status.node.traffic;
            out.of(&[("direction", "up")], traffic.to_compressed_plain_bytes as f64);
            out.of(&[("direction", "down")], traffic.from_compressed_plain_bytes as f64);
        },
    ),
    family(
        "vfield_read_from_store_bytes_total",
        Counter,
        "",
        "Bytes that local readers read out of this node's memory, or out of its own file.",
        |view, out| {
            out.value(view.status.node.traffic.from_store_bytes as f64);
        },
    ),
    family(
        "vfield_read_wait_seconds",
        Histogram,
        "",
        "Waits of local reads for chunks that were not here; reads that found theirs are not counted.",
        |view, out| {
            let mut sum = 0;
            for (bound, count) in BOUNDS_MS.iter().zip(view.delays.counts) {
                sum += count;
                out.part("_bucket", &[("le", &format!("{}", *bound as f64 / 1e3))], sum as f64);
            }
            sum += view.delays.counts[BOUNDS_MS.len()];
            out.part("_bucket", &[("le", "+Inf")], sum as f64);
            out.part("_sum", &[], view.delays.sum_us as f64 / 1e6);
            out.part("_count", &[], sum as f64);
        },
    ),
    family("vfield_chunks_awaited", Gauge, "", "Chunks that local readers wait for at this moment.", |view, out| {
        out.value(view.picture.awaited as f64);
    }),
    family(
        "vfield_requests_pending",
        Gauge,
        "",
        "Requests of this node that peers have not answered yet.",
        |view, out| {
            out.value(view.picture.owing.iter().map(|owing| owing.requests).sum::<u64>() as f64);
        },
    ),
    family(
        "vfield_requests_pending_bytes",
        Gauge,
        "",
        "Bytes of the answers that peers owe this node.",
        |view, out| {
            out.value(view.picture.owing.iter().map(|owing| owing.bytes).sum::<u64>() as f64);
        },
    ),
    family(
        "vfield_request_oldest_seconds",
        Gauge,
        "",
        "Age of the oldest request that a peer has not answered; 0 without one.",
        |view, out| {
            out.value(view.picture.owing.first().map_or(0.0, |owing| owing.oldest.as_secs_f64()));
        },
    ),
    family("vfield_peers_owing", Gauge, "", "Peers that owe this node an answer.", |view, out| {
        out.value(view.picture.owing.len() as f64);
    }),
    family(
        "vfield_members",
        Gauge,
        "state",
        "Known nodes besides this one, by their state as this node sees it.",
        |view, out| {
            for state in STATES {
                out.of(&[("state", state)], members(view).filter(|node| node.state == state).count() as f64);
            }
            let other = members(view).filter(|node| !STATES.contains(&node.state.as_str()));
            out.of(&[("state", "other")], other.count() as f64);
        },
    ),
    family(
        "vfield_members_gone",
        Gauge,
        "how",
        "Members that went within ten minutes, by how: left, died or replaced.",
        |view, out| {
            for how in ["left", "died", "replaced"] {
                let gone = view.status.node.gone.iter().filter(|gone| gone.how == how);
                out.of(&[("how", how)], gone.count() as f64);
            }
        },
    ),
    family("vfield_zones", Gauge, "", "Zones that this node has heard of, its own included.", |view, out| {
        out.value(view.status.node.zone.zones as f64);
    }),
    family("vfield_gateway", Gauge, "", "1 if this node is a gateway of its zone.", |view, out| {
        out.value(flag(view.status.node.zone.gateway));
    }),
    family(
        "vfield_link_bytes_per_second",
        Gauge,
        "",
        "What this node's link carries, as it measured; absent while it has not.",
        |view, out| {
            out.known(view.status.node.nodes.first().and_then(|node| node.link_bytes_per_s));
        },
    ),
    family("vfield_store_bytes", Gauge, "", "Chunks in all stores of this node.", |view, out| {
        out.value(view.status.memory.store_bytes as f64);
    }),
    family("vfield_transient_bytes", Gauge, "", "Chunks in all transient caches of this node.", |view, out| {
        out.value(view.status.memory.transient_bytes as f64);
    }),
    family(
        "vfield_warnings",
        Gauge,
        "",
        "Facts that need a person, as `vfield status` lists them; 100 at most.",
        |view, out| {
            out.value(view.status.node.warnings.len() as f64);
        },
    ),
    family(
        "vfield_turned_away_total",
        Counter,
        "why",
        "Connections rejected, by why: no key of the field, or not on the admission list.",
        |view, out| {
            let node = &view.status.node;
            out.of(&[("why", "key")], node.field.turned_away as f64);
            let list = node.admission.as_ref().map_or(0, |list| list.turned_away);
            out.of(&[("why", "admission")], list as f64);
        },
    ),
    family(
        "vfield_dropped_datagrams_total",
        Counter,
        "",
        "Datagrams that were not sealed with a key of the field, or were repeated.",
        |view, out| {
            out.value(view.status.node.field.dropped_datagrams as f64);
        },
    ),
    family(
        "vfield_misdeeds_total",
        Counter,
        "kind",
        "Faults of peers and strangers, by kind; the status' reference describes each.",
        |view, out| {
            for misdeed in Misdeed::ALL {
                out.of(&[("kind", misdeed.name())], view.status.node.misdeeds.of(misdeed) as f64);
            }
        },
    ),
    family("vfield_images", Gauge, "", "Images that this node serves or has joined.", |view, out| {
        out.value(view.status.node.images.len() as f64);
    }),
    family(
        "vfield_image_info",
        Gauge,
        "image,id",
        "Always 1; the labels have the name and the id of an image.",
        |view, out| {
            for image in &view.status.node.images {
                out.of(&[("image", &label(view, image)), ("id", &image.id)], 1.0);
            }
        },
    ),
    family(
        "vfield_image_limit_bytes_per_second",
        Gauge,
        "image,direction",
        "Limit in force of an image's traffic with other nodes, by direction: up or down; absent without one.",
        |view, out| image_limits(view, out, |limit| limit.bytes_per_s.map(|rate| rate as f64)),
    ),
    family(
        "vfield_image_limit_held_seconds_total",
        Counter,
        "image,direction",
        "Time that bytes waited for the limit of their image, by direction: up or down; absent without one.",
        |view, out| image_limits(view, out, |limit| Some(limit.held_s)),
    ),
    family("vfield_image_size_bytes", Gauge, "image", "Exact length of the image.", |view, out| {
        images(view, out, |image| image.size_bytes as f64);
    }),
    family(
        "vfield_image_coverage_ratio",
        Gauge,
        "image",
        "Chunks that at least one store of a live node holds, as announced: 0 to 1.",
        |view, out| {
            images(view, out, |image| image.coverage);
        },
    ),
    family(
        "vfield_image_verified_ratio",
        Gauge,
        "image",
        "The part of the coverage that this node verified: 0 to 1.",
        |view, out| {
            images(view, out, |image| image.verified);
        },
    ),
    family(
        "vfield_image_copies_min",
        Gauge,
        "image",
        "Lowest number of stores that hold a chunk, as announced; origins are not counted.",
        |view, out| {
            images(view, out, |image| image.multiplicity_min as f64);
        },
    ),
    family(
        "vfield_image_origin_may_leave",
        Gauge,
        "image",
        "1 if this node verified that the stores hold every chunk.",
        |view, out| {
            images(view, out, |image| flag(image.origin_may_leave));
        },
    ),
    family("vfield_image_origins", Gauge, "image", "Live origins.", |view, out| {
        images(view, out, |image| image.origins as f64);
    }),
    family(
        "vfield_image_at_risk_ratio",
        Gauge,
        "image",
        "Part of the image that is lost with one node, if no origin is there: 0 to 1.",
        |view, out| {
            images(view, out, |image| image.at_risk.as_ref().map_or(0.0, |risk| risk.share));
        },
    ),
    family(
        "vfield_image_source_changed",
        Gauge,
        "image",
        "1 if this node is an origin, and its file has changed.",
        |view, out| {
            images(view, out, |image| flag(image.source.as_ref().is_some_and(|source| source.state == "changed")));
        },
    ),
    family("vfield_image_store_capacity_bytes", Gauge, "image", "Size of this node's store.", |view, out| {
        images(view, out, |image| image.capacity_bytes as f64);
    }),
    family("vfield_image_store_held_bytes", Gauge, "image", "Filled part of this node's store.", |view, out| {
        images(view, out, |image| image.held_bytes as f64);
    }),
    family(
        "vfield_image_store_compressed_bytes",
        Gauge,
        "image",
        "Memory of this node's store, if its chunks lie compressed.",
        |view, out| {
            for image in &view.status.node.images {
                if let Some(bytes) = image.compressed_bytes {
                    out.of(&[("image", &label(view, image))], bytes as f64);
                }
            }
        },
    ),
    family(
        "vfield_image_store_filled",
        Gauge,
        "image",
        "1 if this node's store holds all that it is to hold.",
        |view, out| {
            images(view, out, |image| flag(image.filled));
        },
    ),
    family(
        "vfield_image_spoiled_chunks_total",
        Counter,
        "image",
        "Chunks of this node's store that had other bytes: found so after a start, or on its disk.",
        |view, out| images(view, out, |image| image.spoiled_chunks as f64),
    ),
    family(
        "vfield_image_withheld_chunks",
        Gauge,
        "image",
        "Chunks of this node's store that its disk does not deliver now.",
        |view, out| images(view, out, |image| image.withheld_chunks as f64),
    ),
    family(
        "vfield_image_transient_bytes",
        Gauge,
        "image",
        "Chunks of the image in the transient cache.",
        |view, out| {
            images(view, out, |image| image.transient_bytes as f64);
        },
    ),
    family(
        "vfield_image_reads_stuck",
        Gauge,
        "image",
        "Chunks that readers here wait for in vain, and that of the longest read from 10 s on; 64 at most.",
        |view, out| {
            images(view, out, |image| image.waiting.len() as f64);
        },
    ),
    family(
        "vfield_image_read_stuck_seconds",
        Gauge,
        "image",
        "The longest of these waits; 0 without one.",
        |view, out| {
            images(view, out, |image| image.waiting.iter().map(|wait| wait.for_s).fold(0.0, f64::max));
        },
    ),
    family("vfield_overlay_held_bytes", Gauge, "image", "Written data in the overlay of an image.", |view, out| {
        view.status.overlays.iter().for_each(|overlay| out.of(&[("image", &overlay.image)], overlay.held_bytes as f64));
    }),
    family(
        "vfield_overlay_max_bytes",
        Gauge,
        "image",
        "Limit of the overlay; further writes fail with ENOSPC.",
        |view, out| {
            view.status
                .overlays
                .iter()
                .for_each(|overlay| out.of(&[("image", &overlay.image)], overlay.max_bytes as f64));
        },
    ),
    family(
        "vfield_overlay_refused_bytes",
        Gauge,
        "image",
        "Bytes whose last write failed; while above 0, flushes fail.",
        |view, out| {
            view.status
                .overlays
                .iter()
                .for_each(|overlay| out.of(&[("image", &overlay.image)], overlay.refused_bytes as f64));
        },
    ),
];

//! What `vfield top` shows, as lines: a pure function of two samples and the size of the terminal.
//!
//! Invariant: no line is wider than the terminal, and there are no more lines than it has. Of a
//! thousand nodes only those are formatted that are shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Instant;
use vfield_block::gather::Gather as _;
use vfield_console::text::{aligned, clean};
use vfield_console::values::duration;
use vfield_console::values::size::human;
use vfield_control::message::DaemonStatus;
use vfield_control::shares::some_percent;
use vfield_control::slow_links::slow_links;
use vfield_node::explained::ExplainedChunk;
use vfield_node::status::{ImageStatus, NodeStatus, PeerTraffic, Traffic};

/// Images and waiting chunks that are listed; the rest is counted.
const IMAGES_SHOWN: usize = 4;
const WAITS_SHOWN: usize = 5;
/// Nodes that are listed where the height is not bounded.
const NODES_SHOWN: usize = 50;

/// What a daemon knew at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    pub at: Instant,
    pub status: DaemonStatus,
    pub waits: Vec<ExplainedChunk>,
}

/// The size of a terminal in letters; without a height it has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: Option<usize>,
}

/// By what the nodes are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Traffic,
    Held,
    Address,
}

impl Order {
    /// The one after it, around.
    pub const fn next(self) -> Self {
        match self {
            Self::Traffic => Self::Held,
            Self::Held => Self::Address,
            Self::Address => Self::Traffic,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Traffic => "traffic",
            Self::Held => "held bytes",
            Self::Address => "address",
        }
    }
}

/// How it is looked at.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub size: Size,
    pub order: Order,
    /// Nodes before the first shown node.
    pub skip: usize,
}

impl View {
    /// Moves down by so many rows, as far as there are any.
    pub fn scroll(&mut self, by: isize, sample: Option<&Sample>) {
        let last = sample.map_or(0, |sample| sample.status.node.nodes.len().saturating_sub(1));
        self.skip = self.skip.saturating_add_signed(by).min(last);
    }

    /// The picture: the daemon, its images, its traffic, waiting reads, and the nodes.
    pub fn lines(&self, now: &Sample, before: Option<&Sample>) -> Vec<String> {
        let rates = Rates::between(now, before);
        let mut lines = vec![self.fit(&head(&now.status))];
        let images = &now.status.node.images;
        lines.extend(images.iter().take(IMAGES_SHOWN).map(|image| self.fit(&image_parts(image))));
        if images.len() > IMAGES_SHOWN {
            lines.push(cut(&format!("{} more images", images.len() - IMAGES_SHOWN), self.size.width));
        }
        lines.push(self.fit(&traffic_parts(&rates.own)));
        lines.extend(now.waits.iter().take(WAITS_SHOWN).map(|wait| cut(&wait_text(wait), self.size.width)));
        if now.waits.len() > WAITS_SHOWN {
            lines.push(cut(&format!("{} more chunks are waited for", now.waits.len() - WAITS_SHOWN), self.size.width));
        }
        lines.push(String::new());
        lines.extend(self.nodes(&now.status.node.nodes, &rates, lines.len()));
        lines.truncate(self.size.height.unwrap_or(usize::MAX));
        lines
    }

    /// The table of nodes, below so many lines.
    fn nodes(&self, nodes: &[NodeStatus], rates: &Rates, above: usize) -> Vec<String> {
        // The table's head and the last line.
        let room = self.size.height.map_or(NODES_SHOWN, |height| height.saturating_sub(above + 2));
        let slow = slow(nodes);
        let mut order: Vec<&NodeStatus> = nodes.iter().collect();
        order.sort_by_cached_key(|node| {
            let (came, went) = rates.of(&node.id);
            let most = match self.order {
                Order::Traffic => came.saturating_add(went),
                Order::Held => node.held_bytes,
                Order::Address => 0,
            };
            (node.state != "self", Reverse(most), node.addr.parse::<SocketAddr>().ok())
        });
        let rows = order.iter().skip(self.skip).take(room).map(|node| row(node, rates, &slow));
        let head = ["ADDRESS", "STATE", "IN/S", "OUT/S", "HELD", "OF", "ORIGIN OF"].map(str::to_owned);
        let rows: Vec<[String; COLUMNS]> = std::iter::once(head).chain(rows).collect();
        let shown = rows.len() - 1;
        let columns = fitting(&rows, self.size.width);
        let right: Vec<usize> =
            columns.iter().enumerate().filter(|(_, column)| RIGHT.contains(column)).map(|(at, _)| at).collect();
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| columns.iter().map(|column| row[*column].clone()).collect()).collect();
        let text = aligned(&rows, &right);
        let mut lines: Vec<String> = text.lines().map(|line| cut(line, self.size.width)).collect();
        let hidden = nodes.len() - shown;
        if hidden > 0 || self.size.height.is_some() {
            let count = if hidden > 0 { format!("{hidden} more nodes; ") } else { String::new() };
            let keys = if self.size.height.is_some() { "; o orders, arrows scroll, q ends" } else { "" };
            lines.push(cut(&format!("{count}ordered by {}{keys}", self.order.word()), self.size.width));
        }
        lines
    }

    /// As many parts as there is room for.
    fn fit(&self, parts: &[String]) -> String {
        let mut text = String::new();
        for part in parts {
            let gap = if text.is_empty() { "" } else { "  " };
            if !text.is_empty() && text.chars().count() + gap.len() + part.chars().count() > self.size.width {
                break;
            }
            text.push_str(gap);
            text.push_str(part);
        }
        cut(&text, self.size.width)
    }
}

/// Columns of the table of nodes.
const COLUMNS: usize = 7;
/// Those with numbers.
const RIGHT: [usize; 4] = [2, 3, 4, 5];
/// The columns in the order in which they are given up where there is no room.
const LEAST_FIRST: [usize; COLUMNS - 1] = [6, 5, 4, 1, 3, 2];

/// The addresses of links that are slower than those of others.
fn slow(nodes: &[NodeStatus]) -> BTreeSet<&str> {
    let links = nodes.iter().filter_map(|node| Some((&*node.addr, node.link_bytes_per_s?)));
    slow_links(links).iter().map(|link| link.addr).collect()
}

fn row(node: &NodeStatus, rates: &Rates, slow: &BTreeSet<&str>) -> [String; COLUMNS] {
    let (came, went) = rates.of(&node.id);
    let is_self = node.state == "self";
    let rate = |rate| if is_self { String::new() } else { per_second(rate) };
    let bytes = |bytes| if node.capacity_bytes > 0 { human(bytes) } else { String::new() };
    [
        clean(&node.addr),
        if node.state == "alive" && slow.contains(&*node.addr) { "slow".to_owned() } else { clean(&node.state) },
        rate(came),
        rate(went),
        bytes(node.held_bytes),
        bytes(node.capacity_bytes),
        clean(&node.origin_of.join(", ")),
    ]
}

/// The columns for which there is room.
fn fitting(rows: &[[String; COLUMNS]], width: usize) -> Vec<usize> {
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut columns: Vec<usize> = (0..COLUMNS).collect();
    for least in LEAST_FIRST {
        let needed: usize = columns.iter().map(|column| widths[*column] + 2).sum();
        if needed <= width + 2 {
            break;
        }
        columns.retain(|column| *column != least);
    }
    columns
}

/// The text, or its beginning with a sign that it goes on.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect()
}

fn head(status: &DaemonStatus) -> Vec<String> {
    let node = &status.node;
    let count = node.nodes.len();
    let mut parts = vec![
        clean(&node.addr),
        format!("{count} node{}", if count == 1 { "" } else { "s" }),
        format!("up {}", duration::human(node.uptime_s)),
        format!("version {}", clean(&node.version)),
    ];
    let died = node.gone.iter().filter(|gone| gone.how != "left").count();
    let slow = slow(&node.nodes).len();
    let trouble = [(died, "died"), (slow, "slow")].into_iter().filter(|(count, _)| *count > 0);
    parts.splice(2..2, trouble.map(|(count, what)| format!("{count} {what}")));
    if node.draining {
        parts.insert(1, "drained".to_owned());
    }
    if !node.warnings.is_empty() {
        parts.insert(1, format!("{} warnings: see `vfield status`", node.warnings.len()));
    }
    parts
}

fn image_parts(image: &ImageStatus) -> Vec<String> {
    let mut parts = vec![clean(&image.name), format!("covered {}", some_percent(image.coverage))];
    if !image.waiting.is_empty() {
        parts.push(format!("{} chunks wait", image.waiting.len()));
    }
    parts.push(format!("fewest copies {}", image.multiplicity_min));
    if image.capacity_bytes > 0 {
        parts.push(format!("here {} of {}", human(image.held_bytes), human(image.capacity_bytes)));
    }
    let origin = match (image.origins, image.origin_may_leave) {
        (0, true) => "no origin is needed",
        (0, false) => "no origin is left",
        (_, true) => "the origin may leave",
        (_, false) => "the origin is needed",
    };
    parts.push(origin.to_owned());
    parts
}

fn traffic_parts(own: &Traffic) -> Vec<String> {
    let came = own.from_peers_bytes.saturating_add(own.from_origin_bytes);
    let mut parts = vec![
        format!("in {}", per_second(came)),
        format!("out {}", per_second(own.to_peers_bytes)),
        format!("from store {}", per_second(own.from_store_bytes)),
        format!("from origins {}", per_second(own.from_origin_bytes)),
    ];
    let plain = own.from_compressed_plain_bytes.saturating_add(own.to_compressed_plain_bytes);
    let saved = plain.saturating_sub(own.from_compressed_bytes.saturating_add(own.to_compressed_bytes));
    parts.extend((saved > 0).then(|| format!("saved by compression {}", per_second(saved))));
    parts
}

/// A rate; nothing is a dash, so that the busy rows stand out.
fn per_second(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { format!("{}/s", human(bytes)) }
}

/// A chunk that readers wait for, and because of whom.
fn wait_text(wait: &ExplainedChunk) -> String {
    let image = clean(&wait.image);
    // The last step is the one that the others wait for.
    let Some((step, fetch)) = wait.steps.iter().rev().find_map(|step| Some((step, step.fetch.as_ref()?))) else {
        return format!("wait  {image} at byte {}", wait.offset_bytes);
    };
    let because = match (fetch.requests.first(), &fetch.parked_for, &fetch.why) {
        (Some(request), ..) => format!(" because of {}", clean(&request.addr)),
        (None, Some(peer), _) => format!(" because of {}", clean(peer)),
        (None, None, Some(why)) => format!(" because {}", clean(why)),
        (None, None, None) => String::new(),
    };
    let noun = if step.page { "page" } else { "chunk" };
    let (stage, age) = (clean(&fetch.stage), duration::human(fetch.age_s));
    format!("wait {age}  {image} {noun} {}: {stage}{because}", step.chunk)
}

/// Bytes a second between two samples.
#[derive(Debug, Default)]
struct Rates {
    own: Traffic,
    /// From and to each peer.
    peers: BTreeMap<String, (u64, u64)>,
}

impl Rates {
    /// Nothing without an earlier sample of the same process.
    fn between(now: &Sample, before: Option<&Sample>) -> Self {
        let same = |before: &&Sample| before.status.pid == now.status.pid && before.at < now.at;
        let Some(before) = before.filter(same) else { return Self::default() };
        let seconds = (now.at - before.at).as_secs_f64();
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        let (own, then) = (&now.status.node.traffic, &before.status.node.traffic);
        let own = Traffic {
            from_store_bytes: rate(own.from_store_bytes, then.from_store_bytes),
            from_peers_bytes: rate(own.from_peers_bytes, then.from_peers_bytes),
            from_origin_bytes: rate(own.from_origin_bytes, then.from_origin_bytes),
            to_peers_bytes: rate(own.to_peers_bytes, then.to_peers_bytes),
            from_compressed_bytes: rate(own.from_compressed_bytes, then.from_compressed_bytes),
            from_compressed_plain_bytes: rate(own.from_compressed_plain_bytes, then.from_compressed_plain_bytes),
            to_compressed_bytes: rate(own.to_compressed_bytes, then.to_compressed_bytes),
            to_compressed_plain_bytes: rate(own.to_compressed_plain_bytes, then.to_compressed_plain_bytes),
        };
        let old: BTreeMap<&str, &PeerTraffic> =
            before.status.node.peers.iter().map(|peer| (peer.id.as_str(), peer)).gathered();
        let of = |peer: &PeerTraffic| {
            let (came, went) = old.get(peer.id.as_str()).map_or((0, 0), |old| (old.received_bytes, old.sent_bytes));
            (peer.id.clone(), (rate(peer.received_bytes, came), rate(peer.sent_bytes, went)))
        };
        Self { own, peers: now.status.node.peers.iter().map(of).gathered() }
    }

    /// From and to a node.
    fn of(&self, id: &str) -> (u64, u64) {
        self.peers.get(id).copied().unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;

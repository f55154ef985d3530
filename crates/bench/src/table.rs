//! `vfield bench` for people: aligned text on 80 columns. Turns an [`Outcome`] into lines; asks
//! nobody.

mod matrix;

use super::nodes::links;
use super::outcome::{Limit, NodeRate, Outcome, Run, Target, best, fastest};
use crate::values::rate;
use vfield_console::text::{aligned, clean, line};
use vfield_console::values::size::human;
use vfield_control::slow_links::slow_links;

/// More peers than this are counted, not listed.
const PEERS_SHOWN: usize = 10;

/// All of it.
pub fn text(outcome: &Outcome) -> String {
    let mut out = head(outcome);
    out.push('\n');
    match (&outcome.target, &outcome.matrix) {
        (Target::Export { .. }, Some(matrix)) => {
            out.push_str(&matrix::text(&outcome.runs, matrix));
            out.push_str(&peers(&outcome.runs));
        }
        (Target::Export { .. }, None) => {
            out.push_str(&reads(&outcome.runs));
            out.push('\n');
            out.push_str(&delays(&outcome.runs));
            out.push('\n');
            out.push_str(&processors(&outcome.runs));
            out.push_str(&peers(&outcome.runs));
        }
        (Target::Peer { .. }, _) => out.push_str(&sweep(&outcome.runs)),
        (Target::Field { .. }, _) => out.push_str(&nodes(&outcome.nodes)),
    }
    out.push('\n');
    match outcome.target {
        Target::Field { .. } if outcome.interrupted => out.push_str("interrupted: the other nodes were not measured\n"),
        _ if outcome.interrupted => out.push_str("interrupted: the last row is of a shorter run\n"),
        _ => {}
    }
    let unanswered: u64 = outcome.runs.iter().map(|run| run.unanswered).sum();
    if unanswered > 0 && !outcome.interrupted {
        out.push_str(&format!("{unanswered} requests got no answer: `vfield status` lists waiting reads\n"));
    }
    let refused: u64 = outcome.runs.iter().map(|run| run.refused).sum();
    if refused > 0 {
        out.push_str(&format!("{refused} requests were refused: the node has evicted those chunks\n"));
    }
    out.push_str(&format!("limit: {}\n", limit(outcome)));
    out
}

fn head(outcome: &Outcome) -> String {
    let image = outcome.image.as_ref().map(|image| {
        let (name, size, chunk) = (clean(&image.name), human(image.size_bytes), image.chunk_size_bytes >> 10);
        format!("image {name}: {size}, chunks of {chunk} KiB\n")
    });
    let mut out = image.unwrap_or_default();
    match &outcome.target {
        Target::Export { export, node, addr, origin, pid, filled } => {
            out.push_str(&format!("  read from  {}\n", clean(export)));
            if let (Some(node), Some(addr), Some(pid)) = (node, addr, pid) {
                out.push_str(&format!("  node       {} at {}, process {pid}\n", short(node), clean(addr)));
            }
            if *origin == Some(true) {
                out.push_str("  it is an origin: its hits come from its own file or object\n");
            }
            if *filled == Some(false) {
                out.push_str("  its store is still filling, which counts as network traffic\n");
            }
        }
        Target::Peer { node, addr, origin, chunks } => {
            let role = if *origin { ", an origin" } else { "" };
            out.push_str(&format!("  read from  node {} at {}{role}\n", short(node), clean(addr)));
            out.push_str(&format!("  asked for  {chunks} different chunks in its store, each verified\n"));
        }
        Target::Field { node, addr } => {
            out.push_str(&format!("field of node {} at {}\n", short(node), clean(addr)));
            let count = outcome.nodes.len();
            let nodes = if count == 1 { "node" } else { "nodes" };
            out.push_str(&format!("  measured   {count} {nodes} from here, one after the other, in Mbit/s\n"));
        }
    }
    let link = &outcome.link;
    let device = link.device.as_deref().unwrap_or("no device found");
    let rate = match (link.bits_per_second, link.given) {
        (Some(bits), true) => format!("{} (as given)", rate::human(bits)),
        (Some(bits), false) => rate::human(bits),
        (None, _) => "rate unknown, give --link".to_owned(),
    };
    out.push_str(&format!("  link       {}: {rate}\n", clean(device)));
    out
}

fn short(id: &str) -> String {
    clean(id.get(..8).unwrap_or(id))
}

/// A row of names, and a row for each run.
fn rows<const N: usize>(runs: &[Run], names: [&str; N], row: impl Fn(&Run) -> [String; N], left: usize) -> String {
    let mut table = vec![names.map(str::to_owned).to_vec()];
    table.extend(runs.iter().map(|run| row(run).to_vec()));
    aligned(&table, &(left..N).collect::<Vec<_>>())
}

fn reads(runs: &[Run]) -> String {
    let first = if runs.iter().any(|run| run.pattern.writes()) { "PATTERN" } else { "READ" };
    let names = [first, "STREAMS", "DEPTH", "BLOCK", "BYTES", "MB/S", "NETWORK", "OF LINK", "OWN STORE"];
    let row = |run: &Run| {
        let network = run.network.as_ref();
        [
            run.pattern.name().to_owned(),
            run.streams.to_string(),
            run.depth.to_string(),
            block(run.block_bytes),
            human(run.bytes),
            number(run.mb_per_s),
            network.map_or_else(unknown, |network| number(network.mb_per_s)),
            percent(network.and_then(|network| network.of_link)),
            percent(network.map(|network| network.own_store_bytes as f64 / run.bytes.max(1) as f64)),
        ]
    };
    rows(runs, names, row, 1)
}

fn delays(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let of =
            |value: fn(&super::outcome::Delays) -> f64| run.delay_us.as_ref().map(value).map_or_else(unknown, delay);
        let [min, median, p95, p99, max] =
            [of(|d| d.min), of(|d| d.median), of(|d| d.p95), of(|d| d.p99), of(|d| d.max)];
        [run.pattern.name().to_owned(), run.streams.to_string(), min, median, p95, p99, max]
    };
    rows(runs, ["DELAY", "STREAMS", "MIN", "MEDIAN", "P95", "P99", "MAX"], row, 1)
}

fn processors(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let cpu = &run.cpu;
        let [all, node, bench] = [percent(cpu.machine), percent(cpu.node), percent(cpu.bench)];
        [
            run.pattern.name().to_owned(),
            run.streams.to_string(),
            all,
            node,
            bench,
            percent(cpu.softirq),
            percent(cpu.stolen),
        ]
    };
    let names = ["PROCESSORS", "STREAMS", "ALL USE", "NODE", "THIS PROGRAM", "SOFTIRQ", "STOLEN"];
    rows(runs, names, row, 1)
}

/// Who sent what, in all runs together.
fn peers(runs: &[Run]) -> String {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for peer in runs.iter().filter_map(|run| run.network.as_ref()).flat_map(|network| &network.peers) {
        let name = format!("{}{}", clean(&peer.addr), if peer.origin { " (origin)" } else { "" });
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, bytes)) => *bytes += peer.bytes,
            None => sums.push((name, peer.bytes)),
        }
    }
    if sums.is_empty() {
        return String::new();
    }
    sums.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let more = sums.len().saturating_sub(PEERS_SHOWN);
    let mut table = vec![vec!["CAME FROM".to_owned(), "BYTES".to_owned()]];
    table.extend(sums.into_iter().take(PEERS_SHOWN).map(|(name, bytes)| vec![name, human(bytes)]));
    let more = if more > 0 { format!("and {more} more\n") } else { String::new() };
    format!("\n{}{more}", aligned(&table, &[1]))
}

fn sweep(runs: &[Run]) -> String {
    let names = ["STREAMS", "MB/S", "OF LINK", "MIN", "MEDIAN", "P95", "P99", "CPU", "SOFTIRQ"];
    let row = |run: &Run| {
        let of =
            |value: fn(&super::outcome::Delays) -> f64| run.delay_us.as_ref().map(value).map_or_else(unknown, delay);
        [
            run.streams.to_string(),
            number(run.mb_per_s),
            percent(run.network.as_ref().and_then(|network| network.of_link)),
            of(|delays| delays.min),
            of(|delays| delays.median),
            of(|delays| delays.p95),
            of(|delays| delays.p99),
            percent(run.cpu.machine),
            percent(run.cpu.softirq),
        ]
    };
    rows(runs, names, row, 0)
}

/// A row for each node in Mbit/s, the slow ones, and the failures.
fn nodes(rates: &[NodeRate]) -> String {
    let names = ["NODE", "ADDRESS", "SENDS", "TAKES", "ANNOUNCES", "LINK"];
    let mut table = vec![names.map(str::to_owned).to_vec()];
    let mbit = |rate: Option<u64>| rate.map_or_else(unknown, |rate| number(mbit(rate)));
    table.extend(rates.iter().map(|rate| {
        let [up, down, link] = [rate.up_bytes_per_s, rate.down_bytes_per_s, rate.link_bytes_per_s].map(mbit);
        let mark = if rate.slow { "slow" } else { "" };
        vec![short(&rate.node), clean(&rate.addr), up, down, link, mark.to_owned()]
    }));
    let mut out = aligned(&table, &[2, 3, 4]);
    let slow = slow_links(links(rates));
    let failures = rates.iter().filter_map(|rate| rate.failure.as_deref());
    let lines: Vec<String> = slow.iter().map(ToString::to_string).chain(failures.map(clean)).collect();
    if !lines.is_empty() {
        out.push('\n');
    }
    for text in lines {
        line(&mut out, &text);
    }
    out
}

fn mbit(bytes_per_s: u64) -> f64 {
    bytes_per_s as f64 * 8.0 / 1e6
}

/// What bounds the rates of a field's nodes.
fn limit_of_nodes(outcome: &Outcome) -> String {
    let Some(fastest) = fastest(&outcome.nodes) else { return "nothing was measured".to_owned() };
    let mut said: Vec<u64> = outcome.nodes.iter().filter_map(|node| node.link_bytes_per_s).collect();
    said.sort_unstable();
    let rate = outcome.link.bits_per_second.map(rate::human).unwrap_or_default();
    let most = number(mbit(fastest));
    match said.get(said.len() / 2) {
        // Nodes that measured among themselves know better.
        Some(usual) if *usual >= fastest.saturating_mul(2) => format!(
            "this machine: {most} Mbit/s at most, nodes say {} of their links:\n  measure on another machine",
            number(mbit(*usual))
        ),
        _ if outcome.limit == Limit::Link => {
            format!("the link of this machine, {rate}: nodes with a faster one look like it")
        }
        _ if outcome.limit == Limit::Unknown => {
            "unknown; give the rate of this machine's link, such as --link 1G".to_owned()
        }
        _ => format!("the nodes, {most} Mbit/s at most"),
    }
}

/// What the limit was, and what to try.
fn limit(outcome: &Outcome) -> String {
    if let Target::Field { .. } = outcome.target {
        return limit_of_nodes(outcome);
    }
    let Some(run) = best(&outcome.runs).filter(|run| run.bytes > 0) else { return "nothing was read".to_owned() };
    let of_link = run.network.as_ref().and_then(|network| network.of_link);
    let rate = outcome.link.bits_per_second.map(rate::human).unwrap_or_default();
    let (link, cpu) = (percent(of_link), percent(run.cpu.machine));
    match outcome.limit {
        Limit::Link => format!("the link, {link} of {rate} (headers take about 6 %)"),
        Limit::Processors => format!("this machine's processors, {cpu} busy"),
        Limit::OwnStore => "none reached: the node's own store had nearly all of it".to_owned(),
        Limit::Unknown if of_link.is_none() && run.network.is_some() => {
            "unknown; give the link's rate, such as --link 1G".to_owned()
        }
        Limit::Unknown => "unknown: network traffic is known of a running daemon only".to_owned(),
        Limit::Elsewhere => format!(
            "neither the link ({link}) nor this machine's processors ({cpu}):\n  \
             more --streams or --depth may help, or the peers are at their limit"
        ),
    }
}

fn unknown() -> String {
    "-".to_owned()
}

/// A share in whole percent.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(unknown, |share| format!("{:.0} %", share * 100.0))
}

/// A number with three digits.
fn number(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

/// Microseconds, with three digits and a unit.
fn delay(us: f64) -> String {
    // What would be rounded up to 1000 belongs to the next unit.
    match us {
        us if us < 999.5 => format!("{} us", number(us)),
        us if us < 999_500.0 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

/// A block's size as it is typed.
fn block(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 0 && bytes % (1 << 30) == 0 => format!("{}G", bytes >> 30),
        bytes if bytes > 0 && bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        bytes if bytes > 0 && bytes % (1 << 10) == 0 => format!("{}K", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

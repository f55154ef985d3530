//! Checks of what the daemon says of the field.

use crate::facts::{Facts, Field, Limit};
use crate::finding::{Finding, Weight};
use vfield_console::values::size::human;

/// Members listed by name; more are counted.
const NAMED: usize = 5;
/// A link is slow below this part of the median of the others.
const SLOW_PART: u64 = 2;

pub(super) fn members(facts: &Facts) -> Vec<Finding> {
    let Some(field) = &facts.field else { return Vec::new() };
    let of_field = [unreached(field), slow_self(field), slow_others(field)].into_iter().flatten();
    of_field.chain(field.limits.iter().filter_map(limited)).collect()
}

fn named(members: &[&str]) -> String {
    let more = members.len().saturating_sub(NAMED);
    let list = members.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}

fn unreached(field: &Field) -> Option<Finding> {
    let lost = |(_, state, _): &&(String, String, Option<u64>)| matches!(state.as_str(), "unreachable" | "suspect");
    let lost: Vec<&str> = field.members.iter().filter(lost).map(|(addr, ..)| addr.as_str()).collect();
    let first = lost.first()?;
    let fact = format!("{} of {} members cannot be reached: {}", lost.len(), field.members.len(), named(&lost));
    let costs =
        format!("{} reads wait here at this moment, and what those members hold comes from others", field.waiting);
    let (host, port) = first.rsplit_once(':').unwrap_or((first, "4440"));
    let command = format!("nc -zv {host} {port}; nc -zvu {host} {port}; open TCP and UDP in both directions");
    Some(Finding::new("members", Weight::Bad, fact, costs).typed(command, ""))
}

/// The median of the other links.
fn usual(field: &Field) -> Option<u64> {
    let mut rates: Vec<u64> = field.members.iter().filter_map(|(.., rate)| *rate).collect();
    rates.sort_unstable();
    rates.get(rates.len() / 2).copied()
}

fn slow_self(field: &Field) -> Option<Finding> {
    let (own, usual) = (field.link_bytes_per_s?, usual(field)?);
    let mut of_node = field.limits.iter().filter(|limit| limit.image.is_none());
    if own >= usual / SLOW_PART || of_node.any(|limit| limit.bytes_per_s <= own.saturating_mul(2)) {
        return None;
    }
    let fact = format!("this node's link carries {}/s, as it measured", human(own));
    let costs = format!("the usual link of the field carries {}/s: {} times as much", human(usual), usual / own.max(1));
    let command = "ethtool INTERFACE | grep Speed; change the cable, then the port".to_owned();
    Some(Finding::new("members", Weight::Bad, fact, costs).typed(command, ""))
}

fn slow_others(field: &Field) -> Option<Finding> {
    let usual = usual(field)?;
    let slow = |(_, _, rate): &&(String, String, Option<u64>)| rate.is_some_and(|rate| rate < usual / SLOW_PART);
    let slow: Vec<&str> = field.members.iter().filter(slow).map(|(addr, ..)| addr.as_str()).collect();
    if slow.is_empty() {
        return None;
    }
    let fact = format!("{} of {} members have slow links: {}", slow.len(), field.members.len(), named(&slow));
    let costs = format!("below half of the usual {}/s; the chain puts them last", human(usual));
    let command = format!("vfield doctor on {}", named(&slow));
    Some(Finding::new("members", Weight::Note, fact, costs).typed(command, ""))
}

fn limited(limit: &Limit) -> Option<Finding> {
    if limit.held_s < 1.0 {
        return None;
    }
    let Limit { image, direction, setting, bytes_per_s, held_s } = limit;
    let (of, word) = match image {
        Some(image) => (format!(" of {image}"), format!("--image {image} ")),
        None => Default::default(),
    };
    let fact = format!("a limit{of} of {}/s {direction} is in force", human(*bytes_per_s));
    let costs = format!("bytes waited for it for {held_s:.0} s so far, summed over connections");
    let command = format!("vfield limit {word}--{direction} none");
    let undo = format!("vfield limit {word}--{direction} {setting}");
    Some(Finding::new("members", Weight::Note, fact, costs).typed(command, undo))
}

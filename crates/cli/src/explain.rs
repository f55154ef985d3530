//! `vfield explain`: why a read waits, or why reads were slow.

use crate::args::ExplainOptions;
use std::fmt::Write as _;
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_console::text::clean;
use vfield_console::values::duration;
use vfield_console::values::size::Size;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request};
use vfield_node::explained::{Explained, ExplainedChunk, FetchStatus, HopStatus, SlowReadStatus, StepStatus};

/// Runs `vfield explain`.
pub fn run(options: &ExplainOptions) -> Result<(), Failure> {
    let (image, offset) = place(options)?;
    let mut client = Client::connect(options.control.control.as_deref())?;
    client.send(&Request::Explain { image, offset, follow: !options.slow })?;
    let Reply::Explained { mut explained } = client.reply()? else { return Err(client.unexpected()) };
    if options.slow {
        explained.chunks.clear();
    } else {
        explained.slow.clear();
    }
    if options.json {
        let text = serde_json::to_string_pretty(&explained).expect("plain data becomes JSON") + "\n";
        return output::put(text.as_bytes());
    }
    output::put(text(&explained, options.slow).as_bytes())
}

/// An image and an offset. A single word is an offset in the only image.
fn place(options: &ExplainOptions) -> Result<(Option<String>, Option<u64>), Failure> {
    let offset = options.offset.map(|offset| offset.0);
    match (&options.image, offset) {
        (Some(word), None) => match word.parse::<Size>() {
            Ok(offset) => Ok((None, Some(offset.0))),
            Err(_) => Err(Failure::usage("`vfield explain` needs <OFFSET>").hint("see `vfield explain --help`")),
        },
        (image, offset) => Ok((image.clone(), offset)),
    }
}

/// Seconds for people; a wait of a read matters by the millisecond.
fn time(seconds: f64) -> String {
    if seconds < 10.0 { format!("{:.0} ms", seconds * 1e3) } else { duration::human(seconds) }
}

fn text(explained: &Explained, slow: bool) -> String {
    let chunks = explained.chunks.iter().map(chunk_text);
    let reads = explained.slow.iter().map(slow_text);
    let all: String = chunks.chain(reads).collect();
    match (all.is_empty(), slow) {
        (true, true) => "no read has waited in the last hour\n".to_owned(),
        (true, false) => "no reader waits\n".to_owned(),
        _ => all,
    }
}

fn chunk_text(chunk: &ExplainedChunk) -> String {
    let mut out = format!("{} at byte {}\n", clean(&chunk.image), chunk.offset_bytes);
    for step in &chunk.steps {
        step_text(step, &mut out);
    }
    chunk.hops.iter().for_each(|hop| hop_text(hop, &mut out));
    out
}

fn hop_text(hop: &HopStatus, out: &mut String) {
    let _ = write!(out, "  {} {}", clean(&hop.addr), clean(&hop.says));
    if let (Some(chunk), Some(seconds)) = (hop.chunk, hop.stage_s) {
        let _ = write!(out, " for {} (chunk {chunk})", time(seconds));
    }
    if let (Some(asked), Some(seconds)) = (&hop.asked, hop.asked_s) {
        let _ = write!(out, ", because of {}: asked {} ago", clean(asked), time(seconds));
    }
    out.push('\n');
}

fn step_text(step: &StepStatus, out: &mut String) {
    let noun = if step.page { "page" } else { "chunk" };
    let _ = match &step.fetch {
        None if step.here => writeln!(out, "  {noun} {} is here", step.chunk),
        None => writeln!(out, "  {noun} {} is not here, and no reader wants it", step.chunk),
        Some(fetch) => {
            // A stage that is entered again and again would look as if it had only begun.
            let in_stage = fetch.stage_s + fetch.spent_s.get(&fetch.stage).copied().unwrap_or_default();
            let (stage, in_stage) = (clean(&fetch.stage), time(in_stage));
            writeln!(out, "  {noun} {}: {stage} for {in_stage}, wanted for {}", step.chunk, time(fetch.age_s))
        }
    };
    if let Some(fetch) = &step.fetch {
        fetch_text(fetch, out);
    }
    // A page that is waited for says it in the next step.
    let needs_holders = step.fetch.as_ref().is_none_or(|fetch| fetch.requests.is_empty());
    for holder in step.holders.iter().filter(|_| needs_holders && !step.here) {
        let has = match (holder.origin, holder.announces) {
            (true, _) => "is an origin",
            (false, true) => "announces it",
            (false, false) => "is to have it, and has not yet",
        };
        let _ = writeln!(out, "    {} {has}, state {}", clean(&holder.addr), clean(&holder.state));
    }
}

fn fetch_text(fetch: &FetchStatus, out: &mut String) {
    for request in &fetch.requests {
        let (age, silent) = (time(request.age_s), time(request.silent_s));
        let _ = writeln!(out, "    because of {}: asked {age} ago, silent for {silent}", clean(&request.addr));
    }
    if let Some(peer) = &fetch.parked_for {
        let _ = writeln!(out, "    because of {}: it has as many requests as it delivers in time", clean(peer));
    }
    if let (Some(why), Some(seconds)) = (&fetch.why, fetch.why_s) {
        let _ = writeln!(out, "    because {}, for {}", clean(why), time(seconds));
    }
    if fetch.failures > 0 {
        let tried = if fetch.tried.is_empty() { "nobody yet".to_owned() } else { clean(&fetch.tried.join(", ")) };
        let _ = writeln!(out, "    {} requests failed; asked in this round: {tried}", fetch.failures);
    }
    if fetch.askers > 0 {
        let _ = writeln!(out, "    {} requests of other nodes wait for it too", fetch.askers);
    }
    let before = spent_text(fetch.spent_s.iter().filter(|(stage, _)| **stage != fetch.stage));
    if !before.is_empty() {
        let _ = writeln!(out, "    before: {before}");
    }
}

fn spent_text<'a>(spent: impl Iterator<Item = (&'a String, &'a f64)>) -> String {
    let part = |(stage, seconds): (&String, &f64)| format!("{} {}", clean(stage), time(*seconds));
    spent.map(part).collect::<Vec<_>>().join(", ")
}

fn slow_text(read: &SlowReadStatus) -> String {
    let (waited, ago) = (time(read.waited_s), time(read.ago_s));
    let mut out = format!("{waited}, {ago} ago: {} at byte {}\n", clean(&read.image), read.offset_bytes);
    let who = read.cause_addr.as_ref().map_or_else(String::new, |addr| format!(": {}", clean(addr)));
    let _ = writeln!(out, "    {}{who}", clean(&read.cause));
    let _ = writeln!(out, "    {}", spent_text(read.spent_s.iter()));
    if let (Some(from), Some(waited)) = (&read.from, read.from_waited_s) {
        let _ = writeln!(out, "    delivered by {}, which waited {} for it", clean(from), time(waited));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use vfield_node::explained::{HolderStatus, RequestStatus};

    #[test]
    fn a_wait_names_its_stage_its_time_and_its_peer() {
        let fetch = FetchStatus {
            stage: "requested".into(),
            stage_s: 0.34,
            age_s: 0.5,
            spent_s: BTreeMap::from([("queued".to_owned(), 0.16)]),
            requests: vec![RequestStatus { addr: "198.18.0.7:4440".into(), age_s: 0.34, silent_s: 0.3 }],
            failures: 1,
            tried: vec!["198.18.0.9:4440".into()],
            ..FetchStatus::default()
        };
        let page = StepStatus { chunk: 3001, page: true, fetch: Some(fetch), ..StepStatus::default() };
        let holders =
            vec![HolderStatus { addr: "198.18.0.1:4440".into(), origin: true, announces: true, state: "alive".into() }];
        let chunk = FetchStatus { stage: "needs its page".into(), stage_s: 0.5, age_s: 0.5, ..FetchStatus::default() };
        let first = StepStatus { chunk: 5, fetch: Some(chunk), holders, ..StepStatus::default() };
        let hops = vec![
            HopStatus {
                addr: "198.18.0.7:4440".into(),
                says: "waits, requested".into(),
                chunk: Some(3001),
                stage_s: Some(0.32),
                asked: Some("198.18.0.2:4440".into()),
                asked_s: Some(0.32),
            },
            HopStatus { addr: "198.18.0.2:4440".into(), says: "does not answer".into(), ..HopStatus::default() },
        ];
        let chunk = ExplainedChunk { image: "a\x1b[2J".into(), offset_bytes: 327_680, steps: vec![first, page], hops };
        let text = text(&Explained { chunks: vec![chunk], slow: Vec::new() }, false);
        assert_eq!(
            text,
            "a?[2J at byte 327680\n  chunk 5: needs its page for 500 ms, wanted for 500 ms\n    \
             198.18.0.1:4440 is an origin, state alive\n  page 3001: requested for 340 ms, wanted for 500 ms\n    \
             because of 198.18.0.7:4440: asked 340 ms ago, silent for 300 ms\n    1 requests failed; asked in this \
             round: 198.18.0.9:4440\n    before: queued 160 ms\n  198.18.0.7:4440 waits, requested for 320 ms (chunk 3001), because of \
             198.18.0.2:4440: asked 320 ms ago\n  198.18.0.2:4440 does not answer\n"
        );
    }

    #[test]
    fn a_stage_that_comes_again_has_one_time() {
        let fetch = FetchStatus {
            stage: "no peer to ask".into(),
            stage_s: 0.017,
            age_s: 12.5,
            spent_s: BTreeMap::from([("no peer to ask".to_owned(), 12.0), ("queued".to_owned(), 0.4)]),
            ..FetchStatus::default()
        };
        let step = StepStatus { chunk: 7, fetch: Some(fetch), ..StepStatus::default() };
        let mut out = String::new();
        step_text(&step, &mut out);
        assert_eq!(out, "  chunk 7: no peer to ask for 12s, wanted for 12s\n    before: queued 400 ms\n");
    }

    #[test]
    fn nothing_to_explain_is_said() {
        assert_eq!(text(&Explained::default(), true), "no read has waited in the last hour\n");
        assert_eq!(text(&Explained::default(), false), "no reader waits\n");
    }
}

//! The two tables of `vfield bench --matrix`, and what keeps a reader from misreading them.

use super::super::matrix::short;
use super::super::outcome::{Delays, Matrix, Run, State};
use super::{block, delay, number, percent, rows, unknown};
use vfield_console::values::size::human;

/// The delays, the sources of the bytes, and notes.
pub fn text(runs: &[Run], matrix: &Matrix) -> String {
    let mut out = bounds(matrix.end_bytes);
    out.push_str(&delays(runs, matrix));
    out.push('\n');
    out.push_str(&sources(runs, matrix));
    out.push_str(&states(runs));
    out
}

/// A line if the image is shorter than a span.
fn bounds(end_bytes: u64) -> String {
    let Some(short) = short(end_bytes) else { return String::new() };
    let (image, wanted) = (human(end_bytes), block(short.wanted_bytes));
    match short.left_out {
        0 => format!("the image has {image}: instead of {wanted}, the second span is all of it\n\n"),
        _ => format!("the image has {image}: there is one span, all of it\n\n"),
    }
}

/// The columns that say which run it was.
fn key(run: &Run, matrix: &Matrix) -> [String; 4] {
    let span = match run.span_bytes {
        Some(bytes) if bytes < matrix.end_bytes || bytes % (1 << 20) == 0 => block(bytes),
        Some(_) => "image".to_owned(),
        None => unknown(),
    };
    [run.pattern.name().to_owned(), block(run.block_bytes), span, run.streams.to_string()]
}

fn delays(runs: &[Run], matrix: &Matrix) -> String {
    let row = |run: &Run| {
        let of = |value: fn(&Delays) -> f64| run.delay_us.as_ref().map(value).map_or_else(unknown, delay);
        let [pattern, block, span, streams] = key(run, matrix);
        let (min, median, p95) = (of(|delays| delays.min), of(|delays| delays.median), of(|delays| delays.p95));
        let reads = number(if run.seconds > 0.0 { run.requests as f64 / run.seconds } else { 0.0 });
        [pattern, block, span, streams, run.depth.to_string(), min, median, p95, reads]
    };
    let names = ["DELAY", "BLOCK", "SPAN", "STREAMS", "DEPTH", "MIN", "MEDIAN", "P95", "READS/S"];
    rows(runs, names, row, 1)
}

fn sources(runs: &[Run], matrix: &Matrix) -> String {
    let row = |run: &Run| {
        let [pattern, block, span, streams] = key(run, matrix);
        let network = run.network.as_ref();
        let found = network.and_then(|network| network.found);
        let from = |origins| network.map_or_else(unknown, |network| human(network.from(origins)));
        let hits = percent(found.map(|found| found.hit_bytes as f64 / run.bytes.max(1) as f64));
        let state = found.map_or_else(unknown, |found| found.state.name().to_owned());
        [pattern, block, span, streams, human(run.bytes), hits, from(false), from(true), state]
    };
    let names = ["SOURCE", "BLOCK", "SPAN", "STREAMS", "BYTES", "HITS", "PEERS", "ORIGIN", "STATE"];
    rows(runs, names, row, 1)
}

/// What the rows measured: this machine's memory, or the field.
fn states(runs: &[Run]) -> String {
    let states: Vec<State> =
        runs.iter().filter_map(|run| run.network.as_ref()?.found).map(|found| found.state).collect();
    if states.is_empty() {
        return "\nno daemon told whether the bytes were in memory: compare no figures of two calls\n".to_owned();
    }
    let count = |state| states.iter().filter(|other| **other == state).count();
    match (count(State::Warm), count(State::Mixed), count(State::Cold)) {
        (_, 0, 0) => "\nall warm: the bytes were here, and the network was not measured\n".to_owned(),
        (0, _, 0) => "\nall mixed: a part of the bytes was here, the rest came while they were read\n".to_owned(),
        (0, 0, _) => "\nall cold: the bytes came over the network while they were read\n".to_owned(),
        (warm, mixed, cold) => {
            let of = |count, word| (count > 0).then(|| format!("{count} {word}"));
            let parts: Vec<String> =
                [of(warm, "warm"), of(mixed, "mixed"), of(cold, "cold")].into_iter().flatten().collect();
            format!("\n{}: each run finds what the earlier ones left here\n", parts.join(", "))
        }
    }
}

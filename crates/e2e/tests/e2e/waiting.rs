//! A read whose chunk nobody has: it waits, or fails after the time that was set.

use std::time::{Duration, Instant};
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_lab::client;
use vfield_lab::need::{Need, have};

/// After a holder's return; the failure model promises 2 s, the rest is for a machine with much to
/// do.
const ANSWERED: Duration = Duration::from_secs(8);

/// A read waits at node 0 while `away` holds, and is answered after `back`.
fn waits(field: &mut Field, away: impl FnOnce(&mut Field) -> Outcome, back: impl FnOnce(&Field) -> Outcome) -> Outcome {
    away(field)?;
    let field = &*field;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| client::compare_all(field.host(0), &field.nodes[0], &field.image));
        let waiting = |status: &serde_json::Value| {
            status["images"][0]["waiting"].as_array().is_some_and(|waiting| !waiting.is_empty())
        };
        field.nodes[0].wait_status("a read waits", NEWS, waiting)?;
        assert!(!reader.is_finished(), "the read did not wait");
        back(field)?;
        let start = Instant::now();
        reader.join().expect("the reader does not panic")?;
        assert!(start.elapsed() < ANSWERED, "answered {:?} after the holder's return", start.elapsed());
        field.nodes[0].wait_status("nothing waits", NEWS, |status| !waiting(status))?;
        Ok(())
    })
}

#[test]
fn a_read_waits_for_a_link_and_is_answered_when_it_is_back() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0"], ..Plan::default() })?;
    waits(&mut field, |field| Ok(field.lab.cut(field.lab.host(0))?), |field| Ok(field.lab.restore(field.lab.host(0))?))
}

#[test]
fn a_read_waits_for_an_origin_and_is_answered_when_it_is_back() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0", "0"], ..Plan::default() })?;
    let mut again = None;
    let outcome = waits(
        &mut field,
        |field| {
            field.origin.kill();
            Ok(())
        },
        |field| {
            let serve = field.vfield.serve(field.lab.host(0), &[&field.image]).name("origin");
            again = Some(serve.args(&["--join", &field.nodes[1].addr().to_string()]).ready()?);
            Ok(())
        },
    );
    drop(again);
    outcome
}

#[test]
fn a_read_fails_after_the_time_that_was_set() -> Outcome {
    if !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0"], join: &["--io-timeout", "2s"], ..Plan::default() })?;
    field.origin.kill();
    let script = "
import errno, time
start = time.monotonic()
try:
    h.pread(4096, 8 << 20)
    raise SystemExit('a read without a holder was answered')
except nbd.Error as error:
    assert error.errnum == errno.EIO, error
print(time.monotonic() - start)
";
    let took: f64 = client::nbdsh(field.host(0), Duration::from_secs(20), &field.nodes[0].uri(""), script)?.parse()?;
    assert!((1.5..6.0).contains(&took), "EIO came after {took} s where 2 s were set");
    field.nodes[0].process_mut().check()?;
    Ok(())
}

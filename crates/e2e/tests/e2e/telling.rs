//! What the log says by itself, without `--verbose`: who went and how, and reads that wait.

use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_lab::need::{Need, have};
use vfield_lab::{client, wait_until};

/// A read that waits is told after ten seconds.
const TOLD: Duration = Duration::from_secs(30);

#[test]
fn who_went_and_how_is_told_once_and_shown() -> Outcome {
    let mut field = Field::start(Plan { stores: &["0", "0", "0"], ..Plan::default() })?;
    field.members(4, &[])?;
    let (left, died) = (field.nodes[1].addr(), field.nodes[2].addr());
    field.nodes[1].leave(NEWS)?;
    field.nodes[2].kill();
    field.nodes[0].says(&format!("node {left} left"), NEWS)?;
    field.nodes[0].says(&format!("node {died} died"), NEWS)?;
    let status = field.nodes[0].status()?;
    let how = |addr: &str| {
        let gone = status["gone"].as_array().into_iter().flatten().find(|node| node["addr"] == addr);
        gone.and_then(|node| node["how"].as_str().map(str::to_owned))
    };
    assert_eq!((how(&left.to_string()).as_deref(), how(&died.to_string()).as_deref()), (Some("left"), Some("died")));
    let log = field.nodes[0].process().log();
    assert_eq!(log.matches(&format!("node {left} ")).count(), 1, "{log}");
    assert_eq!(log.matches(&format!("node {died} ")).count(), 1, "{log}");
    Ok(())
}

#[test]
fn a_read_that_waits_is_told_with_who_had_it_and_so_is_its_end() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0"], ..Plan::default() })?;
    let origin = field.origin.addr();
    field.origin.kill();
    let Field { nodes, image, vfield, lab, .. } = &mut field;
    let uri = nodes[0].uri("disk.img");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| client::compare_nbd(lab.host(1), &uri, image));
        nodes[0].says("disk.img: a read of chunk", TOLD)?;
        nodes[0].says(&format!("{origin} had it last, and died"), NEWS)?;
        let _again = vfield.serve(lab.host(0), &[image]).name("origin").ready()?;
        reader.join().expect("the reader does not panic")?;
        // A busy machine may take the new origin for dead, and wait once more. Each wait has one
        // line for its beginning, however many reads wait, and one for its end.
        let process = nodes[0].process();
        wait_until("as many ends as beginnings", NEWS, || {
            let log = process.log();
            log.matches("no read waits any more").count() == log.matches("a read of chunk").count()
        })?;
        Ok(())
    })
}

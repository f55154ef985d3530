//! `vfield explain` with real processes: the node that is the cause is known, and is named.

use serde_json::Value;
use std::time::Duration;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::MIB;
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, wait_until};
use vfield_measure::storm::nbd::{Client, Target};

const SOON: Duration = Duration::from_secs(30);
const BLOCK: u32 = 64 << 10;
/// A frozen origin is put aside after some seconds, and is no cause from then on.
const ALIVE: Duration = Duration::from_secs(5);
/// A machine with much other work may take longer for a command, but not each time.
const FREEZES: u64 = 10;

fn explained(node: &Daemon, words: &[&str]) -> Result<Value, Failed> {
    let words = [&["explain", "--json"], words].concat();
    Ok(serde_json::from_str(&run(&mut node.ask_to(&words))?)?)
}

/// The first request under way, of any step.
fn asked(explained: &Value) -> Option<&str> {
    let steps = explained["chunks"][0]["steps"].as_array()?;
    steps.iter().find_map(|step| step["fetch"]["requests"][0]["addr"].as_str())
}

/// True if the wait was followed to a node that does not answer, and no further.
fn leads_to(explained: &Value, silent: &str) -> bool {
    let hops = explained["chunks"][0]["hops"].as_array();
    hops.is_some_and(|hops| hops.len() == 1 && hops[0]["addr"] == silent && hops[0]["says"] == "does not answer")
}

#[test]
fn a_frozen_origin_is_named_while_a_reader_waits_and_afterwards() -> Outcome {
    let plan = Plan { image_bytes: 24 * MIB + 777, stores: &["0"], ..Plan::default() };
    let mut field = Field::on(Lab::loopback(2)?, plan)?;
    let mut client = Client::connect(&Target::Unix(field.nodes[0].nbd().to_owned()))?;
    client.give_up_after(SOON)?;
    let said = run(&mut field.nodes[0].ask_to(&["explain"]))?;
    assert_eq!(said.trim(), "no reader waits");
    let origin = field.origin.addr().to_string();
    let mut number = 0;
    let at = loop {
        let at = 20 * MIB + number * u64::from(BLOCK);
        field.origin.process_mut().freeze();
        client.ask(number, at, BLOCK)?;
        let is_explained = wait_until("the wait is explained", ALIVE, || {
            explained(&field.nodes[0], &[]).is_ok_and(|found| {
                let holder = &found["chunks"][0]["steps"][0]["holders"][0]["addr"];
                holder == origin.as_str() && asked(&found) == Some(origin.as_str()) && leads_to(&found, &origin)
            })
        });
        if is_explained.is_ok() {
            break at;
        }
        number += 1;
        assert!(number < FREEZES, "no wait was explained in time");
        field.origin.process_mut().thaw();
        client.answer()?;
        client.fill(&mut [0; BLOCK as usize])?;
    };
    let (node, offset) = (&field.nodes[0], at.to_string());
    let found = explained(node, &[&offset])?;
    assert_eq!(found["chunks"][0]["offset_bytes"], at, "of the only image: {found:#}");
    let found = explained(node, &["disk.img", &offset])?;
    assert_eq!(found["chunks"][0]["offset_bytes"], at, "{found:#}");
    let said = run(&mut node.ask_to(&["explain"]))?;
    assert!(said.contains("because "), "{said}");
    field.origin.process_mut().thaw();
    client.answer()?;
    let node = &field.nodes[0];
    let found = explained(node, &["--slow"])?;
    let slow = &found["slow"][0];
    assert_eq!(slow["from"], origin.as_str(), "{found:#}");
    assert!(slow["waited_s"].as_f64() > Some(0.0) && slow["cause"].is_string(), "{found:#}");
    Ok(())
}

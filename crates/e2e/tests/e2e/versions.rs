//! Two versions of the program in one field: machines are updated one after the other while all
//! read, and a program of tomorrow is a good neighbour.
//!
//! `scripts/test-versions` names the program before in `VFIELD_BEFORE`. Without it the program
//! under test stands for both, and the test is of the restarts alone.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use vfield_core::wire::HEADER;
use vfield_e2e::bully::{self, Name};
use vfield_e2e::field::{Field, NEWS, Plan, is_uncharged, live};
use vfield_e2e::program::vfield;
use vfield_e2e::watch::Watch;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::FILL_LIMIT;
use vfield_lab::need::{Need, have};
use vfield_lab::{Daemon, Lab, LabError, Vfield};

/// The origin, and the nodes with their stores: any two of them hold the image.
const STORES: [&str; 4] = ["", "all", "50%", "all"];

/// The program that runs before the update.
fn before() -> Vfield {
    match std::env::var_os("VFIELD_BEFORE") {
        Some(path) => Vfield::at(path.as_ref()),
        None => vfield(),
    }
}

/// Starts the daemon of a machine with a program, joining through its neighbour.
fn start(lab: &Lab, image: &std::path::Path, program: &Vfield, machine: usize) -> Result<Daemon, LabError> {
    let host = lab.host(machine);
    if machine == 0 {
        return program.serve(host, &[image]).ready();
    }
    program.join(host, lab.host(machine - 1).addr()).store(STORES[machine]).args(&["--join-boost", "9"]).ready()
}

/// All know each other, all is held, and nobody was charged.
fn is_well(daemons: &[Daemon]) -> Outcome {
    for daemon in daemons {
        let together = |status: &Value| live(status).len() == daemons.len();
        daemon.wait_status("all are members", NEWS, together)?;
        let status = daemon.status()?;
        assert!(is_uncharged(&status), "{}: {:?}", daemon.addr(), status["misdeeds"]);
    }
    daemons[1..].iter().try_for_each(|daemon| daemon.wait("covered", FILL_LIMIT)).map_err(Failed::from)
}

#[test]
fn machines_are_updated_one_after_the_other() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::best(STORES.len())?;
    let image = random_file(&lab.dir().join("disk.img"), 16 * MIB + 777, 1)?;
    let (before, after) = (before(), vfield());
    let mut daemons: Vec<Daemon> =
        (0..STORES.len()).map(|machine| start(&lab, &image, &before, machine)).collect::<Result<_, _>>()?;
    is_well(&daemons)?;
    let watch = |machine: usize| Watch::nbd(lab.host(machine), &daemons[machine], &image);
    let watches: Vec<Watch> = (1..STORES.len()).map(watch).collect::<Result<_, _>>()?;
    // The origin comes last, as in the guide.
    for machine in [1, 2, 3, 0] {
        assert!(daemons[machine].leave(FILL_LIMIT)?.success(), "{}", daemons[machine].process().log_tail());
        daemons[machine] = start(&lab, &image, &after, machine)?;
        is_well(&daemons)?;
        watches.iter().try_for_each(Watch::goes_on)?;
    }
    // A reader's own daemon was away once.
    for (watch, daemon) in watches.into_iter().zip(&daemons[1..]) {
        watch.judge(&daemon.process().log(), 1);
    }
    Ok(())
}

/// It speaks a later version too, says more in its greeting, and sends frames that nobody knows.
#[test]
fn a_program_of_tomorrow_is_understood() -> Outcome {
    const UNHEARD_OF: u8 = 200;
    let field = Field::on(Lab::loopback(3)?, Plan { stores: &["all"], ..Plan::default() })?;
    field.filled()?;
    let mut stream = bully::greet_of_tomorrow(field.origin.addr(), Name::of(field.host(1).addr(), 7))?;
    stream.write_all(&bully::header(UNHEARD_OF, 5, 1))?;
    stream.write_all(b"hello")?;
    stream.write_all(&bully::sync(2))?;
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    assert_eq!(header[0], bully::SYNCED);
    let status = field.origin.status()?;
    assert!(is_uncharged(&status), "{:?}", status["misdeeds"]);
    Ok(())
}

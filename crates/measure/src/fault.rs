//! Faults: something goes wrong, again and again, while readers on all hosts read everything; what
//! they noticed of it.
//!
//! [`run`] lays out a field, lets a reader on each host go through the image over and over, brings
//! a [`Fault`] about for a while, heals it, and gives a [`Finding`]: wrong bytes, errors, the
//! longest stall, and resources that were not given back. Which hosts are struck, and when, is
//! drawn from a seed. Used by the `faults` program and by tests; knows nothing of the protocol
//! between nodes.

mod accounts;
mod deeds;
mod field;
mod finding;
mod kind;
mod leftovers;
mod reader;

pub use finding::Finding;
pub use kind::Fault;

use field::Field;
use reader::Readers;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vfield_lab::{LabError, Vfield};

/// After a fault is over, everybody reads on for so long: what it left behind is to be seen.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// What a fault befalls.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Nodes besides the origin, each with a reader.
    pub nodes: usize,
    /// Rate of each host's link, each way on its own, in Mbit/s.
    pub mbit: u64,
    /// Length of the image.
    pub size_bytes: u64,
    /// What each node holds, in the program's own words.
    pub store: String,
    /// What each reader asks for in a second at most; `None`: all that it can get.
    pub reader_bytes_per_s: Option<u64>,
    /// For how long it is brought about.
    pub lasts: Duration,
    /// The same seed strikes the same hosts in the same order.
    pub seed: u64,
    /// The program under test.
    pub vfield: PathBuf,
}

/// Brings a fault about while everybody reads.
///
/// # Errors
/// If the field could not be laid out or the fault not be brought about; what readers noticed is in
/// the finding.
pub fn run(fault: Fault, plan: &Plan) -> Result<Finding, LabError> {
    let vfield = Vfield::at(&plan.vfield);
    let mut field = Field::lay_out(fault, plan, &vfield)?;
    let dir = field.lab().dir().to_owned();
    let readers = Readers::start(&field)?;
    let start = Instant::now();
    readers.all_read(Duration::from_secs(20))?;
    let outcome = deeds::bring_about(fault, plan, &mut field, &readers);
    // A reader that hangs has said nothing: it is to have been heard by then, or to be missed.
    let struck = outcome.and_then(|deed| {
        field.keep_alive_for(AFTERWARDS)?;
        readers.all_read(reader::WAITS).or_else(|_| {
            let accounts = accounts::of_daemons(&mut field);
            let late = |_| LabError::Late { what: format!("all readers read; {accounts}"), limit: reader::HANGS };
            readers.all_read(reader::HANGS).map_err(late)
        })?;
        Ok(deed)
    });
    let readings = readers.stop();
    let deed = struck?;
    let mut finding = Finding::of(fault, deed, readings, start.elapsed());
    finding.amiss.extend(leftovers::of_daemons(&mut field));
    drop(field);
    finding.amiss.extend(leftovers::of_lab(&dir));
    Ok(finding)
}

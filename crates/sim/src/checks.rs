//! Invariants checked after every input. Each checker has a file of its own, and knows neither the
//! readers nor the faults.

mod blame;
mod bounds;
mod copies;
mod coverage;
mod covered;
mod flights;
mod identity;
mod inventory;
mod load;
mod quiet;
mod reads;
mod rubbish;
mod views;

use crate::field::Field;
pub use covered::check_claims as covered_as_claimed;
pub use identity::Pairs;
use std::fmt;
use vfield_core::chunk::Chunk;
use vfield_core::node::Notice;
use vfield_core::time::Time;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The checker that found it.
    pub checker: &'static str,
    /// The simulated time of the finding.
    pub at: Time,
    /// On which machine.
    pub machine: usize,
    /// The finding in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checker, at, machine, what } = self;
        write!(f, "{checker}: at {:.6} s: machine {machine} {what}", at.since_start().as_secs_f64())
    }
}

/// A violation, now.
pub fn violation(field: &Field, checker: &'static str, machine: usize, what: String) -> Violation {
    Violation { checker, at: field.now(), machine, what }
}

/// Says which machine is not well, and why.
type Check = fn(&Field) -> Result<(), (usize, String)>;

/// The first defect that remains although all faults are mended; `None` if there is none.
pub fn converged(field: &Field) -> Option<Violation> {
    let all: [(&'static str, Check); 6] = [
        ("views", views::check),
        ("reads-end", reads::check),
        ("coverage", coverage::check),
        ("covered", covered::check),
        ("quiet", quiet::check),
        ("rubbish", rubbish::check),
    ];
    all.into_iter()
        .find_map(|(checker, check)| check(field).err().map(|(machine, what)| violation(field, checker, machine, what)))
}

/// Looking at a whole inventory at every input would cost more than all else.
const FULL_CHECK_EVERY: u64 = 64;

/// The checkers in use, and how often they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Each machine is checked after this many of its inputs; 0: never.
    pub every: u64,
    /// Each blamed machine must have lied.
    pub blame: bool,
    /// Whether an origin has to send a chunk is asked of all machines each time.
    pub copies: bool,
}

impl Checks {
    /// All checkers, after each input.
    pub const fn all() -> Self {
        Self { every: 1, blame: false, copies: false }
    }

    /// So rarely that a storm of thousands is not slowed down.
    pub const fn rare() -> Self {
        Self { every: 4096, blame: false, copies: false }
    }

    /// Looks at a machine that has had an input.
    pub(crate) fn after_input(self, field: &Field, machine: usize) -> Result<(), Violation> {
        let inputs = field.machines[machine].inputs;
        // What a malicious machine does to itself is its own affair.
        if !field.machines[machine].is_honest() {
            return Ok(());
        }
        if self.every == 0 || !inputs.is_multiple_of(self.every) {
            return Ok(());
        }
        let wrong = |checker, what| violation(field, checker, machine, what);
        flights::check(field, machine).map_err(|what| wrong("flights", what))?;
        if self.copies {
            copies::check(field, machine).map_err(|what| wrong("copies", what))?;
        }
        if inputs.is_multiple_of(FULL_CHECK_EVERY) {
            inventory::check(field, machine).map_err(|what| wrong("inventory", what))?;
            load::check(field, machine).map_err(|what| wrong("load", what))?;
            bounds::check(field, machine).map_err(|what| wrong("bounds", what))?;
        }
        Ok(())
    }

    /// Looks at a chunk that goes from one machine to another; true if it comes from an origin that
    /// need not send it.
    pub(crate) fn sent(self, field: &Field, way: [usize; 2], image: usize, chunk: Chunk) -> bool {
        self.copies
            && field.machines[way[1]].is_honest()
            && field.machines[way[0]].is_origin(image)
            && copies::is_elsewhere(field, way, image, chunk)
    }

    /// Looks at a machine that is about to give an image up.
    pub(crate) fn before_discard(field: &Field, machine: usize, image: usize) -> Result<(), Violation> {
        rubbish::check_loss(field, machine, image).map_err(|what| violation(field, "rubbish", machine, what))
    }

    /// Checks a notice of a core.
    pub(crate) fn notice(self, field: &Field, machine: usize, notice: &Notice) -> Result<(), Violation> {
        match notice {
            Notice::Blamed(node, _) if self.blame && field.machines[machine].is_honest() => {
                blame::check(field, *node).map_err(|what| violation(field, "blame", machine, what))
            }
            _ => Ok(()),
        }
    }
}

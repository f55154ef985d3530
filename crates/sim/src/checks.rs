//! What has to hold after every input, whatever happens: each checker in a file of its own, none of them knows what
//! the readers do or which fault was brought about.

mod blame;
mod copies;
mod coverage;
mod flights;
mod inventory;
mod load;
mod quiet;
mod reads;
mod views;

use crate::field::Field;
use std::fmt;
use vfield_core::chunk::Chunk;
use vfield_core::node::Notice;
use vfield_core::time::Time;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The checker that found it.
    pub checker: &'static str,
    /// When.
    pub at: Time,
    /// On which machine.
    pub machine: usize,
    /// What was found.
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

/// What is not well yet, once nothing is wrong any more: `None` if everything is.
pub fn converged(field: &Field) -> Option<Violation> {
    let all: [(&'static str, Check); 4] =
        [("views", views::check), ("reads-end", reads::check), ("coverage", coverage::check), ("quiet", quiet::check)];
    all.into_iter()
        .find_map(|(checker, check)| check(field).err().map(|(machine, what)| violation(field, checker, machine, what)))
}

/// Looking at a whole inventory at every input would cost more than all else.
const FULL_CHECK_EVERY: u64 = 64;

/// Which checkers look how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Each machine is looked at after each so many of its inputs; 0: never.
    pub every: u64,
    /// Each blamed machine must have lied.
    pub blame: bool,
    /// Whether an origin has to send a chunk is asked of all machines each time.
    pub copies: bool,
}

impl Checks {
    /// All, always.
    pub const fn all() -> Self {
        Self { every: 1, blame: false, copies: false }
    }

    /// So rarely that a storm of thousands does not notice.
    pub const fn rare() -> Self {
        Self { every: 4096, blame: false, copies: false }
    }

    /// Looks at a machine that has had an input.
    pub(crate) fn after_input(self, field: &Field, machine: usize) -> Result<(), Violation> {
        let inputs = field.machines[machine].inputs;
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
        }
        Ok(())
    }

    /// Looks at a chunk that goes from one machine to another; true if it comes from an origin that need not send it.
    pub(crate) fn sent(self, field: &Field, way: [usize; 2], image: usize, chunk: Chunk) -> bool {
        self.copies && field.machines[way[0]].is_origin(image) && copies::is_elsewhere(field, way, image, chunk)
    }

    /// Looks at what a core says.
    pub(crate) fn notice(self, field: &Field, machine: usize, notice: &Notice) -> Result<(), Violation> {
        match notice {
            Notice::Blamed(node, _) if self.blame => {
                blame::check(field, *node).map_err(|what| violation(field, "blame", machine, what))
            }
            _ => Ok(()),
        }
    }
}

//! Machines that are busy with other things: `20@3` leaves the third a twentieth of a processor.

use crate::each::{Each, Trait};

/// The busy machines; a list such as `20@3,4@5..9`.
pub type Busy = Each<Share>;

/// The part of one processor that a machine's node has, as its divisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// The largest divisor: the kernel's groups know no smaller part than a thousandth.
    pub const DIVISOR_MAX: u32 = 1000;

    /// One processor, divided by this.
    pub const fn divisor(self) -> u32 {
        self.0
    }
}

impl Trait for Share {
    const NAME: &'static str = "factor";
    const EXAMPLE: &'static str = "factors such as 20@3";

    fn read(text: &str) -> Result<Self, String> {
        let divisor = text.parse().ok().filter(|divisor| (1..=Self::DIVISOR_MAX).contains(divisor));
        divisor.map(Self).ok_or_else(|| format!("{text:?} is no whole number from 1 to {}", Self::DIVISOR_MAX))
    }

    fn text(self) -> String {
        self.0.to_string()
    }
}

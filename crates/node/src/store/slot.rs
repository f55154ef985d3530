//! The state of one chunk's slot in the memory file, as a value: every change is a named
//! transition.
//!
//! ```text
//!         claim          publish             evict, no pins
//!  Absent ------> Writing -------> Resident(n) -------------> Dropping(0) --punched--> Absent
//!                    |                |  ^ pin/unpin              ^
//!                    |                | evict, n pins             | last unpin
//!                    |                +------------> Dropping(n) -+
//!                    |                ^----revive------+
//!                    +-- abandon ---------------------------> Dropping(0)
//!
//!         find          look           take
//!  Absent -----> Found ------> Looked -------> Writing
//!                  | ^-----------put_back---------+
//!                  +-------------take-------------^
//!
//!         offer            take               lend            give_back
//!  Absent -----> Offered -------> Writing ----------> Lent ------------> Absent
//!                  ^---put_back------+ decline          +-- come_home --> Resident(0)
//!                                    +----> Absent
//! ```
//!
//! A slot is published in a [`Form`], which stays until it is punched.
//!
//! Invariants:
//!
//! - Bytes are read only in `Resident`, and in `Dropping` by holders of a pin.
//! - Bytes are written only in `Writing`, by its claimant.
//! - Only `punched` leads back to where `claim` is possible. A slot's pages are given back to the
//!   kernel before it is used again, because pages handed to `sendfile` may still be on their way.
//! - `Found` has the bytes of an earlier process, right or not. Only the checking task reads them,
//!   in `Looked`. It takes the slot once it knows whether they are right. As a disk may let it wait
//!   for that, a task that brings the chunk meanwhile takes the slot first, and the check is void.
//! - Only the task whose transition leads to `Dropping(0)` punches.
//! - `Lent` and `Offered` have their bytes in the slot of another store, the lender: an image's
//!   other version. A loan is a pin of that slot.
//! - `Dropping` with pins has the chunk's bytes, so a chunk that is wanted again meanwhile is
//!   revived.
//!
//! The zero flag is apart from all this: a chunk known to be zero stays so. Only the store uses it.
//! It knows nothing of files and atomics.

/// The state of a chunk's bytes, in the 32 bits of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Slot(u32);

/// How the bytes of a chunk lie in its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    Plain,
    /// Compressed, in fewer pages.
    Compressed,
}

/// Pins are counted in the bits below the form.
const PINS: u32 = COMPRESSED - 1;
const COMPRESSED: u32 = 1 << 23;
/// The number of the store that has the bytes, counted from 1; 0 for this one.
const LENDER: u32 = 0b111 << LENDER_AT;
const LENDER_AT: u32 = 24;
const FOUND: u32 = 1 << 27;
const ZERO: u32 = 1 << 28;
const DROPPING: u32 = 1 << 29;
const WRITING: u32 = 1 << 30;
const LOOKED: u32 = FOUND | WRITING;
const RESIDENT: u32 = 1 << 31;

impl Slot {
    /// Bytes may lie here that an earlier process has left.
    pub const FOUND: Self = Self(FOUND);
    /// Most stores that may lend to one.
    pub const LENDERS_MAX: usize = 7;

    /// From the bits of an atomic that holds a slot.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// To keep it in an atomic.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// True if the bytes are here and may be pinned.
    pub const fn is_resident(self) -> bool {
        self.0 & RESIDENT != 0
    }

    /// True if the chunk is known to be zero.
    pub const fn is_zero(self) -> bool {
        self.0 & ZERO != 0
    }

    /// True if the bytes can be read, here or in the lender's slot.
    pub const fn is_readable(self) -> bool {
        self.is_resident() || self.lent_by().is_some()
    }

    /// How the bytes lie here; plain if there are none.
    pub const fn form(self) -> Form {
        if self.0 & COMPRESSED == 0 { Form::Plain } else { Form::Compressed }
    }

    /// True if there are no bytes and nobody is about to write any.
    pub const fn is_absent(self) -> bool {
        self.0 & !ZERO == 0
    }

    /// The number of the store, from 0, that has the bytes in place of this one, or may have them.
    pub const fn lender(self) -> Option<usize> {
        match (self.0 & LENDER) >> LENDER_AT {
            0 => None,
            number => Some(number as usize - 1),
        }
    }

    /// The lender of bytes that can be read.
    pub const fn lent_by(self) -> Option<usize> {
        if self.0 & LOOKED == 0 { self.lender() } else { None }
    }

    /// True if the slot has unverified bytes at which nobody looks.
    pub const fn is_found(self) -> bool {
        self.0 & LOOKED == FOUND
    }

    /// True while a task writes or verifies the bytes.
    pub const fn is_in_the_making(self) -> bool {
        self.0 & WRITING != 0
    }

    /// True in `Writing`.
    const fn is_claimed(self) -> bool {
        self.0 & LOOKED == WRITING
    }

    /// True in `Dropping(0)`: the task whose transition led here has to punch, then say
    /// [`Slot::punched`].
    pub const fn is_to_punch(self) -> bool {
        self.0 & (DROPPING | PINS) == DROPPING
    }

    /// The number of readers that rely on the bytes.
    pub const fn pins(self) -> u32 {
        self.0 & PINS
    }

    /// Takes the slot for writing; `None` unless it is absent.
    pub const fn claim(self) -> Option<Self> {
        if self.is_absent() { Some(Self(self.0 | WRITING)) } else { None }
    }

    /// Bytes lie here that an earlier process has left; `None` unless absent.
    pub const fn find(self) -> Option<Self> {
        if self.is_absent() { Some(Self(self.0 | FOUND)) } else { None }
    }

    /// Looks at found bytes, to verify them; `None` unless found.
    pub const fn look(self) -> Option<Self> {
        if self.is_found() { Some(Self(self.0 | WRITING)) } else { None }
    }

    /// Takes a slot of found bytes, to publish, abandon or replace them; `None` unless found or
    /// looked at.
    pub const fn take(self) -> Option<Self> {
        if self.0 & FOUND != 0 { Some(Self(self.0 & !FOUND | WRITING)) } else { None }
    }

    /// The same for the task that looked at the bytes; `None` if another one took the slot.
    pub const fn judge(self) -> Option<Self> {
        if self.0 & LOOKED == LOOKED { self.take() } else { None }
    }

    /// The store of this number may have the bytes; `None` unless absent.
    pub const fn offer(self, lender: usize) -> Option<Self> {
        assert!(lender < Self::LENDERS_MAX, "one lender too many");
        match self.find() {
            Some(Self(found)) => Some(Self(found | (lender as u32 + 1) << LENDER_AT)),
            None => None,
        }
    }

    /// The store of this number has the bytes, and keeps them until the loan is given back.
    pub const fn lend(self, lender: usize) -> Self {
        assert!(self.is_claimed(), "a loan without a claim");
        Self(self.0 & !(WRITING | LENDER) | (lender as u32 + 1) << LENDER_AT)
    }

    /// No store has the bytes after all.
    pub const fn decline(self) -> Self {
        assert!(self.is_claimed(), "declined without a claim");
        Self(self.0 & !(WRITING | LENDER))
    }

    /// The bytes are to be written here, whoever offers them.
    pub const fn write_here(self) -> Self {
        assert!(self.is_claimed(), "to be written without a claim");
        Self(self.0 & !LENDER)
    }

    /// Ends a loan; the caller unpins the lender's slot. `None` unless lent.
    pub const fn give_back(self) -> Option<Self> {
        if self.lent_by().is_some() { Some(Self(self.0 & !LENDER)) } else { None }
    }

    /// The bytes are written here as well; the caller unpins the lender's slot. `None` unless lent.
    pub const fn come_home(self, form: Form) -> Option<Self> {
        if self.lent_by().is_some() { Some(Self(self.0 & !LENDER | RESIDENT | form.bits())) } else { None }
    }

    /// Puts back found bytes that cannot be verified yet.
    pub const fn put_back(self) -> Self {
        assert!(self.is_claimed(), "put back without a claim");
        Self(self.0 & !WRITING | FOUND)
    }

    /// The bytes are written.
    pub const fn publish(self, form: Form) -> Self {
        assert!(self.is_claimed(), "publish without a claim");
        Self(self.0 & !WRITING | RESIDENT | form.bits())
    }

    /// Writing failed half-way; the caller has to punch.
    pub const fn abandon(self) -> Self {
        assert!(self.is_claimed(), "abandon without a claim");
        Self(self.0 & !WRITING | DROPPING)
    }

    /// Adds a reader of a slot that is lent: its bytes are there for as long as the loan lasts.
    /// `None` if they are not.
    pub const fn pin_kept(self) -> Option<Self> {
        let kept = self.is_resident() || self.0 & DROPPING != 0 && self.pins() > 0;
        if kept && self.pins() < PINS { Some(Self(self.0 + 1)) } else { None }
    }

    /// Adds a reader; `None` unless resident, or with 2^23 readers.
    pub const fn pin(self) -> Option<Self> {
        if self.is_resident() && self.pins() < PINS { Some(Self(self.0 + 1)) } else { None }
    }

    /// Removes a reader; the last one of an evicted chunk has to punch.
    pub const fn unpin(self) -> Self {
        assert!(self.pins() > 0, "unpin without a pin");
        Self(self.0 - 1)
    }

    /// No new readers; without old ones the caller has to punch. `None` unless resident.
    pub const fn evict(self) -> Option<Self> {
        if self.is_resident() { Some(Self(self.0 & !RESIDENT | DROPPING)) } else { None }
    }

    /// Makes an evicted chunk resident while its bytes are still read: they are right. `None`
    /// unless dropping with readers.
    pub const fn revive(self) -> Option<Self> {
        if self.0 & DROPPING != 0 && self.pins() > 0 { Some(Self(self.0 & !DROPPING | RESIDENT)) } else { None }
    }

    /// The pages are gone.
    pub const fn punched(self) -> Self {
        assert!(self.is_to_punch(), "punched out of turn");
        Self(self.0 & !(DROPPING | COMPRESSED))
    }

    /// The chunk is known to be zero.
    pub const fn mark_zero(self) -> Self {
        Self(self.0 | ZERO)
    }
}

impl Form {
    const fn bits(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Compressed => COMPRESSED,
        }
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.0 & (RESIDENT | WRITING | DROPPING | FOUND) {
            0 if self.lender().is_some() => "lent",
            0 => "absent",
            FOUND => "found",
            LOOKED => "looked at",
            RESIDENT => "resident",
            WRITING => "writing",
            DROPPING => "dropping",
            _ => "impossible",
        };
        let form = if self.form() == Form::Compressed { " compressed" } else { "" };
        write!(f, "{state}({}){form}{}", self.pins(), if self.is_zero() { " zero" } else { "" })
    }
}

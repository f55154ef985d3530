//! What each machine has: entries such as `100M,10M@3,1G@5..9/2`, for all machines or for some.
//!
//! Owns the places after the `@`; a [`Trait`] stands before it. Invariants: no machine has two
//! entries, at most one entry is for all, and a list is read back as it is written. Used through
//! [`crate::Links`] and the other lists of this crate.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Machines of a list have numbers below this: the simulator's most.
pub const MACHINES_MAX: usize = 1 << 20;
/// A file of entries is not longer than this, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// What an entry gives to a machine.
pub trait Trait: Copy + PartialEq {
    /// What a machine has one of, such as `link`.
    const NAME: &'static str;
    /// Examples, for the error about something else.
    const EXAMPLE: &'static str;

    /// Reads it as it is typed.
    ///
    /// # Errors
    /// In a line for the person who typed it.
    fn read(text: &str) -> Result<Self, String>;

    /// The text that [`Trait::read`] takes.
    fn text(self) -> String;
}

/// Machines: one, a range of which both ends belong to it, or each so-and-so-many-th of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machines {
    first: usize,
    last: usize,
    step: usize,
}

impl Machines {
    /// Machines from `first` to `last`, both included, in steps; `None` if there are none, or one
    /// of them has no such number.
    pub const fn new(first: usize, last: usize, step: usize) -> Option<Self> {
        if first > last || last >= MACHINES_MAX || step == 0 { None } else { Some(Self { first, last, step }) }
    }

    /// The numbers of these machines, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (self.first..=self.last).step_by(self.step)
    }
}

impl fmt::Display for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, step } = *self;
        match (first == last, step) {
            (true, 1) => write!(f, "{first}"),
            (_, 1) => write!(f, "{first}..{last}"),
            _ => write!(f, "{first}..{last}/{step}"),
        }
    }
}

impl FromStr for Machines {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse::<usize>().map_err(drop);
        let Some((first, rest)) = text.split_once("..") else {
            let only = number(text)?;
            return Self::new(only, only, 1).ok_or(());
        };
        let (last, step) = rest.split_once('/').map_or((rest, None), |(last, step)| (last, Some(step)));
        Self::new(number(first)?, number(last)?, step.map_or(Ok(1), number)?).ok_or(())
    }
}

/// What all machines have, and what some have instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Each<T> {
    usual: Option<T>,
    others: Vec<(Machines, T)>,
    /// For each machine that has an entry of its own, its place there, plus one.
    table: Vec<u32>,
}

impl<T> Default for Each<T> {
    fn default() -> Self {
        Self { usual: None, others: Vec::new(), table: Vec::new() }
    }
}

impl<T: Trait> Each<T> {
    /// A list of entries; those without machines are for all.
    ///
    /// # Errors
    /// If two entries are for all, or a machine has two.
    pub fn new(entries: impl IntoIterator<Item = (Option<Machines>, T)>) -> Result<Self, String> {
        let mut list = Self::default();
        entries.into_iter().try_for_each(|(machines, value)| list.add(machines, value))?;
        Ok(list)
    }

    fn add(&mut self, machines: Option<Machines>, value: T) -> Result<(), String> {
        let Some(machines) = machines else {
            return match self.usual.replace(value) {
                Some(before) => Err(format!("{} and {} are both for all machines", before.text(), value.text())),
                None => Ok(()),
            };
        };
        self.others.push((machines, value));
        let entry = u32::try_from(self.others.len()).expect("fewer entries than bytes of a command line");
        self.table.resize(self.table.len().max(machines.last + 1), 0);
        for machine in machines.iter() {
            if std::mem::replace(&mut self.table[machine], entry) > 0 {
                return Err(format!("machine {machine} has two {}s", T::NAME));
            }
        }
        Ok(())
    }

    /// What machines without an entry of their own have, if that is said.
    pub const fn usual(&self) -> Option<T> {
        self.usual
    }

    /// What a machine has, if that is said.
    pub fn of(&self, machine: usize) -> Option<T> {
        let entry = self.table.get(machine).copied().unwrap_or(0) as usize;
        entry.checked_sub(1).map(|entry| self.others[entry].1).or(self.usual)
    }

    /// True if nothing is said of any machine.
    pub const fn is_empty(&self) -> bool {
        self.usual.is_none() && self.others.is_empty()
    }

    /// True if a machine has an entry of its own.
    pub const fn is_unequal(&self) -> bool {
        !self.others.is_empty()
    }

    /// Checks that all machines of the list are there, which are numbered from 0.
    ///
    /// # Errors
    /// The first entry with a missing machine, in one line.
    pub fn check(&self, machines: usize) -> Result<(), String> {
        let beyond = self.others.iter().find(|(entry, _)| entry.iter().last().is_some_and(|last| last >= machines));
        let last = machines.saturating_sub(1);
        beyond.map_or(Ok(()), |(entry, value)| {
            Err(format!("{}@{entry}: there is no such machine; the last one is {last}", value.text()))
        })
    }

    /// Reads a list as it is typed: the entries themselves, which begin with a digit, or else the
    /// name of a file that has them.
    ///
    /// # Errors
    /// The first wrong entry, in one line.
    pub fn typed(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
            return text.parse();
        }
        let path = Path::new(text);
        let neither = |error: std::io::Error| format!("{text:?} is neither {} nor a file: {error}", T::EXAMPLE);
        let length = std::fs::metadata(path).map_err(neither)?.len();
        if length > FILE_MAX {
            return Err(format!("{text}: {length} bytes are no list of {}s", T::NAME));
        }
        let words = std::fs::read_to_string(path).map_err(neither)?;
        let mut list = Self::default();
        for (number, line) in (1..).zip(words.lines()) {
            list.read(line).map_err(|why| format!("{text}: line {number}: {why}"))?;
        }
        Ok(list)
    }

    /// Adds the entries of a line; a comment follows a `#`.
    fn read(&mut self, line: &str) -> Result<(), String> {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            return Ok(());
        }
        for entry in line.split(',').map(str::trim) {
            let wrong = |why: &str| format!("{entry:?} is no {}: {why}", T::NAME);
            let (value, machines) = entry.split_once('@').map_or((entry, None), |(value, at)| (value, Some(at)));
            let value = T::read(value).map_err(|why| wrong(&why))?;
            let places = "after @ stands a machine, or a range of them such as 5..9 or 5..9/2";
            let machines = machines.map(str::parse::<Machines>).transpose().map_err(|()| wrong(places))?;
            self.add(machines, value)?;
        }
        Ok(())
    }
}

impl<T: Trait> fmt::Display for Each<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        if let Some(usual) = self.usual {
            f.write_str(&usual.text())?;
            comma = ",";
        }
        for (machines, value) in &self.others {
            write!(f, "{comma}{}@{machines}", value.text())?;
            comma = ",";
        }
        Ok(())
    }
}

impl<T: Trait> FromStr for Each<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list = Self::default();
        text.lines().try_for_each(|line| list.read(line))?;
        if list.is_empty() { Err(format!("{text:?} has no {}; {}", T::NAME, T::EXAMPLE)) } else { Ok(list) }
    }
}

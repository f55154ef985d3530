//! A trace: all inputs and outputs of cores as one hash, and the last steps in words.

use vfield_core::time::Time;

/// One step. The maker of the event defines the numbers.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The simulated time.
    pub at: Time,
    /// On which machine.
    pub machine: u32,
    /// The kind of step.
    pub what: &'static str,
    /// Numbers of the kind.
    pub about: [u64; 2],
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [first, second] = self.about;
        let at = self.at.since_start().as_secs_f64();
        write!(f, "{at:.6} machine {} {} {first} {second}", self.machine, self.what)
    }
}

/// Most steps kept in words.
const LAST: usize = 400;
/// Bytes hashed at once: small pieces would cost more than all other work.
const BUFFER: usize = 64 << 10;

/// The trace of a run.
#[derive(Debug)]
pub struct Trace {
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
    last: Vec<Step>,
    steps: u64,
}

impl Default for Trace {
    fn default() -> Self {
        let buffer = Vec::with_capacity(BUFFER + 2048);
        Self { hasher: blake3::Hasher::new(), buffer, last: Vec::with_capacity(LAST), steps: 0 }
    }
}

impl Trace {
    /// Adds a step.
    pub fn note(&mut self, step: Step) {
        let Step { at, machine, what, about: [first, second] } = step;
        self.buffer.extend_from_slice(&(at.since_start().as_nanos() as u64).to_le_bytes());
        self.buffer.extend_from_slice(&machine.to_le_bytes());
        self.buffer.extend_from_slice(what.as_bytes());
        self.buffer.extend_from_slice(&first.to_le_bytes());
        self.buffer.extend_from_slice(&second.to_le_bytes());
        let at = (self.steps % LAST as u64) as usize;
        self.steps += 1;
        match self.last.get_mut(at) {
            Some(place) => *place = step,
            None => self.last.push(step),
        }
        self.spill();
    }

    /// Bytes that belong to the step noted last.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.spill();
    }

    fn spill(&mut self) {
        if self.buffer.len() >= BUFFER {
            self.hasher.update(&self.buffer);
            self.buffer.clear();
        }
    }

    /// The hash of all so far.
    pub fn hash(&self) -> blake3::Hash {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.buffer);
        hasher.finalize()
    }

    /// The number of steps so far.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The last steps, oldest first.
    pub fn last(&self) -> Vec<Step> {
        let from = if self.last.len() < LAST { 0 } else { (self.steps % LAST as u64) as usize };
        self.last[from..].iter().chain(&self.last[..from]).copied().collect()
    }
}

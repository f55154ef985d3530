//! Notes about some machines, which show why their readers waited.

use crate::field::Field;
use crate::machine::number_of;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::Stage;

/// Most machines in a line about machines that wait for each other.
const CHAIN_MAX: usize = 12;

/// The messages of one machine since the last notes.
#[derive(Debug, Default, Clone)]
pub struct Notes {
    /// Bytes of chunks, by the machine that sent them.
    pub came: BTreeMap<usize, u64>,
    /// Refusals, by sender.
    pub refused: BTreeMap<usize, u64>,
}

/// The notes about all explained machines.
#[derive(Debug, Default)]
pub struct Explain {
    notes: BTreeMap<usize, Notes>,
}

impl Explain {
    /// From now on notes are taken about this machine.
    pub fn watch(&mut self, machine: usize) {
        self.notes.entry(machine).or_default();
    }

    /// A chunk came.
    pub fn came(&mut self, machine: usize, from: usize, bytes: u64) {
        if let Some(notes) = self.notes.get_mut(&machine) {
            *notes.came.entry(from).or_default() += bytes;
        }
    }

    /// A refusal came.
    pub fn refused(&mut self, machine: usize, from: usize) {
        if let Some(notes) = self.notes.get_mut(&machine) {
            *notes.refused.entry(from).or_default() += 1;
        }
    }

    /// Machines that notes are taken about.
    pub fn machines(&self) -> Vec<usize> {
        self.notes.keys().copied().collect()
    }

    /// All notes since the last call.
    pub fn take(&mut self, machine: usize) -> Notes {
        self.notes.get_mut(&machine).map(std::mem::take).unwrap_or_default()
    }
}

/// One line: the reader's position, the waiting chunks, the chunks by sender.
pub fn line(field: &Field, machine: usize, notes: &Notes, at: Duration) -> String {
    let host = &field.machines[machine];
    let mut text = format!("{:7.1} s machine {machine}:", at.as_secs_f64());
    for reader in host.readers.iter().map(|reader| &field.readers[*reader as usize]) {
        let total = field.images[reader.image].geometry.data_chunks();
        let place = reader.position().map_or_else(|| "done".to_owned(), |chunk| format!("at {chunk}"));
        let _ = write!(text, " {place}, {} of {total} read;", reader.read);
    }
    for view in host.node.images() {
        let _ = write!(text, " {} stored, {} kept a while;", view.stored, view.transient);
    }
    let mut asked: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, flight) in host.flights.iter().filter(|(_, flight)| !flight.cancelled) {
        *asked.entry(flight.to).or_default() += 1;
    }
    let _ = write!(text, " {} asked for {:?};", host.flights.len(), most(asked));
    let came = notes.came.iter().map(|(from, bytes)| (*from, bytes >> 10)).collect();
    let _ = write!(text, " KiB came {:?}; refused {:?}", most(came), most(notes.refused.clone()));
    text
}

/// One line: the first chunk that a machine's reader waits for, and the machines that wait for each
/// other.
pub fn chain(field: &Field, machine: usize) -> Option<String> {
    let reader = &field.readers[*field.machines[machine].readers.first()? as usize];
    Some(chain_of(field, machine, reader.image, Chunk(reader.position()?)))
}

/// The same of any chunk that a machine wants.
pub fn chain_of(field: &Field, machine: usize, image: usize, chunk: Chunk) -> String {
    let id = field.images[image].id;
    let mut text = format!("          {chunk}:");
    let (mut machine, mut chunk, mut seen) = (machine, chunk, Vec::new());
    while !seen.contains(&(machine, chunk)) && seen.len() < CHAIN_MAX {
        seen.push((machine, chunk));
        let node = &field.machines[machine].node;
        let Some(view) = node.fetch(id, chunk) else {
            let _ = write!(text, " machine {machine} has no fetch");
            break;
        };
        let _ = match view.stage {
            Stage::Parked(peer) => {
                write!(text, " {machine} {:?} until {} can take more", view.priority, number_of(peer))
            }
            stage => write!(text, " {machine} {:?} {stage:?},", view.priority),
        };
        if view.stage == Stage::NeedsParent
            && let Some((page, _)) = field.images[image].geometry.parent(chunk)
        {
            chunk = page;
            continue;
        }
        let Some((peer, reach, age)) = view.requests.first() else {
            let tried: Vec<usize> = view.tried.iter().map(|node| number_of(*node)).collect();
            let _ = write!(text, ", has tried {tried:?}");
            break;
        };
        let _ = write!(text, " reach {} {} ms ->", reach.0, age.as_millis());
        machine = number_of(*peer);
    }
    text
}

/// The entries with the highest numbers, highest first: a line has room for a few.
fn most<K: Ord + Copy, V: Ord + Copy>(numbers: BTreeMap<K, V>) -> Vec<(K, V)> {
    let mut pairs: Vec<(K, V)> = numbers.into_iter().collect();
    pairs.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    pairs.truncate(6);
    pairs
}

//! The journal of an overlay in a folder, after a crash or a bad disk.
//!
//! Promises: what it says is what its sound records say, as far as they follow each other; cut
//! where the last of them ends, it says the same; a whole record that comes later is never lost in
//! silence. Inputs get right checksums, since no fuzzer finds those.

use arbitrary::{Result, Unstructured};
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use vfield_core::image::ImageId;
use vfield_overlay::granule::{AREA_STATES_BYTES, Area, Cut, GRANULE_BYTES};
use vfield_overlay::journal::{Bad, Subject, replay};

const ID: ImageId = ImageId([7; 32]);
/// Two areas and a bit, not a whole number of granules.
const SIZE_BYTES: u64 = (2 << 20) + 4096 + 512;

/// A header that is right or not, records that are right or not, a tail.
pub fn target(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let cut = Cut::new(SIZE_BYTES);
    let (file, wanted) = write(&mut input, cut);
    let medium = File::from(memfd_create("journal", MemfdFlags::CLOEXEC).expect("memory"));
    medium.write_all_at(&file, 0).expect("memory");
    let subject = Subject { image: ID, cut };
    let replay = |length| replay(&medium, length, subject).expect("memory does not fail");
    let Ok(found) = replay(file.len() as u64) else {
        assert!(!wanted.sound, "a sound journal was refused");
        return;
    };
    assert!(found.length_bytes <= file.len() as u64);
    assert!(found.areas.keys().all(|area| *area < cut.areas()), "{:?}", found.areas.keys());
    assert!(found.areas.values().all(|states| !states.is_base()));
    let again = replay(found.length_bytes).expect("what was read is read again");
    assert_eq!(
        (again.areas, again.number, again.length_bytes),
        (found.areas.clone(), found.number, found.length_bytes)
    );
    if wanted.sound {
        assert_eq!((found.areas, found.number), (wanted.areas, wanted.records));
    }
    if file.len() > 100 {
        assert!(!matches!(replay(99), Err(Bad::OtherImage(_))), "a header that is cut says nothing");
    }
}

/// The written journal.
struct Wanted {
    /// True if the input has no deliberate error.
    sound: bool,
    records: u64,
    areas: BTreeMap<u64, Area>,
}

fn write(input: &mut Unstructured<'_>, cut: Cut) -> (Vec<u8>, Wanted) {
    let mut wanted = Wanted { sound: true, records: 0, areas: BTreeMap::new() };
    let mut file = header(ID, GRANULE_BYTES as u32, cut.size_bytes());
    // A missing part was not to be written.
    let _ = write_records(input, cut, &mut file, &mut wanted);
    (file, wanted)
}

fn write_records(input: &mut Unstructured<'_>, cut: Cut, file: &mut Vec<u8>, wanted: &mut Wanted) -> Result<()> {
    while !input.is_empty() {
        match input.arbitrary::<u8>()? % 8 {
            0..=3 => {
                let entries =
                    (0..input.arbitrary::<u8>()? % 4).map(|_| arbitrary_entry(input)).collect::<Result<Vec<_>>>()?;
                wanted.records += 1;
                file.extend(record(wanted.records, &entries.concat()));
                for entry in entries {
                    let (area, states) = entry.split_first_chunk::<8>().expect("an entry");
                    let area = u64::from_le_bytes(*area);
                    let states = states.first_chunk::<AREA_STATES_BYTES>().expect("an entry");
                    match Area::decode(states, cut.granules_of(area)).filter(|_| area < cut.areas()) {
                        Some(states) if states.is_base() => drop(wanted.areas.remove(&area)),
                        Some(states) => drop(wanted.areas.insert(area, states)),
                        None => wanted.sound = false,
                    }
                }
            }
            4 => {
                wanted.sound = false;
                let entry = arbitrary_entry(input)?;
                file.extend(record(input.arbitrary()?, &entry));
            }
            5 => {
                wanted.sound = false;
                let place = usize::from(input.arbitrary::<u16>()?) % file.len().max(1);
                let by = input.arbitrary::<u8>()?;
                file.get_mut(place).into_iter().for_each(|byte| *byte ^= by);
            }
            6 => {
                wanted.sound = false;
                let length = file.len().saturating_sub(usize::from(input.arbitrary::<u8>()?));
                file.truncate(length);
            }
            _ => {
                wanted.sound = false;
                let length = usize::from(input.arbitrary::<u8>()?).min(input.len());
                file.extend_from_slice(input.bytes(length)?);
            }
        }
    }
    Ok(())
}

fn arbitrary_entry(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let area = input.arbitrary::<u8>()?;
    // Most are areas that there are.
    let area = if area < 240 { u64::from(area % 4) } else { input.arbitrary()? };
    let count = usize::from(input.arbitrary::<u8>()?).min(input.len());
    Ok(entry(area, input.bytes(count)?))
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    bytes
}

/// As the format is documented.
fn header(image: ImageId, granule: u32, size_bytes: u64) -> Vec<u8> {
    let parts = [&b"VFOVIDX\0"[..], &1_u32.to_le_bytes(), &granule.to_le_bytes(), &image.0, &size_bytes.to_le_bytes()];
    seal(parts.concat())
}

/// As the format is documented.
fn record(number: u64, entries: &[u8]) -> Vec<u8> {
    let count = (entries.len() / (8 + AREA_STATES_BYTES)) as u32;
    seal([&b"VFIR"[..], &count.to_le_bytes(), &number.to_le_bytes(), entries].concat())
}

/// An area, and the states of its first granules, one a byte: 0 the base's, 1 held, 2 zeros, 3 not
/// a state.
pub(crate) fn entry(area: u64, states: &[u8]) -> Vec<u8> {
    let mut bytes = area.to_le_bytes().to_vec();
    bytes.resize(8 + AREA_STATES_BYTES, 0);
    for (granule, state) in states.iter().enumerate().take(256) {
        bytes[8 + granule / 4] |= (state & 3) << (granule % 4 * 2);
    }
    bytes
}

/// Without records, with some, damaged in each way.
pub fn seeds() -> Vec<Vec<u8>> {
    let record = |area: u8, states: &[u8]| [&[0, 1, area, states.len() as u8][..], states].concat();
    let two = [record(0, &[1, 2, 1]), record(1, &[2, 2])].concat();
    vec![
        Vec::new(),
        two.clone(),
        [&two[..], &record(0, &[])].concat(),
        [&two[..], &[6, 40]].concat(),
        [&two[..], &[5, 130, 0, 1]].concat(),
        [&two[..], &[7, 4, 1, 2, 3, 4]].concat(),
        [&two[..], &[4, 0, 1, 1, 9, 0, 0, 0, 0, 0, 0, 0]].concat(),
        record(2, &[1, 1]),
    ]
}

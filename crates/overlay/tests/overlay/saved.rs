//! Saved overlays: they restore the changes of one moment; other files are refused.

use crate::support::{Base, ID, act, actions, check, device_bytes, in_memory, model, noise, save, wait};
use proptest::prelude::*;
use std::path::Path;
use vfield_block::device::BlockDevice;
use vfield_block::extent::Extent;
use vfield_core::image::ImageId;
use vfield_overlay::saved::{HEADER_BYTES, Header};
use vfield_overlay::{Overlay, ReplaceError, Replacement, RestoreError, SaveError};

/// An overlay with something of everything, saved.
fn saved(path: &Path) -> (std::sync::Arc<Base>, Vec<u8>) {
    wait(async {
        let base = Base::new();
        let (overlay, mut model) = (in_memory(&base), model(&base));
        overlay.write(4000, noise(10_000, 1).into()).await.unwrap();
        overlay.zero(Extent::from(1 << 20..(1 << 20) + 50_000)).await.unwrap();
        overlay.write(device_bytes() - 600, noise(600, 2).into()).await.unwrap();
        model[4000..14_000].copy_from_slice(&noise(10_000, 1));
        model[1 << 20..(1 << 20) + 50_000].fill(0);
        let end = model.len();
        model[end - 600..].copy_from_slice(&noise(600, 2));
        assert_eq!(save(&overlay, path).unwrap(), std::fs::metadata(path).unwrap().len());
        (base, model)
    })
}

fn restore(path: &Path) -> Result<Overlay, RestoreError> {
    let overlay = in_memory(&Base::new());
    let restored = overlay.restore(path);
    if restored.is_err() {
        assert_eq!((overlay.usage().held_bytes, overlay.usage().zero_bytes), (0, 0), "it is empty as before");
    }
    restored.map(|_| overlay)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn saved_changes_come_back(
        before in prop::collection::vec(actions(), 0..20),
        after in prop::collection::vec(actions(), 0..10),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("saved");
        wait(async {
            let base = Base::new();
            let (overlay, mut model) = (in_memory(&base), model(&base));
            for action in &before {
                act(&overlay, &mut model, action).await.unwrap();
            }
            save(&overlay, &path).unwrap();
            let held = overlay.usage();
            let mut later = model.clone();
            for action in &after {
                act(&overlay, &mut later, action).await.unwrap();
            }
            let again = in_memory(&base);
            assert_eq!(again.restore(&path).unwrap(), held.held_bytes);
            check(&again, &model).await;
            assert_eq!(again.usage(), held);
        });
    }

    #[test]
    fn damaged_files_are_refused(at in any::<prop::sample::Index>(), byte in 1..=255_u8) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("saved");
        saved(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= byte;
        std::fs::write(&path, &bytes).unwrap();
        prop_assert!(restore(&path).is_err());
    }

    #[test]
    fn rubbish_under_a_right_checksum_is_an_overlay_or_refused(
        entries in prop::collection::vec((0..4_u64, any::<[u8; 8]>(), prop::bool::ANY), 0..4),
        held in 0..600_u64,
        tail in 0..20_000_usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("saved");
        let header = Header { image: ID, size_bytes: device_bytes(), entries: entries.len() as u64, held };
        let mut bytes = header.encode();
        for (area, states, sound) in entries {
            bytes.extend_from_slice(&area.to_le_bytes());
            let clear = if sound { 0x55 } else { 0xff };
            bytes.extend(states.iter().cycle().take(64).map(|byte| byte & clear));
        }
        bytes.resize(bytes.len() + if tail % 2 == 0 { tail } else { held as usize * 4096 }, 1);
        let sum = blake3::hash(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(overlay) = restore(&path) {
            prop_assert_eq!(overlay.usage().held_bytes, held * 4096);
        }
    }

    #[test]
    fn any_bytes_are_a_header_or_none(bytes in prop::collection::vec(any::<u8>(), 0..120), front in 0..17_usize) {
        let mut bytes = bytes;
        let real = Header { image: ID, size_bytes: 1 << 40, entries: 5, held: 7 }.encode();
        for (byte, real) in bytes.iter_mut().zip(&real[..front]) {
            *byte = *real;
        }
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]);
            prop_assert!(header.file_bytes().is_some());
        }
    }
}

#[test]
fn a_save_is_of_one_moment_while_writers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved");
    let base = Base::new();
    let overlay = in_memory(&base);
    let size = 2 << 20;
    overlay.try_write(0, &vec![1; size]).unwrap().unwrap();
    // One writer goes over all granules, one letter after the other: a moment has at most two
    // adjacent letters, the later one in front.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for letter in (1..=250_u8).cycle().skip(1) {
                for granule in 0..size as u64 / 4096 {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    overlay.try_write(granule * 4096, &[letter; 4096]).unwrap().unwrap();
                }
            }
        });
        for _ in 0..20 {
            save(&overlay, &path).unwrap();
            let again = in_memory(&base);
            again.restore(&path).unwrap();
            let found = wait(crate::support::read(&again, Extent::from(0..size as u64)));
            let letters: Vec<u8> = found.chunks(4096).map(|granule| granule[0]).collect();
            assert!(found.chunks(4096).all(|granule| granule.iter().all(|byte| *byte == granule[0])));
            let turn = letters.iter().position(|letter| *letter != letters[0]).unwrap_or(letters.len());
            let last = letters.last().unwrap();
            assert!(letters[turn..].iter().all(|letter| letter == last), "three moments in one save");
            assert!(turn == letters.len() || letters[0] == last % 250 + 1, "{} after {last}", letters[0]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn unrestorable_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved");
    let (base, _) = saved(&path);
    let bytes = std::fs::read(&path).unwrap();
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        restore(&path).unwrap_err().to_string().replace(path.to_str().unwrap(), "FILE")
    };
    for cut in [bytes.len() - 1, bytes.len() / 2, HEADER_BYTES] {
        assert_eq!(said(&bytes[..cut]), format!("FILE is truncated: it has {cut} bytes of {}", bytes.len()));
    }
    assert_eq!(said(&bytes[..HEADER_BYTES - 1]), "FILE is no saved overlay");
    assert_eq!(said(b""), "FILE is no saved overlay");
    assert_eq!(said(&[&bytes[..], b"x"].concat()), "FILE is corrupt: it is longer than its header says");
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(said(&newer), "FILE is a saved overlay of format 2, newer than this program knows");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    assert_eq!(said(&flipped), "FILE is corrupt: its checksum is wrong");

    std::fs::write(&path, &bytes).unwrap();
    let other = Overlay::in_memory(base.clone(), ImageId([8; 32]), 1 << 30).unwrap();
    let error = other.restore(&path).unwrap_err().to_string();
    assert!(error.ends_with("was saved over image 070707070707, not over 080808080808"), "{error}");
    let small = Overlay::in_memory(base.clone(), ID, 8192).unwrap();
    let error = small.restore(&path).unwrap_err().to_string();
    assert!(error.ends_with("holds 24576 bytes of changes, and 8192 are allowed"), "{error}");
    let changed = in_memory(&base);
    changed.try_write(0, &[1]).unwrap().unwrap();
    assert!(matches!(changed.restore(&path), Err(RestoreError::NotEmpty(_))));
    assert!(matches!(restore(dir.path()), Err(RestoreError::Foreign(_))));
    assert!(matches!(restore(&dir.path().join("none")), Err(RestoreError::System { .. })));
}

#[test]
fn a_save_replaces_a_saved_overlay_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (path, image) = (dir.path().join("saved"), dir.path().join("image"));
    saved(&path);
    let overlay = in_memory(&Base::new());
    std::fs::write(&image, "precious").unwrap();
    for place in [image.as_path(), dir.path(), Path::new("/dev/null")] {
        assert!(matches!(Replacement::begin(place), Err(ReplaceError::Foreign(_))), "{}", place.display());
    }
    assert_eq!(std::fs::read_to_string(&image).unwrap(), "precious");
    assert!(matches!(Replacement::begin(&dir.path().join("none/saved")), Err(ReplaceError::System { .. })));
    // A link stays one, and its target is replaced.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    save(&overlay, &link).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (HEADER_BYTES + 32) as u64, "nothing was changed");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_save_that_fails_leaves_the_old_file() {
    // A file system with unnamed files.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("saved");
    let (_, model) = saved(&path);
    let before = std::fs::read(&path).unwrap();
    let overlay = in_memory(&Base::new());
    overlay.try_write(0, &vec![1; 1 << 20]).unwrap().unwrap();
    // A file that takes nothing, and a directory in which nothing can be made: the system refuses
    // even root.
    let replacement = Replacement::begin(&path).unwrap();
    let full = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
    assert!(matches!(overlay.save(&full), Err(SaveError::File(_))));
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 1, "what is not complete has no name, so that a death leaves nothing");
    drop(replacement);
    assert!(matches!(Replacement::begin(Path::new("/proc/self/saved")), Err(ReplaceError::System { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // And writes go on as if nothing had been.
    overlay.try_write(0, &[2; 4096]).unwrap().unwrap();
    save(&overlay, &path).unwrap();
    assert!(std::fs::read(&path).unwrap() != before && !model.is_empty());
}

//! Overlays in a folder: answered changes survive a kill, flushed ones a power loss, and wrong
//! files are refused.

use crate::support::{Base, ID, act, actions, check, device_bytes, model, noise, read, save, wait};
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use vfield_block::device::BlockDevice;
use vfield_block::extent::Extent;
use vfield_core::image::ImageId;
use vfield_overlay::{Folder, OpenError, Overlay};

const MAX: u64 = 1 << 30;

fn open(dir: &Path) -> Result<Overlay, OpenError> {
    open_with(dir, ID, MAX)
}

fn open_with(dir: &Path, image: ImageId, max_bytes: u64) -> Result<Overlay, OpenError> {
    Overlay::in_folder(Base::new(), image, &Arc::new(Folder::open(dir)?), max_bytes)
}

/// The folder as a killed process leaves it: its files as they are now.
fn killed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    mark(copy.path(), INODE_AT, &inode(copy.path()).to_le_bytes());
    copy
}

/// The folder after a power loss. Unflushed changes may be there all the same: the worst case for a
/// reader that trusts them.
fn after_power_loss(dir: &Path) -> tempfile::TempDir {
    let copy = killed(dir);
    another_boot(copy.path());
    copy
}

/// The offset in a live file of its granules' inode and its boot.
const INODE_AT: u64 = 8 + 4 + 4 + 32 + 8;
const BOOT_ID_AT: u64 = INODE_AT + 8;

fn another_boot(dir: &Path) {
    mark(dir, BOOT_ID_AT, b"another");
}

fn mark(dir: &Path, at: u64, bytes: &[u8]) {
    std::fs::File::options().write(true).open(dir.join("base.live")).unwrap().write_all_at(bytes, at).unwrap();
}

fn inode(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("base.data")).unwrap().ino()
}

fn said<T: std::fmt::Debug>(result: Result<T, OpenError>, dir: &Path) -> String {
    result.unwrap_err().to_string().replace(dir.to_str().unwrap(), "DIR")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn answered_writes_survive_a_kill(
        batches in prop::collection::vec((prop::collection::vec(actions(), 0..6), any::<bool>(), any::<bool>()), 1..5),
    ) {
        let mut dir = tempfile::tempdir().unwrap();
        wait(async {
            let mut model = model(&Base::new());
            let mut overlay = open(dir.path()).unwrap();
            for (batch, flush, kill) in &batches {
                for action in batch {
                    act(&overlay, &mut model, action).await.unwrap();
                }
                if *flush {
                    overlay.flush().await.unwrap();
                }
                if *kill {
                    let usage = overlay.usage();
                    let next = killed(dir.path());
                    (overlay, dir) = (open(next.path()).unwrap(), next);
                    assert_eq!(overlay.usage(), usage);
                    check(&overlay, &model).await;
                }
            }
            // The next daemon's flush is about what the killed one has answered.
            overlay.flush().await.unwrap();
            let dark = after_power_loss(dir.path());
            check(&open(dark.path()).unwrap(), &model).await;
        });
    }

    #[test]
    fn flushed_writes_survive_a_power_loss(
        batches in prop::collection::vec(prop::collection::vec(actions(), 0..6), 1..5),
        later in prop::collection::vec(actions(), 0..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        wait(async {
            let base = Base::new();
            let (overlay, mut model) = (open(dir.path()).unwrap(), model(&base));
            for batch in &batches {
                for action in batch {
                    act(&overlay, &mut model, action).await.unwrap();
                }
                overlay.flush().await.unwrap();
            }
            let copy = after_power_loss(dir.path());
            let mut unflushed = model.clone();
            for action in &later {
                act(&overlay, &mut unflushed, action).await.unwrap();
            }
            check(&overlay, &unflushed).await;
            let again = open(copy.path()).unwrap();
            check(&again, &model).await;
            let usage = again.usage();
            drop(again);
            assert_eq!(open(copy.path()).unwrap().usage(), usage);
        });
    }

    #[test]
    fn a_granule_is_old_or_new_after_a_power_loss(actions in prop::collection::vec(actions(), 1..8)) {
        // Nothing of this was flushed, so the folder says nothing of it yet: all is the base's.
        let dir = tempfile::tempdir().unwrap();
        wait(async {
            let base = Base::new();
            let (overlay, mut changed) = (open(dir.path()).unwrap(), model(&base));
            for action in &actions {
                act(&overlay, &mut changed, action).await.unwrap();
            }
            let copy = after_power_loss(dir.path());
            let again = open(copy.path()).unwrap();
            let (found, before) = (read(&again, Extent::from(0..device_bytes())).await, model(&base));
            for (at, granule) in found.chunks(4096).enumerate() {
                let place = at * 4096..at * 4096 + granule.len();
                assert!(granule == &before[place.clone()] || granule == &changed[place], "granule {at}");
            }
        });
    }

    #[test]
    fn an_index_cut_anywhere_is_an_earlier_flush(cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        wait(async {
            let base = Base::new();
            let overlay = open(dir.path()).unwrap();
            let mut moments = vec![model(&base)];
            for turn in 0..4_u8 {
                let mut next = moments.last().unwrap().clone();
                let (offset, bytes) = (u64::from(turn) * 700_000, noise(9000, turn));
                overlay.write(offset, bytes.clone().into()).await.unwrap();
                overlay.flush().await.unwrap();
                next[offset as usize..][..9000].copy_from_slice(&bytes);
                moments.push(next);
            }
            drop(overlay);
            let index = dir.path().join("base.index");
            let bytes = std::fs::read(&index).unwrap();
            std::fs::write(&index, &bytes[..cut.index(bytes.len() + 1)]).unwrap();
            another_boot(dir.path());
            match open(dir.path()) {
                Ok(overlay) => {
                    let found = read(&overlay, Extent::from(0..device_bytes())).await;
                    assert!(moments.contains(&found), "no moment that ever was");
                }
                Err(error) => assert!(matches!(error, OpenError::Damaged { .. }), "{error}"),
            }
        });
    }

    #[test]
    fn an_index_with_a_wrong_byte_loses_nothing_silently(at in any::<prop::sample::Index>(), byte in 1..=255_u8) {
        let dir = tempfile::tempdir().unwrap();
        wait(async {
            let overlay = open(dir.path()).unwrap();
            for turn in 0..3_u8 {
                overlay.write(u64::from(turn) << 20, noise(4096, turn).into()).await.unwrap();
                overlay.flush().await.unwrap();
            }
            drop(overlay);
            let index = dir.path().join("base.index");
            let mut bytes = std::fs::read(&index).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
            std::fs::write(&index, &bytes).unwrap();
            another_boot(dir.path());
            match open(dir.path()) {
                // Only the last record can look unfinished.
                Ok(overlay) => assert_eq!(overlay.usage().held_bytes, 2 * 4096),
                Err(OpenError::Damaged { .. } | OpenError::Newer { .. } | OpenError::OtherImage { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        });
    }

    #[test]
    fn any_bytes_are_an_index_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("base.index"), &bytes).unwrap();
        let file = std::fs::File::create(dir.path().join("base.data")).unwrap();
        file.set_len(device_bytes().next_multiple_of(4096)).unwrap();
        prop_assert!(open(dir.path()).is_err());
        prop_assert_eq!(std::fs::read(dir.path().join("base.index")).unwrap(), bytes);
    }
}

#[test]
fn a_folder_is_for_one_process_and_one_image() {
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("made");
    wait(async {
        let overlay = open(dir).unwrap();
        assert_eq!(std::fs::metadata(dir).unwrap().mode() & 0o777, 0o700);
        assert_eq!(said(open(dir), dir), "another daemon keeps its changes in DIR");
        overlay.write(0, noise(1 << 20, 1).into()).await.unwrap();
        overlay.flush().await.unwrap();
        drop(overlay);
        drop(open(dir).unwrap());
        let other = open_with(dir, ImageId([8; 32]), MAX);
        assert_eq!(said(other, dir), "DIR/base.index holds changes to image 070707070707, not to 080808080808");
        let small = open_with(dir, ID, 1 << 19);
        assert_eq!(said(small, dir), "DIR/base.data holds 1048576 bytes of changes, and 524288 are allowed");
        let mut index = std::fs::read(dir.join("base.index")).unwrap();
        index[8] = 9;
        std::fs::write(dir.join("base.index"), &index).unwrap();
        assert_eq!(said(open(dir), dir), "DIR/base.index has format 9, newer than this program knows");
        index[8] = 1;
        std::fs::write(dir.join("base.index"), &index).unwrap();
        std::fs::write(dir.join("base.data"), "short").unwrap();
        assert_eq!(said(open(dir), dir), "DIR/base.data is damaged: its length is not the device's");
        std::fs::remove_file(dir.join("base.data")).unwrap();
        assert!(matches!(open(dir), Err(OpenError::System { .. })));
        assert!(matches!(Folder::open(&dir.join("base.index")), Err(OpenError::System { .. })));
    });
}

#[test]
fn room_on_the_disk_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = |dir: &Path| std::fs::metadata(dir.join("base.data")).unwrap().blocks() * 512;
    wait(async {
        let overlay = open(dir.path()).unwrap();
        overlay.write(0, noise(2 << 20, 1).into()).await.unwrap();
        overlay.flush().await.unwrap();
        assert!(blocks(dir.path()) >= 2 << 20);
        overlay.discard(Extent::from(0..1 << 20)).unwrap();
        assert!(blocks(dir.path()) <= 1 << 20);
        overlay.reset().unwrap();
        assert_eq!(blocks(dir.path()), 0);
        check(&overlay, &model(&Base::new())).await;
        drop(overlay);
        check(&open(dir.path()).unwrap(), &model(&Base::new())).await;
    });
}

#[test]
fn files_of_a_killed_daemon_are_checked_before_they_count() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("base.live");
    wait(async {
        let overlay = open(dir.path()).unwrap();
        overlay.write(0, noise(4096, 1).into()).await.unwrap();
        drop(overlay);
        let bytes = std::fs::read(&live).unwrap();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            bytes
        };
        let damaged = [
            // An invalid state, a granule behind the end of the device, an area too few.
            (with(4096, 3), "it has impossible values"),
            (with(bytes.len() - 1, 1), "it has impossible values"),
            (bytes[..bytes.len() - 64].to_vec(), "its length is not the device's"),
        ];
        for (bytes, what) in damaged {
            std::fs::write(&live, bytes).unwrap();
            assert_eq!(said(open(dir.path()), dir.path()), format!("DIR/base.live is damaged: {what}"));
        }
        // Unfinished, of another version, or about another file: then the index counts, and the
        // file is rewritten.
        for other in [
            with(0, 0),
            with(8, 2),
            with(INODE_AT as usize, !bytes[INODE_AT as usize]),
            bytes[..20].to_vec(),
            Vec::new(),
        ] {
            std::fs::write(&live, other).unwrap();
            assert_eq!(open(dir.path()).unwrap().usage().held_bytes, 4096);
            assert_eq!(std::fs::read(&live).unwrap(), bytes);
        }
        // A user who deletes changes may forget that file.
        for gone in ["base.index", "base.data"] {
            std::fs::remove_file(dir.path().join(gone)).unwrap();
        }
        assert!(!open(dir.path()).unwrap().usage().is_used());
    });
}

#[test]
fn a_reset_is_one_after_a_kill_and_after_a_power_loss() {
    let dir = tempfile::tempdir().unwrap();
    wait(async {
        let overlay = open(dir.path()).unwrap();
        overlay.write(5000, noise(1 << 20, 1).into()).await.unwrap();
        overlay.flush().await.unwrap();
        overlay.write(1 << 20, noise(1 << 20, 1).into()).await.unwrap();
        overlay.reset().unwrap();
        for copy in [killed(dir.path()), after_power_loss(dir.path())] {
            let again = open(copy.path()).unwrap();
            assert!(!again.usage().is_used());
            check(&again, &model(&Base::new())).await;
        }
    });
}

#[test]
fn unflushed_writes_take_no_room_after_a_power_loss() {
    let dir = tempfile::tempdir().unwrap();
    wait(async {
        let overlay = open(dir.path()).unwrap();
        overlay.write(1 << 20, noise(1 << 20, 1).into()).await.unwrap();
        let copy = after_power_loss(dir.path());
        let again = open(copy.path()).unwrap();
        assert_eq!(again.usage().held_bytes, 0);
        assert_eq!(std::fs::metadata(copy.path().join("base.data")).unwrap().blocks(), 0);
        drop(overlay);
    });
}

#[test]
fn an_index_that_was_written_often_stays_short() {
    let dir = tempfile::tempdir().unwrap();
    wait(async {
        let base = Base::new();
        let overlay = open(dir.path()).unwrap();
        let mut expected = model(&base);
        // A record about three areas is 264 bytes; without being shortened the index would have 1.3
        // MB.
        for turn in 0..2500_u32 {
            for place in (0..3_usize).map(|area| area << 20) {
                overlay.discard(Extent::from(place as u64..place as u64 + 4096)).unwrap();
                expected[place..place + 4096].fill(0);
            }
            overlay.flush().await.unwrap();
            for place in (0..3_usize).map(|area| area << 20) {
                overlay.write(place as u64, vec![turn as u8 | 1; 4096].into()).await.unwrap();
                expected[place..place + 4096].fill(turn as u8 | 1);
            }
            overlay.flush().await.unwrap();
        }
        let length = std::fs::metadata(dir.path().join("base.index")).unwrap().len();
        assert!(length < (1 << 20) + 2000, "{length}");
        drop(overlay);
        check(&open(dir.path()).unwrap(), &expected).await;
    });
}

#[test]
fn a_restored_overlay_is_durable() {
    let (dir, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let saved = saved.path().join("saved");
    std::fs::create_dir_all(saved.parent().unwrap()).unwrap();
    wait(async {
        let base = Base::new();
        let overlay = crate::support::in_memory(&base);
        overlay.write(12_345, noise(54_321, 1).into()).await.unwrap();
        save(&overlay, &saved).unwrap();
        let mut expected = model(&base);
        expected[12_345..][..54_321].copy_from_slice(&noise(54_321, 1));
        let kept = open(dir.path()).unwrap();
        kept.restore(&saved).unwrap();
        for copy in [killed(dir.path()), after_power_loss(dir.path())] {
            check(&open(copy.path()).unwrap(), &expected).await;
        }
    });
}

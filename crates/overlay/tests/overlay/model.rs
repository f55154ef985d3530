//! After any actions: reads return written data, room matches the held granules, and the bound
//! holds.

use crate::support::ID;
use crate::support::{Action, Base, act, actions, check, device_bytes, in_memory, model, noise, read, wait};
use proptest::prelude::*;
use vfield_block::device::{BlockDevice, WriteError};
use vfield_block::extent::Extent;
use vfield_block::source::BlockSource;
use vfield_overlay::Overlay;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reads_return_written_data(actions in prop::collection::vec(actions(), 1..40)) {
        wait(async {
            let base = Base::new();
            let (overlay, mut model) = (in_memory(&base), model(&base));
            for action in &actions {
                act(&overlay, &mut model, action).await.unwrap();
            }
            check(&overlay, &model).await;
            overlay.reset().unwrap();
            check(&overlay, &crate::support::model(&base)).await;
            assert_eq!((overlay.usage().held_bytes, overlay.usage().zero_bytes), (0, 0));
        });
    }

    #[test]
    fn a_full_overlay_refuses_only_writes_that_need_room(
        granules in 0..200_u64,
        actions in prop::collection::vec(actions(), 1..60),
    ) {
        wait(async {
            let base = Base::new();
            let overlay = Overlay::in_memory(base.clone(), ID, granules * 4096).unwrap();
            let mut model = model(&base);
            for action in &actions {
                if let Err(error) = act(&overlay, &mut model, action).await {
                    assert_eq!(error, WriteError::Full);
                    // A write that failed may have changed a part of what it was about: read on
                    // from there.
                    let (offset, length) = match *action {
                        Action::Write(offset, length, _) => (offset, length as u64),
                        Action::Zero(offset, length) => (offset, length),
                        Action::Discard(..) | Action::Read(..) => panic!("{action:?} needs no room"),
                    };
                    let found = read(&overlay, Extent::from(offset..offset + length)).await;
                    model[offset as usize..][..length as usize].copy_from_slice(&found);
                }
                assert!(overlay.usage().held_bytes <= granules * 4096);
            }
            check(&overlay, &model).await;
        });
    }
}

#[test]
fn room_is_given_back() {
    wait(async {
        let base = Base::new();
        let overlay = Overlay::in_memory(base.clone(), ID, 64 << 10).unwrap();
        let bytes = noise(64 << 10, 1);
        overlay.write(8192, bytes.clone().into()).await.unwrap();
        assert_eq!(overlay.usage().held_bytes, 64 << 10);
        assert_eq!(overlay.try_write(1 << 20, &[1]), Some(Err(WriteError::Full)));
        // Held granules can be written again, in parts too.
        assert_eq!(overlay.try_write(8192 + 5, &[1; 30_000]), Some(Ok(())));
        overlay.discard(Extent::from(8192..8192 + (32 << 10))).unwrap();
        let usage = overlay.usage();
        assert_eq!((usage.held_bytes, usage.zero_bytes), (32 << 10, 32 << 10));
        assert_eq!(overlay.try_write(1 << 20, &[1]), Some(Ok(())));
        overlay.zero(Extent::from(0..device_bytes())).await.unwrap();
        assert_eq!(overlay.usage().held_bytes, 0);
        assert_eq!(read(&overlay, Extent::from(0..device_bytes())).await, vec![0; device_bytes() as usize]);
    });
}

#[test]
fn zeros_take_no_room_where_there_are_zeros() {
    wait(async {
        let base = Base::new();
        let overlay = Overlay::in_memory(base.clone(), ID, 0).unwrap();
        // Base of zeros, a part of a granule: nothing has to be held for it.
        overlay.zero(Extent::from(350_001..350_003)).await.unwrap();
        overlay.discard(Extent::from(0..1 << 20)).unwrap();
        overlay.zero(Extent::from(5..7)).await.unwrap();
        assert_eq!(overlay.try_write(100, &[0; 50]), Some(Ok(())));
        assert_eq!(overlay.usage().held_bytes, 0);
    });
}

#[test]
fn pieces_already_handed_out_never_change() {
    wait(async {
        let base = Base::new();
        let overlay = in_memory(&base);
        overlay.write(0, noise(1 << 16, 1).into()).await.unwrap();
        let mut pieces = Vec::new();
        assert!(overlay.try_read(Extent::from(0..1 << 16), &mut pieces));
        overlay.write(0, noise(1 << 16, 2).into()).await.unwrap();
        overlay.discard(Extent::from(0..1 << 15)).unwrap();
        let [vfield_block::source::Piece::Bytes(bytes)] = &pieces[..] else { panic!("{pieces:?}") };
        assert!(*bytes == noise(1 << 16, 1));
    });
}

#[test]
fn writers_at_once_come_out_granule_by_granule() {
    let base = Base::new();
    let (overlay, rounds) = (in_memory(&base), 200);
    // Each writes two and a half granules of its own letter; the granule in the middle is whole for
    // all.
    std::thread::scope(|scope| {
        for letter in 1..=4_u8 {
            let overlay = &overlay;
            scope.spawn(move || {
                for _ in 0..rounds {
                    assert_eq!(overlay.try_write(4096 - 1024, &[letter; 4096 + 2048]), Some(Ok(())));
                }
            });
        }
        for _ in 0..rounds {
            let mut pieces = Vec::new();
            assert!(overlay.try_read(Extent::from(4096..8192), &mut pieces));
            let [vfield_block::source::Piece::Bytes(bytes)] = &pieces[..] else { panic!("{pieces:?}") };
            let first = bytes[0];
            assert!(first > 4 || bytes.iter().all(|byte| *byte == first), "a granule of two writers");
        }
    });
    wait(async {
        let found = read(&overlay, Extent::from(0..3 * 4096)).await;
        assert!(found[..3072] == base.bytes[..3072] && found[9216..] == base.bytes[9216..12288]);
        assert!(found[4096..8192].iter().all(|byte| *byte == found[4096]));
    });
}

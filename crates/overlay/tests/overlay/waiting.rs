//! Operations that wait for the base, and those that do not.

use crate::support::{Base, ID, check, in_memory, model, noise, read, wait};
use std::sync::atomic::Ordering;
use vfield_block::device::{BlockDevice, WriteError};
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, ReadError};
use vfield_overlay::Overlay;

#[test]
fn whole_granules_never_need_the_base() {
    wait(async {
        let base = Base::new();
        base.shut();
        let overlay = in_memory(&base);
        assert_eq!(overlay.try_write(8192, &[1; 40_960]), Some(Ok(())));
        // Nor do parts of held granules and of zeros.
        assert_eq!(overlay.try_write(8000 + 4096, &[2; 10_000]), Some(Ok(())));
        overlay.discard(Extent::from(0..8192)).unwrap();
        assert_eq!(overlay.try_write(100, &[3; 7]), Some(Ok(())));
        let mut pieces = Vec::new();
        assert!(overlay.try_read(Extent::from(0..49_152), &mut pieces));
        assert_eq!(base.reads.load(Ordering::Relaxed), 0);
        assert_eq!(overlay.try_write(600_001, &[1]), None, "its granule is the base's");
        assert!(!overlay.try_read(Extent::from(0..49_153), &mut pieces));
    });
}

#[test]
fn a_write_that_waits_holds_up_nobody() {
    wait(async {
        let base = Base::new();
        base.shut();
        let (overlay, mut model) = (in_memory(&base), model(&base));
        let waiting = overlay.write(600_001, vec![1; 10].into());
        let others = async {
            base.until_waiting(1).await;
            // The same granule, whole: it is there at once, and the waiting write is laid over it
            // later.
            let start = 600_001 / 4096 * 4096;
            assert_eq!(overlay.try_write(start, &[9; 4096]), Some(Ok(())));
            assert_eq!(read(&overlay, Extent::from(start..start + 4096)).await, [9; 4096]);
            model[start as usize..start as usize + 4096].fill(9);
            base.open();
        };
        let (done, ()) = tokio::join!(waiting, others);
        done.unwrap();
        model[600_001..600_011].fill(1);
        check(&overlay, &model).await;
    });
}

#[test]
fn a_write_given_up_while_it_waits_changes_nothing() {
    wait(async {
        let base = Base::new();
        base.shut();
        let overlay = in_memory(&base);
        {
            let mut waiting = overlay.write(600_001, vec![1; 10].into());
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("the base was shut"),
                () = base.until_waiting(1) => {}
            }
        }
        base.open();
        check(&overlay, &model(&base)).await;
        assert_eq!(overlay.usage().held_bytes, 0);
    });
}

#[test]
fn an_error_of_the_base_is_the_writes() {
    wait(async {
        let base = Base::new();
        let overlay = in_memory(&base);
        let error = ReadError::TimedOut(Extent::from(0..1));
        base.fail_with(Some(error.clone()));
        assert_eq!(overlay.write(5, vec![1].into()).await, Err(WriteError::Read(error.clone())));
        assert_eq!(overlay.zero(Extent::from(5..20_000)).await, Err(WriteError::Read(error)));
        base.fail_with(None);
        check(&overlay, &model(&base)).await;
    });
}

#[test]
fn a_reset_between_reading_and_writing_costs_no_byte() {
    wait(async {
        let base = Base::new();
        let (overlay, mut model) = (in_memory(&base), model(&base));
        // Held when the write looks, the base's when it comes back.
        overlay.write(600_000, noise(8192, 3).into()).await.unwrap();
        base.shut();
        let waiting = overlay.write(1_000_001, vec![1; 10].into());
        let others = async {
            base.until_waiting(1).await;
            overlay.reset().unwrap();
            base.open();
        };
        let (done, ()) = tokio::join!(waiting, others);
        done.unwrap();
        model[1_000_001..1_000_011].fill(1);
        check(&overlay, &model).await;
    });
}

#[test]
fn an_empty_base_is_an_empty_device() {
    struct Empty;
    impl BlockSource for Empty {
        fn name(&self) -> &str {
            "empty"
        }
        fn description(&self) -> String {
            String::new()
        }
        fn size_bytes(&self) -> u64 {
            0
        }
        fn chunk_bytes(&self) -> u32 {
            4096
        }
        fn try_read(&self, _: Extent, _: &mut Vec<vfield_block::source::Piece>) -> bool {
            panic!("there is nothing to read")
        }
        fn read(&self, _: Extent) -> vfield_block::source::Reading<'_> {
            panic!("there is nothing to read")
        }
        fn prefetch(&self, _: Extent, _: vfield_block::source::Urgency) {}
        fn allocation(&self, _: Extent) -> vfield_block::source::Allocating<'_> {
            panic!("there is nothing to tell")
        }
        fn is_complete(&self) -> bool {
            true
        }
    }
    let overlay = Overlay::in_memory(std::sync::Arc::new(Empty), ID, 1 << 20).unwrap();
    assert_eq!(overlay.size_bytes(), 0);
    assert_eq!(overlay.try_write(0, &[]), Some(Ok(())));
    overlay.reset().unwrap();
}

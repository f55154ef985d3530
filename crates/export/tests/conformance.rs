//! The conformance kit: it passes right sources, and names the faults of wrong ones.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, Piece, Reading, Urgency};
use vfield_core::image::ImageId;
use vfield_export::FileSource;
use vfield_export::conformance::{check_device, check_source};
use vfield_overlay::Overlay;

#[tokio::test]
async fn a_file_keeps_every_rule() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    for length in [0, 1, 700, (1 << 20) + 513] {
        file.write_all(&vec![7; length]).expect("room for a file");
        check_source(&FileSource::open(file.path()).expect("a file")).await.expect("a source");
    }
    assert!(check_device(&FileSource::open(file.path()).expect("a file")).await.is_err());
}

#[tokio::test]
async fn an_overlay_keeps_every_rule() {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(&[7; (1 << 20) + 512]).expect("room for a file");
    file.write_all_at(&[8; 512], 2 << 20).expect("room after a hole");
    let base: Arc<dyn BlockSource> = Arc::new(FileSource::new("base", file).expect("a name"));
    let overlay = Overlay::in_memory(base, ImageId([1; 32]), 1 << 30).expect("memory");
    check_source(&overlay).await.expect("a source");
    check_device(&overlay).await.expect("a device");
    check_source(&overlay).await.expect("a source, written to");
}

#[test]
fn names_of_sources_are_names_of_files() {
    let file = || std::fs::File::open("/dev/null").expect("/dev/null");
    assert!(FileSource::new("disk", file()).is_ok());
    for name in ["", "a/b", &"n".repeat(256)] {
        assert!(FileSource::new(name, file()).is_err(), "{name:?}");
    }
}

/// Eight bytes that are not zeros, with one defect.
struct Wrong(&'static str);

impl BlockSource for Wrong {
    fn name(&self) -> &str {
        if self.0 == "name" { "a/b" } else { "wrong" }
    }

    fn description(&self) -> String {
        "wrong".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        8
    }

    fn chunk_bytes(&self) -> u32 {
        if self.0 == "chunk" { 48 << 10 } else { 64 << 10 }
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        pieces.push(Piece::Bytes(vec![if self.0 == "try" { 2 } else { 1 }; extent.len() as usize].into()));
        self.0 != "left"
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        let length = match self.0 {
            "none" => 0,
            "long" => extent.len() + 1,
            _ => extent.len(),
        };
        Box::pin(std::future::ready(Ok(vec![Piece::Bytes(vec![1; length as usize].into())])))
    }

    fn prefetch(&self, _: Extent, _: Urgency) {}

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        let length_bytes = if self.0 == "short" { 0 } else { extent.len() };
        Box::pin(std::future::ready(Ok(vec![Allocation { length_bytes, zero: self.0 == "zero" }])))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn each_defect_is_named() {
    for (defect, word) in [
        ("name", "a/b"),
        ("chunk", "power of two"),
        ("none", "gave none"),
        ("long", "gave 9 bytes"),
        ("try", "try_read"),
        ("left", "left pieces"),
        ("short", "covers 0"),
        ("zero", "said to be zeros"),
    ] {
        let broken = check_source(&Wrong(defect)).await.expect_err(defect).to_string();
        assert!(broken.contains(word), "{defect}: {broken}");
    }
    check_source(&Wrong("")).await.expect("nothing is wrong with it");
}

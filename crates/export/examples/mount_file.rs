//! Mounts files as images until it is told to stop: `mount_file DIRECTORY FILE...`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, FilePiece, Piece, Reading, Urgency};
use vfield_export::fuse;

/// A file that is all there and does not change.
struct Whole {
    name: String,
    file: Arc<OwnedFd>,
    size_bytes: u64,
}

impl Whole {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, size_bytes: file.metadata()?.len(), file: Arc::new(file.into()) })
    }
}

impl BlockSource for Whole {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        "a file".into()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn chunk_bytes(&self) -> u32 {
        64 << 10
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        pieces.push(Piece::File(FilePiece::new(self.file.clone(), extent.start(), extent.len(), None)));
        true
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        let mut pieces = Vec::new();
        self.try_read(extent, &mut pieces);
        Box::pin(std::future::ready(Ok(pieces)))
    }

    fn prefetch(&self, _: Extent, _: Urgency) {}

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        let all = Allocation { length_bytes: extent.len(), zero: false };
        Box::pin(std::future::ready(Ok(vec![all])))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let directory = paths.next().ok_or("usage: mount_file DIRECTORY FILE...")?;
    let sources = paths
        .map(|path| Ok(Arc::new(Whole::open(&path)?) as Arc<dyn BlockSource>))
        .collect::<std::io::Result<Vec<_>>>()?;
    let mounted = fuse::mount(&directory, sources, fuse::Options::new(Handle::current()))?;
    println!("mounted on {}", mounted.directory().display());
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        () = mounted.ended() => {}
    }
    println!("{:?}", tokio::task::spawn_blocking(|| mounted.unmount()).await??);
    Ok(())
}

//! Mounts files as images until it is told to stop: `mount_file DIRECTORY FILE...`.

use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use vfield_block::source::BlockSource;
use vfield_export::{FileSource, fuse};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let directory = paths.next().ok_or("usage: mount_file DIRECTORY FILE...")?;
    let sources = paths
        .map(|path| Ok(Arc::new(FileSource::open(&path)?) as Arc<dyn BlockSource>))
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

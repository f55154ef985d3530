//! Serves one file over NBD: the smallest block source there is, and what measurements are made
//! with.
//!
//!     cargo run --release --example serve_file -- unix:/tmp/nbd.sock /dev/shm/image
//!     nbdinfo 'nbd+unix:///?socket=/tmp/nbd.sock'

use std::fs::File;
use std::future::ready;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, FilePiece, Piece, Reading, Urgency};
use vfield_export::nbd::{Address, Server};

struct FileSource {
    file: Arc<OwnedFd>,
    size_bytes: u64,
}

impl BlockSource for FileSource {
    fn name(&self) -> &str {
        "file"
    }

    fn description(&self) -> String {
        "one file".to_owned()
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
        Box::pin(ready(Ok(pieces)))
    }

    fn prefetch(&self, _: Extent, _: Urgency) {}

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        Box::pin(ready(Ok(vec![Allocation { length_bytes: extent.len(), zero: false }])))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve_file unix:PATH|tcp:ADDRESS FILE".into());
    };
    let file = File::open(path)?;
    let source = FileSource { size_bytes: file.metadata()?.len(), file: Arc::new(file.into()) };
    let server = Server::bind(&address.parse::<Address>()?, vec![Arc::new(source)])?;
    println!("{}", server.address().uri(""));
    server.run(async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}

//! A file or a block device as a source.

use std::fs::File;
use std::future::ready;
use std::io::{Error, ErrorKind, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, FilePiece, Piece, Reading, Urgency};

/// Preferred length of a read, in bytes. No measurement chose it: it is the usual chunk of an
/// image.
const CHUNK_BYTES: u32 = 64 << 10;

/// A file or a block device, read-only.
///
/// The length is that of the moment at which the source is made.
/// The bytes must stay as they are while the source lives.
#[derive(Debug, Clone)]
pub struct FileSource {
    name: String,
    file: Arc<OwnedFd>,
    size_bytes: u64,
}

impl FileSource {
    /// The file at `path`, under its own name.
    ///
    /// # Errors
    /// If the file cannot be opened, or its name is not UTF-8.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let unnamed = || Error::new(ErrorKind::InvalidInput, "the file has no name in UTF-8");
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unnamed)?;
        Self::new(name, File::open(path)?)
    }

    /// An open file under another name.
    ///
    /// # Errors
    /// If the name is empty, longer than 255 bytes or has a slash.
    /// Also if the file cannot be sought.
    pub fn new(name: &str, mut file: File) -> std::io::Result<Self> {
        if name.is_empty() || name.len() > 255 || name.contains('/') {
            return Err(Error::new(ErrorKind::InvalidInput, "a source is named by 1 to 255 bytes without a slash"));
        }
        // The metadata of a block device has no length.
        let size_bytes = file.seek(SeekFrom::End(0))?;
        Ok(Self { name: name.to_owned(), file: Arc::new(file.into()), size_bytes })
    }
}

impl BlockSource for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        format!("the file {}", self.name)
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn chunk_bytes(&self) -> u32 {
        CHUNK_BYTES
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        if !extent.is_empty() {
            pieces.push(Piece::File(FilePiece::new(self.file.clone(), extent.start(), extent.len(), None)));
        }
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

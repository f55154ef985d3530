//! The bytes of pieces, for what needs them in memory: slices and compressed chunks.

use bytes::Bytes;
use rustix::io::{pread, retry_on_intr};
use std::io;
use vfield_block::source::Piece;

/// All bytes of a piece. Reads a file on the calling thread.
///
/// # Errors
/// If the file cannot be read, or has become shorter.
pub fn bytes_of(piece: &Piece) -> io::Result<Bytes> {
    let file = match piece {
        Piece::Zero(length) => return Ok(vec![0; *length as usize].into()),
        Piece::Bytes(bytes) => return Ok(bytes.clone()),
        Piece::File(file) => file,
    };
    let (mut bytes, mut done) = (vec![0; file.len() as usize], 0);
    while done < bytes.len() {
        match retry_on_intr(|| pread(file.fd(), &mut bytes[done..], file.offset() + done as u64))? {
            // Only a source file that was cut short can end before its length.
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(bytes.into())
}

//! Changes to files: writes, zeros and flushes, for sources that can be written.
//!
//! Invariant: a file's length never changes. A write is in the source when it is answered, whole or
//! up to the file's end; the kernel keeps nothing back. What needs no waiting is answered by the
//! thread that took it. Called by [`super::directory`]; knows nothing of names, inodes or mounts.

use super::answer::{ImageFile, Waiting};
use super::error::write_errno;
use bytes::Bytes;
use fuser::{Errno, ReplyEmpty, ReplyWrite};
use std::sync::Arc;
use vfield_block::device::{BlockDevice, WriteError};
use vfield_block::extent::Extent;
use vfield_block::source::BlockSource;

/// Writes `bytes` at `offset`.
pub(super) fn write(file: &ImageFile, offset: u64, bytes: &[u8], reply: ReplyWrite, waiting: &Waiting) {
    let Some(device) = file.source.device() else { return reply.error(Errno::EROFS) };
    let room = file.size_bytes.saturating_sub(offset).min(bytes.len() as u64);
    if room == 0 && !bytes.is_empty() {
        // As of a block device.
        return reply.error(Errno::ENOSPC);
    }
    let bytes = &bytes[..room as usize];
    // The kernel's longest write is 1 MiB.
    let length = bytes.len() as u32;
    match device.try_write(offset, bytes) {
        Some(Ok(())) => reply.written(length),
        Some(Err(error)) => reply.error(told(&error)),
        None => {
            let (source, bytes) = (file.source.clone(), Bytes::copy_from_slice(bytes));
            let work = async move { device_of(&source)?.write(offset, bytes).await };
            waiting.spawn(length, work, move |done| match done {
                Ok(()) => reply.written(length),
                Err(error) => reply.error(told(&error)),
            });
        }
    }
}

/// What `fallocate` asks for: a hole or zeros within the file. Room cannot be set aside.
pub(super) fn fallocate(file: &ImageFile, extent: Extent, mode: i32, reply: ReplyEmpty, waiting: &Waiting) {
    let (hole, zeros) = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_ZERO_RANGE);
    let extent = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        _ if file.source.device().is_none() => return reply.error(Errno::EROFS),
        _ if mode == hole => extent.clip(Extent::from(0..file.size_bytes)),
        kind if kind == zeros && extent.end() <= file.size_bytes => extent,
        kind if kind == zeros => return reply.error(Errno::ENOSPC),
        _ => return reply.error(Errno::EOPNOTSUPP),
    };
    change(file, reply, waiting, move |source| async move { device_of(&source)?.zero(extent).await });
}

/// Makes written data durable.
pub(super) fn flush(file: &ImageFile, reply: ReplyEmpty, waiting: &Waiting) {
    if file.source.device().is_none() {
        return reply.ok();
    }
    change(file, reply, waiting, |source| async move { device_of(&source)?.flush().await });
}

fn change<F>(file: &ImageFile, reply: ReplyEmpty, waiting: &Waiting, work: impl FnOnce(Arc<dyn BlockSource>) -> F)
where
    F: Future<Output = Result<(), WriteError>> + Send + 'static,
{
    waiting.spawn(0, work(file.source.clone()), |done| match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(told(&error)),
    });
}

fn device_of(source: &Arc<dyn BlockSource>) -> Result<&dyn BlockDevice, WriteError> {
    source.device().ok_or_else(|| WriteError::Io("the source is read-only".into()))
}

fn told(error: &WriteError) -> Errno {
    tracing::debug!(%error, "a change failed");
    write_errno(error)
}

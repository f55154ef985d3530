//! Messages between processes of one machine: bytes, and optionally a file descriptor (unix(7),
//! `SCM_RIGHTS`). Neither sending nor receiving blocks.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, recvmsg, sendmsg, sendmsg_addr,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longer messages between a daemon and its keeper are truncated; their names have 24 letters at
/// most.
const TEXT_BYTES_MAX: usize = 256;

/// Sends a message over a connected socket, or to the socket at `to`.
pub fn send(
    socket: impl AsFd,
    to: Option<&SocketAddrUnix>,
    text: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let (text, flags) = ([IoSlice::new(text)], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    match to {
        Some(to) => sendmsg_addr(socket, to, &text, &mut control, flags)?,
        None => sendmsg(socket, &text, &mut control, flags)?,
    };
    Ok(())
}

/// Takes the next message between a daemon and its keeper; `None` if there is none.
pub fn receive(socket: impl AsFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    let mut text = vec![0; TEXT_BYTES_MAX];
    let (bytes, file) = receive_into(socket, &mut text).ok().filter(|(bytes, _)| *bytes > 0)?;
    text.truncate(bytes);
    Some((text, file))
}

/// Takes the next one, or as much of a stream as is here and fits into `text`; how many bytes that
/// is, 0 at the end of a stream.
///
/// # Errors
/// What recvmsg(2) says, `WouldBlock` if nothing is here.
pub fn receive_into(socket: impl AsFd, text: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(text)], &mut control, flags)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((received.bytes, file))
}

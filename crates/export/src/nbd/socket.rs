//! One client's socket: the four calls that serving needs, the same for unix and TCP.
//!
//! Owns the stream and its options. Calls never block: they answer, or say that they would. The
//! inbox reads with it and the outbox writes with it. It buffers nothing.

use super::tls::{Tls, TlsStream};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, sockopt};
use std::future;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Send buffer of a unix socket in bytes (the kernel doubles it, and cuts it to
/// `net.core.wmem_max`). Measured with `nbdcopy` over four connections: the kernel's own 208 KiB
/// cost 0.13 s of processor per GB, 512 KiB 0.09, 1 MiB and 4 MiB 0.075. An outbox of 256 KiB, 1
/// MiB or 4 MiB made no difference beyond noise.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A TCP peer that is silent for this long is asked whether it is still there...
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// ...and again after so long...
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// ...so many times, before the connection is given up. Without this, machines that vanished would
/// hold their places among the connections for ever.
const KEEPALIVE_PROBES: u32 = 6;

/// A connected client.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    /// A TCP client that has started TLS.
    Tls(Box<TlsStream>),
}

/// Bytes of a file that are encrypted at once.
const FILE_BYTES: usize = 64 << 10;

impl Socket {
    /// Options are wishes: a socket without them is slower, not wrong.
    pub(super) fn unix(stream: UnixStream) -> Self {
        let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
        Self::Unix(stream)
    }

    /// As [`Socket::unix`]. TCP's buffers tune themselves.
    pub(super) fn tcp(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&stream, true);
        let _ = sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES);
        Self::Tcp(stream)
    }

    /// A connected client that another process has left. Has to be called within a runtime.
    pub(super) fn adopt(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        match sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => Ok(Self::unix(UnixStream::from_std(socket.into())?)),
            _ => Ok(Self::tcp(TcpStream::from_std(socket.into())?)),
        }
    }

    /// The bare socket, for another process; `None` of one whose state is not in the kernel alone.
    pub(super) fn release(self) -> Option<OwnedFd> {
        match self {
            Self::Unix(stream) => stream.into_std().ok().map(OwnedFd::from),
            Self::Tcp(stream) => stream.into_std().ok().map(OwnedFd::from),
            Self::Tls(_) => None,
        }
    }

    /// Where a client over the network is; `None` for one on this machine.
    pub(super) fn peer(&self) -> Option<io::Result<IpAddr>> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(stream) => Some(stream.peer_addr().map(|addr| addr.ip())),
            Self::Tls(stream) => Some(stream.peer_addr().map(|addr| addr.ip())),
        }
    }

    /// Reads into `buffer`; 0 bytes mean that the client will send no more.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let polled = match self {
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Self::Tls(stream) => return stream.poll_read(cx, buffer.initialize_unfilled()),
        };
        polled.map_ok(|()| buffer.filled().len())
    }

    /// Waits until something may be written.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Unix(stream) => stream.poll_write_ready(cx),
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Tls(stream) => stream.poll_writable(cx),
        }
    }

    /// Ready when all that was sent is the kernel's.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => stream.poll_flush(cx),
            Self::Unix(_) | Self::Tcp(_) => Poll::Ready(Ok(())),
        }
    }

    /// True if something that was sent is not the kernel's yet.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_behind())
    }

    /// Goes on under TLS, after its handshake. Only TCP does.
    pub(super) async fn start_tls(self, tls: &Tls) -> io::Result<Self> {
        let Self::Tcp(stream) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut stream = Box::new(TlsStream::new(stream, tls)?);
        future::poll_fn(|cx| stream.poll_handshake(cx)).await?;
        Ok(Self::Tls(stream))
    }

    /// Sends the front of `slices` and returns how much. `more` says that more follows at once, so
    /// that TCP does not send a header in a packet of its own.
    pub(super) fn try_send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        if let Self::Tls(stream) = self {
            return stream.try_send(slices);
        }
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        self.try_write(|socket| Ok(rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)?))
    }

    /// Sends up to `length` bytes of `file` from `offset` on, without copying them into this
    /// process unless they are encrypted. 0 bytes mean that the file has ended.
    pub(super) fn try_send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<usize> {
        if let Self::Tls(stream) = self {
            let mut bytes = vec![0; length.min(FILE_BYTES)];
            let read = rustix::io::pread(file, &mut bytes, offset)?;
            return if read == 0 { Ok(0) } else { stream.try_send(&[IoSlice::new(&bytes[..read])]) };
        }
        let mut offset = offset;
        self.try_write(|socket| Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), length)?))
    }

    fn try_write(&self, write: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_io(Interest::WRITABLE, || write(stream.as_fd())),
            Self::Tcp(stream) => stream.try_io(Interest::WRITABLE, || write(stream.as_fd())),
            Self::Tls(_) => unreachable!("what is encrypted is written by its own stream"),
        }
    }
}

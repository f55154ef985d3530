//! The kernel's NBD client over generic netlink: commands as messages, and their answers.
//!
//! Owns the numbers of `include/uapi/linux/nbd-netlink.h`, and one socket. Each method is one
//! command, waited for. Knows nothing of images, and passes descriptors that the caller owns.

use super::message::{self, GENERIC_HEADER, Message, attribute, next_message, put};
use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

const CONTROL_FAMILY: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;

/// Longer than any answer here.
const ANSWER_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, Copy)]
enum Command {
    Connect = 1,
    Disconnect = 2,
    Reconfigure = 3,
}

#[derive(Debug, Clone, Copy)]
enum Attribute {
    Index = 1,
    SizeBytes = 2,
    BlockSizeBytes = 3,
    ServerFlags = 5,
    Sockets = 7,
    DeadConnectionTimeout = 8,
    Backend = 10,
}

/// In [`Attribute::Sockets`] one of these for each socket...
const SOCKET_ITEM: u16 = 1;
/// ...and in that its descriptor.
const SOCKET_FD: u16 = 1;

/// What a device is to be.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub size_bytes: u64,
    pub block_bytes: u64,
    /// The transmission flags that the server gave.
    pub flags: u16,
    /// How long requests wait when the connection has broken; nothing means that they fail.
    pub dead_s: Option<u64>,
    /// Whose device it is.
    pub backend: &'a str,
}

/// The kernel's NBD client.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    family: u16,
}

impl Netlink {
    /// # Errors
    /// `NotFound` if the kernel has no NBD, or its module is not loaded.
    pub fn open() -> io::Result<Self> {
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(GENERIC))?;
        let mut netlink = Self { socket, family: CONTROL_FAMILY };
        let mut name = Message::new(CONTROL_FAMILY, CONTROL_GET_FAMILY);
        name.attribute(CONTROL_FAMILY_NAME, b"nbd\0");
        let family = netlink
            .ask(name, CONTROL_FAMILY_ID)?
            .and_then(|id| Some(u16::from_ne_bytes(id.get(..2)?.try_into().ok()?)));
        netlink.family = family.ok_or(io::ErrorKind::NotFound)?;
        Ok(netlink)
    }

    /// Makes a device of a connected socket; returns its number.
    pub fn connect(&mut self, wanted: &Wanted<'_>, socket: BorrowedFd<'_>) -> io::Result<u32> {
        let mut message = self.message(Command::Connect);
        add_number(&mut message, Attribute::SizeBytes, wanted.size_bytes);
        add_number(&mut message, Attribute::BlockSizeBytes, wanted.block_bytes);
        add_number(&mut message, Attribute::ServerFlags, wanted.flags.into());
        if let Some(seconds) = wanted.dead_s {
            add_number(&mut message, Attribute::DeadConnectionTimeout, seconds);
        }
        add_backend(&mut message, wanted.backend);
        add_socket(&mut message, socket);
        let index = self.ask(message, Attribute::Index as u16)?;
        index.and_then(|index| Some(u32::from_ne_bytes(index.get(..4)?.try_into().ok()?))).ok_or(Errno::PROTO.into())
    }

    /// Gives a device a socket in the place of a broken one; does not say whether it took it.
    pub fn reconnect(&mut self, index: u32, backend: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut message = self.message(Command::Reconfigure);
        message.attribute(Attribute::Index as u16, &index.to_ne_bytes());
        add_backend(&mut message, backend);
        add_socket(&mut message, socket);
        self.ask(message, 0).map(drop)
    }

    /// Ends a device.
    pub fn disconnect(&mut self, index: u32) -> io::Result<()> {
        let mut message = self.message(Command::Disconnect);
        message.attribute(Attribute::Index as u16, &index.to_ne_bytes());
        self.ask(message, 0).map(drop)
    }

    fn message(&self, command: Command) -> Message {
        Message::new(self.family, command as u8)
    }

    /// Sends a message and waits for its end; what the answer says of `wanted`, if anything.
    fn ask(&mut self, message: Message, wanted: u16) -> io::Result<Option<Vec<u8>>> {
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &message.finish(), SendFlags::empty(), &kernel)?;
        let mut found = None;
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        loop {
            let (read, _) =
                rustix::io::retry_on_intr(|| rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()))?;
            let mut rest = &buffer[..read];
            while let Some((kind, body, later)) = next_message(rest) {
                rest = later;
                if kind != message::ERROR {
                    found = found.or_else(|| attribute(body.get(GENERIC_HEADER..)?, wanted).map(<[u8]>::to_vec));
                    continue;
                }
                let code = body.get(..4).map_or(-Errno::PROTO.raw_os_error(), |code| {
                    i32::from_ne_bytes([code[0], code[1], code[2], code[3]])
                });
                return if code == 0 { Ok(found) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
        }
    }
}

fn add_number(message: &mut Message, kind: Attribute, number: u64) {
    message.attribute(kind as u16, &number.to_ne_bytes());
}

fn add_backend(message: &mut Message, backend: &str) {
    message.attribute(Attribute::Backend as u16, format!("{backend}\0").as_bytes());
}

fn add_socket(message: &mut Message, socket: BorrowedFd<'_>) {
    let (mut item, mut items) = (Vec::new(), Vec::new());
    put(&mut item, SOCKET_FD, &socket.as_raw_fd().to_ne_bytes());
    put(&mut items, SOCKET_ITEM, &item);
    message.attribute(Attribute::Sockets as u16, &items);
}

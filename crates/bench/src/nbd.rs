//! A client of an NBD export, as small as a benchmark needs: newstyle handshake, reads or writes, simple replies.
//!
//! What the server sends is believed no further than this program's memory goes: lengths are those that
//! were asked for.

use super::export::read_only;
use super::load::{Answer, Channel, Doing, noise};
use super::socket::{Socket, explain};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;
use vfield_console::failure::Failure;
use vfield_export::nbd::codec::{flag, magic};

/// How long a server may take for its part of the handshake.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(5);
/// Longest reply to an option that is looked at; ours are some 20 bytes.
const REPLY_MAX: u32 = 64 << 10;
/// `NBD_OPT_GO`: choose an export and begin.
const OPT_GO: u32 = 7;
/// `NBD_REP_ACK`: chosen.
const REP_ACK: u32 = 1;
/// `NBD_REP_INFO`: something about the export.
const REP_INFO: u32 = 3;
/// Set in replies that refuse.
const REP_ERROR: u32 = 1 << 31;
/// `NBD_INFO_EXPORT`: its size and flags.
const INFO_EXPORT: u16 = 0;
/// `NBD_CMD_READ`.
const CMD_READ: u16 = 0;
/// `NBD_CMD_WRITE`.
const CMD_WRITE: u16 = 1;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An address.
    Tcp(SocketAddr),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(addr) => write!(f, "tcp:{addr}"),
        }
    }
}

/// One connection to an export.
pub struct Nbd {
    socket: Socket,
    place: Place,
    /// Length of the device.
    device_bytes: u64,
    /// Requests are for blocks of so many bytes.
    block_bytes: u64,
    /// Nothing is read beyond this: the device, or the image that ends in its last sector.
    end_bytes: u64,
    /// The export's flags.
    flags: u16,
    doing: Doing,
    under_way: HashMap<u64, usize>,
    /// Room for an answer, or what is written.
    buffer: Vec<u8>,
}

impl Nbd {
    /// Connects to the export called `name`; blocks have `block_bytes`.
    pub fn connect(place: &Place, name: &str, block_bytes: u64) -> Result<Self, Failure> {
        let connected = match place {
            Place::Unix(path) => Socket::unix(path),
            Place::Tcp(addr) => Socket::tcp(*addr),
        };
        let refused = |why: &str| Failure::failed(format!("NBD server {place}: {why}"));
        let mut socket = connected.map_err(|error| {
            refused(&explain(&error)).hint("is it running, and may this user connect? see --nbd and --via")
        })?;
        let greeted = handshake(&mut socket, name).map_err(|error| refused(&explain(&error)))?;
        let (device_bytes, flags) =
            greeted.map_err(|why| refused(&why).hint("`nbdinfo --list URI` tells what a server exports"))?;
        let (under_way, buffer) = (HashMap::new(), vec![0; block_bytes as usize]);
        let place = place.clone();
        let (end_bytes, doing) = (device_bytes, Doing::Reading);
        Ok(Self { socket, place, device_bytes, block_bytes, end_bytes, flags, doing, under_way, buffer })
    }

    /// Length of the device.
    pub const fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Writes instead of reading, if that is what is to be done.
    ///
    /// # Errors
    /// If the export is read-only.
    pub fn doing(mut self, doing: Doing) -> Result<Self, Failure> {
        if doing == Doing::Writing {
            if self.flags & flag::READ_ONLY != 0 {
                return Err(read_only(&self.place));
            }
            self.buffer = noise(self.block_bytes);
        }
        self.doing = doing;
        Ok(self)
    }

    /// Reads nothing beyond `end_bytes`.
    pub fn until(mut self, end_bytes: u64) -> Self {
        self.end_bytes = end_bytes.min(self.device_bytes);
        self
    }

    fn broken(&self, why: &str) -> Failure {
        Failure::failed(format!("NBD server {}: {why}", self.place))
    }
}

impl Channel for Nbd {
    fn ask(&mut self, request: u64, block: u64) -> Result<(), Failure> {
        let offset = block * self.block_bytes;
        let length = self.block_bytes.min(self.end_bytes.saturating_sub(offset));
        let mut frame = magic::REQUEST.to_be_bytes().to_vec();
        frame.extend_from_slice(&0_u16.to_be_bytes());
        let command = if self.doing == Doing::Writing { CMD_WRITE } else { CMD_READ };
        frame.extend_from_slice(&command.to_be_bytes());
        frame.extend_from_slice(&request.to_be_bytes());
        frame.extend_from_slice(&offset.to_be_bytes());
        frame.extend_from_slice(&(length as u32).to_be_bytes());
        self.under_way.insert(request, length as usize);
        if self.doing == Doing::Writing {
            frame.extend_from_slice(&self.buffer[..length as usize]);
        }
        self.socket.send(&frame).map_err(|error| self.broken(&explain(&error)))
    }

    fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<Answer, Failure> {
        let mut head = [0; 16];
        match self.socket.fill(&mut head, is_over) {
            Ok(true) => {}
            Ok(false) => return Ok(Answer::Over),
            Err(error) => return Err(self.broken(&explain(&error))),
        }
        let [m0, m1, m2, m3, e0, e1, e2, e3, cookie @ ..] = head;
        let (found, error) = (u32::from_be_bytes([m0, m1, m2, m3]), u32::from_be_bytes([e0, e1, e2, e3]));
        let request = u64::from_be_bytes(cookie);
        if found != magic::SIMPLE_REPLY {
            return Err(self.broken("it does not keep to the protocol"));
        }
        let Some(length) = self.under_way.remove(&request) else {
            return Err(self.broken("it answered a request that nobody made"));
        };
        if error != 0 {
            let why = plain_errno(error);
            let what = if self.doing == Doing::Writing { "write" } else { "read" };
            return Err(self.broken(&format!("a {what} failed: {why}")).hint("`vfield status` says what is missing"));
        }
        if self.doing == Doing::Writing {
            return Ok(Answer::Bytes { request, bytes: length as u64 });
        }
        match self.socket.fill(&mut self.buffer[..length], is_over) {
            Ok(true) => Ok(Answer::Bytes { request, bytes: length as u64 }),
            Ok(false) => Ok(Answer::Over),
            Err(error) => Err(self.broken(&explain(&error))),
        }
    }
}

/// The kernel's words for an error number, which NBD's are.
fn plain_errno(error: u32) -> String {
    vfield_console::failure::plain(&io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(i32::MAX)))
}

/// Chooses an export; its length and flags, or why there is none.
fn handshake(socket: &mut Socket, name: &str) -> io::Result<Result<(u64, u16), String>> {
    let end = Instant::now() + HANDSHAKE;
    let is_over = || Instant::now() >= end;
    let read = |socket: &mut Socket, bytes: usize| {
        let mut buffer = vec![0; bytes];
        let all = socket.fill(&mut buffer, &is_over)?;
        if all { Ok(buffer) } else { Err(io::Error::from(io::ErrorKind::TimedOut)) }
    };
    let greeting = read(socket, 18)?;
    if long(&greeting, 0) != magic::GREETING || long(&greeting, 8) != magic::OPTION {
        return Ok(Err("it is no NBD server of today's kind".to_owned()));
    }
    let theirs = short(&greeting, 16);
    let ours = theirs & (flag::FIXED_NEWSTYLE | flag::NO_ZEROES);
    let mut hello = u32::from(ours).to_be_bytes().to_vec();
    hello.extend_from_slice(&magic::OPTION.to_be_bytes());
    hello.extend_from_slice(&OPT_GO.to_be_bytes());
    // The name with its length, and no wishes for information.
    hello.extend_from_slice(&(name.len() as u32 + 6).to_be_bytes());
    hello.extend_from_slice(&(name.len() as u32).to_be_bytes());
    hello.extend_from_slice(name.as_bytes());
    hello.extend_from_slice(&[0; 2]);
    socket.send(&hello)?;
    let mut found = None;
    loop {
        let head = read(socket, 20)?;
        let (kind, length) = (word(&head, 12), word(&head, 16));
        if long(&head, 0) != magic::OPTION_REPLY || length > REPLY_MAX {
            return Ok(Err("it does not keep to the protocol".to_owned()));
        }
        let payload = read(socket, length as usize)?;
        match kind {
            REP_ACK => return Ok(found.ok_or_else(|| "it does not tell the export's size".to_owned())),
            REP_INFO if length >= 12 && short(&payload, 0) == INFO_EXPORT => {
                found = Some((long(&payload, 2), short(&payload, 10)));
            }
            _ if kind & REP_ERROR != 0 => {
                let said = String::from_utf8_lossy(&payload).replace(char::is_control, "?");
                let said = if said.is_empty() { "no reason given" } else { &said };
                return Ok(Err(format!("it refused the export {name:?}: {said}")));
            }
            _ => {}
        }
    }
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) << 16 | u32::from(short(bytes, at + 2))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

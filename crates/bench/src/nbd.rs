//! Blocks of an NBD export, read or written by the library's client.

use super::export::read_only;
use super::load::{Answer, Channel, Doing, noise};
use super::socket::{Socket, explain};
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};
use vfield_console::failure::Failure;
use vfield_export::nbd::Address;
use vfield_export::nbd::client::{Client, ClientError};
use vfield_export::nbd::codec::{Command, Request};

/// Bound of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// One connection to an export.
pub struct Nbd {
    client: Client<Socket>,
    place: Address,
    /// Bytes of a request.
    block_bytes: u64,
    /// End of the readable bytes: the device's, or the image's in the device's last sector.
    end_bytes: u64,
    doing: Doing,
    /// Bytes of each request in flight.
    under_way: HashMap<u64, usize>,
    /// Room for an answer, or the bytes to write.
    buffer: Vec<u8>,
}

impl Nbd {
    /// Connects to the export called `name`; blocks have `block_bytes`.
    pub fn connect(place: &Address, name: &str, block_bytes: u64) -> Result<Self, Failure> {
        let refused = |why: &str| Failure::failed(format!("NBD server {place}: {why}"));
        let connected = match place {
            Address::Unix(path) => Socket::unix(path),
            Address::Tcp(addr) => Socket::tcp(*addr),
        };
        let socket = connected.map_err(|error| {
            refused(&explain(&error)).hint("check that the server runs and admits this user; see --nbd and --via")
        })?;
        let end = Instant::now() + HANDSHAKE;
        let client = Client::start(socket, name, &|| Instant::now() >= end).map_err(|error| match error {
            ClientError::Stream(error) => refused(&explain(&error)),
            error => refused(&error.to_string()).hint("`nbdinfo --list URI` tells what a server exports"),
        })?;
        let (under_way, buffer) = (HashMap::new(), vec![0; block_bytes as usize]);
        let (place, end_bytes, doing) = (place.clone(), client.size_bytes(), Doing::Reading);
        Ok(Self { client, place, block_bytes, end_bytes, doing, under_way, buffer })
    }

    /// Length of the device.
    pub const fn device_bytes(&self) -> u64 {
        self.client.size_bytes()
    }

    /// Sets whether requests read or write.
    ///
    /// # Errors
    /// If the export is read-only.
    pub fn doing(mut self, doing: Doing) -> Result<Self, Failure> {
        if doing == Doing::Writing {
            if self.client.is_read_only() {
                return Err(read_only(&self.place));
            }
            self.buffer = noise(self.block_bytes);
        }
        self.doing = doing;
        Ok(self)
    }

    /// Reads nothing beyond `end_bytes`.
    pub fn until(mut self, end_bytes: u64) -> Self {
        self.end_bytes = end_bytes.min(self.device_bytes());
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
        let (command, payload) = match self.doing {
            Doing::Writing => (Command::Write, &self.buffer[..length as usize]),
            Doing::Reading => (Command::Read, &[][..]),
        };
        self.under_way.insert(request, length as usize);
        let wanted = Request { command, flags: 0, cookie: request, offset, length: length as u32 };
        self.client.send(&wanted, payload).map_err(|error| self.broken(&explain(&error)))
    }

    fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<Answer, Failure> {
        let answer = self.client.answer(is_over).map_err(|error| self.broken(&explain(&error)))?;
        let Some(answer) = answer else { return Ok(Answer::Over) };
        let request = answer.cookie;
        let Some(length) = self.under_way.remove(&request) else {
            return Err(self.broken("it answered an unknown request"));
        };
        if answer.error != 0 {
            let why = plain_errno(answer.error);
            let what = if self.doing == Doing::Writing { "write" } else { "read" };
            return Err(self.broken(&format!("a {what} failed: {why}")).hint("`vfield status` says what is missing"));
        }
        if self.doing == Doing::Writing {
            return Ok(Answer::Bytes { request, bytes: length as u64 });
        }
        match self.client.fill(&mut self.buffer[..length], is_over) {
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

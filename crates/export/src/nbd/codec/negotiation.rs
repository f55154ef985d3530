//! The handshake: from a greeting to a chosen export.
//!
//! Owns what the client has negotiated so far. Invariants: each option gets its answer before the
//! next one is looked at; nothing is opened or read before the client has chosen an export; a
//! context that was set for one export is never used with another. The connection task feeds it
//! bytes and sends what it writes. It knows neither sources nor sockets, and the time limit is the
//! connection's.

use super::option::{self, answer, info, reply};
use super::{
    ALLOCATION_CONTEXT, ALLOCATION_CONTEXT_ID, OPTION_BYTES_MAX, PAYLOAD_BYTES_MAX, STRING_BYTES_MAX, flag, magic,
    take_u16, take_u32, take_u64,
};
use std::sync::Arc;

/// An export that a client may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its name, at most [`STRING_BYTES_MAX`] bytes.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Device size in bytes, as the client shall see it.
    pub size_bytes: u64,
    /// The unit in which requests cost least; a power of two.
    pub preferred_bytes: u32,
    /// It can be written.
    pub writable: bool,
}

/// The outcome of a negotiation that led somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// Index into the offers.
    pub offer: usize,
    /// Reads are answered with structured replies.
    pub structured: bool,
    /// `BLOCK_STATUS` may be asked for.
    pub allocation: bool,
}

/// The next step. Written bytes have to be sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Call again when more bytes are there.
    More,
    /// Something was understood: send the answer, then call again.
    Answered,
    /// TLS begins: its handshake follows the answer, and the earlier negotiation is void.
    StartTls,
    /// The transmission phase begins.
    Serve(Chosen),
    /// The client is leaving.
    Left,
    /// The connection has to end; why.
    Refused(&'static str),
}

/// Smallest unit of a request: one byte, because a block source can be read at any byte, and a
/// client that reads a partition table or a file's tail is then never made to read more.
const BLOCK_BYTES_MIN: u32 = 1;

/// Options in one negotiation. Real clients need fewer than ten; a client that goes on for ever
/// would otherwise use the processor for all of its handshake's time.
const OPTIONS_MAX: u32 = 1024;

#[derive(Debug, Clone, Copy)]
enum State {
    Flags,
    Option,
    /// Throwing away the rest of an option that was too long.
    Skipping(u32),
}

/// Whether the client has to start TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    /// The server has no certificates.
    None,
    /// TLS has to start before any other option.
    Required,
    /// TLS has started.
    Started,
}

/// One client's negotiation.
#[derive(Debug)]
pub struct Negotiation {
    offers: Arc<[Offer]>,
    tls: Encryption,
    state: State,
    zeroes: bool,
    structured: bool,
    /// The offer for which `base:allocation` is set.
    allocation: Option<usize>,
    options: u32,
}

/// Why an option is refused: the reply's number and a message for people.
type Refusal = (u32, &'static str);
const CUT: Refusal = (answer::ERR_INVALID, "the option's data end too early");

impl Negotiation {
    /// Starts a negotiation about `offers` (the first of which is also called "") and writes the
    /// greeting. Without any offer the server takes no new clients, and says so. With `tls` nothing
    /// is told to a client that has not started it.
    pub fn start(offers: Arc<[Offer]>, tls: bool, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&magic::GREETING.to_be_bytes());
        out.extend_from_slice(&magic::OPTION.to_be_bytes());
        out.extend_from_slice(&(flag::FIXED_NEWSTYLE | flag::NO_ZEROES).to_be_bytes());
        let tls = if tls { Encryption::Required } else { Encryption::None };
        Self { offers, tls, state: State::Flags, zeroes: true, structured: false, allocation: None, options: 0 }
    }

    /// Looks at the front of `input` and returns how many bytes of it are used up. At most one
    /// option is handled, so what one call writes is bounded by the list of offers.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        match self.state {
            State::Flags => self.flags(input),
            State::Option => self.option(input, out),
            State::Skipping(left) => {
                let skipped = input.len().min(left as usize);
                let left = left - skipped as u32;
                self.state = if left == 0 { State::Option } else { State::Skipping(left) };
                (skipped, if left == 0 { Step::Answered } else { Step::More })
            }
        }
    }

    fn flags(&mut self, input: &[u8]) -> (usize, Step) {
        let Some(bytes) = input.first_chunk::<4>() else { return (0, Step::More) };
        let flags = u32::from_be_bytes(*bytes);
        let known = u32::from(flag::FIXED_NEWSTYLE | flag::NO_ZEROES);
        if flags & !known != 0 {
            return (4, Step::Refused("unknown client flags"));
        }
        // A client without FIXED_NEWSTYLE can only use EXPORT_NAME, and is served with that.
        self.zeroes = flags & u32::from(flag::NO_ZEROES) == 0;
        self.state = State::Option;
        (4, Step::Answered)
    }

    fn option(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        let mut rest = input;
        match take_u64(&mut rest) {
            None => return (0, Step::More),
            Some(found) if found != magic::OPTION => return (8, Step::Refused("no option starts where one should")),
            Some(_) => {}
        }
        let (Some(option), Some(length)) = (take_u32(&mut rest), take_u32(&mut rest)) else { return (0, Step::More) };
        if length > OPTION_BYTES_MAX {
            if option == option::EXPORT_NAME || length > PAYLOAD_BYTES_MAX {
                return (16, Step::Refused("an option is too long"));
            }
            self.state = State::Skipping(length);
            refuse(out, option, (answer::ERR_TOO_BIG, "the option is too long"));
            return (16, Step::Answered);
        }
        let Some(data) = rest.get(..length as usize) else { return (0, Step::More) };
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return (16, Step::Refused("too many options"));
        }
        (16 + data.len(), self.handle(option, data, out))
    }

    fn handle(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let in_the_clear = self.tls == Encryption::Required;
        let handled = match option {
            option::STARTTLS if in_the_clear => match expect_end(data) {
                Ok(()) => return self.start_tls(out),
                Err(refusal) => Err(refusal),
            },
            option::STARTTLS if self.tls == Encryption::Started => {
                Err((answer::ERR_INVALID, "TLS was started already"))
            }
            // This option has no error reply.
            option::EXPORT_NAME if in_the_clear => return Step::Refused("TLS was not started"),
            _ if in_the_clear && option != option::ABORT => Err((answer::ERR_TLS_REQD, "TLS comes first")),
            option::EXPORT_NAME => return self.export_name(data, out),
            option::ABORT => {
                reply(out, option, answer::ACK, &[]);
                return Step::Left;
            }
            option::LIST => self.list(data, out),
            option::STRUCTURED_REPLY => self.structured_reply(data, out),
            option::INFO | option::GO => match self.info(option, data, out) {
                Ok(offer) if option == option::GO => return Step::Serve(self.chosen(offer)),
                other => other.map(drop),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data, out),
            _ => Err((answer::ERR_UNSUP, "this option is not supported")),
        };
        if let Err(refusal) = handled {
            refuse(out, option, refusal);
        }
        Step::Answered
    }

    /// Section "SELECTIVETLS" and others: agreements in the clear are forgotten.
    fn start_tls(&mut self, out: &mut Vec<u8>) -> Step {
        reply(out, option::STARTTLS, answer::ACK, &[]);
        (self.tls, self.structured, self.allocation) = (Encryption::Started, false, None);
        Step::StartTls
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() && !self.offers.is_empty() {
            return Some(0);
        }
        self.offers.iter().position(|offer| offer.name.as_bytes() == name)
    }

    /// The refusal of a name that is not offered.
    fn missing(&self) -> Refusal {
        if self.offers.is_empty() {
            (answer::ERR_SHUTDOWN, "the server takes no new clients")
        } else {
            (answer::ERR_UNKNOWN, "no export has this name")
        }
    }

    fn chosen(&self, offer: usize) -> Chosen {
        Chosen { offer, structured: self.structured, allocation: self.allocation == Some(offer) }
    }

    fn export_flags(&self, offer: usize) -> u16 {
        let always = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::CAN_MULTI_CONN | flag::SEND_CACHE;
        let changes = match self.offers[offer].writable {
            true => flag::SEND_FUA | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES,
            false => flag::READ_ONLY,
        };
        always | changes | if self.structured { flag::SEND_DF } else { 0 }
    }

    fn export_name(&self, name: &[u8], out: &mut Vec<u8>) -> Step {
        // This option has no error reply.
        let Some(offer) = self.find(name) else { return Step::Refused("no export has the name asked for") };
        out.extend_from_slice(&self.offers[offer].size_bytes.to_be_bytes());
        out.extend_from_slice(&self.export_flags(offer).to_be_bytes());
        if self.zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Step::Serve(self.chosen(offer))
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        expect_end(data)?;
        for offer in self.offers.iter() {
            let name = offer.name.as_bytes();
            let length = (name.len() as u32).to_be_bytes();
            reply(out, option::LIST, answer::SERVER, &[&length, name, offer.description.as_bytes()]);
        }
        reply(out, option::LIST, answer::ACK, &[]);
        Ok(())
    }

    fn structured_reply(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        expect_end(data)?;
        self.structured = true;
        reply(out, option::STRUCTURED_REPLY, answer::ACK, &[]);
        Ok(())
    }

    fn info(&self, option: u32, mut data: &[u8], out: &mut Vec<u8>) -> Result<usize, Refusal> {
        let name = take_string(&mut data)?;
        let count = take_u16(&mut data).ok_or(CUT)?;
        let (asked, rest) = data.split_at_checked(usize::from(count) * 2).ok_or(CUT)?;
        expect_end(rest)?;
        let index = self.find(name).ok_or_else(|| self.missing())?;
        let offer = &self.offers[index];
        let asks = |info: u16| asked.chunks_exact(2).any(|number| number == info.to_be_bytes());
        let mut tell = |info: u16, parts: [&[u8]; 3]| {
            reply(out, option, answer::INFO, &[&info.to_be_bytes(), parts[0], parts[1], parts[2]]);
        };
        tell(info::EXPORT, [&offer.size_bytes.to_be_bytes(), &self.export_flags(index).to_be_bytes(), &[]]);
        if asks(info::NAME) {
            tell(info::NAME, [offer.name.as_bytes(), &[], &[]]);
        }
        if asks(info::DESCRIPTION) {
            tell(info::DESCRIPTION, [offer.description.as_bytes(), &[], &[]]);
        }
        if asks(info::BLOCK_SIZE) {
            let sizes = [BLOCK_BYTES_MIN, offer.preferred_bytes, PAYLOAD_BYTES_MAX].map(u32::to_be_bytes);
            tell(info::BLOCK_SIZE, [&sizes[0], &sizes[1], &sizes[2]]);
        }
        reply(out, option, answer::ACK, &[]);
        Ok(index)
    }

    fn meta_context(&mut self, option: u32, mut data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let setting = option == option::SET_META_CONTEXT;
        if setting {
            // An earlier choice is void, whatever the outcome.
            self.allocation = None;
        }
        if !self.structured {
            return Err((answer::ERR_INVALID, "contexts need structured replies, which come first"));
        }
        let name = take_string(&mut data)?;
        let count = take_u32(&mut data).ok_or(CUT)?;
        // Without a query, LIST means all there are and SET means none.
        let mut wanted = count == 0 && !setting;
        for _ in 0..count {
            let query = take_string(&mut data)?;
            wanted |= query == ALLOCATION_CONTEXT || (!setting && query == b"base:");
        }
        expect_end(data)?;
        let offer = self.find(name).ok_or_else(|| self.missing())?;
        if wanted {
            // The id in the answer to LIST has no meaning and is to be zero.
            let id = if setting { ALLOCATION_CONTEXT_ID } else { 0 };
            reply(out, option, answer::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION_CONTEXT]);
        }
        if setting && wanted {
            self.allocation = Some(offer);
        }
        reply(out, option, answer::ACK, &[]);
        Ok(())
    }
}

fn expect_end(data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() { Ok(()) } else { Err((answer::ERR_INVALID, "the option has data that do not belong to it")) }
}

/// A string with its length before it.
fn take_string<'a>(data: &mut &'a [u8]) -> Result<&'a [u8], Refusal> {
    let string = option::take_string(data).ok_or(CUT)?;
    if string.len() > STRING_BYTES_MAX {
        return Err((answer::ERR_TOO_BIG, "a string is longer than 4096 bytes"));
    }
    Ok(string)
}

fn refuse(out: &mut Vec<u8>, option: u32, (kind, message): Refusal) {
    reply(out, option, kind, &[message.as_bytes()]);
}

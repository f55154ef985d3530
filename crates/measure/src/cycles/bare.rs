//! The reference: what moving bytes takes, if nothing is chosen, asked for, or looked up.
//!
//! A sender hands its file to `sendfile`. A receiver receives each chunk into its slot and hashes
//! it there. A relay does the same, and sends the chunk on. No product, but a bound for all that do
//! this through sockets. Each is a process of its own, this program started again with a [`Bare`]
//! in its environment. It says when it is prepared, begins at a word, and says when it is done.

use super::slots::Slots;
use rustix::fs::sendfile;
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

/// The environment variable with the part that a process plays.
pub(super) const VARIABLE: &str = "VFIELD_CYCLES_PART";
/// A chunk of the usual size, the unit of hashing.
const CHUNK_BYTES: usize = 64 << 10;
/// Most bytes of one call of `sendfile`.
const SEND_BYTES: usize = 1 << 20;

/// The part of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Bare {
    /// Sends a file to the first that connects.
    Send { file: PathBuf, listen: SocketAddr },
    /// Receives each chunk into a slot of its own, and hashes it there. With `onward`, sends it on
    /// to whoever connects there.
    Fill { from: SocketAddr, size_bytes: usize, fresh: bool, onward: Option<SocketAddr> },
    /// Receives all chunks into one slot, hashes them there, and sends them on.
    Relay { from: SocketAddr, size_bytes: usize, onward: SocketAddr },
    /// Receives and forgets.
    Drop { from: SocketAddr, size_bytes: usize },
}

/// Plays the part that the environment gives, and ends the process; returns if there is none.
pub fn play() {
    let Some(part) = std::env::var_os(VARIABLE) else { return };
    let played = serde_json::from_slice(part.as_encoded_bytes()).map_err(io::Error::from).and_then(Bare::play);
    if let Err(error) = &played {
        eprintln!("{error}");
    }
    std::process::exit(i32::from(played.is_err()));
}

impl Bare {
    fn play(self) -> io::Result<()> {
        match self {
            Self::Send { file, listen } => {
                let (file, listener) = (File::open(file)?, TcpListener::bind(listen)?);
                await_word()?;
                send_all(&file, &listener.accept()?.0)?;
            }
            Self::Fill { from, size_bytes, fresh, onward } => {
                let mut slots = Slots::new(size_bytes, fresh)?;
                let listener = onward.map(TcpListener::bind).transpose()?;
                await_word()?;
                let mut next = listener.map(|listener| listener.accept()).transpose()?.map(|(next, _)| next);
                let source = TcpStream::connect(from)?;
                for slot in slots.chunks_mut(CHUNK_BYTES) {
                    take(&source, slot, next.as_mut())?;
                }
                say("done")?;
                // The slots go after the clock has stopped.
                return io::stdin().lock().read_to_end(&mut Vec::new()).map(drop);
            }
            Self::Relay { from, size_bytes, onward } => {
                let (mut slot, listener) = (Slots::new(CHUNK_BYTES, false)?, TcpListener::bind(onward)?);
                await_word()?;
                let (mut next, source) = (listener.accept()?.0, TcpStream::connect(from)?);
                for at in (0..size_bytes).step_by(CHUNK_BYTES) {
                    let length = CHUNK_BYTES.min(size_bytes - at);
                    take(&source, &mut slot[..length], Some(&mut next))?;
                }
            }
            Self::Drop { from, size_bytes } => {
                let mut buffer = vec![1; CHUNK_BYTES];
                await_word()?;
                let mut source = TcpStream::connect(from)?;
                let mut left = size_bytes;
                while left > 0 {
                    match source.read(&mut buffer)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count => left = left.saturating_sub(count),
                    }
                }
            }
        }
        say("done")?;
        io::stdin().lock().read_to_end(&mut Vec::new()).map(drop)
    }
}

fn send_all(file: &File, peer: &TcpStream) -> io::Result<()> {
    while sendfile(peer, file, None, SEND_BYTES)? > 0 {}
    Ok(())
}

/// Receives one chunk, hashes it, and sends it on.
fn take(source: &TcpStream, slot: &mut [u8], next: Option<&mut TcpStream>) -> io::Result<()> {
    let mut done = 0;
    while done < slot.len() {
        match recv(source, &mut slot[done..], RecvFlags::WAITALL)?.1 {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    std::hint::black_box(blake3::hash(slot));
    next.map_or(Ok(()), |next| next.write_all(slot))
}

/// Says that all is prepared, and returns at the word of the one who measures.
fn await_word() -> io::Result<()> {
    say("ready")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if line.trim() == "go" { Ok(()) } else { Err(io::Error::other("it was called off")) }
}

fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}

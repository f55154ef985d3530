//! TLS for NBD clients (STARTTLS): certificates out of a directory, and one client's stream under
//! it.
//!
//! Owns the names of the files, which are those of nbdkit, QEMU and libnbd, and the encryption by
//! rustls: TLS 1.3, and 1.2 as rustls has it (forward secrecy and authenticated ciphers only),
//! which the specification demands (section "TLS versions") and nbd-client speaks alone. Where
//! certificates are given nothing is told to a client before it has started TLS. Bounded: rustls
//! holds at most [`BUFFER_BYTES`] of output, and a record of input. Never blocks.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;

/// Output is encrypted in parts of this size: four records.
const BUFFER_BYTES: usize = 64 << 10;
/// The files: who may be a client (if there is one, clients have to show a certificate), the
/// server's own, its key.
const CLIENTS: &str = "ca-cert.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
/// What all others may do to a file.
const EVERYBODY: u32 = 0o007;

/// Why a directory does not do.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that is missing, or has something else in it.
    #[error("{}: {why}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The fact, without the path.
        why: String,
    },
    /// Everybody could be the server.
    #[error("{}: open to others (mode {mode:03o})", path.display())]
    Open {
        /// Path of the key.
        path: PathBuf,
        /// Permissions of the key, as in stat(2).
        mode: u32,
    },
    /// The files do not go together.
    #[error("{}: {source}", path.display())]
    Unfit {
        /// Path of the directory.
        path: PathBuf,
        /// The reason of rustls.
        source: rustls::Error,
    },
}

/// Certificates for a server. All clones have the same, also after [`Tls::reload`].
#[derive(Debug, Clone)]
pub struct Tls {
    dir: Arc<Path>,
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    /// Those in `dir`: `server-cert.pem`, `server-key.pem`, and `ca-cert.pem` if clients have to
    /// show certificates.
    pub fn from_dir(dir: &Path) -> Result<Self, TlsError> {
        Ok(Self { dir: dir.into(), config: Arc::new(RwLock::new(Arc::new(read(dir)?))) })
    }

    /// Where they were read from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads them again, for clients that come from now on.
    ///
    /// # Errors
    /// If they do not do; those from before are then still in force.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(read(&self.dir)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(dir: &Path) -> Result<ServerConfig, TlsError> {
    let unfit = |source| TlsError::Unfit { path: dir.to_owned(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13, &TLS12]);
    let builder = builder.map_err(unfit)?;
    let clients = dir.join(CLIENTS);
    let builder = if clients.exists() {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&clients)? {
            roots.add(certificate).map_err(unfit)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let why = |error: rustls::server::VerifierBuilderError| error.to_string();
        let refused = |error| TlsError::File { path: clients.clone(), why: why(error) };
        builder.with_client_cert_verifier(verifier.map_err(refused)?)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(certificates(&dir.join(CERTIFICATE))?, key(&dir.join(KEY))?);
    config.map_err(unfit)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error: pem::Error| TlsError::File { path: path.to_owned(), why: plain(&error) };
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    let none = || TlsError::File { path: path.to_owned(), why: "no certificate in it".to_owned() };
    if found.is_empty() { Err(none()) } else { Ok(found) }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let metadata = std::fs::metadata(path);
    let mode = metadata.map_or(0, |metadata| metadata.mode() & 0o7777);
    if mode & EVERYBODY != 0 {
        return Err(TlsError::Open { path: path.to_owned(), mode });
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::File { path: path.to_owned(), why: plain(&error) })
}

fn plain(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => "no such file".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "nothing of its kind in it".to_owned(),
        _ => "not a PEM file".to_owned(),
    }
}

/// A client's stream under TLS.
#[derive(Debug)]
pub(super) struct TlsStream {
    stream: TcpStream,
    tls: ServerConnection,
}

/// The socket as rustls uses it.
struct Raw<'a>(&'a TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    /// Before the handshake.
    pub(super) fn new(stream: TcpStream, tls: &Tls) -> io::Result<Self> {
        let mut connection = ServerConnection::new(tls.current()).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Ok(Self { stream, tls: connection })
    }

    /// Ready when the handshake is over.
    pub(super) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(cx))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Reads decrypted bytes; 0 bytes mean that the client sends no more.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Who hangs up without a word has no more to say either: requests have lengths of
                // their own.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                read => return Poll::Ready(read),
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Encrypts the front of `slices` and returns how much; sends what the socket takes.
    pub(super) fn try_send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_flush()?;
        let taken = self.tls.writer().write_vectored(slices)?;
        match self.try_flush() {
            // Taken all the same: the rest goes with the next flush.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            flushed => flushed.map(|()| taken),
        }
    }

    /// Ready when the socket has taken everything.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.stream.poll_write_ready(cx))?,
                flushed => return Poll::Ready(flushed),
            }
        }
    }

    /// Waits until something may be written.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    /// Where the client is.
    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// True if the socket has not taken everything.
    pub(super) fn is_behind(&self) -> bool {
        self.tls.wants_write()
    }

    fn try_flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut Raw(&self.stream))?;
        }
        Ok(())
    }

    /// Takes in what the socket has; 0 at its end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.tls.read_tls(&mut Raw(&self.stream)) {
                Ok(bytes) => {
                    if let Err(error) = self.tls.process_new_packets() {
                        // The client is told why; nobody waits for whether it hears it.
                        let _ = self.try_flush();
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                    }
                    return Poll::Ready(Ok(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

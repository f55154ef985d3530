//! A web server for one directory, with ranges: an object store for tests.
//!
//! It answers GET with keep-alive, one thread for each connection. It listens on an address of
//! loopback and ends with its value, but for connections that are open then.

use crate::LabError;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most bytes of a head.
const HEAD_MAX: u64 = 16 << 10;

/// A running server.
#[derive(Debug)]
pub struct WebServer {
    addr: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl WebServer {
    /// Serves the files of `dir` at a free port of `ip`.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start(ip: IpAddr, dir: &Path) -> Result<Self, LabError> {
        let dir: PathBuf = dir.to_owned();
        let (addr, ends) = accept(ip, move |stream| serve(stream, &dir))?;
        Ok(Self { addr, ends })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        end(self.addr, &self.ends);
    }
}

/// Accepts connections at a free port of `ip`, each with a thread of its own, until the returned
/// flag is set.
pub fn accept(
    ip: IpAddr,
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> Result<(SocketAddr, Arc<AtomicBool>), LabError> {
    let failed = |source| LabError::System { what: format!("listening on {ip}"), source };
    let listener = TcpListener::bind((ip, 0)).map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let (ends, serve) = (Arc::<AtomicBool>::default(), Arc::new(serve));
    let seen = Arc::clone(&ends);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if seen.load(Ordering::SeqCst) {
                return;
            }
            let serve = Arc::clone(&serve);
            // A client that goes away in the middle is no failure.
            std::thread::spawn(move || drop(serve(stream)));
        }
    });
    Ok((addr, ends))
}

/// Ends the thread of [`accept`].
pub fn end(addr: SocketAddr, ends: &AtomicBool) {
    ends.store(true, Ordering::SeqCst);
    // It sees the flag at the next connection.
    drop(TcpStream::connect_timeout(&addr, Duration::from_secs(1)));
}

/// Names, in lower case, and values of a head.
pub type Headers = Vec<(String, String)>;

/// A head: the first line, and the headers. `None` at the end of a stream.
pub fn head(reader: &mut impl BufRead) -> io::Result<Option<(String, Headers)>> {
    let (mut first, mut headers) = (String::new(), Vec::new());
    let mut reader = reader.take(HEAD_MAX);
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Some((first.trim_end().to_owned(), headers)))
}

/// Length in bytes of the body that belongs to a head; 0 if it does not say.
pub fn length(headers: &Headers) -> u64 {
    let length = headers.iter().find(|(name, _)| name == "content-length");
    length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

fn serve(stream: TcpStream, dir: &Path) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some((line, headers)) = head(&mut reader)? {
        let path = line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
        let name = Path::new(path).file_name().unwrap_or_default();
        let Ok(file) = File::open(dir.join(name)) else {
            writer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let about = file.metadata()?;
        let etag = format!("\"{:x}-{:x}-{:x}\"", about.len(), about.mtime(), about.mtime_nsec());
        let asked = headers.iter().find(|(name, _)| name == "range").and_then(|(_, value)| range(value, about.len()));
        let (status, start, end) = match asked {
            Some(Some((start, end))) => ("206 Partial Content", start, end),
            Some(None) => {
                let refusal = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nContent-Range: bytes */";
                write!(writer, "{refusal}{}\r\n\r\n", about.len())?;
                continue;
            }
            None => ("200 OK", 0, about.len()),
        };
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start)?;
        write!(
            writer,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{}\r\nETag: {etag}\r\n\r\n",
            bytes.len(),
            end.saturating_sub(1),
            about.len()
        )?;
        writer.write_all(&bytes)?;
    }
    Ok(())
}

/// The half-open range that is asked for; `Some(None)` if it begins behind the end.
fn range(value: &str, length: u64) -> Option<Option<(u64, u64)>> {
    let (start, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let (start, last): (u64, u64) = (start.parse().ok()?, last.parse().ok()?);
    Some((start < length).then(|| (start, last.saturating_add(1).min(length))))
}

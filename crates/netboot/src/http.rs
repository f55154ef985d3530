//! The site that machines start from.
//!
//! Owns its paths: `/boot.ipxe`, `/machine/MAC.ipxe`, `/tag/TAG.ipxe`, `/kernel`, `/initrd`, and
//! `/NAME.efi` for firmware that loads programs over HTTP. Machines that follow a tag say at
//! `/booted/MAC/SERIAL` that they run; `/boots` lists them. Whatever a client sends is an answer or
//! a refusal; what it keeps busy is bounded.

use super::boots::{BOOTS_MAX, Boots};
use super::file::{File, Parts};
use super::followed;
use super::menu::{Boot, Menu};
use super::script;
use super::values::machine::Mac;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use vfield_console::failure::Failure;
use vfield_control::client;
use vfield_control::server::CONNECTIONS_MAX;
use vfield_http::answer::{Answer, text};
use vfield_http::server::{self, Answering};
use vfield_http::visitors::{OF_A_MACHINE, Visitors};

/// Connections served at once. Each may read an image through a connection to the daemon, which
/// then has 16 left for others.
const VISITORS_MAX: usize = 48;
/// Of one address, for a room behind one router; more are turned away.
const OF_ONE_MAX: usize = 24;

const _: () = assert!(VISITORS_MAX + 16 <= CONNECTIONS_MAX && OF_A_MACHINE < OF_ONE_MAX && OF_ONE_MAX <= VISITORS_MAX);

/// The files to hand out.
#[derive(Debug)]
pub struct Site {
    /// The kernel to boot.
    pub kernel: File,
    /// The initramfs to boot.
    pub initrd: File,
    /// Where programs for firmware lie.
    pub firmware: PathBuf,
    /// Which visitor gets what.
    pub menu: Menu,
    /// How machines that follow tags have booted.
    pub boots: Mutex<Boots>,
    /// The daemon that knows the members.
    pub control: Option<PathBuf>,
    /// Where the site is.
    pub address: SocketAddr,
}

/// Answers clients for as long as it is polled.
pub async fn serve(listener: TcpListener, site: Arc<Site>) {
    let site = move |request| -> Answering { Box::pin(answer(request, Arc::clone(&site))) };
    server::serve(listener, Visitors::new(VISITORS_MAX, OF_ONE_MAX), Arc::new(site)).await;
}

async fn answer(request: Request<Incoming>, site: Arc<Site>) -> Answer {
    let (path, loads) = (request.uri().path().to_owned(), request.method() == Method::GET);
    // Asks the daemon, which may take a moment.
    let found = tokio::task::spawn_blocking(move || site.find(&path, loads)).await;
    let found = found.unwrap_or_else(|error| Err(Failure::failed(error.to_string())));
    match found {
        Ok(Some(Found::Text(script))) => text(StatusCode::OK, &script),
        Ok(Some(Found::File(file))) => stream(&file, loads),
        Ok(None) => text(StatusCode::NOT_FOUND, "nothing is here"),
        Err(failure) => {
            tracing::warn!("{}", failure.fact());
            text(StatusCode::SERVICE_UNAVAILABLE, failure.fact())
        }
    }
}

/// The file at a path.
#[derive(Debug)]
enum Found {
    Text(String),
    File(File),
}

impl Site {
    /// The answer to a request; `loads` unless it is only about the head.
    fn find(&self, path: &str, loads: bool) -> Result<Option<Found>, Failure> {
        let url = format!("http://{}", self.address);
        let loaded = |file: &File| file.check().map(|()| Some(Found::File(file.clone())));
        match path {
            "/boot.ipxe" => return Ok(Some(Found::Text(script::first(&url)))),
            "/boots" => return Ok(Some(Found::Text(self.boots().table().trim_end().to_owned()))),
            "/kernel" => return loaded(&self.kernel),
            "/initrd" => return loaded(&self.initrd),
            _ => {}
        }
        let script = |of: &str| path.strip_prefix(of)?.strip_suffix(".ipxe");
        if let Some(mac) = script("/machine/").and_then(|mac| mac.parse().ok()) {
            return self.start(&url, self.menu.of_machine(mac), Some(mac).filter(|_| loads)).map(Some);
        }
        if let Some(boot) = script("/tag/").and_then(|tag| self.menu.of_tag(tag)) {
            return self.start(&url, boot, None).map(Some);
        }
        if let Some((mac, serial)) = path.strip_prefix("/booted/").and_then(|rest| rest.split_once('/')) {
            let (Ok(mac), Ok(serial)) = (mac.parse::<Mac>(), serial.parse::<u64>()) else { return Ok(None) };
            let known = self.boots().runs(mac, serial);
            tracing::info!(%mac, serial, known, "a machine runs");
            return Ok(known.then(|| Found::Text("noted".to_owned())));
        }
        let name = path.trim_start_matches('/');
        let firmware = name.ends_with(".efi") && !name.contains('/');
        Ok(if firmware { File::at(&self.firmware.join(name)).ok().map(Found::File) } else { None })
    }

    /// The script that starts a machine. The boots of a machine that has a name are counted.
    fn start(&self, url: &str, boot: &Boot, mac: Option<Mac>) -> Result<Found, Failure> {
        let status = client::status(self.control.as_deref())?;
        let line = match (boot, mac) {
            (Boot::Image(image), _) => self.menu.command_line(image, None, &status)?,
            (Boot::Tag(name), None) => {
                let versions = followed::versions(name, Mac::default(), &status)?;
                self.menu.command_line(&followed::pinned(name, &versions[0]), None, &status)?
            }
            (Boot::Tag(name), Some(mac)) => {
                let handed = self.boots().hand_out(mac, &followed::versions(name, mac, &status)?);
                let serial = handed.version.serial;
                if let Some(failed) = handed.given_up {
                    tracing::warn!(
                        "machine {mac}: {BOOTS_MAX} boots of tag {name} serial {failed} without a success; it gets serial {serial}"
                    );
                }
                let booted = format!("{url}/booted/{}/{serial}", mac.hyphened());
                self.menu.command_line(
                    &followed::pinned(name, &handed.version),
                    Some((&booted, &handed.failed)),
                    &status,
                )?
            }
        };
        Ok(Found::Text(script::start(url, &line)))
    }

    fn boots(&self) -> MutexGuard<'_, Boots> {
        self.boots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stream(file: &File, wanted: bool) -> Answer {
    let body = match wanted {
        true => Stream { parts: file.read(), left_bytes: file.size_bytes }.map_err(Into::into).boxed_unsync(),
        false => Empty::new().map_err(|never| match never {}).boxed_unsync(),
    };
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(file.size_bytes));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    answer
}

/// The bytes of a file as they come.
#[derive(Debug)]
struct Stream {
    parts: Parts,
    left_bytes: u64,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.parts.poll_recv(cx).map(|part| match part {
            Some(Ok(part)) => {
                self.left_bytes = self.left_bytes.saturating_sub(part.len() as u64);
                Some(Ok(Frame::data(part)))
            }
            Some(Err(failure)) => Some(Err(std::io::Error::other(failure.fact().to_owned()))),
            // Its length was promised.
            None if self.left_bytes > 0 => Some(Err(std::io::ErrorKind::UnexpectedEof.into())),
            None => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::menu::tests::menu;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// What a site answers to `request`, which is its first line.
    async fn asked(site: &Arc<Site>, request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let serving = tokio::spawn(serve(listener, Arc::clone(site)));
        stream.write_all(format!("{request}\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        serving.abort();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn machines_get_scripts_and_files_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
        write("kernel", &[b'k'; 700_000]);
        write("initrd", b"initrd");
        write("ipxe.efi", b"program");
        write("secret", b"secret");
        let file = |name: &str| File::at(&dir.path().join(name)).unwrap();
        let site = Arc::new(Site {
            kernel: file("kernel"),
            initrd: file("initrd"),
            firmware: dir.path().to_owned(),
            menu: menu(),
            boots: Mutex::default(),
            control: Some(dir.path().join("no-daemon")),
            address: "192.168.1.1:4480".parse().unwrap(),
        });
        let kernel = asked(&site, "GET /kernel HTTP/1.1").await;
        assert!(kernel.contains("content-length: 700000\r\n") && kernel.ends_with(&"k".repeat(700_000)));
        let head = asked(&site, "HEAD /kernel HTTP/1.1").await;
        assert!(head.contains("content-length: 700000\r\n") && head.ends_with("\r\n\r\n"));
        assert!(asked(&site, "GET /initrd HTTP/1.1").await.ends_with("\r\n\r\ninitrd"));
        assert!(asked(&site, "GET /ipxe.efi HTTP/1.1").await.ends_with("program"));
        assert!(asked(&site, "GET /boot.ipxe HTTP/1.1").await.contains("http://192.168.1.1:4480/machine/"));
        for path in [
            "/",
            "/secret",
            "/../secret",
            "/x/../ipxe.efi",
            "/machine/x.ipxe",
            "/tag/none.ipxe",
            "/%2e%2e/secret",
            "/booted/x/1",
            "/booted/52-54-00-12-34-56/1",
        ] {
            let answer = asked(&site, &format!("GET {path} HTTP/1.1")).await;
            assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
        }
        assert!(asked(&site, "POST /kernel HTTP/1.1").await.starts_with("HTTP/1.1 405 "));
        assert!(asked(&site, "rubbish").await.starts_with("HTTP/1.1 400 "));
        let nobody = asked(&site, "GET /machine/52-54-00-12-34-56.ipxe HTTP/1.1").await;
        assert!(nobody.starts_with("HTTP/1.1 503 ") && nobody.contains("no daemon runs at"), "{nobody}");
    }
}

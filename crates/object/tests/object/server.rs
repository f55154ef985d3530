//! A server on loopback that answers as a test says.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

/// A request as it came, for the test to answer.
pub struct Asked {
    pub method: String,
    pub target: String,
    /// By names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// An answer: status, headers, body.
pub type Answer = (u16, String, Vec<u8>);

/// Answers each request on a connection of its own, until the test's process ends.
pub fn serve(answer: impl Fn(Asked) -> Answer + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                lines.push(line.trim().to_owned());
            }
            // A connection that was opened for nothing.
            let Some((method, rest)) = lines.first().and_then(|line| line.split_once(' ')) else { continue };
            let (method, target) = (method.to_owned(), rest.split(' ').next().unwrap().to_owned());
            let split =
                |line: &String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
            let headers: BTreeMap<String, String> = lines.iter().filter_map(split).collect();
            let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let body = String::from_utf8(body).unwrap();
            let (status, headers, body) = answer(Asked { method, target, headers, body });
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(&[head.into_bytes(), body].concat()).unwrap();
            // Unread bytes would reset the connection before the answer is read.
            let _ = stream.take(1).read(&mut [0]);
        }
    });
    addr
}

//! The site answers its paths to those who may ask, changes nothing, and is looked at seldom.

use crate::room::Room;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use vfield_control::message::DaemonStatus;

/// The answer to a request line, as sent by somebody who calls the node `host`.
async fn asked(addr: SocketAddr, line: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn parts(answer: &str) -> (&str, &str) {
    answer.split_once("\r\n\r\n").unwrap()
}

#[tokio::test]
async fn each_path_has_its_type_and_its_protection() {
    let (addr, serving) = Room::of(50).serve().await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/status.json", "application/json"),
        ("/field.json", "application/json"),
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
    ] {
        let answer = asked(addr, &format!("GET {path}"), "127.0.0.1").await;
        let (head, body) = parts(&answer);
        assert!(head.starts_with("HTTP/1.1 200 ") && !body.is_empty(), "{path}: {head}");
        for header in [
            &format!("content-type: {kind}"),
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; ",
            "x-content-type-options: nosniff",
            "cross-origin-resource-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.contains(&format!("\r\n{header}")), "{path} without {header}: {head}");
        }
        assert!(!head.contains("access-control-allow"), "{path}: {head}");
        let head = asked(addr, &format!("HEAD {path}"), "127.0.0.1").await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{path}: {head}");
        assert!(asked(addr, &format!("POST {path}"), "127.0.0.1").await.starts_with("HTTP/1.1 405 "), "{path}");
    }
    for path in ["/leave", "/page", "/../etc/passwd", "/page.css/", "//metrics", "/%6detrics", "/index.html"] {
        let answer = asked(addr, &format!("GET {path}"), "127.0.0.1").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    serving.abort();
}

#[tokio::test]
async fn the_status_is_the_one_of_the_control_socket() {
    let room = Room::of(3);
    let (addr, serving) = room.serve().await;
    let answer = asked(addr, "GET /status.json?x=1", "localhost:9740").await;
    let status: DaemonStatus = serde_json::from_str(parts(&answer).1).unwrap();
    assert_eq!(status, room.view(0).status);
    serving.abort();
}

#[tokio::test]
async fn a_page_of_another_name_gets_nothing() {
    let room = Room::of(3);
    let (addr, serving) = room.serve().await;
    for path in ["/", "/status.json", "/metrics", "/healthz"] {
        let answer = asked(addr, &format!("GET {path}"), "evil.example").await;
        assert!(answer.starts_with("HTTP/1.1 421 ") && parts(&answer).1.contains("--http-name"), "{path}: {answer}");
        assert!(asked(addr, &format!("GET {path}"), "node-1.lab:9740").await.starts_with("HTTP/1.1 200 "), "{path}");
    }
    serving.abort();
}

#[tokio::test]
async fn a_daemon_that_starts_is_well_and_not_ready() {
    let starting = Some("hashing viver.squash, 30 % done");
    let room = Arc::new(Room { nodes: 1, looks: AtomicU64::new(0), starting });
    let (addr, serving) = room.serve().await;
    assert!(asked(addr, "GET /healthz", "127.0.0.1").await.starts_with("HTTP/1.1 200 "));
    for path in ["/readyz", "/metrics", "/status.json", "/field.json"] {
        let answer = asked(addr, &format!("GET {path}"), "127.0.0.1").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("30 % done"), "{path}: {answer}");
    }
    assert!(asked(addr, "GET /", "127.0.0.1").await.starts_with("HTTP/1.1 200 "));
    serving.abort();
}

#[tokio::test]
async fn many_spectators_are_one_look_at_the_node() {
    let room = Room::of(200);
    let (addr, serving) = room.serve().await;
    let spectators: Vec<_> =
        (0..20).map(|_| tokio::spawn(async move { asked(addr, "GET /field.json", "127.0.0.1").await })).collect();
    let mut answers = Vec::new();
    for spectator in spectators {
        answers.push(spectator.await.unwrap());
    }
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")));
    // On a busy machine the twenty answers may take longer than a view lasts.
    let looks = room.looks.load(Ordering::Relaxed);
    assert!(looks < 20, "{looks} looks for 20 answers");
    serving.abort();
}

#[tokio::test]
async fn connections_of_one_address_are_bounded() {
    let (addr, serving) = Room::of(3).serve().await;
    let mut idle = Vec::new();
    for _ in 0..24 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    // They are accepted in their order.
    let mut another = TcpStream::connect(addr).await.unwrap();
    let mut answer = Vec::new();
    let read = another.read_to_end(&mut answer).await;
    assert!(read.is_err() || answer.is_empty(), "closed without an answer");
    serving.abort();
}

#[test]
fn the_page_is_small_and_asks_nobody_else() {
    let files = ["index.html", "page.css", "page.js", "draw.js", "words.js"].map(|name| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page").join(name);
        std::fs::read_to_string(path).unwrap()
    });
    let bytes: usize = files.iter().map(String::len).sum();
    assert!(bytes < 64 << 10, "{bytes} bytes");
    for text in &files {
        // The one URL is the name of SVG, which nobody is asked for.
        let urls = text.matches("://").count();
        assert_eq!(urls, text.matches("http://www.w3.org/2000/svg").count());
        for markup in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " onclick", "style=\""]
        {
            assert!(!text.contains(markup), "{markup}");
        }
        assert!(text.lines().count() < 500);
    }
}

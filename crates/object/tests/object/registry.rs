//! A registry that wants a token for each request, gives it for a login, and sends blobs from
//! another server.

use crate::server::serve;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::runtime::{Builder, Runtime};
use vfield_block::extent::Extent;
use vfield_block::object::{ObjectError, ObjectStore as _};
use vfield_object::Place;

const MANIFEST: &str = r#"{"layers":[{"digest":"DIGEST","mediaType":"application/vnd.vfield.image"},
    {"digest":"HASHES","annotations":{"org.opencontainers.image.title":"disk.img.vfh"}}]}"#;

/// A registry, and how often it gave a token.
struct Registry {
    addr: SocketAddr,
    given: Arc<AtomicU32>,
    manifest: Arc<Mutex<String>>,
    /// The token that it takes.
    token: Arc<Mutex<String>>,
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

impl Registry {
    fn start() -> Self {
        let blobs = serve(|asked| {
            assert!(!asked.headers.contains_key("authorization"), "another server sees the token");
            let image: Vec<u8> = (0..100).collect();
            let range = asked.headers["range"].strip_prefix("bytes=").unwrap().to_owned();
            let (first, last) = range.split_once('-').unwrap();
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            (206, format!("Content-Range: bytes {first}-{last}/100\r\n"), image[first..=last].to_vec())
        });
        let (given, manifest) = (Arc::<AtomicU32>::default(), MANIFEST.replace("DIGEST", &digest('a')));
        let manifest = Arc::new(Mutex::new(manifest.replace("HASHES", &digest('b'))));
        let (token, (count, text)) = (Arc::new(Mutex::new("none".to_owned())), (given.clone(), manifest.clone()));
        let valid = token.clone();
        let addr = serve(move |asked| {
            let (own, authorization) = (asked.headers["host"].clone(), asked.headers.get("authorization").cloned());
            if let Some(query) = asked.target.strip_prefix("/token?") {
                assert_eq!(query, "service=lab&scope=repository:images/disk:pull");
                if authorization.as_deref() != Some("Basic YTpi") {
                    return (403, String::new(), Vec::new());
                }
                let new = format!("t{}", count.fetch_add(1, Ordering::SeqCst));
                valid.lock().unwrap().clone_from(&new);
                return (200, String::new(), format!("{{\"token\":\"{new}\"}}").into_bytes());
            }
            if authorization != Some(format!("Bearer {}", valid.lock().unwrap())) {
                let scope = "service=\"lab\",scope=\"repository:images/disk:pull\"";
                let challenge = format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\",{scope}\r\n");
                return (401, challenge, Vec::new());
            }
            match asked.target.strip_prefix("/v2/images/disk/") {
                Some("manifests/1") => (200, String::new(), text.lock().unwrap().clone().into_bytes()),
                Some(blob) if blob.starts_with("blobs/sha256:") => {
                    (307, format!("Location: http://{blobs}/{blob}?signature=x\r\n"), Vec::new())
                }
                _ => (404, String::new(), Vec::new()),
            }
        });
        Self { addr, given, manifest, token }
    }

    /// A place in it, with a login of this text.
    fn place(&self, reference: &str, dir: &Path, login: &str) -> Place {
        let file = dir.join("config.json");
        let config = format!("{{\"auths\":{{\"{}\":{{\"auth\":\"{login}\"}}}}}}", self.addr);
        std::fs::write(&file, config).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let variable = |name: &str| (name == "REGISTRY_AUTH_FILE").then(|| file.clone());
        Place::parse(&format!("oci:{}/images/disk{reference}", self.addr), &variable).unwrap()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_blob_is_read_with_a_token_that_is_renewed() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    runtime().block_on(async {
        let place = registry.place(":1", dir.path(), "YTpi");
        assert_eq!((place.file_name().as_str(), place.files().len()), ("disk", 1));
        let object = place.open("").await.unwrap();
        assert_eq!((object.length_bytes(), registry.given.load(Ordering::SeqCst)), (100, 1));
        let read = |from: u64| object.read(Extent::from(from..from + 5));
        assert_eq!(&read(10).await.unwrap()[..], [10, 11, 12, 13, 14]);
        assert_eq!(place.open(".vfh").await.unwrap().length_bytes(), 100);
        assert_eq!(registry.given.load(Ordering::SeqCst), 1);

        // The address that the registry gave is good for longer than its token.
        "gone".clone_into(&mut registry.token.lock().unwrap());
        assert_eq!(&read(90).await.unwrap()[..], [90, 91, 92, 93, 94]);
        assert_eq!(place.open("").await.unwrap().length_bytes(), 100);
        assert_eq!(registry.given.load(Ordering::SeqCst), 2);

        // A digest of a blob needs no manifest.
        let of_digest = registry.place(&format!("@{}", digest('a')), dir.path(), "YTpi");
        assert_eq!(of_digest.open("").await.unwrap().length_bytes(), 100);
        assert!(of_digest.open(".vfh").await.is_err());
    });
}

#[test]
fn what_cannot_be_read_is_said_in_one_line() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    let opened = |reference: &str, login: &str| -> Result<u64, ObjectError> {
        let place = registry.place(reference, dir.path(), login);
        runtime().block_on(async { place.open("").await.map(|object| object.length_bytes()) })
    };
    let says = |refused: Result<u64, ObjectError>, words: &str, lasts: bool| {
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains(words) && refused.may_pass() != lasts, "{words}: {refused:?}");
    };
    says(opened(":1", "xxxx"), "403 Forbidden from 127.0.0.1", true);
    says(opened(":2", "YTpi"), "404 Not Found from 127.0.0.1", true);
    for (manifest, words, lasts) in [
        ("<html>log in</html>".to_owned(), "something else than a manifest", false),
        ("{}".to_owned(), "without a blob", true),
        (MANIFEST.replace("DIGEST", "sha256:../../x"), "no SHA-256", true),
        (MANIFEST.replace("vfield.image", "oci.image.layer.v1.tar+gzip"), "`vfield pack`", true),
        (MANIFEST.replace("disk.img.vfh", "other.img"), "a manifest of 2 blobs", true),
        (
            format!("{{\"manifests\":[{{\"digest\":\"{0}\"}},{{\"digest\":\"{0}\"}}]}}", digest('c')),
            "2 manifests",
            true,
        ),
        ("{\"manifests\":[{\"digest\":\"../x\"}]}".to_owned(), "no SHA-256", true),
    ] {
        registry.manifest.lock().unwrap().clone_from(&manifest);
        says(opened(":1", "YTpi"), words, lasts);
    }
}

#[test]
fn places_are_read() {
    let nothing = |_: &str| None;
    for (text, name) in [
        ("oci:registry.example/images/disk:1", "disk"),
        ("oci://registry.example:5000/disk:latest", "disk"),
        ("oci:docker.io/disk:1", "disk"),
        ("oci+http:10.0.0.1/a/b/c@sha256:0000000000000000000000000000000000000000000000000000000000000000", "c"),
    ] {
        assert_eq!(Place::parse(text, &nothing).unwrap().file_name(), name, "{text}");
    }
    for text in [
        "oci:",
        "oci:registry.example",
        "oci:registry.example/disk",
        "oci:registry.example/:1",
        "oci:registry.example/a..b:1",
        "oci:registry.example/a b:1",
        "oci:registry.example/disk@1",
        "oci:registry.example/disk@sha256:12",
        "oci:user:password@registry.example/disk:1",
        "oci:registry.example/disk:a/b",
    ] {
        assert!(Place::parse(text, &nothing).is_err(), "{text}");
    }
}

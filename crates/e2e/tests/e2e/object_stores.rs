//! Objects of real stores: nginx over TLS, and buckets behind S3's signature.
//!
//! nginx is among the tools of all tests. `scripts/test-objects` brings the others; elsewhere their
//! tests say that they were ignored.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::{FILL_LIMIT, Start};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Buckets, Lab, LabError, Registry, TlsServer, client, wait_until};

/// Some runs of 4 MiB, and a part of one.
pub(crate) const IMAGE: u64 = 12 * MIB + 777;
/// A state of a store is known after a read or two; pauses grow to 5 s.
const SOON: Duration = Duration::from_secs(20);

/// An image with its hashes, in a directory of its own.
pub(crate) fn image(dir: &Path) -> Result<PathBuf, LabError> {
    std::fs::create_dir_all(dir).map_err(LabError::at(dir))?;
    let image = random_file(&dir.join("disk.img"), IMAGE, 1)?;
    let mut hashes = Command::new(vfield().path());
    run(hashes.arg("id").arg(&image).arg("--hashes").arg(dir.join("disk.img.vfh")))?;
    Ok(image)
}

/// The daemon refuses, with these words.
fn refused(start: Start<'_>, says: &str) -> Outcome {
    let mut daemon = start.spawn()?;
    wait_until("it ends", SOON, || daemon.process_mut().ended().is_some())?;
    let log = std::fs::read_to_string(daemon.process().log_path())?;
    assert!(log.contains(says), "{says}: {log}");
    Ok(())
}

/// Why the object of a daemon cannot be read now.
fn why(status: &Value) -> &str {
    status["images"][0]["source"]["why"].as_str().unwrap_or_default()
}

#[test]
fn an_image_comes_from_nginx_over_tls() -> Outcome {
    if !have(&[Need::Tool("nginx"), Need::Tool("openssl"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let image = image(&lab.dir().join("files"))?;
    let mut server = TlsServer::start(lab.host(0), &lab.dir().join("files"))?;
    let addr = server.addr();
    let url = |path: &str| PathBuf::from(format!("https://{addr}{path}disk.img"));
    let serve = |path: &str| {
        let start = vfield.serve(lab.host(0), &[&url(path)]).name("origin");
        start.env("SSL_CERT_FILE", server.authority())
    };
    refused(vfield.serve(lab.host(0), &[&url("/")]).name("stranger"), "certificate")?;
    refused(serve("/plain/").name("plain"), "redirect")?;

    let origin = serve("/moved/").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("all").args(&["--join-boost", "9"]).ready()?;
    client::compare_all(lab.host(1), &node, &image)?;
    node.wait("filled", FILL_LIMIT)?;
    // What nginx counts as sent: the hashes, and one image by ranges, each after a redirect.
    let log = std::fs::read_to_string(lab.host(0).dir().join("tls/access"))?;
    let sent = |status: &str| -> Vec<u64> {
        let of_status = log.lines().filter_map(|line| line.split_once(&format!(" {status} "))?.1.split(' ').next());
        of_status.filter_map(|bytes| bytes.parse().ok()).collect()
    };
    let parts = sent("206");
    assert!((IMAGE..IMAGE + MIB).contains(&parts.iter().sum()), "{log}");
    assert!(parts.len() as u64 <= IMAGE.div_ceil(4 * MIB) + 4, "{log}");

    server.kill();
    client::compare_all(lab.host(1), &node, &image)?;
    Ok(())
}

#[test]
#[ignore = "scripts/test-objects builds the server of buckets"]
fn an_image_comes_from_a_bucket() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    // A key that has to be encoded, in the request and in its signed form.
    let image = image(&lab.dir().join("store/images/of the + lab"))?;
    let buckets = Buckets::start(lab.host(0), &lab.dir().join("store"))?;
    let endpoint = format!("http://{}", buckets.addr());
    let credentials = lab.dir().join("credentials");
    let write = |secret: &str| {
        let text = format!("[default]\naws_access_key_id = {}\naws_secret_access_key = {secret}\n", Buckets::KEY);
        std::fs::write(&credentials, text).map_err(LabError::at(&credentials))
    };
    let serve = |key: &str| {
        let start = vfield.serve(lab.host(0), &[&PathBuf::from(format!("s3://images/{key}"))]).name("origin");
        start.env("AWS_ENDPOINT_URL_S3", &endpoint).env("AWS_SHARED_CREDENTIALS_FILE", &credentials)
    };
    let key = "of the + lab/disk.img";
    write("another")?;
    refused(serve(key).name("stranger"), "403 Forbidden")?;
    write(Buckets::SECRET)?;
    refused(serve("none.img").name("none"), "404 Not Found")?;

    // The credentials end while the image is read, and new ones come.
    let origin = serve(key).ready()?;
    write("expired")?;
    let node = vfield.join(lab.host(1), origin.addr()).store("50%").args(&["--join-boost", "9"]).ready()?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| client::compare_all(lab.host(1), &node, &image));
        let said = origin.wait_status("403", SOON, |status| why(status).contains("403 Forbidden"));
        let renewed = said.and_then(|()| write(Buckets::SECRET));
        reader.join().expect("a reader does not panic").and(renewed)
    })?;
    origin.wait_status("it delivers", SOON, |status| why(status).is_empty())?;
    Ok(())
}

/// Pushes an image with its hashes as one artifact, by the routes of the OCI distribution
/// specification. Its arguments: the repository's URL, and the two files.
const PUSH: &str = r#"
import hashlib, json, sys, urllib.request as web
def put(url, data, kind):
    web.urlopen(web.Request(url, data=data, method="PUT", headers={"Content-Type": kind}))
def push(data, **more):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    upload = web.urlopen(web.Request(sys.argv[1] + "/blobs/uploads/", method="POST")).headers["Location"]
    put(upload + ("&" if "?" in upload else "?") + "digest=" + digest, data, "application/octet-stream")
    return {"mediaType": "application/octet-stream", "digest": digest, "size": len(data), **more}
layers = [push(open(path, "rb").read(), annotations={"org.opencontainers.image.title": path.split("/")[-1]})
          for path in sys.argv[2:]]
kind = "application/vnd.oci.image.manifest.v1+json"
manifest = {"schemaVersion": 2, "mediaType": kind, "config": push(b"{}"), "layers": layers}
put(sys.argv[1] + "/manifests/1", json.dumps(manifest).encode(), kind)
print(layers[0]["digest"])
"#;

#[test]
#[ignore = "scripts/test-objects brings the registry"]
fn an_image_comes_from_a_registry() -> Outcome {
    if !have(&[Need::Tool("nbdcopy"), Need::Tool("docker-registry")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let image = image(&lab.dir().join("files"))?;
    let registry = Registry::start(lab.host(0))?;
    let mut push = Command::new("python3");
    push.args(["-c", PUSH]).arg(format!("http://{}/v2/lab/disk", registry.addr())).arg(&image);
    let digest = run(push.arg(lab.dir().join("files/disk.img.vfh")))?;
    let serve = |reference: &str| {
        let place = PathBuf::from(format!("oci:{}/lab/disk{reference}", registry.addr()));
        vfield.serve(lab.host(0), &[&place]).args(&["--name", "disk.img"]).name("origin")
    };
    refused(serve(":2").name("none"), "404 Not Found")?;

    // Our own publisher sends the missing parts: its manifest under another tag, and its settings.
    let publish = |tag: &str, image: &Path| {
        let mut command = Command::new(vfield.path());
        command.arg("publish").arg(image).arg(format!("oci:{}/lab/disk:{tag}", registry.addr()));
        run(command.env("HOME", lab.dir()))
    };
    let said = publish("own", &image)?;
    assert!(said.contains("was there already"), "{said}");
    let second = random_file(&lab.dir().join("second.img"), 40 * MIB + 777, 2)?;
    let said = publish("2.0", &second)?;
    assert!(said.contains("is there; sent 40"), "{said}");
    let place = PathBuf::from(format!("oci:{}/lab/disk:2.0", registry.addr()));
    let mut origin = vfield.serve(lab.host(0), &[&place]).args(&["--name", "second.img"]).name("second").ready()?;
    client::compare_all(lab.host(0), &origin, &second)?;
    origin.kill();

    for reference in [":1", ":own", &format!("@{}", digest.trim())] {
        let mut origin = serve(reference).ready()?;
        let mut node = vfield.join(lab.host(1), origin.addr()).store("all").args(&["--join-boost", "9"]).ready()?;
        client::compare_all(lab.host(1), &node, &image)?;
        node.kill();
        origin.kill();
    }
    Ok(())
}

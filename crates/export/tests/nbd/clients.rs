//! The NBD export with the clients that people use: libnbd's tools, QEMU's and fio.

use crate::support::{CHUNK, Image, have, output, run, serve, serve_one};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use vfield_block::source::BlockSource;
use vfield_export::nbd::Server;

type Test = Result<(), Box<dyn std::error::Error>>;

const LENGTH: usize = 5 * (1 << 20) + 700;

/// The device as a file, for comparison.
fn device_file(image: &Image, folder: &std::path::Path) -> std::io::Result<String> {
    let path = folder.join("device.raw");
    std::fs::write(&path, image.device(0, (LENGTH as u64).next_multiple_of(512)))?;
    Ok(path.display().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdinfo_sees_what_is_offered() -> Test {
    if !have("nbdinfo") {
        return Ok(());
    }
    let served = serve(&[Image::new("os-v1", LENGTH), Image::new("other", 512)]);
    let info = run("nbdinfo", &["--json", &served.uri()]).await;
    for expected in [
        "\"export-name\": \"os-v1\"",
        "\"description\": \"the image os-v1\"",
        "\"export-size\": 5243904",
        "\"is_read_only\": true",
        "\"can_multi_conn\": true",
        "\"can_df\": true",
        "\"can_cache\": true",
        "\"base:allocation\"",
        "\"block_size_minimum\": 1",
        "\"block_size_preferred\": 65536",
        "\"block_size_maximum\": 33554432",
        "\"structured\": true",
    ] {
        assert!(info.contains(expected), "no {expected} in {info}");
    }
    let list = run("nbdinfo", &["--list", &served.uri()]).await;
    assert!(list.contains("export=\"os-v1\"") && list.contains("export=\"other\""), "{list}");
    let unknown = output("nbdinfo", &[&served.serving.address().uri("none")]).await;
    assert!(!unknown.status.success());
    let map = run("nbdinfo", &["--map", &served.uri()]).await;
    let holes = map.lines().filter(|line| line.ends_with("hole,zero")).count();
    // 81 chunks, every fourth a hole, and what pads the last sector.
    assert_eq!((holes, map.lines().count()), (21, 42), "{map}");
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdcopy_copies_every_byte() -> Test {
    if !have("nbdcopy") {
        return Ok(());
    }
    let image = Image::new("a", LENGTH);
    let served = serve_one(&image);
    for options in [&["--connections=4"][..], &["--connections=1", "--requests=2", "--request-size=2097152"]] {
        let copy = served.folder.path().join("copy").display().to_string();
        run("nbdcopy", &[options, &[&served.uri(), &copy]].concat()).await;
        assert!(std::fs::read(&copy)? == image.device(0, 5243904), "{options:?}");
        std::fs::remove_file(&copy)?;
    }
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdcopy_works_over_tcp() -> Test {
    if !have("nbdcopy") {
        return Ok(());
    }
    let (image, folder) = (Image::new("a", LENGTH), tempfile::tempdir()?);
    for address in ["tcp:127.0.0.1:0", "tcp:[::1]:0"] {
        let serving = match Server::bind(&address.parse()?, vec![image.clone() as Arc<dyn BlockSource>]) {
            Ok(server) => server.start(),
            Err(error) if address.contains('[') => {
                eprintln!("skipped: no IPv6 here: {error}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let copy = folder.path().join("copy").display().to_string();
        run("nbdcopy", &[&serving.address().uri("a"), &copy]).await;
        assert!(std::fs::read(&copy)? == image.device(0, 5243904));
        std::fs::remove_file(&copy)?;
        serving.shutdown().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shut_server_turns_newcomers_away_and_keeps_its_clients() -> Test {
    if !have("nbdinfo") || !have("nbdsh") {
        return Ok(());
    }
    let served = serve_one(&Image::new("a", LENGTH));
    let script = format!("h.connect_uri('{}'); print('in', flush=True); input(); h.pread(512, 0)", served.uri());
    // The server has threads of its own, so this one may wait.
    let mut client = Command::new("nbdsh");
    // The module of libnbd belongs to the python of the system.
    let mut client = client
        .env("PATH", "/usr/bin:/bin")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(client.stdout.take().expect("a pipe")).read_line(&mut said)?;
    assert_eq!(said, "in\n");
    served.serving.shut(true);
    let refused = output("nbdinfo", &[&served.uri()]).await;
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("endpoint shutdown"), "{refused:?}");
    client.stdin.take().expect("a pipe").write_all(b"\n")?;
    assert!(client.wait()?.success(), "who was there reads on");
    served.serving.shut(false);
    run("nbdinfo", &[&served.uri()]).await;
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_what_their_network_may() -> Test {
    if !have("nbdinfo") {
        return Ok(());
    }
    let images =
        [Image::new("near", 4096), Image::new("far", 8192), Image::new("all", 512), Image::new("unruled", 512)];
    let bind = |rules: &[&str]| {
        let sources = images.iter().map(|image| image.clone() as Arc<dyn BlockSource>).collect();
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        Server::bind(&"tcp:127.0.0.1:0".parse().expect("an address"), sources).map(|server| server.with_access(rules))
    };
    let serving = bind(&["near=10.0.0.0/8", "far=127.0.0.0/8", "all=127.0.0.1"])?.start();
    let list = run("nbdinfo", &["--list", &serving.address().uri("")]).await;
    assert!(list.contains("export=\"far\"") && list.contains("export=\"all\""), "{list}");
    assert!(!list.contains("near") && !list.contains("unruled"), "{list}");
    // The export without a name is the first that there is for this client, and it is the right
    // one.
    let first = run("nbdinfo", &["--size", &serving.address().uri("")]).await;
    let last = run("nbdinfo", &["--size", &serving.address().uri("all")]).await;
    assert_eq!((first.trim(), last.trim()), ("8192", "512"));
    assert!(!output("nbdinfo", &["--size", &serving.address().uri("near")]).await.status.success());
    serving.shutdown().await;
    // A rule of a further name speaks of the source to which that leads now.
    let led = bind(&["prod=127.0.0.0/8"])?.start();
    for (to, size) in [("near", "4096"), ("far", "8192")] {
        led.lead("prod", to);
        let list = run("nbdinfo", &["--list", &led.address().uri("")]).await;
        let seen = ["prod", "near", "far", "all"].map(|name| list.contains(&format!("export=\"{name}\"")));
        assert_eq!(seen, [true, to == "near", to == "far", false], "{list}");
        assert_eq!(run("nbdinfo", &["--size", &led.address().uri("prod")]).await.trim(), size);
    }
    led.shutdown().await;
    let nobody = bind(&["10.0.0.0/8"])?.start();
    assert!(!output("nbdinfo", &[&nobody.address().uri("")]).await.status.success());
    nobody.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_img_understands_it() -> Test {
    if !have("qemu-img") {
        return Ok(());
    }
    let image = Image::new("a", LENGTH);
    let served = serve_one(&image);
    let (uri, file) = (served.uri(), device_file(&image, served.folder.path())?);
    let info = run("qemu-img", &["info", "--output=json", "-f", "raw", &uri]).await;
    assert!(info.contains("\"virtual-size\": 5243904"), "{info}");
    let compared = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &uri, &file]).await;
    assert!(compared.contains("Images are identical"), "{compared}");
    let map = run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]).await;
    assert_eq!(map.matches("\"zero\": true").count(), 21, "{map}");
    let copy = served.folder.path().join("copy.qcow2").display().to_string();
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &copy]).await;
    run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &file, &copy]).await;
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fio_reads_at_random() -> Test {
    if !have("fio") {
        return Ok(());
    }
    let served = serve(&[Image::new("a", LENGTH)]);
    let uri = format!("--uri={}", served.uri());
    let job = ["--name=read", "--ioengine=nbd", &uri, "--rw=randread", "--bs=4k", "--iodepth=32", "--size=5M"];
    run("fio", &job).await;
    // A quarter of the image is holes, which are not sent.
    assert!(served.serving.counts().sent_bytes >= 3 << 20);
    assert_eq!(served.serving.counts().refused, 0);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdsh_asks_for_what_is_not_allowed() -> Test {
    if !have("nbdsh") {
        return Ok(());
    }
    let image = Image::new("a", LENGTH);
    let served = serve_one(&image);
    let script = format!(
        r#"
import errno
h.set_strict_mode(0)
h.add_meta_context("base:allocation")
h.connect_uri("{uri}")
def fails(expected, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == expected, (error.errnum, error)
    else:
        raise AssertionError("no error")
size = h.get_size()
fails(errno.EINVAL, lambda: h.pread(512, size))
fails(errno.EINVAL, lambda: h.pread(1024, size - 512))
fails(errno.EPERM, lambda: h.pwrite(b"x" * 512, 0))
fails(errno.EPERM, lambda: h.trim(512, 0))
fails(errno.EPERM, lambda: h.zero(512, 0))
h.flush()
h.cache(65536, 0)
found = []
h.block_status(size, 0, lambda context, offset, entries, error: found.append((context, len(entries))))
h.block_status(size, 0, lambda context, offset, entries, error: found.append((context, len(entries))), nbd.CMD_FLAG_REQ_ONE)
assert found == [("base:allocation", 84), ("base:allocation", 2)], found
data = h.pread(200, {start} - 100, nbd.CMD_FLAG_DF)
assert data == bytes.fromhex("{expected}"), "wrong bytes"
h.shutdown()
"#,
        uri = served.uri(),
        start = 2 * CHUNK,
        expected = image.device(2 * CHUNK - 100, 200).iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
    );
    run("nbdsh", &["-c", &script]).await;
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdsh_negotiates_in_odd_orders() -> Test {
    if !have("nbdsh") {
        return Ok(());
    }
    let served = serve(&[Image::new("a", LENGTH), Image::new("b", 512)]);
    let script = format!(
        r#"
h.set_opt_mode(True)
h.connect_unix("{path}")
names = []
h.opt_list(lambda name, description: names.append(name))
assert names == ["a", "b"], names
h.set_export_name("none")
try:
    h.opt_info()
except nbd.Error:
    pass
else:
    raise AssertionError("none is there")
h.set_export_name("b")
h.opt_info()
assert h.get_size() == 512
contexts = []
h.add_meta_context("base:")
h.opt_list_meta_context(lambda name: contexts.append(name))
assert contexts == ["base:allocation"], contexts
h.set_export_name("a")
h.opt_go()
assert h.get_size() == 5243904
h.shutdown()

h = nbd.NBD()
h.set_opt_mode(True)
h.connect_unix("{path}")
h.opt_abort()

h = nbd.NBD()
h.set_request_structured_replies(False)
h.connect_unix("{path}")
assert not h.can_df() and len(h.pread(70000, 0)) == 70000
h.shutdown()
"#,
        path = served.path().display(),
    );
    run("nbdsh", &["-c", &script]).await;
    served.serving.shutdown().await;
    Ok(())
}

//! STARTTLS with the clients that people use, and with those who try their luck.

use crate::support::{Image, have, output, run};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use vfield_block::source::BlockSource;
use vfield_export::nbd::{Address, Server, Serving, Tls};

type Test = Result<(), Box<dyn std::error::Error>>;

const LENGTH: usize = 5 * (1 << 20) + 700;
/// The device's length: whole sectors.
const DEVICE: u64 = 5_243_904;
const CERTIFICATES: &str = include_str!("certificates.sh");

/// Directories with certificates; see the script.
fn certificates() -> std::io::Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    let made = Command::new("sh").args(["-c", CERTIFICATES, "sh"]).arg(dir.path()).output()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(dir)
}

fn serve(image: &Arc<Image>, tls: &Path) -> Result<(Serving, SocketAddr), Box<dyn std::error::Error>> {
    let server = Server::bind(&"tcp:127.0.0.1:0".parse()?, vec![image.clone() as Arc<dyn BlockSource>])?;
    let serving = server.with_tls(Some(Tls::from_dir(tls)?)).start();
    let Address::Tcp(addr) = *serving.address() else { panic!("it was bound to TCP") };
    Ok((serving, addr))
}

/// As libnbd writes it.
fn uri(addr: SocketAddr, certificates: &Path) -> String {
    format!("nbds://{addr}/?tls-certificates={}", certificates.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_clients_read_every_byte_under_tls() -> Test {
    if !have("openssl") || !have("nbdcopy") || !have("qemu-img") {
        return Ok(());
    }
    let (certificates, image) = (certificates()?, Image::new("os", LENGTH));
    let device = image.device(0, DEVICE);
    for (server, client) in [("open", "without"), ("", "with-certificate")] {
        let (serving, addr) = serve(&image, &certificates.path().join(server))?;
        let folder = certificates.path().join(client);
        let copy = certificates.path().join("copy").display().to_string();
        for options in [&["--connections=4"][..], &["--connections=1", "--request-size=2097152"]] {
            run("nbdcopy", &[options, &[&uri(addr, &folder), &copy]].concat()).await;
            assert!(std::fs::read(&copy)? == device, "{options:?}");
            std::fs::remove_file(&copy)?;
        }
        let info = run("nbdinfo", &["--json", &uri(addr, &folder)]).await;
        assert!(info.contains("\"TLS\": true") && info.contains("\"base:allocation\""), "{info}");

        let options = format!("driver=nbd,host=127.0.0.1,port={},tls-creds=t", addr.port());
        // What both have by default, then what the reference client speaks.
        for versions in ["NORMAL", "NORMAL:-VERS-ALL:+VERS-TLS1.2"] {
            let dir = folder.display();
            let credentials = format!("tls-creds-x509,id=t,endpoint=client,dir={dir},priority={versions}");
            run("qemu-img", &["convert", "--object", &credentials, "--image-opts", &options, "-O", "raw", &copy]).await;
            assert!(std::fs::read(&copy)? == device, "{versions}");
            std::fs::remove_file(&copy)?;
        }
        let credentials = format!(
            "tls-creds-x509,id=t,endpoint=client,dir={},priority=NORMAL:-VERS-ALL:+VERS-TLS1.1",
            folder.display()
        );
        let old = output("qemu-img", &["info", "--object", &credentials, "--image-opts", &options]).await;
        assert!(!old.status.success(), "what is broken is not spoken");
        serving.shutdown().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_a_certificate_or_without_tls_are_told_nothing() -> Test {
    if !have("openssl") || !have("nbdinfo") {
        return Ok(());
    }
    let (certificates, image) = (certificates()?, Image::new("secret-name", LENGTH));
    let (serving, addr) = serve(&image, certificates.path())?;
    let tries = ["without", "stranger"].map(|client| uri(addr, &certificates.path().join(client)));
    for uri in tries.into_iter().chain([format!("nbd://{addr}/")]) {
        for words in [&["--json", &uri][..], &["--list", &uri]] {
            let said = output("nbdinfo", words).await;
            let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
            assert!(!said.status.success() && !text.contains("secret-name"), "{uri}: {text}");
        }
    }
    // The one who belongs is served all the same.
    run("nbdinfo", &[&uri(addr, &certificates.path().join("with-certificate"))]).await;
    serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_before_tls_does_not_count() -> Test {
    if !have("openssl") {
        return Ok(());
    }
    let (certificates, image) = (certificates()?, Image::new("os", LENGTH));
    let (serving, addr) = serve(&image, &certificates.path().join("open"))?;
    assert_eq!(serving.uri(""), format!("nbds://{addr}/"));
    let option = |number: u32, data: &[u8]| {
        [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let connect = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(8)))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        stream.write_all(&3_u32.to_be_bytes())?;
        Ok(stream)
    };
    let kind = |stream: &mut TcpStream| -> std::io::Result<u32> {
        let mut header = [0; 20];
        stream.read_exact(&mut header)?;
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let mut data = vec![0; number(16) as usize];
        stream.read_exact(&mut data)?;
        Ok(number(12))
    };
    // TLS is required of every option but an end (errors of section "Option reply types").
    let mut stream = connect()?;
    for (number, data) in [(3, &b""[..]), (6, &[0; 6]), (7, &[0; 6]), (8, b""), (9, &[0; 8]), (10, &[0; 8])] {
        stream.write_all(&option(number, data))?;
        assert_eq!(kind(&mut stream)?, 1 << 31 | 5, "option {number}");
    }
    stream.write_all(&option(2, b""))?;
    assert_eq!(kind(&mut stream)?, 1);
    // The oldest way to choose an export has no error reply: it ends.
    let mut stream = connect()?;
    stream.write_all(&option(1, b"os"))?;
    assert_eq!(stream.read(&mut [0; 16])?, 0);
    // Options that somebody on the way has put behind the start of TLS.
    let mut stream = connect()?;
    stream.write_all(&[option(5, b""), option(8, b"")].concat())?;
    assert_eq!(kind(&mut stream)?, 1);
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)), "it goes on");
    serving.shutdown().await;
    Ok(())
}

#[test]
fn certificates_that_do_not_do_are_named() -> Test {
    if !have("openssl") {
        return Ok(());
    }
    let certificates = certificates()?;
    let dir = certificates.path().join("open");
    let says = |dir: &Path| Tls::from_dir(dir).map(drop).unwrap_err().to_string();
    assert!(says(&certificates.path().join("without")).ends_with("server-cert.pem: no such file"));
    let key = dir.join("server-key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644))?;
    assert!(says(&dir).ends_with("server-key.pem: open to others (mode 644)"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
    assert!(Tls::from_dir(&dir).is_ok());
    std::fs::copy(certificates.path().join("other-key.pem"), &key)?;
    assert!(says(&dir).contains("open: "), "{}", says(&dir));
    std::fs::write(&key, "garbage")?;
    assert!(says(&dir).ends_with("server-key.pem: nothing of its kind in it"), "{}", says(&dir));
    std::fs::write(dir.join("server-cert.pem"), "garbage")?;
    assert!(says(&dir).ends_with("server-cert.pem: no certificate in it"), "{}", says(&dir));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_read_again_and_bad_ones_are_left() -> Test {
    if !have("openssl") || !have("nbdinfo") {
        return Ok(());
    }
    let (certificates, image) = (certificates()?, Image::new("os", LENGTH));
    let (dir, ca) = (certificates.path().join("open"), certificates.path().join("ca-cert.pem"));
    let server = Server::bind(&"tcp:127.0.0.1:0".parse()?, vec![image.clone() as Arc<dyn BlockSource>])?;
    let tls = Tls::from_dir(&dir)?;
    let serving = server.with_tls(Some(tls.clone())).start();
    let Address::Tcp(addr) = *serving.address() else { panic!("it was bound to TCP") };
    let stranger = uri(addr, &certificates.path().join("without"));
    run("nbdinfo", &[&stranger]).await;

    // From now on clients have to show who they are.
    std::fs::copy(&ca, dir.join("ca-cert.pem"))?;
    run("nbdinfo", &[&stranger]).await;
    tls.reload()?;
    assert!(!output("nbdinfo", &[&stranger]).await.status.success(), "the new rule is in force");
    let friend = uri(addr, &certificates.path().join("with-certificate"));
    run("nbdinfo", &[&friend]).await;

    std::fs::write(dir.join("server-cert.pem"), "garbage")?;
    assert!(tls.reload().is_err());
    run("nbdinfo", &[&friend]).await;
    serving.shutdown().await;
    Ok(())
}

//! Objects behind a proxy: of a room whose network leads nowhere but to that.

use crate::object_stores::{IMAGE, image};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::web::WebServer;
use vfield_lab::{ForwardProxy, Lab, TlsServer, client};

/// A start that is refused ends at once.
const ENDS: Duration = Duration::from_secs(20);

#[test]
fn an_object_comes_through_a_proxy_that_wants_a_password() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let (ip, dir) = (lab.host(0).addr().ip(), lab.dir().join("files"));
    let image = image(&dir)?;
    let store = WebServer::start(ip, &dir)?;
    let proxy = ForwardProxy::start(ip, store.addr())?;
    // Only the proxy knows the name.
    let url = PathBuf::from(format!("http://{}/disk.img", TlsServer::NAME));
    let serve = |login: &str| {
        let start = vfield.serve(lab.host(0), &[&url]).env("http_proxy", format!("http://{login}{}", proxy.addr()));
        start.env("no_proxy", "lan.example")
    };
    let mut stranger = serve("").name("stranger").spawn()?;
    assert!(!stranger.process_mut().wait(ENDS)?.success());
    let log = stranger.process().log();
    assert!(log.contains("407") && proxy.requests() == 0, "{log}");

    let origin = serve(&format!("{}@", ForwardProxy::LOGIN)).name("origin").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("all").ready()?;
    client::compare_all(lab.host(1), &node, &image)?;
    assert!(proxy.requests() >= IMAGE.div_ceil(4 * MIB) && proxy.tunnels() == 0);
    Ok(())
}

#[test]
fn tls_goes_through_a_tunnel_to_the_store_itself() -> Outcome {
    if !have(&[Need::Tool("nginx"), Need::Tool("openssl"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let image = image(&lab.dir().join("files"))?;
    let server = TlsServer::start(lab.host(0), &lab.dir().join("files"))?;
    let proxy = ForwardProxy::start(lab.host(0).addr().ip(), server.addr())?;
    let serve = |login: &str| {
        let start = vfield.serve(lab.host(0), &[Path::new(&format!("https://{}/disk.img", TlsServer::NAME))]);
        let start = start.env("HTTPS_PROXY", format!("http://{login}{}", proxy.addr()));
        start.env("SSL_CERT_FILE", server.authority())
    };
    let mut stranger = serve("").name("stranger").spawn()?;
    assert!(!stranger.process_mut().wait(ENDS)?.success());
    let (log, through) =
        (stranger.process().log(), format!("through a proxy: {}: it wants a name and password", proxy.addr()));
    assert!(log.contains(&through) && !log.contains("secret"), "{log}");

    let origin = serve(&format!("{}@", ForwardProxy::LOGIN)).name("origin").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("all").ready()?;
    client::compare_all(lab.host(1), &node, &image)?;
    assert!(proxy.tunnels() >= 1 && proxy.requests() == 0);
    Ok(())
}

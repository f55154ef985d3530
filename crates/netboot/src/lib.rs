//! `vfield netboot`: what machines without a disk start from, before they can join: kernel,
//! initramfs and a script, over HTTP.
//!
//! Runs beside any daemon of the field and speaks to it like every other command, so what it hands
//! out may be images of the field: then every node can do this, and the machine that brought them
//! may be gone. Whom machines ask for all that, they learn from dnsmasq, whose configuration is
//! made here and which runs as a child. Owns neither HTTP ([`http`]) nor the scripts ([`script`]).

pub mod args;
pub mod booted;
mod boots;
mod dnsmasq;
mod file;
mod followed;
mod http;
mod menu;
mod pinned;
mod script;
pub mod values;

use crate::args::NetbootOptions;
use dnsmasq::{Dhcp, Dnsmasq};
use file::File;
use http::Site;
use menu::Menu;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::signal::unix::{SignalKind, signal};
use vfield_console::failure::{Failure, plain};
use vfield_console::log::Console;
use vfield_console::{output, stderr};
use vfield_control::client;
use vfield_control::message::DaemonStatus;
use vfield_machine::network::own_address;
use vfield_node::config::DEFAULT_PORT;

/// Where it listens if nobody says otherwise: beside the nodes' port.
const PORT: u16 = 4480;
/// Programs for machines whose firmware cannot do HTTP itself, from Debian's package `ipxe`.
const IPXE_DIR: &str = "/usr/lib/ipxe";

/// Serves until told to end.
pub fn run(options: &NetbootOptions, console: &Console) -> Result<(), Failure> {
    let control = options.control.control.clone();
    let status = client::status(control.as_deref())?;
    let menu = Menu::new(options, &status)?;
    let listen = listen(options, &status)?;
    let dhcp = Dhcp::new(options, listen)?;
    if options.print {
        return output::put(dhcp.map_or_else(String::new, |dhcp| dhcp.configuration()).as_bytes());
    }
    let site = Site {
        kernel: File::choose(&options.kernel, &status, control.as_deref())?,
        initrd: File::choose(&options.initrd, &status, control.as_deref())?,
        firmware: PathBuf::from(IPXE_DIR),
        menu,
        boots: Mutex::default(),
        control,
        address: listen,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let failed = |error: std::io::Error| Failure::failed(format!("starting threads failed: {}", plain(&error)));
    let runtime = runtime.map_err(failed)?;
    stderr::in_background().map_err(failed)?;
    let served = runtime.block_on(serve(site, dhcp, listen, console));
    runtime.shutdown_background();
    served
}

async fn serve(site: Site, dhcp: Option<Dhcp>, listen: SocketAddr, console: &Console) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(|error| {
        Failure::failed(format!("cannot listen on {listen}: {}", plain(&error)))
            .hint("choose an address of this machine and a free port with --listen ADDR:PORT")
    })?;
    let signals = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals: {}", plain(&error))));
    let (mut terminate, mut interrupt) = (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let mut dnsmasq = dhcp.map(|dhcp| Dnsmasq::start(&dhcp)).transpose()?;
    console.say(&format!("machines start from http://{listen}/boot.ipxe"));
    let dnsmasq_ends = async {
        match &mut dnsmasq {
            Some(dnsmasq) => dnsmasq.ended().await,
            None => std::future::pending().await,
        }
    };
    let site = Arc::new(site);
    let ended = tokio::select! {
        () = http::serve(listener, Arc::clone(&site)) => Ok(()),
        () = tell_sums(&site, console) => Ok(()),
        failure = dnsmasq_ends => Err(failure),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if let Some(dnsmasq) = dnsmasq {
        dnsmasq.stop().await;
    }
    ended
}

/// Prints the sums of kernel and initramfs, to be compared with the files that were built. Then
/// waits for ever: machines need not wait for it.
async fn tell_sums(site: &Site, console: &Console) {
    for (part, file) in [("kernel", &site.kernel), ("initramfs", &site.initrd)] {
        match file.sha256().await {
            Ok(sum) => console.say(&format!("{part} {}: sha256 {sum}", file.label())),
            Err(failure) => console.warn(&format!("{part}: {}", failure.fact())),
        }
    }
    std::future::pending().await
}

/// Where to listen: as told, or at the address under which the daemon is known.
fn listen(options: &NetbootOptions, status: &DaemonStatus) -> Result<SocketAddr, Failure> {
    let ip = |addr: SocketAddr| Some(addr.ip()).filter(|ip: &IpAddr| !ip.is_unspecified());
    let addr = match &options.listen {
        Some(address) => address.resolve(PORT)?[0],
        None => {
            let known = status.node.addr.parse().ok().and_then(ip);
            let known = known.or_else(|| own_address(SocketAddr::from(([0, 0, 0, 0], DEFAULT_PORT))).and_then(ip));
            SocketAddr::new(known.unwrap_or(IpAddr::from([127, 0, 0, 1])), PORT)
        }
    };
    if addr.ip().is_unspecified() || addr.ip().is_loopback() {
        let fact = format!("machines cannot be told to start from {}", addr.ip());
        return Err(Failure::usage(fact).hint("give this machine's address in their network: --listen ADDR"));
    }
    Ok(addr)
}

//! dnsmasq, which tells machines where to start from: its configuration, and its life as our child.
//!
//! Beside a DHCP server that gives addresses it adds what to start from and nothing else (proxy
//! DHCP); in a network without one it gives addresses, too. Machines whose firmware knows neither
//! iPXE nor HTTP load iPXE over its TFTP.

use super::IPXE_DIR;
use crate::args::NetbootOptions;
use crate::values::dhcp::DhcpMode;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};
use vfield_console::failure::{Failure, plain};
use vfield_machine::network::subnet;

/// What it has to be allowed: ports below 1024, and answers to machines that have no address yet.
const RIGHTS: &str = "-all,+net_admin,+net_bind_service,+net_raw";
/// Who may do nothing else, on every system.
const NOBODY: &str = "65534";

/// Firmware that loads over TFTP, by dnsmasq's names, and what it is given. Whoever also gives
/// addresses must not offer these as services: UEFI then asks at a port at which dnsmasq answers
/// only beside another server, and starts from nothing.
const FIRMWARE: [(&str, &str); 3] = [("x86PC", "undionly.kpxe"), ("X86-64_EFI", "ipxe.efi"), ("BC_EFI", "ipxe.efi")];

/// What dnsmasq is to do.
#[derive(Debug)]
pub struct Dhcp {
    own: Ipv4Addr,
    site: SocketAddr,
    mode: DhcpMode,
    tftp: bool,
}

impl Dhcp {
    /// What `options` say, for a site at `site`; `None` if there is to be no dnsmasq.
    pub fn new(options: &NetbootOptions, site: SocketAddr) -> Result<Option<Self>, Failure> {
        if options.dhcp == DhcpMode::None {
            return Ok(None);
        }
        let IpAddr::V4(own) = site.ip() else {
            let fact = format!("machines cannot be told of {} by DHCP, which is IPv4", site.ip());
            return Err(Failure::usage(fact).hint("listen on an IPv4 address, or tell them yourself with --dhcp none"));
        };
        if let DhcpMode::Range { first, last } = options.dhcp {
            // Without an interface there is no network to compare with; to listen there fails by
            // itself.
            let prefix = subnet::prefix_of(own.into()).ok().flatten();
            prefix.map_or(Ok(()), |prefix| check_range((first, last), own, prefix))?;
        }
        let tftp = Path::new(IPXE_DIR).join("undionly.kpxe").exists();
        Ok(Some(Self { own, site, mode: options.dhcp.clone(), tftp }))
    }

    /// The configuration file.
    pub fn configuration(&self) -> String {
        let Self { own, site, .. } = self;
        let script = format!("http://{site}/boot.ipxe");
        let (range, beside) = match &self.mode {
            DhcpMode::Range { first, last } => (format!("dhcp-range={first},{last},12h\n"), false),
            DhcpMode::Proxy | DhcpMode::None => (format!("dhcp-range={own},proxy\n"), true),
        };
        let mut text = format!(
            "# Made by vfield netboot: no names, only what machines start from.\n\
             port=0\nlisten-address={own}\nbind-dynamic\n{range}\
             # iPXE says that it is one, firmware that starts over HTTP says that.\n\
             dhcp-match=set:ipxe,175\ndhcp-vendorclass=set:http,HTTPClient\n\
             dhcp-boot=tag:ipxe,{script}\n\
             dhcp-option-force=tag:http,60,HTTPClient\n\
             dhcp-boot=tag:http,http://{site}/ipxe.efi\n"
        );
        if self.tftp {
            text += &format!(
                "enable-tftp\ntftp-root={IPXE_DIR}\n\
                 dhcp-match=set:efi,option:client-arch,7\ndhcp-match=set:efi,option:client-arch,9\n\
                 dhcp-boot=tag:!ipxe,tag:!http,tag:!efi,undionly.kpxe,,{own}\n\
                 dhcp-boot=tag:!ipxe,tag:!http,tag:efi,ipxe.efi,,{own}\n"
            );
        }
        if beside {
            text += "# Beside another server only these are answered.\ndhcp-pxe-vendor=PXEClient,HTTPClient\n";
            for (firmware, program) in FIRMWARE {
                text += &format!("pxe-service=tag:ipxe,{firmware},\"V-FIELD\",{script}\n");
                if self.tftp {
                    text += &format!("pxe-service=tag:!ipxe,{firmware},\"V-FIELD\",{program},{own}\n");
                }
            }
        }
        text
    }
}

/// Refuses addresses to give that are not in the network of `own`: dnsmasq would start, and answer
/// nobody.
fn check_range((first, last): (Ipv4Addr, Ipv4Addr), own: Ipv4Addr, prefix: u32) -> Result<(), Failure> {
    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
    let network = u32::from(own) & mask;
    // The network's own address and that of all its machines are nobody's, but in a network of two.
    let ends = if prefix < 31 { (network + 1, (network | !mask) - 1) } else { (network, network | !mask) };
    let Some(outside) = [first, last].into_iter().find(|addr| !(ends.0..=ends.1).contains(&u32::from(*addr))) else {
        return Ok(());
    };
    let network = format!("{}/{prefix}", Ipv4Addr::from(network));
    let fact = format!("--dhcp: {outside} is no address to give in {network}, the network of {own}");
    let hint = format!("give addresses from {} to {}", Ipv4Addr::from(ends.0), Ipv4Addr::from(ends.1));
    Err(Failure::usage(fact).hint(hint))
}

/// A running dnsmasq; killed if this is dropped, and by the kernel if this process dies in another
/// way.
#[derive(Debug)]
pub struct Dnsmasq(Child);

impl Dnsmasq {
    /// Starts it. Has to be called within a tokio runtime.
    pub fn start(dhcp: &Dhcp) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::failed("dnsmasq is not installed")
                .hint("install it (Debian: dnsmasq-base), or tell machines yourself with --dhcp none"),
            _ => Failure::failed(format!("starting dnsmasq: {}", plain(&error))),
        };
        // Found out here: below it would be told by a status alone.
        std::process::Command::new("dnsmasq").arg("--version").output().map_err(failed)?;
        let mut command = Command::new("setpriv");
        // It begins as the user that it would become: a process that changes its user outlives the
        // one that started it.
        command.args(["--pdeathsig", "KILL", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"]);
        command.args(["--inh-caps", RIGHTS, "--ambient-caps", RIGHTS, "--bounding-set", RIGHTS, "dnsmasq"]);
        // Addresses that it gave are remembered by nobody: machines ask again.
        command.args(["--keep-in-foreground", "--conf-file=-", "--leasefile-ro", "--log-facility=-"]);
        let spawned = command.stdin(Stdio::piped()).kill_on_drop(true).spawn();
        let mut child = spawned.map_err(|error| Failure::failed(format!("starting setpriv: {}", plain(&error))))?;
        let input = child.stdin.take().and_then(|input| input.into_owned_fd().ok());
        let mut input = std::fs::File::from(input.ok_or_else(|| Failure::failed("dnsmasq has no input"))?);
        // Shorter than a pipe holds.
        input.write_all(dhcp.configuration().as_bytes()).map_err(failed)?;
        Ok(Self(child))
    }

    /// Returns if it ends by itself, with the reason.
    pub async fn ended(&mut self) -> Failure {
        let how = self.0.wait().await.map_or_else(|error| plain(&error), |status| status.to_string());
        Failure::failed(format!("dnsmasq ended: {how}"))
            .hint("its words are above; another DHCP server on this machine has its port")
    }

    /// Ends the process.
    pub async fn stop(mut self) {
        if let Err(error) = self.0.kill().await {
            tracing::warn!(%error, "ending dnsmasq");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(mode: &str, tftp: bool) -> String {
        let own = Ipv4Addr::new(192, 168, 1, 1);
        let site = SocketAddr::from((own, 4480));
        Dhcp { own, site, mode: mode.parse().unwrap(), tftp }.configuration()
    }

    #[test]
    fn who_gives_addresses_offers_no_services() {
        let text = configuration("192.168.1.100-192.168.1.200", true);
        assert!(text.contains("dhcp-range=192.168.1.100,192.168.1.200,12h\n"));
        assert!(text.contains("dhcp-boot=tag:!ipxe,tag:!http,tag:efi,ipxe.efi,,192.168.1.1\n"));
        assert!(!text.contains("pxe-service"), "{text}");
    }

    #[test]
    fn addresses_to_give_are_of_the_network() {
        let own = Ipv4Addr::new(192, 168, 1, 1);
        let check = |first: [u8; 4], last: [u8; 4], prefix| check_range((first.into(), last.into()), own, prefix);
        check([192, 168, 1, 100], [192, 168, 1, 200], 24).unwrap();
        check([192, 168, 0, 1], [192, 168, 255, 254], 16).unwrap();
        check([0, 0, 0, 1], [255, 255, 255, 254], 0).unwrap();
        check([192, 168, 1, 0], [192, 168, 1, 1], 31).unwrap();
        let failure = check([192, 168, 1, 100], [192, 168, 2, 1], 24).unwrap_err();
        assert_eq!(
            failure.fact(),
            "--dhcp: 192.168.2.1 is no address to give in 192.168.1.0/24, the network of 192.168.1.1"
        );
        assert_eq!(failure.hint_text(), Some("give addresses from 192.168.1.1 to 192.168.1.254"));
        for (first, last) in [([10, 0, 0, 5], [10, 0, 0, 9]), ([192, 168, 1, 0], [192, 168, 1, 9])] {
            check(first, last, 24).unwrap_err();
        }
        check([192, 168, 1, 9], [192, 168, 1, 255], 24).unwrap_err();
    }

    #[test]
    fn beside_another_server_all_firmware_is_answered() {
        let text = configuration("proxy", false);
        assert!(
            text.contains("dhcp-range=192.168.1.1,proxy\n") && text.contains("dhcp-pxe-vendor=PXEClient,HTTPClient\n")
        );
        assert!(text.contains("pxe-service=tag:ipxe,X86-64_EFI,\"V-FIELD\",http://192.168.1.1:4480/boot.ipxe\n"));
        assert!(text.contains("dhcp-boot=tag:http,http://192.168.1.1:4480/ipxe.efi\n") && !text.contains("tftp"));
        let text = configuration("proxy", true);
        assert!(text.contains("pxe-service=tag:!ipxe,x86PC,\"V-FIELD\",undionly.kpxe,192.168.1.1\n"), "{text}");
    }
}

//! A room with an attacker on its wire, a member with the field's key.
//!
//! Machines bring their kernel, initramfs and command line along. They boot the image that was
//! signed for them, or nothing.

use crate::NEEDS;
use crate::room::{COMMAND, CONSOLE, IP, Room, UP};
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::diskless::{Credential, Diskless, Parts};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, LabError, wait_until};

const IMAGE: &str = "root.squashfs";
/// The name of the credential that the initramfs looks for.
const KEY: &str = "vfield.key";
/// A large image is hashed, on a machine that may be busy.
const READY: Duration = Duration::from_secs(200);

/// An image that somebody has signed and serves.
struct Vendor {
    public: PathBuf,
    daemon: Daemon,
}

impl Vendor {
    /// Signs `image` with a key of its own, and serves it as the room's root.
    fn new(room: &Room, host: usize, image: &Path, field_key: &Path) -> Result<Self, LabError> {
        let dir = room.lab.host(host).dir();
        let [public, secret, link] = ["key.pub", "key.sec", IMAGE].map(|name| dir.join(name));
        run(Command::new("minisign").arg("-GWf").arg("-p").arg(&public).arg("-s").arg(&secret))?;
        symlink(image, &link).map_err(LabError::at(&link))?;
        run(Command::new(room.vfield.path()).arg("sign").arg(&link).arg("--secret-key").arg(&secret))?;
        let serve = room.vfield.serve(room.lab.host(host), &[&link]).name("vendor");
        let mut daemon = serve.args(&[Path::new("--field-key"), field_key]).spawn()?;
        daemon.wait_ready(READY)?;
        Ok(Self { public, daemon })
    }

    /// The image for a command line.
    fn pinned(&self) -> Result<String, LabError> {
        Ok(format!("{IMAGE}={}", self.daemon.image()?["id"].as_str().unwrap_or_default()))
    }

    /// The public key itself.
    fn key(&self) -> Result<String, Failed> {
        let text = std::fs::read_to_string(&self.public)?;
        Ok(text.lines().last().unwrap_or_default().to_owned())
    }
}

/// An initramfs with a trusted key of its own: what the kernel unpacks first is put before it.
fn initrd_that_trusts(room: &Room, public: &Path) -> Result<PathBuf, LabError> {
    let (tree, initrd) = (room.lab.dir().join("tree"), room.lab.dir().join("initrd"));
    let script = "mkdir -p \"$1/etc/vfield/trust\" && cp \"$2\" \"$1/etc/vfield/trust/site.pub\" && cd \"$1\" &&
        find etc | cpio --quiet -o -H newc >\"$4\" && cat \"$3\" >>\"$4\"";
    let mut sh = Command::new("sh");
    sh.args(["-ec", script, "sh"]).arg(tree).arg(public).arg(room.images.path("initrd")).arg(&initrd);
    run(&mut sh)?;
    Ok(initrd)
}

#[test]
fn an_attacker_on_the_wire_gives_no_machine_another_root() -> Outcome {
    if !have(&NEEDS) || !have(&[Need::Tool("minisign"), Need::Tool("cpio")]) {
        return Ok(());
    }
    let room = Room::without_origin(3)?;
    let field_key = room.lab.dir().join("field.key");
    run(Command::new(room.vfield.path()).args(["key", "new"]).arg(&field_key))?;
    let other = random_file(&room.lab.dir().join("other"), 8 * MIB, 1)?;
    let site = Vendor::new(&room, 0, &room.images.path(IMAGE), &field_key)?;
    let attacker = Vendor::new(&room, 1, &other, &field_key)?;

    let initrd = initrd_that_trusts(&room, &site.public)?;
    let secret = std::fs::read_to_string(&field_key)?.trim().to_owned();
    // It joins through the attacker, and its command line says to trust him.
    let [to_site, to_attacker] = [&site, &attacker].map(|vendor| vendor.daemon.addr());
    let words = |image: &str| -> Result<String, Failed> {
        let root = format!("root=vfield:{image}@{to_attacker},{to_site}");
        Ok(format!("{CONSOLE} {IP} {root} vfield.trust={} vfield.key=credential vfield.store=64M", attacker.key()?))
    };
    let parts = |image: &str, credential| -> Result<Parts, Failed> {
        Ok(Parts { command_line: Some(words(image)?), initrd: Some(initrd.clone()), credential, ..Parts::default() })
    };
    let refuses = |name: &str, parts: &Parts, why: &str, times: usize| -> Outcome {
        let machine = Diskless::start(&room.images, room.lab.host(2), name, parts)?;
        wait_until(why, UP, || room.console(name).matches(why).count() >= times)?;
        machine.kill();
        Ok(())
    };

    refuses("keyless", &parts(&site.pinned()?, None)?, "this machine has no credential vfield.key", 1)?;
    // It looks again and again: the signed image may come back.
    let credential = Credential::FwCfg(KEY, secret.clone());
    refuses("misled", &parts(&attacker.pinned()?, Some(credential))?, "is not signed with a trusted key", 3)?;

    let credential = Credential::Smbios(KEY, secret);
    let mut machine = room.boot(2, "attacked", &parts(&site.pinned()?, Some(credential))?)?;
    assert!(room.console("attacked").contains("vfield.trust= is ignored"), "whose key counts");
    let status: Value = serde_json::from_str(&machine.run("vfield status --json", COMMAND)?)?;
    let image = &status["images"][0];
    assert_eq!(format!("{IMAGE}={}", image["id"].as_str().unwrap_or_default()), site.pinned()?, "{status:#}");
    assert_eq!(image["signed"]["key"].as_str(), Some(site.key()?.as_str()), "{status:#}");
    assert_eq!(status["field"]["keys"].as_array().map(Vec::len), Some(1), "{status:#}");
    let nodes = status["nodes"].as_array().map(Vec::len);
    assert_eq!(nodes, Some(3), "the attacker is a member: {status:#}");
    // What carries a root is in the sandbox as others are.
    let sandbox = status["sandbox"].to_string();
    for part in ["capabilities: ", "files: ", "system calls: "] {
        assert!(sandbox.contains(part) && !sandbox.contains("not "), "{part} is not in {sandbox}");
    }
    let device = machine.run(&format!("vfield status --device {IMAGE}"), COMMAND)?;
    machine.run(&format!("grep -q '^{device} /run/initramfs/vfield/layers/image squashfs' /proc/mounts"), COMMAND)?;
    Ok(())
}

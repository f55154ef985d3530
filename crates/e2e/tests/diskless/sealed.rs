//! A machine whose TPM2 decrypts the field's key, as one of metal has it beside its kernel.

use crate::NEEDS;
use crate::room::{COMMAND, CONSOLE, IP, Room, UP};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_lab::diskless::{Credential, Diskless, Parts};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{LabError, wait_until};

const IMAGE: &str = "root.squashfs";
const KEY: &str = "vfield.key";
/// A large image is hashed, on a machine that may be busy.
const READY: Duration = Duration::from_secs(200);

/// An initramfs with an encrypted credential, where systemd's stub puts those that it finds beside
/// the kernel's file.
fn initrd_with(room: &Room, encrypted: &str) -> Result<PathBuf, LabError> {
    let (tree, initrd) = (room.lab.dir().join("tree"), room.lab.dir().join("initrd"));
    let script = "mkdir -p \"$1/.extra/credentials\" && cd \"$1\" &&
        printf '%s\\n' \"$2\" >.extra/credentials/vfield.key.cred &&
        find .extra | cpio --quiet -o -H newc >\"$4\" && cat \"$3\" >>\"$4\"";
    let mut sh = Command::new("sh");
    sh.args(["-ec", script, "sh"]).arg(tree).arg(encrypted).arg(room.images.path("initrd")).arg(&initrd);
    run(&mut sh)?;
    Ok(initrd)
}

#[test]
fn a_key_that_is_sealed_for_a_machine_boots_no_other() -> Outcome {
    if !have(&NEEDS) || !have(&[Need::Tool("swtpm"), Need::Tool("cpio")]) {
        return Ok(());
    }
    let room = Room::without_origin(2)?;
    let field_key = room.lab.dir().join("field.key");
    run(Command::new(room.vfield.path()).args(["key", "new"]).arg(&field_key))?;
    let image = room.images.path(IMAGE);
    let serve = room.vfield.serve(room.lab.host(0), &[&image]);
    let mut origin = serve.args(&[Path::new("--field-key"), &field_key]).spawn()?;
    origin.wait_ready(READY)?;
    let words = format!("{CONSOLE} {IP} root=vfield:{IMAGE}@{} vfield.key=credential vfield.store=64M", origin.addr());
    let tpm = |name: &str| Some(room.lab.dir().join(name));
    let parts = Parts { command_line: Some(words), tpm: tpm("own"), ..Parts::default() };

    // The operator has a machine seal the key for itself.
    let secret = std::fs::read_to_string(&field_key)?.trim().to_owned();
    let known = Parts { credential: Some(Credential::Smbios(KEY, secret)), ..parts.clone() };
    let mut machine = room.boot(1, "sealing", &known)?;
    let seal =
        "systemd-creds encrypt --with-key=tpm2 --name=vfield.key /run/initramfs/vfield/keys/field.key - 2>/dev/null";
    let encrypted = machine.run(seal, COMMAND)?;
    machine.power_off(UP)?;
    let parts = Parts { initrd: Some(initrd_with(&room, &encrypted)?), ..parts };

    let mut machine = room.boot(1, "sealed", &parts)?;
    let status: Value = serde_json::from_str(&machine.run("vfield status --json", COMMAND)?)?;
    assert_eq!(status["field"]["keys"].as_array().map(Vec::len), Some(1), "{status:#}");
    machine.power_off(UP)?;

    let stolen = Parts { tpm: tpm("another"), ..parts };
    let machine = Diskless::start(&room.images, room.lab.host(1), "stolen", &stolen)?;
    let said = "the credential vfield.key cannot be decrypted on this machine";
    wait_until(said, UP, || room.console("stolen").contains(said))?;
    machine.kill();
    Ok(())
}

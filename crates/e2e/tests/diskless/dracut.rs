//! A machine that dracut's initramfs boots, from being switched on to being off; and, in it, a
//! service that systemd restarts.

use crate::NEEDS;
use crate::room::{COMMAND, Room, UP, USR_SUM};
use serde_json::Value;
use vfield_e2e::Outcome;
use vfield_lab::LabError;
use vfield_lab::diskless::{Diskless, Parts};
use vfield_lab::need::have;

/// The ids of guard and daemon, by what the shutdown knows them by. Other processes go while they
/// are looked at.
const SPARED: &str = "for process in /proc/[0-9]*; do
        [ \"$(tr '\\0' '\\n' <$process/cmdline | head -n 1)\" = @vfield ] && echo ${process#/proc/}
    done 2>/dev/null; true";
/// A second node of the field in the same machine: the unit that is shipped, with sockets of its
/// own, since the root's daemon has the usual ones; in an open field.
const SERVICE: &str = "cat >/etc/vfield.toml <<'END'
join = '198.18.0.1'
image = 'vmlinuz'
store = 'all'
listen = '0.0.0.0:4450'
END
mkdir -p /etc/systemd/system/vfield-join.service.d
cat >/etc/systemd/system/vfield-join.service.d/own.conf <<'END'
[Service]
LoadCredential=
RuntimeDirectory=
RuntimeDirectory=service
ExecStart=
ExecStart=vfield join --control /run/service/control.sock
END
systemctl daemon-reload
systemctl start vfield-join.service || { systemctl status vfield-join.service; journalctl --no-pager --unit vfield-join.service; false; }";
const FILLED: &str = "vfield status --control /run/service/control.sock --wait filled --timeout 200s";
const STATUS: &str = "vfield status --control /run/service/control.sock --json";
const MAIN_PID: &str = "systemctl show --property MainPID --value vfield-join.service";

#[test]
fn a_machine_boots_with_dracut() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let mut room = Room::new(2, "root.ext4")?;
    room.netboot_from_origin("root.ext4", "initrd.dracut", "vfield.store=64M vfield.overlay_size=256M")?;
    let usr = room.checksum_of_usr()?;
    let mut machine = room.boot(1, "dracut", &Parts::default())?;
    assert!(room.console("dracut").contains("dracut"), "whose initramfs it is");
    assert_eq!(machine.run(USR_SUM, COMMAND)?, usr, "the machine's files");

    // Its lease is renewed by nobody, its root's daemon has outlived the initramfs.
    machine.run("ip -o addr show scope global | grep -q inet", COMMAND)?;
    machine.run("! ip -o addr show scope global dynamic | grep .", COMMAND)?;
    let spared = machine.run(SPARED, COMMAND)?;
    assert_eq!(spared.lines().count(), 2, "guard and daemon: {spared}");

    machine.run("echo changed >/usr/changed && sync && echo 3 >/proc/sys/vm/drop_caches", COMMAND)?;
    machine.run("grep -q changed /usr/changed && vfield overlay status", COMMAND)?;

    a_service_keeps_its_store(&mut machine)?;

    assert_eq!(machine.run(SPARED, COMMAND)?, spared, "guard and daemon have not been replaced");
    machine.power_off(UP)?;
    let console = room.console("dracut");
    for bad in ["I/O error", "EXT4-fs error", "EXT4-fs warning", "Freezing execution", "emergency"] {
        assert!(!console.contains(bad), "{bad} on the console");
    }
    assert!(console.contains("reboot: Power down"), "the machine went off by itself");
    Ok(())
}

/// What systemd keeps for a service over a restart is what it had: nothing is fetched again.
fn a_service_keeps_its_store(machine: &mut Diskless) -> Outcome {
    machine.run(SERVICE, COMMAND)?;
    machine.run(FILLED, COMMAND)?;
    let first = machine.run(MAIN_PID, COMMAND)?;
    let status = status(machine)?;
    assert!(received(&status) > 0 && taken_over(&status) == 0, "it has fetched its store: {status:#}");

    machine.run("systemctl restart vfield-join.service", COMMAND)?;
    machine.run(FILLED, COMMAND)?;
    assert_ne!(machine.run(MAIN_PID, COMMAND)?, first, "another process");
    let status = self::status(machine)?;
    assert!(taken_over(&status) > 0, "it has its store back: {status:#}");
    assert_eq!(received(&status), 0, "nothing of it came over the network again: {status:#}");
    machine.run("systemctl stop vfield-join.service", COMMAND)?;
    Ok(())
}

fn status(machine: &mut Diskless) -> Result<Value, LabError> {
    let text = machine.run(STATUS, COMMAND)?;
    serde_json::from_str(&text)
        .map_err(|error| LabError::Command { command: STATUS.to_owned(), why: error.to_string() })
}

fn received(status: &Value) -> u64 {
    let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
    bytes("from_peers_bytes") + bytes("from_origin_bytes")
}

fn taken_over(status: &Value) -> u64 {
    status["images"][0]["taken_over_bytes"].as_u64().unwrap_or_default()
}

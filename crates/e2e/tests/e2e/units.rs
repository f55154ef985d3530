//! The units that are shipped: what `integration/install` puts into a root, read by the service
//! manager's own checks.

use std::path::Path;
use std::process::Command;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::Lab;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;

/// The units, and the exposure that each has at most: tenths, of 100 at worst, after rounding.
const UNITS: [(&str, u32); 3] =
    [("vfield-join.service", 16), ("vfield-serve.service", 16), ("vfield-mount.service", 58)];

#[test]
fn this_machines_service_manager_knows_every_word_of_the_units() -> Outcome {
    if !have(&[Need::Tool("systemd-analyze")]) {
        return Ok(());
    }
    let lab = Lab::loopback(1)?;
    let root = lab.dir().join("root");
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration/install");
    run(Command::new("sh").arg(install).arg(vfield().path()).arg(&root))?;
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd");
    let parts = ["vfield-.service.d/10-vfield.conf", "vfield-mount.service.d/20-mount.conf"];
    for unit in UNITS.iter().map(|(unit, _)| *unit).chain(parts) {
        let installed = std::fs::read_to_string(root.join("usr/lib/systemd/system").join(unit))?;
        assert_eq!(installed, std::fs::read_to_string(units.join(unit))?, "{unit}");
    }
    let analyze = |words: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.arg("--root").arg(&root).arg("--man=no").args(words).output()
    };
    for (unit, exposure) in UNITS {
        // It fails, because nothing else is in that root.
        let said = analyze(&["verify", unit])?;
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        let complaints: Vec<&str> = said.lines().filter(|line| line.contains("/vfield-")).collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
        let threshold = format!("--threshold={exposure}");
        let said = analyze(&["security", "--offline=true", &threshold, unit])?;
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    }
    Ok(())
}

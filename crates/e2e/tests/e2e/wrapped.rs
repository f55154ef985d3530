//! Files that have a disk in them, and are none: as hypervisors and compressors write them.

use std::path::{Path, PathBuf};
use std::process::Command;
use vfield_e2e::Outcome;
use vfield_e2e::field::NEWS;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError};

const COMPRESS: &str = "
import bz2, gzip, lzma, sys
disk = open(sys.argv[1], 'rb').read()
for end, compressor in ('gz', gzip), ('xz', lzma), ('bz2', bz2):
    compressor.open(f'{sys.argv[1]}.{end}', 'wb').write(disk)
";

/// The file in all those forms.
fn wrapped(disk: &Path) -> Result<Vec<(PathBuf, &'static str)>, LabError> {
    let behind = |end: &str| PathBuf::from(format!("{}.{end}", disk.display()));
    let mut files = Vec::new();
    for format in ["qcow2", "qed", "vmdk", "vhdx", "vpc", "vdi"] {
        run(Command::new("qemu-img").args(["convert", "-O", format]).args([disk, &behind(format)]))?;
        files.push((behind(format), "not the disk in it; `qemu-img convert -O raw"));
    }
    run(Command::new("/usr/bin/python3").args(["-c", COMPRESS]).arg(disk))?;
    run(Command::new("zstd").args(["--quiet", "-o"]).args([&behind("zst"), disk]))?;
    for (end, program) in [("gz", "`gzip -dk"), ("xz", "`xz -dk"), ("bz2", "`bzip2 -dk"), ("zst", "`zstd -dk")] {
        files.push((behind(end), program));
    }
    run(Command::new("tar").arg("-cf").args([&behind("tar"), disk]))?;
    files.push((behind("tar"), "`vfield pack FILE"));
    Ok(files)
}

/// What `vfield add` says about a file besides.
fn remark(origin: &Daemon, file: &Path) -> std::io::Result<String> {
    let added = origin.ask_to(&["add"]).arg(file).output()?;
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    Ok(String::from_utf8_lossy(&added.stderr).into_owned())
}

#[test]
fn a_file_with_a_disk_in_it_is_served_and_a_remark_says_so() -> Outcome {
    if !have(&[Need::Tool("qemu-img"), Need::Tool("zstd")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let disk = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let wrapped = wrapped(&disk)?;
    let (first, rest) = wrapped.split_first().expect("there are some");
    let mut origin = vfield.serve(lab.host(0), &[&first.0]).name("origin").ready()?;
    origin.says("disk.img.qcow2 is in the format QCOW2: readers get this file", NEWS)?;
    for (file, says) in rest {
        let said = remark(&origin, file)?;
        assert!(said.contains(says), "{}: {said:?}", file.display());
    }
    assert_eq!(remark(&origin, &disk)?, "");
    Ok(())
}

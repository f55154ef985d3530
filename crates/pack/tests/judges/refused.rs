//! Sources that cannot be packed: one clear line, and nothing is left behind.

use super::support::{Desk, can_run, check, noise, run, shell};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::path::Path;
use vfield_core::chunk::ChunkSize;
use vfield_pack::contents::{Archive, Sources};
use vfield_pack::listing::Listing;
use vfield_pack::{directory, pack, tar};

/// The line that refuses a source, without the directory.
fn line(desk: &Desk, source: &Path, like: Option<&str>) -> String {
    let error = desk.try_pack(source, "out", like).expect_err("it is refused");
    assert!(!desk.path("out").exists(), "nothing is left behind");
    error.to_string().replace(&desk.path("").display().to_string(), "")
}

#[test]
fn what_is_no_earlier_image_is_refused() {
    let desk = Desk::new();
    let source = desk.directory("source");
    fs::write(source.join("file"), noise(1, 100_000)).unwrap();
    desk.try_pack(&source, "image", None).unwrap();
    fs::write(desk.path("text"), "text").unwrap();
    fs::write(desk.path("noise"), noise(1, 100_000)).unwrap();
    let mut damaged = desk.bytes("image");
    damaged[1024 + 50] ^= 1;
    fs::write(desk.path("damaged"), &damaged).unwrap();
    fs::write(desk.path("cut"), &desk.bytes("image")[..65536]).unwrap();
    for (like, expected) in [
        ("missing", "--like: missing: no such file or directory"),
        ("source", "--like: source: not a regular file"),
        ("text", "--like: text: no EROFS image"),
        ("noise", "--like: noise: no EROFS image"),
        ("damaged", "--like: damaged: damaged: the checksum of its superblock is wrong"),
        ("cut", "--like: cut: damaged: its length is not the one that it says"),
    ] {
        assert_eq!(line(&desk, &source, Some(like)), expected);
    }
    let chunks = ChunkSize::new(128 << 10).unwrap();
    let error = pack(&source, &desk.path("out"), Some(&desk.path("image")), chunks, &|_| ()).unwrap_err().to_string();
    assert!(error.ends_with("it has chunks of 64 KiB, and the new image has chunks of 128 KiB"), "{error}");
}

#[test]
fn images_of_other_programs_are_refused() {
    if !can_run(&["mkfs.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    run("mkfs.erofs", [desk.path("theirs"), source.clone()]);
    assert!(line(&desk, &source, Some("theirs")).starts_with("--like: theirs: an EROFS image of another program"));
}

#[test]
fn damaged_metadata_is_refused_or_harmless() {
    let desk = Desk::new();
    let source = desk.directory("source");
    for number in 0..40 {
        fs::write(source.join(format!("file {number}")), noise(number, 3000 * number as usize)).unwrap();
    }
    desk.try_pack(&source, "image", None).unwrap();
    let image = desk.bytes("image");
    for at in (1152..9000).step_by(53) {
        let mut damaged = image.clone();
        damaged[at] ^= 0x55;
        vfield_pack::erofs::Superblock {
            uuid: [0; 16],
            ..vfield_pack::erofs::Superblock::open(&image[..4096]).unwrap()
        }
        .seal(&mut damaged[..4096]);
        fs::write(desk.path("damaged"), &damaged).unwrap();
        // Refused, or packed: the image is whole in any case.
        if desk.try_pack(&source, "out", Some("damaged")).is_ok() && can_run(&["fsck.erofs"]) {
            check(&desk.path("out"));
        }
    }
}

#[test]
fn what_is_no_source_is_refused() {
    let desk = Desk::new();
    fs::write(desk.path("noise"), noise(1, 100_000)).unwrap();
    fs::write(desk.path("empty"), "").unwrap();
    fs::write(desk.path("zstd"), b"\x28\xb5\x2f\xfd and more").unwrap();
    fs::write(desk.path("gzip"), b"\x1f\x8b and more").unwrap();
    for (source, expected) in [
        ("missing", "missing: no such file or directory"),
        ("noise", "noise: no tar that can be read: a header without a checksum, at byte 512"),
        ("empty", "empty: no tar that can be read: it ends within a header, at byte 0"),
        ("zstd", "zstd: zstd that cannot be unpacked: unknown frame descriptor"),
        ("gzip", "gzip: gzip that cannot be unpacked: corrupt gzip stream does not have a matching checksum"),
    ] {
        let said = line(&desk, &desk.path(source), None);
        let start = expected.split(": ").take(2).collect::<Vec<_>>().join(": ");
        assert!(said.starts_with(&start), "{said}");
    }
    let source = desk.directory("source");
    let inside = pack(&source, &source.join("image"), None, ChunkSize::DEFAULT, &|_| ()).unwrap_err().to_string();
    assert!(inside.ends_with("it lies inside the source, and would be a part of the image"), "{inside}");
    desk.directory("out");
    let error = desk.try_pack(&source, "out", None).unwrap_err().to_string();
    assert!(error.ends_with("is a directory"), "{error}");
}

/// Nobody writes to these pipes: who waited for that would wait for good.
#[test]
fn a_named_pipe_is_not_waited_for() {
    let desk = Desk::new();
    let source = desk.directory("source");
    fs::write(source.join("file"), "text").unwrap();
    let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    pipe(&desk.path("pipe"));
    assert_eq!(line(&desk, &desk.path("pipe"), None), "pipe: neither a directory nor a regular file");
    assert_eq!(line(&desk, &source, Some("pipe")), "--like: pipe: not a regular file");
    // In the place of a blob of a layout; the same opens an index, a manifest and a layer.
    let digest = "0".repeat(64);
    fs::create_dir_all(desk.path("oci/blobs/sha256")).unwrap();
    fs::write(desk.path("oci/oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
    pipe(&desk.path("oci/blobs/sha256").join(&digest));
    for named in ["manifests", "layers"] {
        let index = format!("{{\"{named}\":[{{\"digest\":\"sha256:{digest}\"}}]}}");
        fs::write(desk.path("oci/index.json"), index).unwrap();
        let said = line(&desk, &desk.path("oci"), None);
        assert!(said.ends_with("0000: neither a directory nor a regular file"), "{said}");
    }
}

#[test]
fn a_source_that_changes_is_refused() {
    let desk = Desk::new();
    let source = desk.directory("source");
    for name in ["appended", "replaced", "removed", "written", "stays"] {
        fs::write(source.join(name), noise(1, 10_000)).unwrap();
    }
    let (tree, directory, _) = directory::read(&source, 65536).unwrap();
    let sources = Sources::Directory(directory);
    let listing = Listing::new(&tree);
    shell(
        &source,
        "echo >>appended; rm removed; ln -sf stays replaced; \
         dd if=/dev/zero of=written bs=1 count=1 conv=notrunc status=none",
    );
    for place in 1..listing.listed().len() {
        let name = String::from_utf8(listing.path(place)).unwrap();
        let said = sources.hash(&listing, place).map_err(|error| error.to_string());
        match said {
            Ok(_) => assert_eq!(name, "stays"),
            Err(said) => assert!(said.ends_with(&format!("{name}: it changed while it was packed")), "{said}"),
        }
    }
    let said = sources.finish().unwrap_err().to_string();
    assert!(said.ends_with("source/: it changed while it was packed"), "{said}");
}

#[test]
fn a_tar_that_changes_is_refused() {
    let desk = Desk::new();
    let source = desk.directory("source");
    fs::write(source.join("file"), noise(1, 10_000)).unwrap();
    shell(&source, "tar cf ../tar file");
    let path = desk.path("tar");
    let archive = Archive::new(path.clone(), fs::File::open(&path).unwrap()).unwrap();
    let (tree, _) = tar::read(std::slice::from_ref(&archive)).unwrap();
    let (listing, sources) = (Listing::new(&tree), Sources::Archives(vec![archive]));
    sources.finish().unwrap();
    shell(&source, "echo >>../tar");
    let said = sources.finish().unwrap_err().to_string();
    assert!(said.ends_with("tar: it changed while it was packed"), "{said}");
    // A part of it is gone.
    shell(&source, "truncate -s 4096 ../tar");
    let file = (1..listing.listed().len()).next_back().unwrap();
    let said = sources.hash(&listing, file).unwrap_err().to_string();
    assert!(said.ends_with("tar: it changed while it was packed"), "{said}");
}

#[test]
fn a_full_disk_keeps_nothing_of_the_image() {
    if !can_run(&["mount", "tar", "gzip"]) {
        return;
    }
    let desk = Desk::new();
    let (source, full) = (desk.directory("source"), desk.directory("full"));
    fs::write(source.join("file"), noise(1, 4 << 20)).unwrap();
    shell(&source, "tar -czf ../source.tar.gz .");
    let options = Some(c"size=1m");
    rustix::mount::mount("none", &full, "tmpfs", MountFlags::empty(), options).unwrap();
    fs::write(full.join("image"), "the last version").unwrap();
    // An archive is unpacked beside the image, into a file without a name.
    let results = [source, desk.path("source.tar.gz")].map(|source| {
        let error = pack(&source, &full.join("image"), None, ChunkSize::DEFAULT, &|_| ()).unwrap_err().to_string();
        let left: Vec<_> = fs::read_dir(&full).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        (error, left, fs::read_to_string(full.join("image")).unwrap())
    });
    rustix::mount::unmount(&full, UnmountFlags::DETACH).unwrap();
    for (error, left, before) in results {
        assert!(error.ends_with("no space left on device"), "{error}");
        assert_eq!(left, ["image"]);
        assert_eq!(before, "the last version");
    }
}

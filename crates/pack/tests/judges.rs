//! Images before their judges: `fsck.erofs`, the kernel, `mkfs.erofs`, GNU tar.
//!
//! Each test packs a source, lets `fsck.erofs` check the image, mounts it, and compares every file
//! with the source.

#[path = "judges/layers.rs"]
mod layers;
#[path = "judges/like.rs"]
mod like;
#[path = "judges/random.rs"]
mod random;
#[path = "judges/refused.rs"]
mod refused;
#[path = "judges/support.rs"]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt as _;
use support::{Desk, assert_same, can_run, everything, noise, run, shell, sparse, without_xattrs};

#[test]
fn everything_of_a_directory_comes_back() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    everything(&source);
    let report = desk.pack(&source, "image", None);
    assert_eq!(report.left_out, 0);
    assert_same(&source, desk.mount("image").path());
}

#[test]
fn access_lists_come_back() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    fs::write(source.join("file"), "contents").expect("a file");
    // Version 2, and then tag, permissions and number of each: owner, user 1000, group, mask, all.
    let entries = [(1_u16, 6_u16, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (0x10, 7, u32::MAX), (0x20, 4, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in entries {
        list.extend([&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &number.to_le_bytes()].concat());
    }
    for (path, name) in [("file", "system.posix_acl_access"), ("", "system.posix_acl_default")] {
        let set = rustix::fs::lsetxattr(source.join(path), name, &list, rustix::fs::XattrFlags::empty());
        set.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    desk.pack(&source, "image", None);
    assert_same(&source, desk.mount("image").path());
}

#[test]
fn an_empty_directory_is_an_image() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    desk.pack(&source, "image", None);
    assert_same(&source, desk.mount("image").path());
}

#[test]
fn the_same_source_makes_the_same_bytes() {
    if !can_run(&["fsck.erofs", "cp"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    everything(&source);
    shell(&source, "cp -a . ../copy");
    desk.pack(&source, "one", None);
    desk.pack(&desk.path("copy"), "other", None);
    assert!(desk.bytes("one") == desk.bytes("other"), "two copies make two images");
    desk.pack(&source, "again", Some("one"));
    assert!(desk.bytes("one") == desk.bytes("again"), "an image that is packed like itself is another one");
}

#[test]
fn mkfs_erofs_makes_the_same_tree() {
    if !can_run(&["fsck.erofs", "mkfs.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    everything(&source);
    // mkfs.erofs would write the holes, and some versions fail at such names.
    shell(&source, "rm sparse hole nnn*; find . -name '*[! -~]*' -delete");
    desk.pack(&source, "ours", None);
    run("mkfs.erofs", [OsStr::new("--quiet"), desk.path("theirs").as_os_str(), source.as_os_str()]);
    assert_same(desk.mount("theirs").path(), desk.mount("ours").path());
}

#[test]
fn tars_make_the_tree_that_they_were_made_from() {
    if !can_run(&["fsck.erofs", "tar", "gzip"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    everything(&source);
    // GNU tar has no sockets and no links to pipes. Its own format has neither attributes nor parts
    // of seconds.
    shell(&source, "rm socket deep/fifo; tar --format=pax --xattrs --xattrs-include='*' --sparse -cf ../pax.tar .");
    desk.pack(&desk.path("pax.tar"), "pax", None);
    assert_same(&source, desk.mount("pax").path());
    without_xattrs(&source);
    shell(&source, "rm sparse hole");
    shell(&source, "find . -print0 | xargs -0 touch -h -d @1700000000; tar --format=gnu --sparse -czf ../gnu.tar.gz .");
    desk.pack(&desk.path("gnu.tar.gz"), "gnu", None);
    assert_same(&source, desk.mount("gnu").path());
}

#[test]
fn layers_of_containers_are_put_on_top_of_each_other() {
    if !can_run(&["fsck.erofs", "tar", "gzip", "sha256sum"]) {
        return;
    }
    let desk = Desk::new();
    let work = desk.directory("work");
    shell(
        &work,
        "mkdir -p 1/etc 1/opt/old 1/keep 2/etc 2/opt && echo 1 >1/etc/a && echo 1 >1/etc/b && echo 1 >1/opt/old/c &&
         echo 1 >1/keep/k && echo 2 >2/etc/a && touch 2/etc/.wh.b 2/opt/.wh..wh..opq && echo 2 >2/opt/new &&
         mkdir -p ../oci/blobs/sha256 && echo '{\"imageLayoutVersion\":\"1.0.0\"}' >../oci/oci-layout &&
         mkdir expected && cp -a 1/. expected && cp -a 2/. expected && rm -r expected/etc/b expected/etc/.wh.b \
            expected/opt/old expected/opt/.wh..wh..opq && find 1 2 expected -print0 | xargs -0 touch -d @1700000000 &&
         tar -C 1 -cf 1.tar . && tar -C 2 -czf 2.tar . &&
         for each in 1.tar 2.tar; do d=$(sha256sum <$each | cut -d ' ' -f 1); cp $each ../oci/blobs/sha256/$d;
            layers=$layers,'{\"digest\":\"sha256:'$d'\"}'; done &&
         echo '{\"layers\":['${layers#,}']}' >manifest && d=$(sha256sum <manifest | cut -d ' ' -f 1) &&
         cp manifest ../oci/blobs/sha256/$d &&
         echo '{\"manifests\":[{\"digest\":\"sha256:'$d'\"}]}' >../oci/index.json",
    );
    desk.pack(&desk.path("oci"), "image", None);
    assert_same(&work.join("expected"), desk.mount("image").path());
}

#[test]
fn holes_cost_nothing() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    let data = [(0, 3), (4 << 30, 70_000), ((1 << 40) - 5, 5)];
    sparse(&source.join("file"), 1 << 40, &data);
    let report = desk.try_pack(&source, "image", None).unwrap();
    assert!(report.shared.chunks < 2000, "{report}");
    let mounted = desk.mount("image");
    let file = fs::File::open(mounted.path().join("file")).expect("the file");
    assert_eq!(file.metadata().expect("its length").len(), 1 << 40);
    for (offset, length) in data {
        let mut found = vec![0; length];
        file.read_exact_at(&mut found, offset).expect("it is there");
        assert!(found == noise(offset, length), "at {offset}");
    }
    let mut hole = [1; 4096];
    file.read_exact_at(&mut hole, 1 << 39).expect("a hole");
    assert_eq!(hole, [0; 4096]);
}

#[test]
fn a_file_beyond_4_gib_comes_back() {
    if !can_run(&["tar"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    // A tar that is a hole but for its ends: the file in it has none that the tar speaks of.
    let length = (4_u64 << 30) + 3;
    shell(&source, &format!("truncate -s {length} file && tar -cf - file | head -c 512 >../tar && rm file"));
    let tar = fs::File::options().write(true).open(desk.path("tar")).expect("the tar");
    tar.set_len(512 + (length + 509) + 1024).expect("a hole");
    for (offset, byte) in [(0, b"a"), (length / 2, b"b"), (length - 1, b"c")] {
        tar.write_all_at(byte, 512 + offset).expect("a byte");
    }
    let report = desk.try_pack(&desk.path("tar"), "image", None).unwrap();
    assert!(report.shared.with_data <= 4, "zeros are no data");
    let mounted = desk.mount("image");
    let file = fs::File::open(mounted.path().join("file")).expect("the file");
    assert_eq!(file.metadata().expect("its length").len(), length);
    for (offset, expected) in [(0, b"a\0"), (length / 2 - 1, b"\0b"), (length - 2, b"\0c")] {
        let mut found = [1; 2];
        file.read_exact_at(&mut found, offset).expect("it is there");
        assert_eq!(&found, expected, "at {offset}");
    }
}

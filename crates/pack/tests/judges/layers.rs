//! Layers that are packed alone: overlayfs judges whether they make the container's tree.

use super::support::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use vfield_core::chunk::ChunkSize;
use vfield_pack::layers::{self, Packed};

/// Makes a layout of two layers below `work`, one packed by gzip and one by zstd, and the tree that
/// a container with them has. The second frame of the latter is one that unpackers skip, as layers
/// of `zstd:chunked` have.
///
/// The second layer has a file in place of a directory and a directory in place of a file and of
/// another directory, and takes away a file, and all that is in a directory.
fn layout(work: &Path) {
    shell(
        work,
        "mkdir -p 1/etc 1/opt/old 1/keep 1/a 1/was/in 2/etc 2/opt 2/b 2/was && echo 1 >1/etc/a && echo 1 >1/etc/b &&
         echo 1 >1/opt/old/c && echo 1 >1/keep/k && echo 1 >1/a/x && echo 1 >1/b && echo 1 >1/was/in/x &&
         echo 2 >2/etc/a && touch 2/etc/.wh.b 2/opt/.wh..wh..opq 2/.wh.a 2/.wh.b 2/.wh.was 2/etc/.wh..wh.plnk &&
         echo 2 >2/opt/new && echo 2 >2/a && echo 2 >2/b/y && echo 2 >2/was/z &&
         mkdir expected && cp -a 1/. expected && rm -r expected/a expected/b expected/was && cp -a 2/. expected &&
         rm -r expected/etc/b expected/opt/old && find expected -name '.wh.*' -delete &&
         find 1 2 expected -print0 | xargs -0 touch -d @1700000000 && mkdir -p oci/blobs/sha256 &&
         tar -C 1 -cf 1.tar . && tar -C 2 -cf 2.tar . && printf '{\"imageLayoutVersion\":\"1.0.0\"}' >oci/oci-layout &&
         put() { d=$(sha256sum <$1 | cut -d ' ' -f 1); cp $1 oci/blobs/sha256/$d; } &&
         packs_1() { gzip -nk 1.tar; echo 1.tar.gz; } &&
         packs_2() { zstd -q 2.tar && printf '\\120\\052\\115\\030\\004\\0\\0\\0more' >>2.tar.zst; echo 2.tar.zst; } &&
         for each in 1 2; do put $each.tar; tars=$tars,'\"sha256:'$d'\"'; put $(packs_$each);
            layers=$layers,'{\"digest\":\"sha256:'$d'\"}'; done &&
         echo '{\"rootfs\":{\"diff_ids\":['${tars#,}']}}' >config && put config &&
         echo '{\"config\":{\"digest\":\"sha256:'$d'\"},\"layers\":['${layers#,}']}' >manifest && put manifest &&
         name='\"annotations\":{\"org.opencontainers.image.ref.name\":\"lab.example/app:1\"}' &&
         echo '{\"manifests\":[{\"digest\":\"sha256:'$d'\",'$name'}]}' >oci/index.json",
    );
}

fn pack(work: &Path) -> Result<Packed, String> {
    let packed = layers::pack(&work.join("oci"), &work.join("layers"), ChunkSize::DEFAULT, &|_| ());
    packed.map_err(|error| error.to_string())
}

/// The paths of all packed layers.
fn packed(work: &Path) -> Vec<PathBuf> {
    shell(work, "find layers -name '*.erofs' | sort").lines().map(|path| work.join(path)).collect()
}

/// The layer whose tar in the layout has this name beside it.
fn layer(work: &Path, number: u32) -> PathBuf {
    let digits = shell(work, &format!("sha256sum <{number}.tar | cut -d ' ' -f 1"));
    work.join("layers/sha256").join(&digits[..2]).join(format!("{digits}.erofs"))
}

#[test]
fn layers_alone_make_the_tree_of_the_container() {
    if !can_run(&["fsck.erofs", "tar", "gzip", "zstd", "sha256sum"]) {
        return;
    }
    let desk = Desk::new();
    let work = desk.directory("work");
    layout(&work);
    let report = pack(&work).unwrap();
    assert_eq!((report.layers, report.new), (2, 2));
    let before: Vec<Vec<u8>> = packed(&work).iter().map(|path| fs::read(path).expect("a layer")).collect();

    let (lower, upper) = (Mounted::new(&layer(&work, 1)), Mounted::new(&layer(&work, 2)));
    let all = desk.directory("all");
    let options = format!("lowerdir={}:{}", upper.path().display(), lower.path().display());
    let options = CString::new(options).expect("no zero");
    mount("overlay", &all, "overlay", MountFlags::RDONLY, options.as_c_str()).expect("overlayfs");
    // What overlayfs itself needs is not seen through it.
    let seen = std::panic::catch_unwind(|| assert_same(&work.join("expected"), &all));
    unmount(&all, UnmountFlags::empty()).expect("ours");
    seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic));

    // Those that are there are not packed again; the same layers make the same bytes.
    assert_eq!(pack(&work).map(|report| report.new), Ok(0));
    shell(&work, "mv layers first");
    assert_eq!(pack(&work).map(|report| report.new), Ok(2));
    assert!(packed(&work).iter().map(|path| fs::read(path).expect("a layer")).eq(before));

    // The tar has all that names the layers, and no layer.
    assert_eq!(report.names, work.join("layers/lab.example_app_1.tar"));
    shell(
        &work,
        "mkdir names && tar -C names -xf layers/lab.example_app_1.tar && diff -r oci names >differences || true",
    );
    let only = fs::read_to_string(work.join("differences")).expect("just made");
    assert!(
        only.lines().count() == 4 && only.lines().all(|line| line.starts_with("Only in oci/blobs/sha256: ")),
        "{only}"
    );
}

#[test]
fn layers_that_are_not_what_they_say_are_refused() {
    if !can_run(&["tar", "gzip", "zstd", "sha256sum"]) {
        return;
    }
    for (harm, says) in [
        ("sed -i 's/diff_ids\":\\[\"/diff_ids\":[\"sha256:0\",\"/' config", "speaks of other layers"),
        ("sed -i 's/sha256:..../sha256:0000/' config", "another digest"),
        ("sed -i 's/sha256:....../sha256:..\\/..\\//' config", "no SHA-256"),
        ("echo '{}' >config", "no configuration"),
        ("rm config && ln -s /dev/zero config", "neither a directory nor a regular file"),
    ] {
        let desk = Desk::new();
        let work = desk.directory("work");
        layout(&work);
        // The configuration is changed, and the manifest and index go by its new digest.
        shell(
            &work,
            &format!(
                "put() {{ d=$(sha256sum <$1 | cut -d ' ' -f 1); cp -P $1 oci/blobs/sha256/$d; }} && {harm} &&
                 if [ -h config ]; then d=$(printf '%064d' 0); cp -P config oci/blobs/sha256/$d; else put config; fi &&
                 sed -i \"s/config\\\":{{\\\"digest\\\":\\\"sha256:[0-9a-f]*/config\\\":{{\\\"digest\\\":\\\"sha256:$d/\" manifest && put manifest &&
                 sed -i \"s/sha256:[0-9a-f]*/sha256:$d/\" oci/index.json"
            ),
        );
        let refused = pack(&work).unwrap_err();
        assert!(refused.contains(says) && !refused.contains('\n'), "{harm}: {refused}");
        assert!(packed(&work).is_empty() || says == "another digest", "{harm}");
        let left = shell(&work, "find . -name '*.tar' -path './layers/*' -o -name '.*.new*'");
        assert!(left.is_empty(), "{harm}: {left}");
    }
}

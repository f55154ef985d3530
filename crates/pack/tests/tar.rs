//! Tars from strangers: refused or read, without a panic, and never beyond their bounds.

use proptest::prelude::*;
use vfield_pack::listing::Listing;
use vfield_pack::tar::{Entries, tree_of};
use vfield_pack::tree::{InodeId, Kind};

/// A header with a right checksum, and the bytes behind it filled up to whole blocks.
fn entry(kind: u8, path: &[u8], target: &[u8], contents: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, &path[..path.len().min(100)]);
    put(100, b"0000644\0");
    put(108, b"0001750\0");
    put(116, b"0001750\0");
    put(124, format!("{:0>11o}\0", contents.len()).as_bytes());
    put(136, b"14371573000\0");
    put(156, &[kind]);
    put(157, &target[..target.len().min(100)]);
    put(257, b"ustar\x0000");
    let mut bytes = seal(header);
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Puts the right checksum into a header.
fn seal(mut header: Vec<u8>) -> Vec<u8> {
    header[148..156].fill(b' ');
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:0>6o}\0 ").as_bytes());
    header
}

/// A record of pax.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let mut length = rest.len();
    while length.to_string().len() + rest.len() != length {
        length = length.to_string().len() + rest.len();
    }
    [length.to_string().into_bytes(), rest].concat()
}

/// A tar of every kind of entry.
fn sample() -> Vec<Vec<u8>> {
    let records = [
        record("path", "a long ".repeat(30).as_bytes()),
        record("mtime", b"1700000000.5"),
        record("SCHILY.xattr.user.name", b"value"),
    ];
    let sparse = [
        record("GNU.sparse.major", b"1"),
        record("GNU.sparse.minor", b"0"),
        record("GNU.sparse.name", b"sparse"),
        record("GNU.sparse.realsize", b"1000000"),
    ];
    let map = [b"2\n0\n10\n500000\n100\n".to_vec(), vec![0; 512 - 18], vec![7; 110]].concat();
    vec![
        entry(b'5', b"./", b"", b""),
        entry(b'5', b"directory/", b"", b""),
        entry(b'0', b"directory/file", b"", b"contents"),
        entry(b'1', b"again", b"./directory/file", b""),
        entry(b'2', b"link", b"directory/file", b""),
        entry(b'3', b"device", b"", b""),
        entry(b'6', b"pipe", b"", b""),
        entry(b'x', b"records", b"", &records.concat()),
        entry(b'0', b"short", b"", b"x"),
        entry(b'L', b"././@LongLink", b"", &[b"another long name ".repeat(12), vec![0]].concat()),
        entry(b'0', b"short", b"", b"y"),
        entry(b'x', b"records", b"", &sparse.concat()),
        entry(b'0', b"GNUSparseFile.0/sparse", b"", &map),
        entry(b'0', b"directory/.wh.gone", b"", b""),
        entry(b'g', b"global", b"", &record("comment", b"of git")),
        vec![0; 1024],
    ]
}

#[test]
fn every_kind_of_entry_is_read() {
    let tar = sample().concat();
    let tree = tree_of(&tar.as_slice(), tar.len() as u64).unwrap();
    let names: Vec<String> =
        tree.names(InodeId::ROOT).keys().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    let long = ["a long ".repeat(30), "another long name ".repeat(12)].map(|name| name.trim().to_owned());
    assert_eq!(names, [&long[0], "again", &long[1], "device", "directory", "link", "pipe", "sparse"]);
    let sparse = tree.inode(tree.child(InodeId::ROOT, b"sparse").unwrap());
    let Kind::File(file) = &sparse.kind else { panic!("a file is wanted") };
    assert_eq!((file.size_bytes(), file.data()), (1_000_000, Some(&[0..10, 500_000..500_100][..])));
    assert_eq!(Listing::new(&tree).listed().len(), 9);
}

#[test]
fn strange_paths_are_refused() {
    for (path, why) in [
        ("../up", "a path with a name of two dots"),
        ("a/../../b", "a path with a name of two dots"),
        ("directory/file/below", "it lies below a name that is no directory"),
        ("link/below", "it lies below a name that is no directory"),
    ] {
        let tar = [sample()[..5].concat(), entry(b'0', path.as_bytes(), b"", b""), vec![0; 512]].concat();
        assert_eq!(tree_of(&tar.as_slice(), tar.len() as u64).err().as_deref(), Some(why), "{path}");
    }
    let link = [entry(b'1', b"link", b"nothing", b""), vec![0; 512]].concat();
    let said = tree_of(&link.as_slice(), link.len() as u64).unwrap_err();
    assert!(said.starts_with("a hard link to \"nothing\""), "{said}");
}

#[test]
fn a_path_of_many_names_takes_no_stack() {
    let deep = b"a/".repeat(200_000);
    let tar = [entry(b'x', b"", b"", &record("path", &deep)), entry(b'5', b"", b"", b""), vec![0; 512]].concat();
    let tree = tree_of(&tar.as_slice(), tar.len() as u64).unwrap();
    assert_eq!(Listing::new(&tree).listed().len(), 200_001);
}

proptest! {
    #[test]
    fn changed_tars_are_refused_or_read(
        changes in proptest::collection::vec((0_usize..16, 0_usize..2048, any::<u8>(), any::<bool>()), 1..12),
        cut in proptest::option::of(0_usize..12_000),
    ) {
        let mut entries = sample();
        for (index, at, byte, sealed) in changes {
            let entry = &mut entries[index];
            let at = at % entry.len();
            entry[at] = byte;
            if sealed && entry.len() >= 512 {
                let body = entry.split_off(512);
                *entry = [seal(std::mem::take(entry)), body].concat();
            }
        }
        let mut tar = entries.concat();
        if let Some(cut) = cut {
            tar.truncate(cut);
        }
        let length = tar.len() as u64;
        for entry in Entries::new(&tar.as_slice(), length).map_while(Result::ok) {
            prop_assert!(entry.path.len() as u64 <= length);
        }
        if let Ok(tree) = tree_of(&tar.as_slice(), length) {
            let listing = Listing::new(&tree);
            for place in 0..listing.listed().len() {
                listing.path(place);
            }
        }
    }

    #[test]
    fn noise_is_no_tar(bytes in proptest::collection::vec(any::<u8>(), 1..3000)) {
        prop_assume!(bytes.iter().take(512).any(|byte| *byte != 0));
        prop_assert!(tree_of(&bytes.as_slice(), bytes.len() as u64).is_err());
    }
}

//! Images that are packed like an earlier one.

use super::support::{Desk, assert_same, can_run, everything, noise, shell};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_changed_line_changes_four_chunks_at_most() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    everything(&source);
    for number in 0..200 {
        fs::write(source.join(format!("many/text {number}")), noise(number, 30_000)).unwrap();
    }
    desk.pack(&source, "one", None);
    for (round, file) in ["many/text 7", "deep/4096", "deep/32768", "deep/2047"].into_iter().enumerate() {
        let (before, after) = (["one", "two"][round % 2], ["two", "one"][round % 2]);
        let mut bytes = fs::read(source.join(file)).unwrap();
        bytes.splice(100..150, *b"another line\n");
        fs::write(source.join(file), bytes).unwrap();
        let report = desk.pack(&source, after, Some(before));
        let new = report.shared.with_data - report.shared.same;
        assert!((1..=4).contains(&new), "{file}: {new} chunks are new");
        assert_same(&source, desk.mount(after).path());
    }
}

#[test]
fn contents_that_move_keep_their_place_and_inodes_their_number() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    for number in 0..20 {
        fs::write(source.join(format!("library-{number}.so.1")), noise(number, 300_000)).unwrap();
    }
    desk.pack(&source, "one", None);
    let number = |image: &str, name: &str| fs::metadata(desk.mount(image).path().join(name)).unwrap().ino();
    let stays = number("one", "library-4.so.1");
    // One is renamed, one is gone, one is larger, and one is new.
    shell(&source, "mv library-3.so.1 library-3.so.2; rm library-5.so.1");
    fs::write(source.join("library-6.so.1"), noise(6, 310_000)).unwrap();
    fs::write(source.join("a-new-one.so"), noise(99, 200_000)).unwrap();
    let report = desk.pack(&source, "two", Some("one"));
    // The two that changed have five and four chunks; the metadata is in one.
    let new = report.shared.with_data - report.shared.same;
    assert!(new <= 10, "{new} chunks are new");
    assert_eq!(fs::metadata(desk.path("one")).unwrap().len(), fs::metadata(desk.path("two")).unwrap().len());
    assert_eq!(number("two", "library-4.so.1"), stays);
    assert_same(&source, desk.mount("two").path());
}

/// A library of many chunks gets three blocks longer, and small files lie in its last chunk.
#[test]
fn large_contents_that_grow_a_little_stay_where_they_are() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    let library = source.join("library.so");
    fs::write(&library, noise(1, 4 << 20 | 9 << 10)).unwrap();
    for number in 0..200 {
        fs::write(source.join(format!("text {number}")), noise(number + 2, 11_000)).unwrap();
    }
    desk.pack(&source, "one", None);
    fs::write(&library, noise(1, 4 << 20 | 21 << 10)).unwrap();
    let report = desk.pack(&source, "two", Some("one"));
    // Its last chunk, the next place of the small files, and the chunks with metadata.
    let new = report.shared.with_data - report.shared.same;
    assert!(new <= 6, "{new} chunks are new");
    assert_same(&source, desk.mount("two").path());
}

#[test]
fn a_tree_that_grows_and_shrinks_stays_whole() {
    if !can_run(&["fsck.erofs"]) {
        return;
    }
    let desk = Desk::new();
    let source = desk.directory("source");
    desk.pack(&source, "0", None);
    for round in 1..8_u64 {
        let directory = source.join(format!("round {round}"));
        fs::create_dir(&directory).unwrap();
        for number in 0..round * 150 {
            let length = (number * 977 * round % 90_000) as usize;
            fs::write(directory.join(format!("{number:0>50}")), noise(number, length)).unwrap();
        }
        if round > 2 {
            shell(&source, &format!("rm -r 'round {}'/*[13579]; mv 'round {}' moved-{round}", round - 1, round - 2));
        }
        let (before, after) = ((round - 1).to_string(), round.to_string());
        desk.pack(&source, &after, Some(&before));
        assert_same(&source, desk.mount(&after).path());
        // The same once more: nothing is left to be changed.
        let report = desk.pack(&source, "again", Some(&after));
        assert_eq!(report.shared.with_data, report.shared.same);
    }
}

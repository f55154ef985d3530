//! Tars of a few texts, as programs of containers take them.

/// A header, and what contents are filled up to.
const BLOCK_BYTES: usize = 512;
/// A place in a header, and the text there: mode, owner, group, time, kind, format.
const CONSTANT: [(usize, &[u8]); 6] = [
    (100, b"0000644"),
    (108, b"0000000"),
    (116, b"0000000"),
    (136, b"00000000000"),
    (156, b"0"),
    (257, b"ustar\x0000"),
];

/// A tar of files with these paths and contents. The same texts make the same bytes.
///
/// # Panics
/// If a path has more than 100 bytes, or a text more than 8 GiB.
pub fn of_texts(texts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (path, text) in texts {
        let mut header = [0; BLOCK_BYTES];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        assert!(path.len() <= 100 && text.len() < 1 << 33, "a header has room for it");
        put(0, path.as_bytes());
        put(124, format!("{:0>11o}", text.len()).as_bytes());
        CONSTANT.iter().for_each(|(at, text)| put(*at, text));
        // The sum is taken with spaces in its own place.
        put(148, b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:0>6o}\0").as_bytes());
        tar.extend(header);
        tar.extend(*text);
        tar.resize(tar.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    tar.resize(tar.len() + 2 * BLOCK_BYTES, 0);
    tar
}

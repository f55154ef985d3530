//! `vfield doctor bundle`: status, events, findings and configuration in one file, without keys.
//!
//! The file is a POSIX ustar archive. Key files are never read. Text that was pasted where a path
//! belongs, and looks like a key, is replaced by [`REDACTED`].

use std::io::{self, Write};

/// The text in place of a key.
pub const REDACTED: &str = "[redacted]";
/// Letters of a text that may be a key: 32 bytes in base64 are 43, and 16 bytes in hexadecimal 32.
const KEY_LETTERS: usize = 32;
/// Words that begin keys of this program and of minisign.
const KEY_WORDS: [&str; 3] = ["vfield-field-key-1", "vfield-identity-1", "untrusted comment"];
const BLOCK: usize = 512;

/// One file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name in the archive, at most 90 bytes.
    pub name: &'static str,
    /// UTF-8, of any length.
    pub text: String,
}

/// Writes the archive.
///
/// # Errors
/// Those of the writer.
pub fn write(parts: &[Part], modified_s: u64, out: &mut impl Write) -> io::Result<()> {
    for Part { name, text } in parts {
        out.write_all(&header(name, text.len() as u64, modified_s))?;
        out.write_all(text.as_bytes())?;
        out.write_all(&vec![0; text.len().next_multiple_of(BLOCK) - text.len()])?;
    }
    out.write_all(&[0; 2 * BLOCK])
}

/// The header of a regular file (POSIX.1-1988, ustar).
fn header(name: &str, bytes: u64, modified_s: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &format!("vfield/{name}"));
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, &format!("{:011o}\0", modified_s & 0o77_777_777_777));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A configuration without what may be a key: long texts of base64 or hexadecimal, and lines that
/// begin as keys do. Paths stay, since they have slashes near each other or a point.
pub fn without_keys(text: &str) -> String {
    let lines = text.lines().map(|line| {
        if KEY_WORDS.iter().any(|word| line.contains(word)) {
            let (key, is_set) = line.split_once('=').map_or(("", false), |(key, _)| (key, true));
            return if is_set { format!("{key}= \"{REDACTED}\"") } else { format!("# {REDACTED}") };
        }
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(is_letter) {
            let end = rest[at..].find(|letter| !is_letter(letter)).map_or(rest.len(), |length| at + length);
            out.push_str(&rest[..at]);
            out.push_str(if may_be_key(&rest[at..end]) { REDACTED } else { &rest[at..end] });
            rest = &rest[end..];
        }
        out + rest
    });
    lines.map(|line| line + "\n").collect()
}

const fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/' | '=' | '_')
}

/// True for a long word without the slashes of a path. A key in base64 has one in 64 letters.
fn may_be_key(word: &str) -> bool {
    let letters = word.trim_matches('=').len();
    let slashes = word.bytes().filter(|byte| *byte == b'/').count();
    letters >= KEY_LETTERS && !word.starts_with('/') && slashes * 12 < letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_replaced_and_paths_are_not() {
        let hex = "0123456789abcdef".repeat(4);
        let base64 = "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=";
        let text = format!(
            "# vfield-field-key-1 {hex}\nfield-key = \"vfield-field-key-1 {base64}\"\nidentity = \"/etc/vfield/identity\"\n\
             members = \"/var/lib/vfield/a/long/way/to/the/members\"\nname = \"{hex}\"\nstore = \"30%\" # {base64}\n"
        );
        let clean = without_keys(&text);
        assert!(!clean.contains(&hex) && !clean.contains(base64) && !clean.contains("q83v"), "{clean}");
        assert!(clean.contains("/etc/vfield/identity") && clean.contains("/to/the/members"), "{clean}");
        assert!(clean.contains("store = \"30%\"") && clean.matches(REDACTED).count() == 4, "{clean}");
    }

    #[test]
    fn an_archive_is_whole_blocks() {
        let parts = [Part { name: "a.txt", text: "x".repeat(512) }, Part { name: "b.txt", text: "y".to_owned() }];
        let mut tar = Vec::new();
        write(&parts, 1_700_000_000, &mut tar).unwrap();
        assert_eq!(tar.len(), BLOCK * 6);
        assert_eq!((&tar[..12], &tar[257..263]), (&b"vfield/a.txt"[..], &b"ustar\0"[..]));
    }
}

//! Files with field keys, and lines of them.
//!
//! Promises: a key is written as the same key again; a refusal shows nothing of the file.

use std::path::Path;
use vfield_trust::FieldKey;
use vfield_trust::key_file;

/// The text of a file.
pub fn target(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match key_file::parse(Path::new("k"), text) {
        Ok(keys) => {
            assert!(!keys.is_empty());
            for key in &keys {
                assert_eq!(FieldKey::parse(&key.line()).as_ref(), Ok(key));
                let secret = key.line().split(' ').nth(1).unwrap_or_default().to_owned();
                assert!(!format!("{key:?}").contains(&secret) && text.to_ascii_lowercase().contains(&secret));
            }
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("field key k") && !said.contains('\n'), "{said:?}");
            let told = text.split_ascii_whitespace().find(|word| word.len() > 16 && said.contains(word));
            assert_eq!(told, None, "a refusal shows what it refuses: {said:?}");
        }
    }
}

/// One key, two with comments, damaged ones.
pub fn seeds() -> Vec<Vec<u8>> {
    let line = |byte| FieldKey::new([byte; 32]).line().to_string();
    let two = format!("# first\n{}\n\n  {}  \n", line(1), line(2));
    let texts =
        [line(7), two, line(7).replace("0707", "0708"), line(7).replace("key-1", "key-2"), "# none\n".to_owned()];
    texts.map(String::into_bytes).into()
}

//! Files with field keys, identities and admission lists, and lines of them.
//!
//! Promises: a key is written as the same key again; a refusal shows nothing of the file. A line
//! that is added to a list revokes its key, or admits it.

use std::path::Path;
use vfield_core::admission::{self, Admission, Line, Rule};
use vfield_core::signing::PublicKey;
use vfield_trust::{FieldKey, NodeKey, identity_file, key_file};

/// The text of a file.
pub fn target(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    list(text);
    if let Err(fault) = identity_file::parse(text) {
        assert!(fault.to_string().len() < 100, "a refusal shows what it refuses: {fault}");
    }
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

fn list(text: &str) {
    let Ok(lines) = admission::parse(text) else { return };
    assert!(lines.len() <= admission::LINES_MAX);
    let key = lines.first().map_or(PublicKey([7; 32]), |line| line.key);
    for rule in [Rule::Revoke, Rule::Allow] {
        let Ok(more) = admission::add(Some(text), &Line { rule, key, name: String::new() }) else { continue };
        let said = admission::parse(&more).expect("a list stays a list");
        let admission = Admission::new(&said, NodeKey::id);
        assert_eq!(
            (admission.admits(&key), admission.may_admit(NodeKey::id(&key))),
            (rule == Rule::Allow, rule == Rule::Allow)
        );
    }
}

/// One key, two with comments, damaged ones.
pub fn seeds() -> Vec<Vec<u8>> {
    let line = |byte| FieldKey::new([byte; 32]).line().to_string();
    let two = format!("# first\n{}\n\n  {}  \n", line(1), line(2));
    let (key, identity) = ("7".repeat(64), format!("vfield-identity-1 {} 00000000\n", "7".repeat(64)));
    let list = format!("vfield-admission 1\n# why\nallow {key} rack1-3\nrevoke {} \n", "8".repeat(64));
    let texts = [
        line(7),
        two,
        line(7).replace("0707", "0708"),
        line(7).replace("key-1", "key-2"),
        "# none\n".to_owned(),
        identity,
        list,
    ];
    texts.map(String::into_bytes).into()
}

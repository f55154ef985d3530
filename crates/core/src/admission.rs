//! The admission list: the keys of nodes that a field admits, and of those that it has revoked.
//!
//! A field without a list admits each node. With an `allow` line it admits only those listed;
//! without one, all but the revoked. A revoked key is never admitted, whatever else the list says.
//! The list is a text that its owner signs; the shell verifies signatures. The text has one key in
//! a line: `allow KEY NAME` or `revoke KEY NAME`, and `#` begins a comment.

use crate::hex::{hex, unhex};
use crate::identity::NodeId;
use crate::signing::PublicKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use vfield_block::gather::Gather as _;

/// First line: what it is, and the version of its form. A signer also signs images, and no
/// statement about an image begins like this.
const FIRST: &str = "vfield-admission 1";
/// Most lines with a key: twice a large field.
pub const LINES_MAX: usize = 8192;
/// Longest text. A list with its signature is to fit into a frame of 1 MiB, and 8192 lines with
/// names of 40 letters do.
pub const TEXT_MAX: usize = 1_000_000;
/// Longest name, in letters: as long as that of a machine in its own domain.
const NAME_MAX: usize = 64;

/// The place of a list in the order of lists: of two, the later one counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Seconds since 1970, as the signer says; 0 without a list.
    pub timestamp: u64,
    /// A digest of the text, since two lists may have one second.
    pub digest: u64,
}

impl Version {
    /// The version of a list that was signed then.
    pub fn of(text: &str, timestamp: u64) -> Self {
        let hash = blake3::hash(text.as_bytes());
        Self { timestamp, digest: u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("it has 32 bytes")) }
    }
}

/// What a line says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The node with this key is admitted, and all that have no line are not.
    Allow,
    /// The node with this key is not admitted.
    Revoke,
}

impl Rule {
    /// The first word of its line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Revoke => "revoke",
        }
    }
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub rule: Rule,
    /// The node's public key.
    pub key: PublicKey,
    /// What people call the machine; may be empty.
    pub name: String,
}

/// A text that is no list, with the number of its first wrong line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadList {
    /// The first line is another one.
    #[error("it does not begin with \"{FIRST}\"")]
    NotAList,
    /// A line of another form.
    #[error("line {0}: not \"allow KEY NAME\" or \"revoke KEY NAME\"")]
    Line(usize),
    /// The key is none.
    #[error("line {0}: a key has 64 hexadecimal digits")]
    Key(usize),
    /// More than a node keeps.
    #[error("more than {LINES_MAX} keys, or {TEXT_MAX} bytes")]
    TooLong,
}

/// The lines of a list, in order, without comments.
///
/// # Errors
///
/// If it is no list, or too long.
pub fn parse(text: &str) -> Result<Vec<Line>, BadList> {
    if text.len() > TEXT_MAX {
        return Err(BadList::TooLong);
    }
    let mut lines = text.lines().map(str::trim_end).enumerate();
    if lines.next().is_none_or(|(_, first)| first != FIRST) {
        return Err(BadList::NotAList);
    }
    let mut found = Vec::new();
    for (index, line) in lines {
        let words = line.split('#').next().unwrap_or_default();
        let mut words = words.split_ascii_whitespace();
        let Some(word) = words.next() else { continue };
        let bad = BadList::Line(index + 1);
        let rule = [Rule::Allow, Rule::Revoke].into_iter().find(|rule| rule.word() == word).ok_or(bad)?;
        let key = key(words.next().ok_or(bad)?).ok_or(BadList::Key(index + 1))?;
        let name = words.next().unwrap_or_default();
        if words.next().is_some() || !is_name(name) {
            return Err(bad);
        }
        if found.len() == LINES_MAX {
            return Err(BadList::TooLong);
        }
        found.push(Line { rule, key, name: name.to_owned() });
    }
    Ok(found)
}

/// `text` with one more line, or a new list with it. Earlier lines about the same key become
/// comments. But a revoked key stays among the allowed: a list without any allowed key admits all
/// others.
///
/// # Errors
///
/// If `text` is no list, or there is no room for the line.
pub fn add(text: Option<&str>, line: &Line) -> Result<String, BadList> {
    let mut new = String::new();
    for (index, old) in text.unwrap_or(FIRST).lines().enumerate() {
        // Each line alone, below a first one.
        let about = if index == 0 { Vec::new() } else { parse(&format!("{FIRST}\n{old}")).unwrap_or_default() };
        let superseded =
            about.iter().any(|said| said.key == line.key && (line.rule, said.rule) != (Rule::Revoke, Rule::Allow));
        let _ = writeln!(new, "{}{old}", if superseded { "# " } else { "" });
    }
    let _ = writeln!(new, "{} {} {}", line.rule.word(), hex(&line.key.0), line.name);
    parse(text.unwrap_or(FIRST)).and_then(|_| parse(&new)).map(|_| new)
}

/// True for the name of a machine in a list: letters, digits and `-_.:@`, or nothing.
pub fn is_name(name: &str) -> bool {
    name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte))
}

/// The key with these 64 hexadecimal digits.
pub fn key(text: &str) -> Option<PublicKey> {
    unhex(text).map(PublicKey)
}

/// The nodes that are admitted. The default admits each node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    allowed: BTreeSet<PublicKey>,
    revoked: BTreeSet<PublicKey>,
    /// The ids of both, for datagrams: they name their sender by its id alone.
    allowed_ids: BTreeSet<NodeId>,
    revoked_ids: BTreeSet<NodeId>,
}

impl Admission {
    /// What these lines say; `id_of` gives the id of the node with a key.
    pub fn new(lines: &[Line], id_of: impl Fn(&PublicKey) -> NodeId) -> Self {
        let of = |rule| lines.iter().filter(move |line| line.rule == rule).map(|line| line.key);
        let (allowed, revoked): (BTreeSet<_>, BTreeSet<_>) = (of(Rule::Allow).gathered(), of(Rule::Revoke).gathered());
        let ids = |some: &BTreeSet<PublicKey>| some.iter().map(&id_of).collect();
        Self { allowed_ids: ids(&allowed), revoked_ids: ids(&revoked), allowed, revoked }
    }

    /// True if the node with this key is admitted.
    pub fn admits(&self, key: &PublicKey) -> bool {
        !self.revoked.contains(key) && (self.allowed.is_empty() || self.allowed.contains(key))
    }

    /// The same by id, where no key is known. Ids are shorter than keys, so this alone admits
    /// nobody.
    pub fn may_admit(&self, node: NodeId) -> bool {
        !self.revoked_ids.contains(&node) && (self.allowed.is_empty() || self.allowed_ids.contains(&node))
    }

    /// The number of allowed keys; without any, all that are not revoked are admitted.
    pub fn allowed(&self) -> usize {
        self.allowed.len()
    }

    /// The number of revoked keys.
    pub fn revoked(&self) -> usize {
        self.revoked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing::{Signatures as _, Simulated};
    use proptest::prelude::*;

    fn line(rule: Rule, node: u64, name: &str) -> Line {
        Line { rule, key: Simulated::key_of(NodeId(node)), name: name.to_owned() }
    }

    fn admitted(lines: &[Line]) -> Vec<u64> {
        let admission = Admission::new(lines, |key| Simulated(NodeId(9)).id_of(key));
        let admits = |node: &u64| {
            let (key, node) = (Simulated::key_of(NodeId(*node)), NodeId(*node));
            assert_eq!(admission.admits(&key), admission.may_admit(node));
            admission.admits(&key)
        };
        (1..=4).filter(admits).collect()
    }

    #[test]
    fn an_allow_line_shuts_out_all_others_and_a_revoked_key_stays_out() {
        use Rule::{Allow, Revoke};
        assert_eq!(admitted(&[]), [1, 2, 3, 4]);
        assert_eq!(admitted(&[line(Revoke, 2, "")]), [1, 3, 4]);
        assert_eq!(admitted(&[line(Allow, 2, ""), line(Allow, 3, "")]), [2, 3]);
        assert_eq!(admitted(&[line(Allow, 2, ""), line(Revoke, 2, ""), line(Allow, 3, "")]), [3]);
    }

    #[test]
    fn a_list_is_made_line_by_line_and_read_back() {
        let one = add(None, &line(Rule::Allow, 1, "rack1-3")).unwrap();
        assert_eq!(one, format!("vfield-admission 1\nallow 01{} rack1-3\n", "0".repeat(62)));
        let two = add(Some(&format!("{one}# why\n\n")), &line(Rule::Allow, 2, "")).unwrap();
        let three = add(Some(&two), &line(Rule::Revoke, 1, "rack1-3")).unwrap();
        let (allowed, revoked) = (line(Rule::Allow, 1, "rack1-3"), line(Rule::Revoke, 1, "rack1-3"));
        assert_eq!(parse(&three).unwrap(), [allowed.clone(), line(Rule::Allow, 2, ""), revoked.clone()]);
        assert!(three.contains("# why\n"));
        assert_eq!(parse(&add(Some(&three), &revoked).unwrap()), parse(&three));
        // Allowed again, it is revoked no more.
        let four = add(Some(&three), &allowed).unwrap();
        assert_eq!(parse(&four).unwrap(), [line(Rule::Allow, 2, ""), allowed]);
        assert!(four.contains("# revoke 01"));
        assert_eq!(add(Some("vfield-image 1\n"), &line(Rule::Allow, 1, "")), Err(BadList::NotAList));
    }

    #[test]
    fn wrong_lines_are_named() {
        let says = |rest: &str| parse(&format!("{FIRST}\n{rest}")).unwrap_err().to_string();
        let key = "0".repeat(64);
        assert_eq!(parse(""), Err(BadList::NotAList));
        assert_eq!(parse(&format!("allow {key}\n")), Err(BadList::NotAList));
        assert_eq!(
            says(&format!("allow {key}\npermit {key} x")),
            "line 3: not \"allow KEY NAME\" or \"revoke KEY NAME\""
        );
        assert_eq!(says("allow"), "line 2: not \"allow KEY NAME\" or \"revoke KEY NAME\"");
        assert_eq!(says(&format!("allow {key} two names")), "line 2: not \"allow KEY NAME\" or \"revoke KEY NAME\"");
        assert_eq!(says(&format!("allow {key} \u{1b}[2J")), "line 2: not \"allow KEY NAME\" or \"revoke KEY NAME\"");
        assert_eq!(says("\nrevoke 1234 x"), "line 3: a key has 64 hexadecimal digits");
        assert_eq!(says(&format!("revoke {}", key.replace('0', "x"))), "line 2: a key has 64 hexadecimal digits");
        assert_eq!(says(&format!("allow {key}\n").repeat(LINES_MAX + 1)), BadList::TooLong.to_string());
        assert_eq!(says(&"#".repeat(TEXT_MAX)), BadList::TooLong.to_string());
        assert!(parse(&format!("{FIRST}\n{}", format!("allow {key} {}\n", "n".repeat(40)).repeat(LINES_MAX))).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_a_refusal(text in "(vfield-admission 1\n)?(allow |revoke )?[0-9a-f]{0,66}\\PC{0,40}\n?\\PC{0,40}") {
            let _ = parse(&text);
            let _ = add(Some(&text), &line(Rule::Allow, 1, ""));
        }
    }
}

//! The signed statement about an image: its name, id and header, as a few lines of text. The text
//! is readable, and any tool can sign it.
//!
//! The id stands for every byte (it hashes the header and the top page), so the signature covers
//! the image under that name. The text of an image is always the same, byte for byte.

use crate::chunk::ChunkSize;
use crate::image::{Header, ImageId};
use crate::names::is_image_name;
use std::fmt;
use std::str::FromStr;

/// First line: what it is, and the version of its form.
const FIRST: &str = "vfield-image 1";

/// The content of a signed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The image's name.
    pub name: String,
    /// The image's id.
    pub id: ImageId,
    /// The image's length and chunk size.
    pub header: Header,
}

impl Statement {
    /// Longest text: a name of 255 bytes and five numbers.
    pub const BYTES_MAX: usize = 512;
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, id, header } = self;
        writeln!(f, "{FIRST}\nname {name}\nid {id}\nlength {}", header.length_bytes())?;
        writeln!(f, "chunk-size {}\npopulated {}", header.chunk_size().bytes(), header.populated())
    }
}

/// Text that is no [`Statement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a statement about an image")]
pub struct BadStatement;

impl FromStr for Statement {
    type Err = BadStatement;

    fn from_str(text: &str) -> Result<Self, BadStatement> {
        let mut lines = text.lines();
        let first = lines.next();
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let mut parse = || {
            let (name, id) = (value("name")?.to_owned(), value("id")?.parse().ok()?);
            let (length, chunk_size) = (value("length")?.parse().ok()?, value("chunk-size")?.parse().ok()?);
            let populated = value("populated")?.parse().ok()?;
            let header = Header::new(length, ChunkSize::new(chunk_size).ok()?, populated).ok()?;
            is_image_name(&name).then_some(Self { name, id, header })
        };
        let statement = parse().filter(|_| first == Some(FIRST)).ok_or(BadStatement)?;
        // Only the canonical form is valid: a statement has one spelling.
        if statement.to_string() == text { Ok(statement) } else { Err(BadStatement) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn statement(name: &str) -> Statement {
        let header = Header::new(70_000, ChunkSize::DEFAULT, 2).unwrap();
        Statement { name: name.to_owned(), id: ImageId([0xab; 32]), header }
    }

    #[test]
    fn the_text_is_as_documented() {
        let text = statement("viver squash").to_string();
        let id = "ab".repeat(32);
        let golden =
            format!("vfield-image 1\nname viver squash\nid {id}\nlength 70000\nchunk-size 65536\npopulated 2\n");
        assert_eq!(text, golden);
        assert_eq!(text.parse(), Ok(statement("viver squash")));
        assert!(statement(&"n".repeat(255)).to_string().len() <= Statement::BYTES_MAX);
    }

    #[test]
    fn there_is_one_spelling() {
        let text = statement("a").to_string();
        for other in [
            text.replace("70000", "070000"),
            text.replace("70000", "+70000"),
            text.replace("abab", "ABAB"),
            text.replace('\n', "\r\n"),
            format!("{text}\n"),
            format!("{text}more 1\n"),
            text.trim_end().to_owned(),
            text.replace("image 1", "image 2"),
            text.replace("name a", "name ../a"),
            text.replace("populated 2", "populated 3"),
            String::new(),
        ] {
            assert_eq!(other.parse::<Statement>(), Err(BadStatement), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_statement_or_a_refusal(text in "(vfield-image 1\nname )?\\PC{0,80}\n?\\PC{0,80}") {
            let _ = text.parse::<Statement>();
        }
    }
}

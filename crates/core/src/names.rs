//! The names of an image: the rules for a name, and the set of names that a node announces.
//!
//! Invariant of [`Names::is_sound`]: at least one name, each once, ascending, short enough for a
//! gossip datagram.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest name of an image, in bytes: what a file system allows for a file.
pub const NAME_BYTES_MAX: usize = 255;

/// Between two names: no name has it.
const BETWEEN: char = '/';

/// True for a valid image name. Names become file names and are shown on terminals. So a name has 1
/// to [`NAME_BYTES_MAX`] bytes without `/` and control characters, and is not `.` or `..`.
pub fn is_image_name(name: &str) -> bool {
    let odd = |c: char| c == BETWEEN || c.is_control();
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(odd) && name != "." && name != ".."
}

/// The names of an image, with a slash between two of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Names(String);

/// Names that no image can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNames {
    /// The text breaks a rule of [`is_image_name`].
    #[error("{0:?} is no name for an image (1 to 255 bytes without '/' and control characters)")]
    Name(String),
    /// More than [`Names::BYTES_MAX`].
    #[error("the names of one image take {0} bytes, {max} are possible", max = Names::BYTES_MAX)]
    Many(usize),
    /// The set is empty.
    #[error("an image without a name")]
    None,
}

impl Names {
    /// Length of all names of an image together: two of the longest, and a record with them still
    /// fits a datagram.
    pub const BYTES_MAX: usize = 2 * NAME_BYTES_MAX + 1;

    /// A set of names, in any order, some perhaps more than once.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, BadNames> {
        let mut names: Vec<&str> = names.into_iter().collect();
        if let Some(bad) = names.iter().find(|name| !is_image_name(name)) {
            return Err(BadNames::Name((*bad).to_owned()));
        }
        names.sort_unstable();
        names.dedup();
        let joined = names.join("/");
        match joined.len() {
            0 => Err(BadNames::None),
            bytes if bytes > Self::BYTES_MAX => Err(BadNames::Many(bytes)),
            _ => Ok(Self(joined)),
        }
    }

    /// True if it is what [`Names::of`] makes.
    pub fn is_sound(&self) -> bool {
        Self::of(self.iter()).is_ok_and(|names| names == *self)
    }

    /// All names, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(BETWEEN)
    }

    /// All names, separated by slashes.
    pub fn joined(&self) -> &str {
        &self.0
    }

    /// The first of them.
    pub fn first(&self) -> &str {
        self.iter().next().unwrap_or_default()
    }

    /// True if it has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|own| own == name)
    }

    /// True if it has all names of the other.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.iter().all(|name| self.contains(name))
    }
}

impl<T: Into<String>> From<T> for Names {
    /// One or several names separated by slashes, sound or not.
    fn from(joined: T) -> Self {
        Self(joined.into())
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_set_in_one_spelling() {
        let names = Names::of(["b.img", "a.img", "b.img"]).expect("two names");
        assert_eq!((names.first(), names.to_string().as_str()), ("a.img", "a.img, b.img"));
        assert!(names.is_sound() && names.contains("b.img") && !names.contains("img"));
        assert!(names.contains_all(&Names::of(["b.img"]).expect("a name")));
        for odd in ["", "b/a", "a/a", "a//b", "/a", "a/", "..", "a\0"] {
            assert!(!Names::from(odd).is_sound(), "{odd:?}");
        }
        let long = |letter: &str| letter.repeat(NAME_BYTES_MAX);
        assert!(Names::of([long("a").as_str(), &long("b")]).is_ok());
        assert_eq!(Names::of([long("a").as_str(), &long("b"), "c"]), Err(BadNames::Many(513)));
        assert_eq!(Names::of([]), Err(BadNames::None));
        assert_eq!(Names::of(["a/b"]), Err(BadNames::Name("a/b".to_owned())));
    }
}

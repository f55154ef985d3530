//! How images are named: the rule for names, and telling a name from an id, and from both.

use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_core::image::{IdDigits, ImageId};
use vfield_node::config::ImageSelector;

/// Longest name: a file name, since the FUSE export makes one of it.
const NAME_BYTES_MAX: usize = 255;
/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 64;

/// A name that an image may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName(pub String);

impl FromStr for ImageName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let refuse = |why: &str| {
            let hint = "names are 1 to 255 bytes without / and control characters, for example --name viver";
            Err(BadValue::new(format!("{text:?} cannot name an image: {why}"), hint))
        };
        if text.is_empty() {
            return refuse("it is empty");
        }
        if text.len() > NAME_BYTES_MAX {
            return refuse("it is longer than 255 bytes");
        }
        if text.contains('/') || text.contains(char::is_control) || text == "." || text == ".." {
            return refuse("it could not be a file's name");
        }
        if text.parse::<ImageId>().is_ok() {
            return refuse("it looks like an image id");
        }
        Ok(Self(text.to_owned()))
    }
}

/// So many digits of an id at least are pinned to a name, as `vfield status` shows them.
const PIN_DIGITS_MIN: usize = 12;

/// What a user calls an image that exists: its name, its id, or both (`NAME=ID`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(pub ImageSelector);

impl FromStr for Wanted {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if let Ok(id) = text.parse::<ImageId>() {
            return Ok(Self(ImageSelector::Id(id)));
        }
        // A name may have an equals sign of its own.
        let pin = text.rsplit_once('=').and_then(|(name, id)| Some((name, IdDigits::new(id)?)));
        if let Some((name, id)) = pin {
            if id.count() < PIN_DIGITS_MIN {
                let fact = format!("{text:?} pins a name to {} digits of an id", id.count());
                return Err(BadValue::new(fact, "give at least 12 digits, as in `vfield status`, or all 64"));
            }
            let ImageName(name) = name.parse()?;
            return Ok(Self(ImageSelector::Pinned { name, id }));
        }
        if text.len() == ID_DIGITS && !text.contains('.') {
            let fact = format!("image id {text:?} is not hexadecimal");
            return Err(BadValue::new(fact, "ids are 64 digits from 0-9 and a-f, as `vfield id FILE` prints them"));
        }
        let ImageName(name) = text.parse()?;
        Ok(Self(ImageSelector::Name(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_file_names() {
        for text in ["viver.squash", "root fs", "日本", "a"] {
            assert!(text.parse::<ImageName>().is_ok(), "{text}");
        }
        for text in ["", ".", "..", "a/b", "a\nb", "a\0b", &"x".repeat(256), &"ab".repeat(32)] {
            assert!(text.parse::<ImageName>().is_err(), "{text}");
        }
    }

    #[test]
    fn sixty_four_digits_are_an_id() {
        let id = "0123456789abcdef".repeat(4);
        assert!(matches!(id.parse(), Ok(Wanted(ImageSelector::Id(_)))));
        assert!(matches!("viver".parse(), Ok(Wanted(ImageSelector::Name(name))) if name == "viver"));
        assert!("xyz!".repeat(16).parse::<Wanted>().is_err());
    }

    #[test]
    fn a_name_can_be_pinned_to_an_id() {
        let pinned = |text: &str| match text.parse() {
            Ok(Wanted(ImageSelector::Pinned { name, id })) => Some((name, id.to_string())),
            _ => None,
        };
        assert_eq!(pinned("os.img=0123456789AB"), Some(("os.img".to_owned(), "0123456789ab".to_owned())));
        assert_eq!(pinned("a=b=0123456789ab").map(|(name, _)| name), Some("a=b".to_owned()));
        assert!("os.img=0123".parse::<Wanted>().is_err_and(|bad| bad.fact.contains("4 digits")));
        assert!(matches!("a=b.img".parse(), Ok(Wanted(ImageSelector::Name(name))) if name == "a=b.img"));
    }
}

//! Choices of images: by a machine's network card, or by a tag.

use std::fmt;
use std::str::FromStr;
use vfield_console::failure::BadValue;

/// The address of a network card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

impl Mac {
    /// The address as a number, its first byte the highest.
    pub fn number(self) -> u64 {
        self.0.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// As it stands in paths: with hyphens.
    pub fn hyphened(self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl FromStr for Mac {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue::new(
                format!("{text:?} is not the address of a network card"),
                "they look like 52:54:00:12:34:56".to_owned(),
            )
        };
        let mut parts = text.split([':', '-']);
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let part =
                parts.next().filter(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *byte = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or_else(bad)?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An image for a machine or a tag, `KEY=IMAGE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice<K> {
    /// The machine or tag.
    pub key: K,
    /// The image's name.
    pub image: String,
}

impl<K: FromStr<Err = BadValue>> FromStr for Choice<K> {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text.split_once('=') {
            Some((key, image)) if !image.is_empty() => Ok(Self { key: key.parse()?, image: image.to_owned() }),
            _ => Err(BadValue::new(format!("{text:?} names no image"), "it looks like NAME=IMAGE".to_owned())),
        }
    }
}

/// A name that may stand in a path and on a kernel's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag(pub String);

impl FromStr for Tag {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let fine = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if text.is_empty() || !text.chars().all(fine) {
            return Err(BadValue::new(format!("{text:?} cannot be a tag"), "use letters, digits and -_.".to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_and_firmware_write_them() {
        let mac: Mac = "52:54:00:AB:cd:01".parse().unwrap();
        assert_eq!("52-54-00-ab-cd-01".parse(), Ok(mac));
        assert_eq!(mac.to_string(), "52:54:00:ab:cd:01");
        assert_eq!((mac.number(), mac.hyphened().as_str()), (0x5254_00ab_cd01, "52-54-00-ab-cd-01"));
        for bad in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "5254:00:ab:cd:01", "+2:54:00:ab:cd:01"] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_choice_names_who_and_what() {
        let choice: Choice<Tag> = "exam=root.squashfs".parse().unwrap();
        assert_eq!((choice.key.0.as_str(), choice.image.as_str()), ("exam", "root.squashfs"));
        assert!("exam".parse::<Choice<Tag>>().is_err());
        assert!("a/b=x".parse::<Choice<Tag>>().is_err());
    }
}

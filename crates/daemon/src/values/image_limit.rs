//! `--image-limit-up` and `--image-limit-down`: a limit of one image, `NAME=RATE`.

use super::image::ImageName;
use super::limit::Limit;
use std::fmt;
use std::str::FromStr;
use vfield_console::failure::BadValue;

const HINT: &str = "limits of images look like viver.squash=50M, or viver.squash=500M,08:00-18:00=50M";

/// The limit of one direction of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLimit {
    /// A name of the image.
    pub image: String,
    /// Its limit over a day.
    pub limit: Limit,
}

impl FromStr for ImageLimit {
    type Err = BadValue;

    /// A name may have equals signs of its own, and so may a limit: the limit begins behind the
    /// first one that a limit follows, up to a comma.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let mut refusal = None;
        for (at, _) in text.match_indices('=') {
            let (name, limit) = (&text[..at], &text[at + 1..]);
            let first = limit.split(',').next().unwrap_or_default();
            match first.parse::<Limit>() {
                Ok(_) => return Ok(Self { image: name.parse::<ImageName>()?.0, limit: limit.parse()? }),
                Err(bad) => refusal = refusal.or(Some(bad)),
            }
        }
        Err(refusal.unwrap_or_else(|| BadValue::new(format!("{text:?} names no image and its limit"), HINT)))
    }
}

impl fmt::Display for ImageLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.image, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<(String, String), String> {
        let parsed = text.parse::<ImageLimit>();
        parsed.map(|ImageLimit { image, limit }| (image, limit.to_string())).map_err(|bad| bad.fact)
    }

    #[test]
    fn a_name_and_a_limit() {
        for (text, image, limit) in [
            ("viver.squash=50M", "viver.squash", "50M"),
            ("viver.squash=none", "viver.squash", "none"),
            ("a b=500M,08:00-18:00=50M", "a b", "500M,08:00-18:00=50M"),
            ("a=08:00-18:00=50M", "a", "none,08:00-18:00=50M"),
            ("a=b=1M", "a=b", "1M"),
        ] {
            assert_eq!(parsed(text), Ok((image.to_owned(), limit.to_owned())), "{text}");
        }
    }

    #[test]
    fn what_is_no_limit_is_refused_in_one_line() {
        for (text, want) in [
            ("50M", "\"50M\" names no image and its limit"),
            ("", "\"\" names no image and its limit"),
            ("=50M", "\"\" cannot name an image: it is empty"),
            ("a/b=50M", "\"a/b\" cannot name an image: it could not be a file's name"),
            ("a=", "\"\" is no rate"),
            ("a=0", "a limit of 0 a second is too low: the least is 128.0 KiB a second"),
            ("a=fast", "\"fast\" is no rate"),
            ("a=1M,25:00-26:00=1M", "\"25:00-26:00\" is no part of a day"),
        ] {
            assert_eq!(parsed(text), Err(want.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_limit_or_a_refusal(text in "[0-9:=,MKan\\-]{0,60}|\\PC{0,20}") {
            if let Ok(limit) = text.parse::<ImageLimit>() {
                prop_assert_eq!(limit.to_string().parse::<ImageLimit>(), Ok(limit));
            }
        }
    }
}

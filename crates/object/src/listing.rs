//! The texts in which S3 answers: lists of objects, and single elements.
//!
//! A pure function of text. It reads the few elements that are used and passes over all others, so
//! it is no parser of XML. Invariant: memory goes by the text's length. Buckets call it.

use std::time::UNIX_EPOCH;

/// A part of a list, in the order of the names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The objects of this part.
    pub objects: Vec<Listed>,
    /// Where the rest begins, if there is one.
    pub next: Option<String>,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The last part of its name.
    pub name: String,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// When it was written, in seconds since 1970 by the store's clock.
    pub written_s: u64,
}

/// Reads a list.
///
/// # Errors
/// In words, as what the text is instead.
pub fn parse(text: &str) -> Result<Listing, String> {
    if !text.contains("<ListBucketResult") {
        return Err("something else".to_owned());
    }
    let mut objects = Vec::new();
    for part in text.split("<Contents>").skip(1) {
        let part = part.split_once("</Contents>").ok_or("a list that is cut")?.0;
        let of = |name| element(part, name);
        let (key, length) = (of("Key").ok_or("an object without a name")?, of("Size"));
        let length_bytes = length.and_then(|length| length.parse().ok()).ok_or("an object without a length")?;
        let written_s = of("LastModified").and_then(|time| seconds(&time)).ok_or("an object without a time")?;
        let name = key.rsplit('/').next().unwrap_or_default().to_owned();
        objects.push(Listed { name, length_bytes, written_s });
    }
    let head = text.split("<Contents>").next().unwrap_or_default();
    let tail = text.rsplit("</Contents>").next().unwrap_or_default();
    let of = |name| element(head, name).or_else(|| element(tail, name));
    let next = of("NextContinuationToken").filter(|next| !next.is_empty());
    match of("IsTruncated").as_deref() {
        Some("true") if next.is_none() => Err("a part of a list, and not with where it goes on".to_owned()),
        Some("true") => Ok(Listing { objects, next }),
        _ => Ok(Listing { objects, next: None }),
    }
}

/// The content of the first element of this name, decoded; `None` if there is none.
pub fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(decode(content))
}

/// The characters that have a meaning in XML, and how they are written.
const NAMED: [(char, &str); 5] = [('&', "amp"), ('<', "lt"), ('>', "gt"), ('"', "quot"), ('\'', "apos")];

/// Writes a text as the content of an element.
pub fn encode(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, letter| {
        match NAMED.iter().find(|(named, _)| *named == letter) {
            Some((_, name)) => out.extend(["&", name, ";"]),
            None => out.push(letter),
        }
        out
    })
}

/// The inverse of [`encode`], and of letters that are written as numbers. Others stay as they are.
fn decode(text: &str) -> String {
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let meant = part.split_once(';').and_then(|(name, rest)| {
            let named = NAMED.iter().find(|(_, own)| *own == name).map(|(letter, _)| *letter);
            let number = || match name.strip_prefix('#')?.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => name.strip_prefix('#')?.parse().ok(),
            };
            Some((named.or_else(|| char::from_u32(number()?))?, rest))
        });
        match meant {
            Some((letter, rest)) => {
                out.push(letter);
                out.push_str(rest);
            }
            None => out.extend(["&", part]),
        }
    }
    out
}

/// The time `2026-11-25T13:14:15.000Z` in seconds since 1970.
fn seconds(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>images</Name>\
        <IsTruncated>true</IsTruncated><Contents><Key>a&amp;b/packs/12</Key>\
        <LastModified>2013-05-24T00:00:07.123Z</LastModified><ETag>&quot;e&quot;</ETag><Size>34</Size></Contents>\
        <Contents><Size>5</Size><Key>c</Key><LastModified>1970-01-02T00:00:00Z</LastModified></Contents>\
        <NextContinuationToken>1/&lt;x=</NextContinuationToken></ListBucketResult>";

    #[test]
    fn a_list_is_read() {
        let listed = |name: &str, length_bytes, written_s| Listed { name: name.to_owned(), length_bytes, written_s };
        let objects = vec![listed("12", 34, 1_369_353_607), listed("c", 5, 86400)];
        assert_eq!(parse(LIST), Ok(Listing { objects: objects.clone(), next: Some("1/<x=".to_owned()) }));
        let whole = LIST.replace("true", "false");
        assert_eq!(parse(&whole), Ok(Listing { objects, next: None }));
        assert_eq!(parse("<ListBucketResult/>"), Ok(Listing::default()));
    }

    #[test]
    fn others_are_refused() {
        for (text, says) in [
            ("<html>", "something else"),
            (&LIST.replace("</Contents>", ""), "is cut"),
            (&LIST.replace("34", "x"), "without a length"),
            (&LIST.replace("Key", "K"), "without a name"),
            (&LIST.replace("2013-05", "2013-13"), "without a time"),
            (&LIST.replace("Token", "T"), "where it goes on"),
        ] {
            assert!(parse(text).unwrap_err().contains(says), "{says}");
        }
    }

    #[test]
    fn characters_are_encoded_and_decoded() {
        for text in ["", "\"e-1\"", "a&b<c>d'e", "&amp;", "&;&"] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(decode("&#65;&#x42;&#xD800;&nbsp;&"), "AB&#xD800;&nbsp;&");
    }

    #[test]
    fn times_are_read() {
        for (text, time) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2024-02-29T12:00:00.000Z", Some(1_709_208_000)),
            ("2024-12-31T23:59:59Z", Some(1_735_689_599)),
            ("1969-12-31T23:59:59Z", None),
            ("2024-1", None),
            ("+024-02-29T12:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), time, "{text}");
        }
    }
}

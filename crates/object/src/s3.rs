//! `s3://BUCKET/KEY` and `gs://BUCKET/KEY`: the URL of the object, and its signer.
//!
//! At AWS the bucket is part of the host's name, as far as its own name allows that. At another
//! endpoint it is the first part of the path, unless the endpoint's name begins with it.
//! Google's buckets are paths.

use crate::address::Address;
use crate::credentials::{self, Credentials, Variable};
use crate::signing::{Dialect, Signer};
use std::fmt::Write as _;

/// Who keeps a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// AWS, or another store that speaks S3.
    S3,
    /// Google, whose buckets speak S3 as well, but have tokens in place of signatures.
    Google,
}

/// How the addresses of buckets begin.
const SCHEMES: [(&str, Keeper); 2] = [("s3://", Keeper::S3), ("gs://", Keeper::Google)];

/// Splits the address of something in a bucket; `None` if it is none.
pub fn split(text: &str) -> Option<(Keeper, &str)> {
    SCHEMES.iter().find_map(|(scheme, keeper)| Some((*keeper, text.strip_prefix(scheme)?)))
}

/// The address and the signer of an object: of `BUCKET/KEY`, the text after the scheme.
///
/// # Errors
/// In words.
pub fn resolve(keeper: Keeper, text: &str, variable: Variable<'_>) -> Result<(Address, Signer), String> {
    let Root { mut address, signer, key } = root(keeper, text, variable)?;
    if key.is_empty() || key.ends_with('/') {
        return Err("it names no key behind the bucket".to_owned());
    }
    address.path = format!("{}/{}", address.path, encode(&key, "/"));
    Ok((address, signer))
}

/// A bucket, and the key or the beginning of keys that was named with it.
pub struct Root {
    /// The bucket's; its path has no slash at its end.
    pub address: Address,
    pub signer: Signer,
    /// As it was typed; empty if only the bucket was named.
    pub key: String,
}

/// Resolves `BUCKET` or `BUCKET/KEY`, the text after the scheme.
///
/// # Errors
/// In words.
pub fn root(keeper: Keeper, text: &str, variable: Variable<'_>) -> Result<Root, String> {
    let (bucket, key) = text.split_once('/').unwrap_or((text, ""));
    if !is_bucket(bucket) {
        return Err("no name of a bucket: 3 to 63 letters, digits, dots and hyphens".to_owned());
    }
    let (mut address, signer) = match keeper {
        Keeper::S3 => of_s3(bucket, variable)?,
        Keeper::Google => of_google(variable)?,
    };
    let in_host = address.server.host.starts_with(&format!("{bucket}."));
    let dir = address.path.trim_end_matches('/');
    address.path = if in_host { dir.to_owned() } else { format!("{dir}/{bucket}") };
    address.query = None;
    Ok(Root { address, signer, key: key.to_owned() })
}

/// Where a bucket of S3 is asked for.
fn of_s3(bucket: &str, variable: Variable<'_>) -> Result<(Address, Signer), String> {
    let region = credentials::region(variable);
    if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err("AWS_REGION is no name of a region".to_owned());
    }
    let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
    let base = match &endpoint {
        Some(endpoint) => endpoint.clone(),
        // A certificate for all buckets has no place for dots.
        None if bucket.contains('.') => format!("https://s3.{region}.amazonaws.com"),
        None => format!("https://{bucket}.s3.{region}.amazonaws.com"),
    };
    let address = Address::parse(&base).map_err(|why| format!("AWS_ENDPOINT_URL: {why}"))?;
    let credentials = Credentials::of_s3(variable, &region, endpoint.is_some())?;
    Ok((address, Signer { dialect: Dialect::S3 { region }, credentials }))
}

/// Where Google's buckets are asked for.
fn of_google(variable: Variable<'_>) -> Result<(Address, Signer), String> {
    let emulator = variable("STORAGE_EMULATOR_HOST");
    let credentials = Credentials::of_google(variable, emulator.is_some())?;
    let base = emulator.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
    let address = Address::parse(&base).map_err(|why| format!("STORAGE_EMULATOR_HOST: {why}"))?;
    Ok((address, Signer { dialect: Dialect::S3 { region: "auto".to_owned() }, credentials }))
}

fn is_bucket(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (3..=63).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.') && !name.contains("..")
}

/// Percent-encodes all but `kept` and the characters that S3's signature leaves as they are.
pub fn encode(text: &str, kept: &str) -> String {
    text.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
            _ if kept.as_bytes().contains(&byte) => text.push(byte.into()),
            // Writing to a string cannot fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str, set: &[(&str, &str)]) -> Result<String, String> {
        let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        resolve(Keeper::S3, text, &variable).map(|(address, _)| address.to_string())
    }

    #[test]
    fn googles_buckets_are_paths() {
        for (emulator, to) in [
            (None, "https://storage.googleapis.com/images/a%20b"),
            (Some("http://127.0.0.1:4443"), "http://127.0.0.1:4443/images/a%20b"),
        ] {
            let variable = |name: &str| emulator.filter(|_| name == "STORAGE_EMULATOR_HOST").map(str::to_owned);
            let (address, signer) = resolve(Keeper::Google, "images/a b", &variable).unwrap();
            assert_eq!((address.to_string().as_str(), signer.credentials.is_some()), (to, emulator.is_none()));
        }
        assert_eq!(split("gs://images/a"), Some((Keeper::Google, "images/a")));
        assert_eq!((split("./gs://images/a"), split("https://a/b")), (None, None));
    }

    #[test]
    fn buckets_are_hosts_at_aws_and_paths_elsewhere() {
        let elsewhere = ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000");
        let general = ("AWS_ENDPOINT_URL", "http://10.0.0.1/");
        let named = ("AWS_ENDPOINT_URL_S3", "https://images.store.example");
        for (text, set, to) in [
            ("images/a b+c.img", vec![], "https://images.s3.us-east-1.amazonaws.com/a%20b%2Bc.img"),
            ("images/a", vec![("AWS_REGION", "eu-central-1")], "https://images.s3.eu-central-1.amazonaws.com/a"),
            ("my.images/d/a", vec![], "https://s3.us-east-1.amazonaws.com/my.images/d/a"),
            ("images/d/a", vec![elsewhere, general], "http://127.0.0.1:9000/images/d/a"),
            ("images/a", vec![general], "http://10.0.0.1/images/a"),
            ("images/a", vec![named], "https://images.store.example/a"),
        ] {
            assert_eq!(url(text, &set).as_deref(), Ok(to), "{text}");
        }
    }

    #[test]
    fn a_bucket_alone_is_a_root() {
        let elsewhere = |name: &str| (name == "AWS_ENDPOINT_URL_S3").then(|| "http://127.0.0.1:9000/s3/".to_owned());
        for (text, path, key) in
            [("images", "/s3/images", ""), ("images/", "/s3/images", ""), ("images/a b/", "/s3/images", "a b/")]
        {
            let root = root(Keeper::S3, text, &elsewhere).unwrap();
            assert_eq!((root.address.path.as_str(), root.key.as_str()), (path, key), "{text}");
        }
        assert_eq!(root(Keeper::S3, "images/a", &|_: &str| None).map(|root| root.address.path), Ok(String::new()));
        assert!(root(Keeper::S3, "a/b", &elsewhere).is_err());
    }

    #[test]
    fn others_are_refused() {
        for text in ["", "images", "images/", "images/d/", "a/b", "no bucket/b", "a..b/c", ".ab/c"] {
            assert!(url(text, &[]).is_err(), "{text}");
        }
        assert!(url("images/a", &[("AWS_REGION", "a/b")]).is_err());
        assert!(url("images/a", &[("AWS_ENDPOINT_URL", "minio:9000")]).is_err());
    }
}

//! Signatures of requests to S3: AWS Signature Version 4, in the header `Authorization`.
//!
//! After <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>. The path
//! and the query are signed as they go on the wire, the body by its SHA-256. Clients ask for the
//! headers of each request; without credentials there are none. Google's buckets take a token in
//! place of a signature.

use crate::azure;
use crate::credentials::{Credentials, Keys, Pass, Token};
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};
use vfield_block::object::ObjectError;

/// Makes the requests for one bucket those of an account.
#[derive(Debug, Clone)]
pub struct Signer {
    pub dialect: Dialect,
    pub credentials: Credentials,
}

/// How a store wants to be shown a key or a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// AWS Signature Version 4 for this region, or a token.
    S3 { region: String },
    /// A signature with the account's key, or a token.
    Azure,
}

/// The parts of a request that are signed.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    pub method: &'a str,
    pub host: &'a str,
    /// Percent-encoded, as it goes on the wire.
    pub path: &'a str,
    /// Names and values encoded, in the order of the names; empty without one.
    pub query: &'a str,
    /// The header `Range`, if there is one.
    pub range: Option<&'a str>,
    pub body: &'a [u8],
}

impl Signer {
    /// The headers to add to a request. The client sends host and range itself.
    ///
    /// # Errors
    /// If a service that lends credentials fails.
    pub async fn headers(
        &self,
        signed: Signed<'_>,
        now: SystemTime,
    ) -> Result<Vec<(&'static str, String)>, ObjectError> {
        let Some(pass) = self.credentials.pass().await? else { return Ok(Vec::new()) };
        Ok(match (pass, &self.dialect) {
            (Pass::Keys(keys), Dialect::S3 { region }) => sign_with(&keys, region, signed, now),
            (Pass::Keys(keys), Dialect::Azure) => azure::sign_with(&keys, signed, now),
            (Pass::Token(Token(token)), dialect) => {
                let version = (*dialect == Dialect::Azure).then(|| (azure::VERSION.0, azure::VERSION.1.to_owned()));
                version.into_iter().chain([("authorization", format!("Bearer {token}"))]).collect()
            }
        })
    }
}

fn sign_with(keys: &Keys, region: &str, signed: Signed<'_>, now: SystemTime) -> Vec<(&'static str, String)> {
    let Signed { method, host, path, query, range, body } = signed;
    let at = timestamp(now);
    let day = &at[..8];
    let body = hex(digest(&SHA256, body).as_ref());
    let mut own = vec![("x-amz-content-sha256", body.clone()), ("x-amz-date", at.clone())];
    own.extend(keys.token.clone().map(|token| ("x-amz-security-token", token)));
    let others = std::iter::once(("host", host.to_owned())).chain(range.map(|range| ("range", range.to_owned())));
    let signed: Vec<_> = others.chain(own.iter().cloned()).collect();
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines = signed.iter().fold(String::new(), |mut lines, (name, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{name}:{value}");
        lines
    });
    let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}");
    let scope = format!("{day}/{region}/s3/aws4_request");
    let hashed = hex(digest(&SHA256, request.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashed}");
    let secret = format!("AWS4{}", keys.secret);
    let key =
        [day, region, "s3", "aws4_request"].iter().fold(secret.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex(&mac(&key, text.as_bytes()));
    let authorization =
        format!("AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}", keys.id);
    own.push(("authorization", authorization));
    own
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    sign(&Key::new(HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `20130524T000000Z`, to the second below. A clock before 1970 shows 1970.
fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time.max(UNIX_EPOCH)).to_string().replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (1_709_208_000, "20240229T120000Z"),
            (1_735_689_599, "20241231T235959Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), "19700101T000000Z");
    }

    /// The key of the documentation's examples.
    fn documented() -> Keys {
        Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        }
    }

    const GET: Signed<'static> = Signed {
        method: "GET",
        host: "examplebucket.s3.amazonaws.com",
        path: "/test.txt",
        query: "",
        range: Some("bytes=0-9"),
        body: b"",
    };

    /// The examples "GET Object" and "Get Bucket (List Objects)" of the documentation.
    #[test]
    fn the_documented_examples_are_signed_as_documented() {
        let now = UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let listing = Signed { path: "/", query: "max-keys=2&prefix=J", range: None, ..GET };
        for (request, signature) in [
            (GET, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
            (listing, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            let headers = sign_with(&documented(), "us-east-1", request, now);
            let authorization = &headers.last().unwrap().1;
            assert!(authorization.ends_with(&format!("Signature={signature}")), "{authorization}");
            assert!(authorization.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"));
        }
    }

    #[test]
    fn a_session_token_is_signed_too() {
        let keys = Keys { token: Some("t".to_owned()), ..documented() };
        let headers = sign_with(&keys, "r", GET, UNIX_EPOCH);
        assert!(headers.contains(&("x-amz-security-token", "t".to_owned())));
        assert!(headers.last().unwrap().1.contains("x-amz-date;x-amz-security-token,"));
    }

    #[test]
    fn a_body_is_signed() {
        let of = |body| sign_with(&documented(), "r", Signed { method: "PUT", range: None, body, ..GET }, UNIX_EPOCH);
        assert_ne!(of(b"a").last(), of(b"b").last());
        assert_eq!(of(b"").first().unwrap().1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}

//! `az://ACCOUNT/CONTAINER/BLOB`: the URL of a blob of Azure, and requests of its account.
//!
//! After <https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key>. A
//! request is signed with the account's key, or has a token, or its URL has a signature (SAS). Only
//! reads are known: other requests to blobs are not those of S3.

use crate::address::Address;
use crate::credentials::{Credentials, Keys, Variable};
use crate::s3::encode;
use crate::signing::{Dialect, Signed, Signer};
use ct_codecs::{Base64, Decoder as _, Encoder as _};
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::time::SystemTime;

/// How the address of a blob begins.
pub const SCHEME: &str = "az://";
/// The version of the protocol, which requests with a key or a token have to name.
pub const VERSION: (&str, &str) = ("x-ms-version", "2021-08-06");

/// The address and the signer of `ACCOUNT/CONTAINER/BLOB`, the text after the scheme.
///
/// # Errors
/// In words.
pub fn resolve(text: &str, variable: Variable<'_>) -> Result<(Address, Signer), String> {
    let form = "it is no ACCOUNT/CONTAINER/BLOB";
    let (account, rest) = text.split_once('/').ok_or(form)?;
    let (container, blob) = rest.split_once('/').ok_or(form)?;
    let is_name = |name: &str, longest| {
        (3..=longest).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if !is_name(account, 24) || !is_name(container, 63) || blob.is_empty() || blob.ends_with('/') {
        return Err(form.to_owned());
    }
    let endpoint = variable("AZURE_STORAGE_SERVICE_ENDPOINT");
    let elsewhere = endpoint.is_some();
    let base = endpoint.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
    let mut address = Address::parse(&base).map_err(|why| format!("AZURE_STORAGE_SERVICE_ENDPOINT: {why}"))?;
    let dir = address.path.trim_end_matches('/');
    address.path = format!("{dir}/{container}/{}", encode(blob, "/"));
    address.query = variable("AZURE_STORAGE_SAS_TOKEN").map(|sas| sas.trim_start_matches('?').to_owned());
    let credentials = match address.query {
        Some(_) => Credentials::None,
        None => Credentials::of_azure(account, variable, elsewhere)?,
    };
    Ok((address, Signer { dialect: Dialect::Azure, credentials }))
}

/// The headers of a request that is signed with the account's key; none if that is no key.
pub fn sign_with(keys: &Keys, signed: Signed<'_>, now: SystemTime) -> Vec<(&'static str, String)> {
    let Ok(secret) = Base64::decode_to_vec(&keys.secret, None) else { return Vec::new() };
    let date = httpdate::fmt_http_date(now);
    let (name, version) = VERSION;
    // Ten headers that are not sent come before the range.
    let text = format!(
        "{}{}{}\nx-ms-date:{date}\n{name}:{version}\n/{}{}",
        signed.method,
        "\n".repeat(11),
        signed.range.unwrap_or_default(),
        keys.id,
        signed.path
    );
    let signature = sign(&Key::new(HMAC_SHA256, &secret), text.as_bytes());
    let signature = Base64::encode_to_string(signature.as_ref()).unwrap_or_default();
    vec![
        ("x-ms-date", date),
        (name, version.to_owned()),
        ("authorization", format!("SharedKey {}:{signature}", keys.id)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str, set: &[(&str, &str)]) -> Result<(String, bool, bool), String> {
        let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        resolve(text, &variable)
            .map(|(address, signer)| (address.to_string(), address.query.is_some(), signer.credentials.is_some()))
    }

    #[test]
    fn blobs_have_the_host_of_their_account() {
        let usual = "https://room.blob.core.windows.net/images/a%20b/c";
        let own = |text: &str, has_query, has_pass| Ok((text.to_owned(), has_query, has_pass));
        assert_eq!(resolved("room/images/a b/c", &[]), own(usual, false, true));
        assert_eq!(resolved("room/images/a b/c", &[("AZURE_STORAGE_KEY", "a2V5")]), own(usual, false, true));
        let sas = [("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=secret")];
        assert_eq!(resolved("room/images/a b/c", &sas), own(&format!("{usual}?..."), true, false));
        let elsewhere = [("AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:10000/room")];
        assert_eq!(resolved("room/images/a", &elsewhere), own("http://127.0.0.1:10000/room/images/a", false, false));
        for text in ["", "room", "room/images", "room/images/", "room/images/a/", "a/images/b", "ro_om/images/b"] {
            assert!(resolved(text, &[]).is_err(), "{text}");
        }
    }

    /// Compared with another program's signature of the documented text.
    #[test]
    fn a_request_is_signed_with_the_accounts_key() {
        let keys = Keys { id: "room".to_owned(), secret: "a2V5".to_owned(), token: None };
        let get =
            Signed { method: "GET", host: "h", path: "/images/a", query: "", range: Some("bytes=0-0"), body: b"" };
        let headers = sign_with(&keys, get, SystemTime::UNIX_EPOCH);
        assert_eq!(headers[0].1, "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(headers[2].1, "SharedKey room:x4bU4ilxirwHVxe7Xhp+UAjjIwY7NJQl3EOQ5w+85gY=");
        assert!(sign_with(&Keys { secret: "no base64".to_owned(), ..keys }, get, SystemTime::UNIX_EPOCH).is_empty());
    }
}

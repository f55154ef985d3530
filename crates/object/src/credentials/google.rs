//! Services that lend tokens of Google: for the file of an account, to a machine.
//!
//! The variables and files are those of the Google programs (application default credentials). The
//! file of a service account has a key, with which a request for a token is signed. That of a
//! person has a token to ask with. A machine asks its metadata service. Invariant: a secret goes
//! over TLS, or to an address of this machine and its link.

use super::{Lent, MACHINE, MACHINE_WITHIN, Pass, Token, Variable, printable, read};
use crate::address::Address;
use crate::connection::Connections;
use crate::text::{Question, ask};
use ct_codecs::{Base64UrlSafeNoPadding, Encoder as _};
use hyper::header::HeaderName;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;
use vfield_block::object::ObjectError;

/// Where tokens are given, unless a file says otherwise.
const TOKENS: &str = "https://oauth2.googleapis.com/token";
/// The right to read and write objects.
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
/// Where a machine asks.
const OF_MACHINE: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// The longest life of a request that is signed with a key.
const LIFE_S: u64 = 3600;

/// A service that lends tokens.
pub enum GoogleService {
    /// For the file of an account.
    Account { file: PathBuf },
    /// To the machine.
    Machine { at: Address },
}

/// The file of an account.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Account {
    #[serde(rename = "service_account")]
    Service { client_email: String, private_key: String, token_uri: Option<String> },
    #[serde(rename = "authorized_user")]
    Person { client_id: String, client_secret: String, refresh_token: String },
    #[serde(other)]
    Other,
}

/// The fields of a form.
type Form = Vec<(&'static str, String)>;

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

#[derive(Deserialize)]
struct Given {
    access_token: String,
    expires_in: u64,
}

impl GoogleService {
    /// For the file that the environment names, else for the usual one, else that of the machine.
    /// Stores `elsewhere` get what the environment names.
    ///
    /// # Errors
    /// In words, if a variable is wrong.
    pub fn find(variable: Variable<'_>, elsewhere: bool) -> Result<Option<Self>, String> {
        let of_home = || {
            let file = PathBuf::from(variable("HOME")?).join(".config/gcloud/application_default_credentials.json");
            file.is_file().then_some(file)
        };
        let file = variable("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
        if let Some(file) = file.or_else(|| if elsewhere { None } else { of_home() }) {
            return Ok(Some(Self::Account { file }));
        }
        let usual = || (!elsewhere).then(|| MACHINE.to_owned());
        let Some(host) = variable("GCE_METADATA_HOST").or_else(usual) else { return Ok(None) };
        let at = Address::parse(&format!("http://{host}")).map_err(|why| format!("GCE_METADATA_HOST: {why}"))?;
        Ok(Some(Self::Machine { at }))
    }

    /// The file that is read for each pass.
    pub const fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Account { file } => Some(file),
            Self::Machine { .. } => None,
        }
    }

    /// A token for an hour; `None` for a machine without an account.
    ///
    /// # Errors
    /// If the service refuses or fails, or if the file is none of an account.
    pub async fn lend(&self, connections: &Connections) -> Result<Option<Lent>, ObjectError> {
        let (answer, at) = match self {
            Self::Account { file } => {
                let (at, form) = question(file)?;
                let form: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
                (ask(connections, Question::form(&at, &form)).await?, at)
            }
            Self::Machine { at } => {
                let headers = [(HeaderName::from_static("metadata-flavor"), "Google".to_owned())];
                let at = Address { path: OF_MACHINE.to_owned(), ..at.clone() };
                // Nobody answers, or has no such account: this is no machine of Google.
                let asking =
                    timeout(MACHINE_WITHIN, ask(connections, Question { headers: &headers, ..Question::get(&at) }));
                match asking.await {
                    Ok(Ok(answer)) if answer.status.as_u16() != 404 => (answer, at),
                    Ok(_) | Err(_) => return Ok(None),
                }
            }
        };
        let host = at.server.authority();
        let given: Option<Given> = serde_json::from_str(&answer.sound(&host, "which lends tokens")?).ok();
        let given = given.filter(|given| printable(&given.access_token) && given.expires_in > 0);
        let given = given.ok_or_else(|| ObjectError::passing(format!("{host} answers with no token")))?;
        let life = Duration::from_secs(given.expires_in.min(LIFE_S));
        Ok(Some(Lent { pass: Pass::Token(Token(given.access_token)), life }))
    }
}

/// Where the owner of this file asks for a token, and how.
fn question(file: &Path) -> Result<(Address, Form), ObjectError> {
    let wrong = |why: &str| ObjectError::lasting(format!("{}: {why}", file.display()));
    let text = read(file).ok_or_else(|| wrong("it cannot be read"))?;
    let account: Account = serde_json::from_str(&text).map_err(|_| wrong("it is no file of an account"))?;
    match account {
        Account::Service { client_email, private_key, token_uri } => {
            let uri = token_uri.unwrap_or_else(|| TOKENS.to_owned());
            let at = Address::parse(&uri).map_err(|why| wrong(&format!("its token_uri: {why}")))?;
            if !at.server.tls && !at.server.is_own() {
                return Err(wrong("its token_uri is not encrypted"));
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let claims = Claims { iss: &client_email, scope: SCOPE, aud: &uri, iat: now, exp: now + LIFE_S };
            let signed = signed(&claims, private_key.as_bytes()).ok_or_else(|| wrong("its private_key is none"))?;
            let kind = "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned();
            Ok((at, vec![("grant_type", kind), ("assertion", signed)]))
        }
        Account::Person { client_id, client_secret, refresh_token } => {
            let at = Address::parse(TOKENS).map_err(|why| wrong(&why))?;
            let form = vec![
                ("grant_type", "refresh_token".to_owned()),
                ("client_id", client_id),
                ("client_secret", client_secret),
                ("refresh_token", refresh_token),
            ];
            Ok((at, form))
        }
        Account::Other => Err(wrong("it is neither a service account's file nor a person's")),
    }
}

/// A request for a token (RFC 7523), signed with a key in PEM.
fn signed(claims: &Claims<'_>, key: &[u8]) -> Option<String> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(key).ok()?;
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok()?;
    let encoded = |bytes: &[u8]| Base64UrlSafeNoPadding::encode_to_string(bytes).ok();
    let head = encoded(br#"{"alg":"RS256","typ":"JWT"}"#)?;
    let text = format!("{head}.{}", encoded(&serde_json::to_vec(claims).ok()?)?);
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).ok()?;
    Some(format!("{text}.{}", encoded(&signature)?))
}

impl fmt::Debug for GoogleService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account { file } => write!(f, "tokens for {}", file.display()),
            Self::Machine { at } => write!(f, "tokens of this machine, by {at}"),
        }
    }
}

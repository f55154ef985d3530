//! Services that lend tokens of Azure: for a token of the cluster, for a secret, to a machine.
//!
//! The variables are those of the Azure programs. Invariant: a secret goes over TLS, or to an
//! address of this machine and its link.

use super::aws::Secret;
use super::{Lent, MACHINE, MACHINE_WITHIN, Pass, Token, Variable, printable};
use crate::address::Address;
use crate::connection::Connections;
use crate::s3::encode;
use crate::text::{Question, ask};
use hyper::header::HeaderName;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;
use vfield_block::object::ObjectError;

/// What a token is for.
const RESOURCE: &str = "https://storage.azure.com/";
/// Where tokens are given, unless the environment says otherwise.
const AUTHORITY: &str = "https://login.microsoftonline.com";

/// A service that lends tokens.
pub enum AzureService {
    /// To an application, for a secret or for a token of its cluster.
    Application { at: Address, client: String, secret: Secret },
    /// To the machine.
    Machine { at: Address },
}

/// A token as it is given: machines get the number as a text.
#[derive(Deserialize)]
struct Given {
    access_token: String,
    expires_in: Number,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Text(String),
}

impl AzureService {
    /// The application that the environment names, else the machine. Stores `elsewhere` get what
    /// the environment names.
    ///
    /// # Errors
    /// In words, if a variable is wrong.
    pub fn find(variable: Variable<'_>, elsewhere: bool) -> Result<Option<Self>, String> {
        let client = variable("AZURE_CLIENT_ID");
        let file = variable("AZURE_FEDERATED_TOKEN_FILE").map(|path| Secret::File(path.into()));
        let secret = file.or_else(|| variable("AZURE_CLIENT_SECRET").map(Secret::Given));
        if let (Some(client), Some(tenant), Some(secret)) = (client.clone(), variable("AZURE_TENANT_ID"), secret) {
            let name = "AZURE_AUTHORITY_HOST";
            let authority = variable(name).unwrap_or_else(|| AUTHORITY.to_owned());
            let mut at = Address::parse(&authority).map_err(|why| format!("{name}: {why}"))?;
            if !at.server.tls && !at.server.is_own() {
                return Err(format!("{name}: not encrypted"));
            }
            at.path = format!("{}/{}/oauth2/v2.0/token", at.path.trim_end_matches('/'), encode(&tenant, ""));
            return Ok(Some(Self::Application { at, client, secret }));
        }
        if elsewhere {
            return Ok(None);
        }
        let mut at = Address::parse(&format!("http://{MACHINE}/metadata/identity/oauth2/token"))?;
        let of_client = client.map_or_else(String::new, |client| format!("&client_id={}", encode(&client, "")));
        at.query = Some(format!("api-version=2018-02-01&resource={}{of_client}", encode(RESOURCE, "")));
        Ok(Some(Self::Machine { at }))
    }

    /// The file that is read for each pass.
    pub const fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Application { secret: Secret::File(file), .. } => Some(file),
            Self::Application { .. } | Self::Machine { .. } => None,
        }
    }

    /// A token for some hours; `None` for a machine without an account.
    ///
    /// # Errors
    /// If the service refuses or fails.
    pub async fn lend(&self, connections: &Connections) -> Result<Option<Lent>, ObjectError> {
        let (answer, host) = match self {
            Self::Application { at, client, secret } => {
                let (scope, text) = (format!("{RESOURCE}.default"), secret.text()?);
                let mut form = vec![("grant_type", "client_credentials"), ("client_id", client), ("scope", &scope)];
                match secret {
                    Secret::Given(_) => form.push(("client_secret", &text)),
                    Secret::File(_) => {
                        let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                        form.extend([("client_assertion_type", kind), ("client_assertion", &text)]);
                    }
                }
                (ask(connections, Question::form(at, &form)).await?, at.server.authority())
            }
            Self::Machine { at } => {
                let headers = [(HeaderName::from_static("metadata"), "true".to_owned())];
                let question = Question { headers: &headers, ..Question::get(at) };
                // Nobody answers, or has no such account: this is no machine of Azure.
                match timeout(MACHINE_WITHIN, ask(connections, question)).await {
                    Ok(Ok(answer)) if !matches!(answer.status.as_u16(), 400 | 404) => (answer, at.server.authority()),
                    Ok(_) | Err(_) => return Ok(None),
                }
            }
        };
        let given: Option<Given> = serde_json::from_str(&answer.sound(&host, "which lends tokens")?).ok();
        let given = given.filter(|given| printable(&given.access_token));
        let life_s = given.as_ref().and_then(|given| match &given.expires_in {
            Number::Plain(seconds) => Some(*seconds),
            Number::Text(text) => text.parse().ok(),
        });
        let (Some(given), Some(life_s @ 1..)) = (given, life_s) else {
            return Err(ObjectError::passing(format!("{host} answers with no token")));
        };
        // A day at most, as tokens are.
        let life = Duration::from_secs(life_s.min(24 * 3600));
        Ok(Some(Lent { pass: Pass::Token(Token(given.access_token)), life }))
    }
}

impl fmt::Debug for AzureService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application { at, client, .. } => write!(f, "tokens of {client}, by {at}"),
            Self::Machine { at } => write!(f, "tokens of this machine, by {at}"),
        }
    }
}

//! Services that lend keys of AWS: to a container, for a token of the cluster, to a machine.
//!
//! The variables are those of the AWS programs. Containers ask an address on their own machine
//! (ECS, EKS). A token of a cluster is exchanged for keys (`AssumeRoleWithWebIdentity`). A machine
//! asks its metadata service, version 2. Invariant: a secret goes over TLS, or to an address of
//! this machine and its link.

use super::{Keys, Lent, MACHINE, MACHINE_WITHIN, Pass, Variable, life, printable, read};
use crate::address::{Address, Server};
use crate::connection::Connections;
use crate::listing::element;
use crate::s3::encode;
use crate::text::{Question, Text, ask};
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderName};
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::time::timeout;
use vfield_block::object::ObjectError;

/// Where a container of ECS asks.
const ECS: &str = "169.254.170.2";
/// Where the agents of clusters listen, besides the addresses of this machine.
const AGENTS: [&str; 3] = [ECS, "169.254.170.23", "fd00:ec2::23"];
/// How long a token of the metadata service counts, in seconds; it is used at once.
const TTL_S: &str = "60";

/// A service that lends keys.
pub enum AwsService {
    /// To a container.
    Container { at: Address, token: Option<Secret> },
    /// For a token of the cluster.
    WebIdentity { at: Address, role: String, session: String, file: PathBuf },
    /// To the machine.
    Machine { at: Address },
}

/// A text that has to go with a request.
pub enum Secret {
    Given(String),
    File(PathBuf),
}

/// Keys as containers and machines get them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: String,
}

impl AwsService {
    /// The service that the environment names, else that of the machine. A store `elsewhere` than
    /// at AWS knows no keys of the machine.
    ///
    /// # Errors
    /// In words, if a variable is wrong.
    pub fn find(variable: Variable<'_>, region: &str, elsewhere: bool) -> Result<Option<Self>, String> {
        let url = |name: &str, text: &str| Address::parse(text).map_err(|why| format!("{name}: {why}"));
        if let (Some(file), Some(role)) = (variable("AWS_WEB_IDENTITY_TOKEN_FILE"), variable("AWS_ROLE_ARN")) {
            let usual = format!("https://sts.{region}.amazonaws.com");
            let at = url("AWS_ENDPOINT_URL_STS", &variable("AWS_ENDPOINT_URL_STS").unwrap_or(usual))?;
            let session = variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "vfield".to_owned());
            return Ok(Some(Self::WebIdentity { at, role, session, file: file.into() }));
        }
        let full = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        let relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").map(|path| format!("http://{ECS}{path}"));
        if let Some(text) = relative.or_else(|| variable(full)) {
            let at = url(full, &text)?;
            if !at.server.tls && !is_near(&at.server) {
                return Err(format!("{full}: neither TLS nor an address of this machine"));
            }
            let file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(|path| Secret::File(path.into()));
            let token = file.or_else(|| variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Secret::Given));
            return Ok(Some(Self::Container { at, token }));
        }
        let is_off = variable("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let named = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        if is_off || (elsewhere && named.is_none()) {
            return Ok(None);
        }
        let at = url("AWS_EC2_METADATA_SERVICE_ENDPOINT", &named.unwrap_or_else(|| format!("http://{MACHINE}")))?;
        Ok(Some(Self::Machine { at }))
    }

    /// True if the environment named it.
    pub const fn is_named(&self) -> bool {
        !matches!(self, Self::Machine { .. })
    }

    /// The file that is read for each pass.
    pub const fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::WebIdentity { file, .. } | Self::Container { token: Some(Secret::File(file)), .. } => Some(file),
            Self::Container { .. } | Self::Machine { .. } => None,
        }
    }

    /// Keys for some hours; `None` for a machine without an account.
    ///
    /// # Errors
    /// If the service refuses or fails.
    pub async fn lend(&self, connections: &Connections) -> Result<Option<Lent>, ObjectError> {
        match self {
            Self::Container { at, token } => {
                let token = token.as_ref().map(Secret::text).transpose()?;
                let headers: Vec<_> = token.into_iter().map(|token| (AUTHORIZATION, token)).collect();
                given(&get(connections, at, &headers).await?, at).map(Some)
            }
            Self::WebIdentity { at, role, session, file } => {
                let token = text_of(file)?;
                let form = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role),
                    ("RoleSessionName", session),
                    ("WebIdentityToken", &token),
                ];
                let answer = ask(connections, Question::form(at, &form)).await?;
                assumed(&sound(answer, at)?, at).map(Some)
            }
            Self::Machine { at } => machine(connections, at).await,
        }
    }
}

impl Secret {
    /// It, read from its file if it lies in one.
    pub fn text(&self) -> Result<String, ObjectError> {
        match self {
            Self::Given(text) => Ok(text.clone()),
            Self::File(path) => text_of(path),
        }
    }
}

/// The keys that a machine's metadata service lends it.
async fn machine(connections: &Connections, at: &Address) -> Result<Option<Lent>, ObjectError> {
    let below = |path: &str| Address { path: format!("{}{path}", at.path.trim_end_matches('/')), ..at.clone() };
    let name = |name: &'static str| HeaderName::from_static(name);
    let ttl = [(name("x-aws-ec2-metadata-token-ttl-seconds"), TTL_S.to_owned())];
    let first = below("/latest/api/token");
    let question = Question { method: Method::PUT, headers: &ttl, ..Question::get(&first) };
    // Nobody answers: this is no machine of AWS.
    let Ok(Ok(token)) = timeout(MACHINE_WITHIN, ask(connections, question)).await else { return Ok(None) };
    let headers = [(name("x-aws-ec2-metadata-token"), sound(token, at)?)];
    let roles = below("/latest/meta-data/iam/security-credentials/");
    let found = ask(connections, Question { headers: &headers, ..Question::get(&roles) }).await?;
    if found.status.as_u16() == 404 {
        return Ok(None);
    }
    let role = sound(found, at)?.lines().next().unwrap_or_default().to_owned();
    let of_role = roles.beside(&encode(&role, ""));
    given(&get(connections, &of_role, &headers).await?, at).map(Some)
}

async fn get(connections: &Connections, at: &Address, headers: &[(HeaderName, String)]) -> Result<String, ObjectError> {
    sound(ask(connections, Question { headers, ..Question::get(at) }).await?, at)
}

/// The text of an answer, unless it is a refusal.
fn sound(answer: Text, at: &Address) -> Result<String, ObjectError> {
    answer.sound(&at.server.authority(), "which lends keys")
}

fn given(text: &str, at: &Address) -> Result<Lent, ObjectError> {
    let given: Option<Given> = serde_json::from_str(text).ok();
    let lent =
        given.and_then(|given| lent(given.access_key_id, given.secret_access_key, given.token, &given.expiration));
    lent.ok_or_else(|| no_keys(at))
}

fn assumed(text: &str, at: &Address) -> Result<Lent, ObjectError> {
    let of = |name| element(text, name);
    let keys = of("AccessKeyId").zip(of("SecretAccessKey")).zip(of("Expiration"));
    let lent = keys.and_then(|((id, secret), until)| lent(id, secret, of("SessionToken"), &until));
    lent.ok_or_else(|| no_keys(at))
}

fn lent(id: String, secret: String, token: Option<String>, until: &str) -> Option<Lent> {
    let is_sound = [Some(&id), Some(&secret), token.as_ref()].into_iter().flatten().all(|text| printable(text));
    let life = life(until, SystemTime::now())?;
    is_sound.then_some(Lent { pass: Pass::Keys(Keys { id, secret, token }), life })
}

fn no_keys(at: &Address) -> ObjectError {
    ObjectError::passing(format!("{} answers with no keys that count now", at.server.authority()))
}

fn text_of(path: &Path) -> Result<String, ObjectError> {
    let text = read(path).map(|text| text.trim().to_owned()).filter(|text| printable(text));
    text.ok_or_else(|| ObjectError::lasting(format!("{}: no token is in it", path.display())))
}

/// True for an address of this machine, and for those at which its cluster answers.
fn is_near(server: &Server) -> bool {
    server.is_own() || AGENTS.contains(&server.host.as_str())
}

impl fmt::Debug for AwsService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container { at, .. } => write!(f, "keys of a container, by {at}"),
            Self::WebIdentity { at, role, .. } => write!(f, "keys of {role}, by {at}"),
            Self::Machine { at } => write!(f, "keys of this machine, by {at}"),
        }
    }
}

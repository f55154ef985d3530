//! Credentials for buckets: of the environment, of a file, or lent by a service.
//!
//! The names are those of the programs of AWS, Google and Azure, and so is their order. A file is
//! read for each request, so a program that renews it needs to tell nobody. Invariant: no secret is
//! in any `Debug` text.

mod aws;
mod azure;
mod google;
mod lender;

use aws::AwsService;
use azure::AzureService;
use google::GoogleService;
use lender::{Lender, Service};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use vfield_block::object::ObjectError;

/// Longest file of credentials or settings.
const FILE_MAX: u64 = 1 << 20;
/// The metadata service of a machine, at AWS and at Google.
const MACHINE: &str = "169.254.169.254";
/// Time for the first answer of a metadata service: elsewhere nobody answers at its address.
const MACHINE_WITHIN: Duration = Duration::from_secs(1);

/// A key of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.id)
    }
}

/// What makes a request one of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass {
    /// It is signed.
    Keys(Keys),
    /// It has a token.
    Token(Token),
}

/// A token that is sent as it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }
}

/// A pass for some time.
pub struct Lent {
    pass: Pass,
    life: Duration,
}

/// Where a pass is found.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// Requests are not signed: for buckets that everybody may read.
    None,
    /// From the environment, as it was at the start.
    Given(Keys),
    /// In a section of a file.
    File { path: PathBuf, profile: String },
    /// A service lends it.
    Lent(Arc<Lender>),
}

/// Looks a variable up that is set and not empty.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Credentials {
    /// Those for S3: of the environment, else by a service that it names. Else those of the file
    /// that it names or of the usual one, if that has the section. Else those of the machine,
    /// unless the store is `elsewhere` than at AWS.
    ///
    /// # Errors
    /// In words, if a variable is wrong.
    pub fn of_s3(variable: Variable<'_>, region: &str, elsewhere: bool) -> Result<Self, String> {
        if let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Self::Given(Keys { id, secret, token: variable("AWS_SESSION_TOKEN") }));
        }
        let service = AwsService::find(variable, region, elsewhere)?;
        let path = file(variable, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let path = path.filter(|_| !service.as_ref().is_some_and(AwsService::is_named));
        if let Some(path) = path {
            let profile = profile(variable);
            if keys_of(&path, &profile).is_some() {
                return Ok(Self::File { path, profile });
            }
        }
        Ok(Self::lent(service.map(Service::Aws)))
    }

    /// Those for Google's buckets: for the file that the environment names. Else for the usual one,
    /// and those of the machine, unless the store is `elsewhere` than at Google.
    ///
    /// # Errors
    /// In words, if a variable is wrong.
    pub fn of_google(variable: Variable<'_>, elsewhere: bool) -> Result<Self, String> {
        let service = GoogleService::find(variable, elsewhere)?;
        Ok(Self::lent(service.map(Service::Google)))
    }

    /// Those for blobs of an account of Azure: its key, else by a service that the environment
    /// names. Else those of the machine, unless the store is `elsewhere` than at Azure.
    ///
    /// # Errors
    /// In words, if a variable is wrong.
    pub fn of_azure(account: &str, variable: Variable<'_>, elsewhere: bool) -> Result<Self, String> {
        if let Some(secret) = variable("AZURE_STORAGE_KEY") {
            return Ok(Self::Given(Keys { id: account.to_owned(), secret, token: None }));
        }
        let service = AzureService::find(variable, elsewhere)?;
        Ok(Self::lent(service.map(Service::Azure)))
    }

    /// Those that a service lends, if there is one.
    fn lent(service: Option<Service>) -> Self {
        service.map_or(Self::None, |service| Self::Lent(Arc::new(Lender::new(service))))
    }

    /// The pass for a request that is sent now.
    ///
    /// # Errors
    /// If a service lends none.
    pub async fn pass(&self) -> Result<Option<Pass>, ObjectError> {
        match self {
            Self::None => Ok(None),
            Self::Given(keys) => Ok(Some(Pass::Keys(keys.clone()))),
            Self::File { path, profile } => Ok(keys_of(path, profile).map(Pass::Keys)),
            Self::Lent(lender) => lender.pass().await,
        }
    }

    /// True if there may be a pass.
    pub const fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// The file that is read again.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Lent(lender) => lender.file(),
            Self::None | Self::Given(_) => None,
        }
    }
}

/// The key in a section of a file.
fn keys_of(path: &Path, profile: &str) -> Option<Keys> {
    let text = read(path)?;
    let of = |name| value(&text, profile, name);
    let (id, secret) = (of("aws_access_key_id")?, of("aws_secret_access_key")?);
    Some(Keys { id, secret, token: of("aws_session_token") })
}

/// The region of the environment, else of the settings' file, else the oldest one.
pub fn region(variable: Variable<'_>) -> String {
    let of_file = || {
        let text = read(&file(variable, "AWS_CONFIG_FILE", "config")?)?;
        let profile = profile(variable);
        let section = if profile == "default" { profile } else { format!("profile {profile}") };
        value(&text, &section, "region")
    };
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")).or_else(of_file);
    region.unwrap_or_else(|| "us-east-1".to_owned())
}

fn profile(variable: Variable<'_>) -> String {
    variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned())
}

fn file(variable: Variable<'_>, name: &str, usual: &str) -> Option<PathBuf> {
    let of_home = || variable("HOME").map(|home| PathBuf::from(home).join(".aws").join(usual));
    variable(name).map(PathBuf::from).or_else(of_home)
}

fn read(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    (about.is_file() && about.len() <= FILE_MAX).then(|| std::fs::read_to_string(path).ok())?
}

/// True for what a header can have.
fn printable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The time from `now` until this one: `2026-11-26T15:00:00Z`, with or without parts of a second.
fn life(until: &str, now: SystemTime) -> Option<Duration> {
    humantime::parse_rfc3339(until).ok()?.duration_since(now).ok()
}

/// The value of `name` in the section `[section]`.
fn value(text: &str, section: &str, name: &str) -> Option<String> {
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = title.trim() == section;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| inside)
            && key.trim() == name
        {
            return Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[ two ]\n# comment\n\
                        aws_access_key_id = C\naws_secret_access_key = D=E\naws_session_token = F\n";

    /// Those for a store that is no one's of AWS.
    fn found(set: &[(&str, &str)]) -> Credentials {
        let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Credentials::of_s3(&variable, "r", true).unwrap()
    }

    fn keys(credentials: &Credentials) -> Option<Keys> {
        match credentials {
            Credentials::Given(keys) => Some(keys.clone()),
            Credentials::File { path, profile } => keys_of(path, profile),
            Credentials::None | Credentials::Lent(_) => None,
        }
    }

    #[test]
    fn the_environment_comes_first_then_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        std::fs::write(&path, FILE).unwrap();
        let file = ("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap());
        let keys = |set: &[(&str, &str)]| keys(&found(set)).map(|keys| (keys.id, keys.secret, keys.token));
        let own = |text: &str| text.to_owned();
        assert_eq!(keys(&[file]), Some((own("A"), own("B"), None)));
        assert_eq!(keys(&[file, ("AWS_PROFILE", "two")]), Some((own("C"), own("D=E"), Some(own("F")))));
        assert_eq!(keys(&[file, ("AWS_PROFILE", "three")]), None);
        let set = [file, ("AWS_ACCESS_KEY_ID", "X"), ("AWS_SECRET_ACCESS_KEY", "Y")];
        assert_eq!(keys(&set), Some((own("X"), own("Y"), None)));
        assert_eq!(keys(&[]), None);
    }

    #[test]
    fn a_renewed_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        std::fs::write(&path, FILE).unwrap();
        let credentials = found(&[("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap())]);
        std::fs::write(&path, FILE.replace("= A", "= Z")).unwrap();
        assert_eq!(keys(&credentials).unwrap().id, "Z");
        assert!(!format!("{:?}", keys(&credentials)).contains('B'));
    }

    #[test]
    fn times_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2013-05-24T00:00:00Z", Some(1_369_353_600)),
            ("2024-02-29T12:00:00.123Z", Some(1_709_208_000)),
            ("2025-12-31T23:59:59Z", Some(1_767_225_599)),
            ("2024-02-29T12:00:00", None),
            ("2024-02-29T12:00Z", None),
            ("1969-12-31T00:00:00Z", None),
            ("2024-13-01T00:00:00Z", None),
            ("99999999999999999999-01-01T00:00:00Z", None),
            ("soon", None),
        ] {
            assert_eq!(life(text, SystemTime::UNIX_EPOCH).map(|time| time.as_secs()), seconds, "{text}");
        }
        assert_eq!(life("2024-02-29T12:00:00Z", SystemTime::now()), None, "it is past");
    }
}

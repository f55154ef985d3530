//! Credentials for S3: of the environment, else of a file, else none.
//!
//! The names are those of the AWS programs. The file is read for each request, so a program that
//! renews it needs to tell nobody. Invariant: no secret is in any `Debug` text.

use std::fmt;
use std::path::PathBuf;

/// Longest file of credentials or settings.
const FILE_MAX: u64 = 1 << 20;

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

/// Where a key is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Requests are not signed: for buckets that everybody may read.
    None,
    /// From the environment, as it was at the start.
    Given(Keys),
    /// In a section of a file.
    File { path: PathBuf, profile: String },
}

/// Looks a variable up that is set and not empty.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Credentials {
    /// Those of the environment, else the file that it names or the usual one, if that has the
    /// section.
    pub fn find(variable: Variable<'_>) -> Self {
        if let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            return Self::Given(Keys { id, secret, token: variable("AWS_SESSION_TOKEN") });
        }
        let path = file(variable, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
        match path.map(|path| Self::File { path, profile: profile(variable) }) {
            Some(found) if found.keys().is_some() => found,
            _ => Self::None,
        }
    }

    /// The key to sign with now.
    pub fn keys(&self) -> Option<Keys> {
        match self {
            Self::None => None,
            Self::Given(keys) => Some(keys.clone()),
            Self::File { path, profile } => {
                let text = read(path)?;
                let of = |name| value(&text, profile, name);
                let (id, secret) = (of("aws_access_key_id")?, of("aws_secret_access_key")?);
                Some(Keys { id, secret, token: of("aws_session_token") })
            }
        }
    }

    /// The file that is read again.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::None | Self::Given(_) => None,
        }
    }
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

fn read(path: &PathBuf) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    (about.is_file() && about.len() <= FILE_MAX).then(|| std::fs::read_to_string(path).ok())?
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

    fn found(set: &[(&str, &str)]) -> Credentials {
        let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Credentials::find(&variable)
    }

    #[test]
    fn the_environment_comes_first_then_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        std::fs::write(&path, FILE).unwrap();
        let file = ("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap());
        let keys = |set: &[(&str, &str)]| found(set).keys().map(|keys| (keys.id, keys.secret, keys.token));
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
        assert_eq!(credentials.keys().unwrap().id, "Z");
        assert!(!format!("{:?}", credentials.keys()).contains('B'));
    }
}

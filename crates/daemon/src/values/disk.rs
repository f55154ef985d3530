//! `--disk`: the directory for stores, and how much they may take of it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_console::values::size::Size;
use vfield_node::config::DiskConfig;

/// `DIR` or `DIR:SIZE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk(pub DiskConfig);

impl FromStr for Disk {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        // A directory's name may have a colon, too.
        let (dir, max_bytes) = match text.rsplit_once(':') {
            Some((dir, size)) => match size.trim().parse::<Size>() {
                Ok(Size(bytes)) => (dir, Some(bytes)),
                Err(_) => (text, None),
            },
            None => (text, None),
        };
        if dir.is_empty() || max_bytes == Some(0) {
            return Err(BadValue::new(format!("{text:?} has no directory with a size"), "give DIR or DIR:SIZE"));
        }
        Ok(Self(DiskConfig { dir: PathBuf::from(dir), max_bytes, each_day_bytes: None }))
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DiskConfig { dir, max_bytes, .. } = &self.0;
        match max_bytes {
            Some(bytes) => write!(f, "{}:{bytes}", dir.display()),
            None => write!(f, "{}", dir.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(dir: &str, max_bytes: Option<u64>) -> Disk {
        Disk(DiskConfig { dir: dir.into(), max_bytes, each_day_bytes: None })
    }

    #[test]
    fn a_directory_may_have_a_size() {
        for (text, means) in [
            ("/var/lib/vfield/stores", disk("/var/lib/vfield/stores", None)),
            ("/disk:100G", disk("/disk", Some(100 << 30))),
            ("stores:1M", disk("stores", Some(1 << 20))),
            ("/a:b/c", disk("/a:b/c", None)),
            ("/a:b:2G", disk("/a:b", Some(2 << 30))),
        ] {
            assert_eq!(text.parse(), Ok(means), "{text}");
        }
        for text in ["", ":1G", "/disk:0"] {
            assert!(text.parse::<Disk>().is_err(), "{text}");
        }
        assert_eq!(disk("/disk", Some(5)).to_string().parse(), Ok(disk("/disk", Some(5))));
    }
}

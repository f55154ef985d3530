//! `--overlay`: where changes are kept, `ram` or a directory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vfield_console::failure::BadValue;

/// Where changes are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverlayPlace {
    /// In memory, for as long as the daemon runs.
    Ram,
    /// In files of a directory.
    Dir(PathBuf),
}

impl FromStr for OverlayPlace {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text {
            "" => Err(BadValue::new("an overlay needs a place", "give ram, or a directory for its files")),
            "ram" => Ok(Self::Ram),
            path => Ok(Self::Dir(Path::new(path).to_owned())),
        }
    }
}

impl fmt::Display for OverlayPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ram => f.write_str("ram"),
            Self::Dir(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_or_a_directory() {
        assert_eq!("ram".parse(), Ok(OverlayPlace::Ram));
        assert_eq!("./ram".parse(), Ok(OverlayPlace::Dir("./ram".into())));
        assert_eq!("/var/lib/vfield".parse(), Ok(OverlayPlace::Dir("/var/lib/vfield".into())));
        assert!("".parse::<OverlayPlace>().is_err());
    }
}

//! `--chunk-size`: a size, or `auto`.
//!
//! The chunk size is a part of an image's id, and versions share chunks only if they have the same.
//! So `auto` looks at nothing but the image's own bytes. Every machine then gets the same id for
//! the same file, whatever its network card is.

use crate::marker::Marker;
use std::path::Path;
use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_console::values::size::Size;
use vfield_core::chunk::ChunkSize;

/// Which chunks an image is to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Chunks {
    /// Those for which the image was packed, else the usual ones.
    #[default]
    Auto,
    /// Of this size.
    Of(ChunkSize),
}

vfield_console::written! {
    Chunks: "a size such as \"64K\", or \"auto\"",
}

impl FromStr for Chunks {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.trim() == "auto" {
            return Ok(Self::Auto);
        }
        let Size(bytes) =
            text.parse().map_err(|bad: BadValue| BadValue::new(bad.fact, "give a size such as 64K, or auto"))?;
        let size = u32::try_from(bytes).ok().and_then(|bytes| ChunkSize::new(bytes).ok());
        size.map(Self::Of).ok_or_else(|| {
            let fact = format!("{bytes} bytes is not a power of two from 16K to 1M");
            BadValue::new(fact, "64K suits nearly every image")
        })
    }
}

impl Chunks {
    /// The chunk size of the image in the file at `path`.
    ///
    /// A file that cannot be read has the usual chunks; its reader says why it is none.
    pub fn of_image(self, path: &Path) -> ChunkSize {
        match self {
            Self::Of(size) => size,
            Self::Auto => Marker::of_file(path).map_or(ChunkSize::DEFAULT, |marker| marker.chunk_size),
        }
    }

    /// The chunk size of an image that is made, like the one at `like` if there is one.
    pub fn like(self, like: Option<&Path>) -> ChunkSize {
        match (self, like) {
            (Self::Auto, Some(like)) => self.of_image(like),
            (Self::Auto, None) => ChunkSize::DEFAULT,
            (Self::Of(size), _) => size,
        }
    }

    /// The size that a person wants; `None` if the image's own counts.
    pub const fn wanted(self) -> Option<ChunkSize> {
        match self {
            Self::Auto => None,
            Self::Of(size) => Some(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kib: u32) -> ChunkSize {
        ChunkSize::new(kib << 10).unwrap()
    }

    #[test]
    fn a_power_of_two_or_auto() {
        assert_eq!("auto".parse::<Chunks>().unwrap(), Chunks::Auto);
        assert_eq!("16K".parse::<Chunks>().unwrap(), Chunks::Of(of(16)));
        assert_eq!("1M".parse::<Chunks>().unwrap(), Chunks::Of(ChunkSize::MAX));
        for (text, fact) in [
            ("60K", "61440 bytes is not a power of two from 16K to 1M"),
            ("2M", "2097152 bytes is not a power of two from 16K to 1M"),
            ("0", "0 bytes is not a power of two from 16K to 1M"),
            ("Auto", "\"Auto\" is not a size"),
            ("", "\"\" is not a size"),
        ] {
            assert_eq!(text.parse::<Chunks>().unwrap_err().fact, fact);
        }
    }

    #[test]
    fn auto_is_what_the_images_own_bytes_say() {
        let dir = tempfile::tempdir().unwrap();
        let (packed, plain) = (dir.path().join("packed"), dir.path().join("plain"));
        let marker = Marker { chunk_size: of(256), metadata_bytes: 1 << 18 };
        std::fs::write(&packed, marker.encode()).unwrap();
        std::fs::write(&plain, [1; 2000]).unwrap();
        let none = dir.path().join("none");
        for (path, size) in [(&packed, of(256)), (&plain, of(64)), (&none, of(64)), (&dir.path().to_owned(), of(64))] {
            assert_eq!(Chunks::Auto.of_image(path), size, "{}", path.display());
            assert_eq!(Chunks::Auto.like(Some(path)), size);
            assert_eq!(Chunks::Of(of(32)).of_image(path), of(32));
            assert_eq!(Chunks::Of(of(32)).like(Some(path)), of(32));
        }
        assert_eq!((Chunks::Auto.like(None), Chunks::Of(of(32)).like(None)), (of(64), of(32)));
        assert_eq!((Chunks::Auto.wanted(), Chunks::Of(of(32)).wanted()), (None, Some(of(32))));
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(Chunks::Auto.of_image(&pipe), ChunkSize::DEFAULT);
    }
}

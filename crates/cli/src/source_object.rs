//! Objects to be served: URLs among the files of `vfield serve`.
//!
//! URLs come from the command line and the configuration file only. A program that was built
//! without the feature `objects` knows that they are URLs, and refuses them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfield_block::object::ObjectStore;
use vfield_console::failure::Failure;
use vfield_console::values::size::Size;
#[cfg(feature = "objects")]
use vfield_daemon::values::image::ImageName;
use vfield_node::object_origin::{CACHE_BYTES, CACHE_BYTES_MIN};
#[cfg(feature = "objects")]
use vfield_object::{Mirrors, Place as Parsed};

/// Memory for parts of each object, in bytes.
///
/// # Errors
/// If it is too little.
pub fn cache_bytes(asked: Option<Size>) -> Result<u64, Failure> {
    match asked {
        Some(Size(bytes)) if bytes < CACHE_BYTES_MIN => {
            let fact = format!("--object-cache: {bytes} bytes are less than {} MiB", CACHE_BYTES_MIN >> 20);
            Err(Failure::usage(fact).hint(format!("without it an object gets {} MiB", CACHE_BYTES >> 20)))
        }
        asked => Ok(asked.map_or(CACHE_BYTES, |Size(bytes)| bytes)),
    }
}

/// Other places of the image that is served.
///
/// # Errors
/// If one is no place of an object, or there is not one object alone that they could be places of.
pub fn mirrors(mirrors: &[PathBuf], files: &[PathBuf]) -> Result<Vec<Place>, Failure> {
    let place = |path: &PathBuf| {
        let place = Place::find(path)?;
        let fact = format!("--mirror: {} is no object", path.display());
        place.ok_or_else(|| {
            Failure::usage(fact)
                .hint("give https://HOST/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY, az://ACCOUNT/CONTAINER/BLOB or oci:HOST/REPOSITORY:TAG")
        })
    };
    let found: Vec<Place> = mirrors.iter().map(place).collect::<Result<_, Failure>>()?;
    let is_one = matches!(files, [file] if Place::find(file)?.is_some());
    if !found.is_empty() && !is_one {
        let failure = Failure::usage("--mirror goes with one object, and with nothing else that is served");
        return Err(failure.hint("serve one object by this daemon: vfield serve URL --mirror URL"));
    }
    Ok(found)
}

/// A variable of the environment that is set and not empty.
#[cfg(feature = "objects")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// An object that was named.
#[cfg(feature = "objects")]
pub enum Place {
    /// One that lies somewhere as it is.
    Plain(Box<Parsed>),
    /// An image in the packs of a bucket.
    #[cfg(feature = "buckets")]
    Packed(Box<vfield_bucket::Packed>),
}

/// No object can be named.
#[cfg(not(feature = "objects"))]
pub enum Place {}

#[cfg(feature = "objects")]
impl Place {
    /// The object that is named in place of a file, if that is one.
    ///
    /// # Errors
    /// If it cannot be an object.
    pub fn find(path: &Path) -> Result<Option<Self>, Failure> {
        let Some(text) = path.to_str().filter(|text| Parsed::is_meant(text)) else { return Ok(None) };
        #[cfg(feature = "buckets")]
        if let Some(packed) = crate::bucket::packed(text)? {
            return Ok(Some(Self::Packed(Box::new(packed))));
        }
        #[cfg(not(feature = "buckets"))]
        if vfield_object::Bucket::is_meant(text) && text.contains('#') {
            return Err(crate::bucket::missing());
        }
        let parsed = Parsed::parse(text, &variable).map_err(|bad| {
            let scheme = text.split_once(':').map_or(text, |(scheme, _)| scheme);
            let hint = "give https://HOST/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY, az://ACCOUNT/CONTAINER/BLOB or oci:HOST/REPOSITORY:TAG; SSL_CERT_FILE names other authorities";
            Failure::usage(format!("the {scheme} address of an image: {}", bad.fact)).hint(hint)
        })?;
        Ok(Some(Self::Plain(Box::new(parsed))))
    }

    /// The name of its image if none is given.
    ///
    /// # Errors
    /// If its address ends with no name.
    pub fn name(&self) -> Result<String, Failure> {
        let name = match self {
            Self::Plain(place) => place.file_name(),
            #[cfg(feature = "buckets")]
            Self::Packed(packed) => packed.file_name(),
        };
        let ImageName(name) = name.parse().map_err(|_| {
            let fact = format!("{}: the end of its address cannot name an image", self.address().display());
            Failure::usage(fact).hint("choose one with --name NAME")
        })?;
        Ok(name)
    }

    /// Its address for people.
    pub fn address(&self) -> PathBuf {
        PathBuf::from(match self {
            Self::Plain(place) => place.address(),
            #[cfg(feature = "buckets")]
            Self::Packed(packed) => packed.address(),
        })
    }

    /// The store to open it in, which has these mirrors.
    pub fn store(self, mirrors: Vec<Self>) -> Arc<dyn ObjectStore> {
        let store = |place| match place {
            Self::Plain(place) => Arc::new(*place) as Arc<dyn ObjectStore>,
            #[cfg(feature = "buckets")]
            Self::Packed(packed) => Arc::new(*packed),
        };
        Arc::new(Mirrors::new(std::iter::once(self).chain(mirrors).map(store).collect()))
    }
}

#[cfg(not(feature = "objects"))]
impl Place {
    /// Refuses the address of an object.
    ///
    /// # Errors
    /// If `path` is one.
    pub fn find(path: &Path) -> Result<Option<Self>, Failure> {
        let is_meant = |text: &str| {
            ["https://", "http://", "s3://", "gs://", "az://", "oci:", "oci+http:"]
                .iter()
                .any(|scheme| text.starts_with(scheme))
        };
        if path.to_str().is_some_and(is_meant) {
            let failure = Failure::usage("this program was built without objects");
            return Err(failure.hint("build it with the feature `objects`, or download the image and serve the file"));
        }
        Ok(None)
    }

    /// There is none.
    ///
    /// # Errors
    /// None.
    pub fn name(&self) -> Result<String, Failure> {
        match *self {}
    }

    /// There is none.
    pub fn address(&self) -> PathBuf {
        match *self {}
    }

    /// There is none.
    pub fn store(self, _: Vec<Self>) -> Arc<dyn ObjectStore> {
        match self {}
    }
}

#[cfg(all(test, feature = "objects"))]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_of_one_object_alone() {
        let paths = |texts: &[&str]| texts.iter().map(PathBuf::from).collect::<Vec<_>>();
        let found = |mirror: &[&str], files: &[&str]| mirrors(&paths(mirror), &paths(files)).map(|found| found.len());
        let (one, two) = ("http://a.example/x.img", "http://b.example/x.img");
        assert_eq!(found(&[two, two], &[one]).unwrap(), 2);
        assert_eq!(found(&[], &["file", one]).unwrap(), 0);
        for (mirror, files) in
            [([two], &[one, two][..]), ([two], &["file"]), ([two], &[]), (["file"], &[one]), (["http:///"], &[one])]
        {
            assert!(found(&mirror, files).is_err(), "{mirror:?} {files:?}");
        }
    }
}

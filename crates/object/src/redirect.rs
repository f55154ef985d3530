//! Where a redirect leads, if it is followed.
//!
//! Invariant: a chain of redirects has at most [`REDIRECTS_MAX`] steps and never leaves TLS. The
//! client asks; this module decides and sends nothing.

use crate::address::Address;

/// Most steps from the given address to the object. Two are usual: another host, then a signed URL.
pub const REDIRECTS_MAX: usize = 5;

/// The address that `location`, in an answer from `from`, means.
///
/// # Errors
/// In words: it is none, or it leaves TLS.
pub fn follow(from: &Address, location: &str) -> Result<Address, String> {
    let to = if let Some(rest) = location.strip_prefix("//") {
        let scheme = if from.server.tls { "https" } else { "http" };
        Address::parse(&format!("{scheme}://{rest}"))
    } else if location.starts_with('/') {
        let (path, query) = split(location);
        Ok(Address { server: from.server.clone(), path, query })
    } else if location.contains("://") {
        Address::parse(location)
    } else {
        let dir = from.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let (path, query) = split(&format!("{dir}/{location}"));
        Ok(Address { server: from.server.clone(), path, query })
    };
    let to = to.map_err(|why| format!("a redirect to what is no address: {why}"))?;
    if from.server.tls && !to.server.tls {
        return Err(format!("a redirect from https to {to}, which is not encrypted, is not followed"));
    }
    Ok(to)
}

fn split(target: &str) -> (String, Option<String>) {
    let target = target.split('#').next().unwrap_or_default();
    match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(from: &str, location: &str) -> Result<String, String> {
        let to = follow(&Address::parse(from).unwrap(), location)?;
        Ok(format!("{to} {}", to.target()))
    }

    #[test]
    fn redirects_lead_to_other_hosts_and_paths() {
        let from = "https://a.example/dir/x.img?v=1";
        for (location, to) in [
            ("https://b.example/y?s=1", "https://b.example/y?... /y?s=1"),
            ("//b.example/y", "https://b.example/y /y"),
            ("/y?s=1#z", "https://a.example/y?... /y?s=1"),
            ("y", "https://a.example/dir/y /dir/y"),
        ] {
            assert_eq!(followed(from, location).as_deref(), Ok(to), "{location}");
        }
        assert_eq!(followed("http://a/x", "https://b/y").as_deref(), Ok("https://b/y /y"));
    }

    #[test]
    fn a_redirect_never_leaves_tls() {
        let refused = followed("https://a.example/x", "http://a.example/x").unwrap_err();
        assert!(refused.contains("not encrypted"), "{refused}");
        for location in ["ftp://a/b", "file:///etc/passwd", "https://u:p@b/c"] {
            assert!(followed("https://a.example/x", location).is_err(), "{location}");
        }
    }
}

//! Whom TLS connections trust: the authorities of this system, or those of `SSL_CERT_FILE` and
//! `SSL_CERT_DIR`.
//!
//! Read once, when a place is named: a sandbox leaves no way to them. A program that runs where
//! there are none says so. Nothing turns the verification off.

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// A connector that trusts the authorities of this system.
///
/// # Errors
/// In words, if there are none.
pub fn connector() -> Result<TlsConnector, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some of a system's authorities are too old for the parser; the others count.
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        return Err(format!("this system has no certificates of authorities{why}"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12]);
    let config = builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

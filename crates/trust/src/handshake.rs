//! The handshake between two members: TLS 1.3 through rustls. Each proves that it has the field's
//! key.
//!
//! Both sides show the same raw public key (RFC 7250), ed25519 derived from the field's secret, and
//! sign with it; there are no certificates, names or dates. The dialling side knocks first
//! ([`crate::knock`]), so a stranger gets no answer. Sans-I/O: records go in one at a time, so the
//! handshake never swallows bytes behind it, and bytes to send come out. When it is done it becomes
//! a [`Channel`].

use crate::derive;
use crate::field_key::{FieldKey, KeyId};
use crate::key_ring::KeyRing;
use crate::knock::{knock, recognise};
use crate::record::{self, HEAD, Opener, RecordError, Sealer};
use crate::traffic::Taken;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ClientConnection, Resumption};
use rustls::crypto::ring::{cipher_suite, default_provider, sign};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{Acceptor, AlwaysResolvesServerRawPublicKeys, ServerConnection};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, Connection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use std::sync::Arc;

/// More bytes than this before it is done are no handshake of ours, which takes about 700.
const HANDSHAKE_MAX: usize = 16 << 10;
/// Label of the exported secret that binds identities to the channel.
const BINDING: &[u8] = b"EXPORTER-V-FIELD-identity";
/// PKCS #8 (RFC 8410) up to the seed of an ed25519 key.
const PKCS8_HEAD: [u8; 16] = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];

/// Why two nodes do not have a field in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// It does not speak TLS.
    #[error("not a TLS record")]
    NotTls,
    /// It has no key of the field, or another one.
    #[error("it does not have the field's key")]
    Stranger,
    /// It violates the protocol.
    #[error("the handshake failed: {0}")]
    Failed(String),
}

impl From<RecordError> for HandshakeError {
    fn from(_: RecordError) -> Self {
        Self::NotTls
    }
}

/// Two ends that have proved themselves to each other.
#[derive(Debug)]
pub struct Channel {
    /// Seals outgoing records.
    pub sealer: Sealer,
    /// Opens incoming records.
    pub opener: Opener,
    /// The key that both have.
    pub key: KeyId,
    /// A secret of this channel that only its two ends know (RFC 8446, section 7.5). A signature
    /// over it proves nothing on another channel.
    pub binding: [u8; 32],
}

/// The progress of a handshake.
enum State {
    /// Waits for the knock.
    Listening(Acceptor, KeyRing),
    /// Both have spoken; its secrets, when they are made, lie with the last.
    Proving(Connection, KeyId, Arc<Taken>),
    /// The handshake has failed.
    Over,
}

/// One side of a handshake.
pub struct Handshake {
    state: State,
    taken: usize,
}

impl Handshake {
    /// The side that dials speaks `key`.
    pub fn dial(key: &FieldKey) -> Self {
        let mut nonce = [0; 8];
        SystemRandom::new().fill(&mut nonce).expect("the system has randomness");
        let name = ServerName::try_from(knock(key, nonce)).expect("digits are a host name");
        let secrets = Arc::new(Taken::default());
        let connection = ClientConnection::new(Arc::new(client(key, Arc::clone(&secrets))), name);
        let connection = connection.expect("a sound configuration");
        Self { state: State::Proving(connection.into(), key.id(), secrets), taken: 0 }
    }

    /// The side that was dialled understands all keys of `ring`.
    pub fn answer(ring: KeyRing) -> Self {
        Self { state: State::Listening(Acceptor::default(), ring), taken: 0 }
    }

    /// Length of the record that begins so, its head included.
    pub fn record_length(head: &[u8; HEAD]) -> Result<usize, HandshakeError> {
        Ok(record::handshake_length(head)?)
    }

    /// Takes in one whole record.
    pub fn receive(&mut self, record: &[u8]) -> Result<(), HandshakeError> {
        self.taken += record.len();
        if self.taken > HANDSHAKE_MAX {
            return Err(HandshakeError::Failed("too long".to_owned()));
        }
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Listening(acceptor, ring) => listen(acceptor, ring, record)?,
            State::Proving(mut connection, key, secrets) => {
                prove(&mut connection, record)?;
                State::Proving(connection, key, secrets)
            }
            State::Over => return Err(HandshakeError::Failed("it is over".to_owned())),
        };
        Ok(())
    }

    /// Bytes to send now.
    pub fn output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if let State::Proving(connection, ..) = &mut self.state {
            while connection.wants_write() {
                connection.write_tls(&mut out).expect("memory takes everything");
            }
        }
        out
    }

    /// True once the other side has proved itself; the rest of [`Handshake::output`] is still to be
    /// sent.
    pub fn is_done(&self) -> bool {
        matches!(&self.state, State::Proving(connection, ..) if !connection.is_handshaking())
    }

    /// The channel, once it is done.
    pub fn finish(self) -> Result<Channel, HandshakeError> {
        let State::Proving(connection, key, secrets) = self.state else { return Err(HandshakeError::Stranger) };
        let dialled = matches!(connection, Connection::Client(_));
        let binding = connection.export_keying_material([0; 32], BINDING, None).map_err(failed)?;
        let suites = connection.dangerous_extract_secrets().map_err(failed)?;
        let none = || HandshakeError::Failed("it has made no secrets".to_owned());
        let (client, server) = secrets.take().ok_or_else(none)?;
        let (ours, theirs) = if dialled { (client, server) } else { (server, client) };
        let (sealer, opener) = (Sealer::new(suites.tx, ours), Opener::new(suites.rx, theirs));
        Ok(Channel { sealer, opener, key, binding })
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

fn failed(error: Error) -> HandshakeError {
    HandshakeError::Failed(error.to_string())
}

/// Answers a knock with one of this field's keys; no other visitor gets even an alert.
fn listen(mut acceptor: Acceptor, ring: KeyRing, mut record: &[u8]) -> Result<State, HandshakeError> {
    acceptor.read_tls(&mut record).map_err(|_| HandshakeError::NotTls)?;
    match acceptor.accept() {
        Ok(None) => Ok(State::Listening(acceptor, ring)),
        Err(_) => Err(HandshakeError::Stranger),
        Ok(Some(accepted)) => {
            let key = {
                let hello = accepted.client_hello();
                let key = hello.server_name().and_then(|name| recognise(&ring, name));
                Arc::clone(key.ok_or(HandshakeError::Stranger)?)
            };
            let secrets = Arc::new(Taken::default());
            let connection = accepted.into_connection(Arc::new(server(&key, Arc::clone(&secrets))));
            let connection: ServerConnection = connection.map_err(|_| HandshakeError::Stranger)?;
            Ok(State::Proving(connection.into(), key.id(), secrets))
        }
    }
}

fn prove(connection: &mut Connection, mut record: &[u8]) -> Result<(), HandshakeError> {
    while !record.is_empty() {
        connection.read_tls(&mut record).map_err(|error| HandshakeError::Failed(error.to_string()))?;
        connection.process_new_packets().map_err(|error| match error {
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => HandshakeError::Stranger,
            other => failed(other),
        })?;
    }
    Ok(())
}

/// The cipher suites of node links: first the one that CPUs have instructions for.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256, cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..default_provider() })
}

fn client(key: &FieldKey, secrets: Arc<Taken>) -> ClientConfig {
    let (own, member) = identity(key);
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("TLS 1.3 with suites of TLS 1.3").dangerous().with_custom_certificate_verifier(member);
    let mut config = builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    config.resumption = Resumption::disabled();
    config.enable_secret_extraction = true;
    config.key_log = secrets;
    config
}

fn server(key: &FieldKey, secrets: Arc<Taken>) -> ServerConfig {
    let (own, member) = identity(key);
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("TLS 1.3 with suites of TLS 1.3").with_client_cert_verifier(member);
    let mut config = builder.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    // Nothing may follow the handshake but data.
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = true;
    config.key_log = secrets;
    config
}

/// The key that a member shows, and the one that it expects: the same.
fn identity(key: &FieldKey) -> (Arc<CertifiedKey>, Arc<Member>) {
    let seed = key.derive(derive::LINK);
    let mut pkcs8 = zeroize::Zeroizing::new(PKCS8_HEAD.to_vec());
    pkcs8.extend_from_slice(&*seed);
    let signing = sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..])).expect("a seed of 32 bytes is a key");
    let public = signing.public_key().expect("ed25519 keys have their public half").into_owned();
    let shown = CertificateDer::from(public.as_ref().to_vec());
    let provider = provider();
    (Arc::new(CertifiedKey::new(vec![shown], signing)), Arc::new(Member { public, provider }))
}

/// Verifies that the other side has the private half of the field's key.
#[derive(Debug)]
struct Member {
    public: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Member {
    fn shows(&self, public: &CertificateDer<'_>) -> Result<(), Error> {
        let same = public.as_ref() == self.public.as_ref();
        if same { Ok(()) } else { Err(Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) }
    }

    fn signed(&self, message: &[u8], signed: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &self.public, signed, algorithms)
    }
}

/// TLS 1.2 is not offered.
fn never() -> Error {
    Error::General("TLS 1.2 is not spoken".to_owned())
}

/// The methods that both kinds of verifier have alike: they take signatures of TLS 1.3 by a raw
/// Ed25519 key, and no others.
macro_rules! raw_ed25519_of_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(never())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            _: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signed(message, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Member {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.shows(end_entity).map(|()| ServerCertVerified::assertion())
    }

    raw_ed25519_of_tls13!();
}

impl ClientCertVerifier for Member {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.shows(end_entity).map(|()| ClientCertVerified::assertion())
    }

    raw_ed25519_of_tls13!();
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;

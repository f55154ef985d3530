//! Keys derived from a field's secret, each purpose under a name of its own (BLAKE3's key
//! derivation). No derived key reveals anything about another one.

/// For display, to tell keys apart.
pub const ID: &str = "V-FIELD 2026-11 field key: id";
/// Finds typing mistakes in key files.
pub const CHECK: &str = "V-FIELD 2026-11 field key: check of a key file";
/// Seed of the ed25519 key with which members prove themselves.
pub const LINK: &str = "V-FIELD 2026-11 field key: links, ed25519 seed";
/// Key of the knock.
pub const KNOCK: &str = "V-FIELD 2026-11 field key: knock";
/// Key of gossip, from which each process's is made.
pub const GOSSIP: &str = "V-FIELD 2026-11 field key: gossip";
/// Key of one process's gossip, from the above and its salt.
pub const GOSSIP_OF: &str = "V-FIELD 2026-11 field key: gossip of one process";

/// Id of a node, from its public key.
pub const NODE_ID: &str = "V-FIELD 2026-11 node id";

/// Finds typing mistakes in the files of identities.
pub const IDENTITY_CHECK: &str = "V-FIELD 2026-11 identity: check of its file";
/// Tells trusted signers apart.
pub const SIGNER: &str = "V-FIELD 2026-11 signer id";

/// 32 bytes for `purpose` out of `material`.
pub fn derive(purpose: &str, material: &[u8]) -> [u8; 32] {
    blake3::derive_key(purpose, material)
}

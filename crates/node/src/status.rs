//! The status of a node and its view of the field: the object behind `vfield status --json`.
//!
//! Field names are an interface for scripts: they are added to, not renamed.

use serde::{Deserialize, Serialize};
use vfield_core::misdeed::Tally;
use vfield_core::tag::{Tag, Version};

/// A node's view at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This node's id, 16 hexadecimal digits.
    pub node: String,
    /// The address it is known by, `ip:port`.
    pub addr: String,
    /// Version of the program.
    pub version: String,
    /// Seconds since the node started.
    pub uptime_s: f64,
    /// True while the node is drained: peers ask it last, and its store fetches no more.
    #[serde(default)]
    pub draining: bool,
    /// Images this node serves or has joined.
    pub images: Vec<ImageStatus>,
    /// Its own zone, and its view of the others.
    #[serde(default)]
    pub zone: ZoneStatus,
    /// All known nodes, this node first; a gateway also knows those of other zones.
    pub nodes: Vec<NodeStatus>,
    /// Members of its zone that went within ten minutes, the latest first.
    #[serde(default)]
    pub gone: Vec<GoneStatus>,
    /// Bytes delivered to this machine's readers and to peers, by where they came from.
    pub traffic: Traffic,
    /// Bytes from each peer, most first.
    pub peers: Vec<PeerTraffic>,
    /// The keys of the field.
    pub field: FieldStatus,
    /// This node's identity.
    #[serde(default)]
    pub identity: IdentityStatus,
    /// The admission list in force; `null` without one.
    #[serde(default)]
    pub admission: Option<AdmissionStatus>,
    /// The tags that this node knows.
    #[serde(default)]
    pub tags: Vec<TagStatus>,
    /// Misconduct of strangers and peers since the node started.
    #[serde(default)]
    pub misdeeds: Tally,
    /// Things a person should know: a changed source file, a lying peer.
    pub warnings: Vec<String>,
}

/// A node's view of the zones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneStatus {
    /// The name of its own zone; empty without a configured zone.
    pub name: String,
    /// True if chunks come into its zone through it.
    pub gateway: bool,
    /// Zones it has heard of, its own among them.
    pub zones: u64,
    /// Known gateways: those of its zone, and on a gateway those of all zones.
    pub gateways: u64,
}

/// The keys of the field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldStatus {
    /// True if there is a key: nodes prove that they have it, and their messages are encrypted.
    pub closed: bool,
    /// Names of the keys in force, 8 hexadecimal digits each, the spoken one first.
    pub keys: Vec<String>,
    /// Rejected connections, without any of the keys.
    pub turned_away: u64,
    /// Datagrams that were not sealed with any of them, or came a second time.
    pub dropped_datagrams: u64,
}

/// The identity of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityStatus {
    /// Its public key, 64 hexadecimal digits.
    pub key: String,
    /// True if it comes from a file, so that the node has it after a restart too.
    pub lasting: bool,
}

/// The admission list that a node enforces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionStatus {
    /// Seconds since 1970 at which it was signed, as the signer says.
    pub timestamp: u64,
    /// The signer's public key in minisign's form.
    pub signer: String,
    /// Number of allowed keys; if it is 0, all that are not revoked are admitted.
    pub allowed: u64,
    /// Number of revoked keys.
    pub revoked: u64,
    /// Connections rejected because of it.
    pub turned_away: u64,
}

/// A tag that a node knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagStatus {
    /// The tag's name.
    pub name: String,
    /// Its place among the tags of this name and signer.
    pub serial: u64,
    /// The id of its image; `null` if the tag was removed.
    pub image: Option<String>,
    /// Versions that followers keep.
    pub keep: u64,
    /// Percent of the nodes that follow to its image.
    pub rollout: u64,
    /// The signer's public key in minisign's form.
    pub signer: String,
    /// Its version of now and those before, the latest first.
    pub versions: Vec<VersionStatus>,
}

impl TagStatus {
    /// The tag itself; `None` if this is none.
    pub fn tag(&self) -> Option<Tag> {
        let version =
            |version: &VersionStatus| Some(Version { serial: version.serial, image: version.image.parse().ok()? });
        let versions: Vec<Version> = self.versions.iter().map(version).collect::<Option<_>>()?;
        let image = self.image.as_deref().map(str::parse).transpose().ok()?;
        let before = versions.into_iter().filter(|version| Some(version.image) != image).collect();
        let tag = Tag {
            name: self.name.parse().ok()?,
            serial: self.serial,
            image,
            keep: u8::try_from(self.keep).ok()?,
            rollout: u8::try_from(self.rollout).ok()?,
            before,
        };
        tag.check().ok().map(|()| tag)
    }
}

/// A version of a tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionStatus {
    /// The serial under which the tag named it last.
    pub serial: u64,
    /// The id of its image.
    pub image: String,
    /// Nodes of the zone that take part in it, this one included, without origins.
    pub nodes: u64,
    /// Those of them whose stores have filled.
    pub filled: u64,
}

/// The data of an image that would be lost with one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sole {
    /// Name of the image.
    pub image: String,
    /// Bytes that no other node holds.
    pub bytes: u64,
    /// Their share of the image, 0 to 1.
    pub share: f64,
}

/// The node with which most of an image would be lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RiskStatus {
    /// Address of the node.
    pub addr: String,
    /// The share of the image that no other store is to hold, 0 to 1.
    pub share: f64,
}

/// One image, as this node sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageStatus {
    /// Its name; of several, the first.
    pub name: String,
    /// All names of the image.
    #[serde(default)]
    pub names: Vec<String>,
    /// Its id, 64 hexadecimal digits.
    pub id: String,
    /// Exact length in bytes.
    pub size_bytes: u64,
    /// Unit of verification and transfer.
    pub chunk_size_bytes: u64,
    /// Share of the chunks that at least one live node other than the origins announces, 0 to 1.
    pub coverage: f64,
    /// Lowest number of live nodes, origins not counted, that announce a chunk.
    pub multiplicity_min: u64,
    /// The same share of stores that this node saw to hold what they announce, and of its own.
    #[serde(default)]
    pub verified: f64,
    /// True once such stores hold all of it: no origin is needed any more.
    pub origin_may_leave: bool,
    /// Addresses of nodes that need an origin all the same: they have no way to stores with all of
    /// it.
    #[serde(default)]
    pub dependents: Vec<String>,
    /// The node with which most of it would be lost if there were no origin; `null` if each chunk
    /// is held twice.
    #[serde(default)]
    pub at_risk: Option<RiskStatus>,
    /// Number of live origins.
    pub origins: u64,
    /// The file or object, if this node is one of them.
    pub source: Option<SourceStatus>,
    /// Bytes this node has committed to hold.
    pub capacity_bytes: u64,
    /// Bytes of that which it holds.
    pub held_bytes: u64,
    /// True once its store holds all it is to hold.
    pub filled: bool,
    /// Bytes that it took over from an earlier process of this node, each verified.
    #[serde(default)]
    pub taken_over_bytes: u64,
    /// True if its store lies on a disk.
    #[serde(default)]
    pub on_disk: bool,
    /// True if its memory is in pages of 2 MiB, as far as the kernel has them.
    #[serde(default)]
    pub large_pages: bool,
    /// Memory that its store takes with its chunks compressed; `null` if they lie plain.
    #[serde(default)]
    pub compressed_bytes: Option<u64>,
    /// Chunks of the store that were other bytes: an earlier process left them so, or the disk gave
    /// them back so.
    #[serde(default)]
    pub spoiled_chunks: u64,
    /// Chunks of the store that its disk does not deliver now: others are asked for them.
    #[serde(default)]
    pub withheld_chunks: u64,
    /// Bytes of that which lie in the memory of other versions on this node.
    #[serde(default)]
    pub shared_bytes: u64,
    /// Bytes in the transient cache.
    pub transient_bytes: u64,
    /// The signer, if this node trusts it.
    pub signed: Option<SignatureStatus>,
    /// Other images that members have under one of its names.
    #[serde(default)]
    pub namesakes: Vec<NamesakeStatus>,
    /// Who needs it here: `served`, `wished`, `pinned`, `open`, or `tag` and a name; empty if it is
    /// rubbish.
    #[serde(default)]
    pub needed: String,
    /// What becomes of it if it is rubbish.
    #[serde(default)]
    pub rubbish: Option<RubbishStatus>,
    /// Chunks that a reader of this node waits for because no live node can deliver them. That of
    /// its longest read too, from 10 s on.
    pub waiting: Vec<WaitingChunk>,
}

impl ImageStatus {
    /// True if it is called so.
    pub fn has_name(&self, name: &str) -> bool {
        self.name == name || self.names.iter().any(|own| own == name)
    }
}

/// An image that nobody needs on this node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RubbishStatus {
    /// Seconds for which nobody has needed it.
    pub since_s: f64,
    /// Why it stays: `grace`, `settling`, `minority` or `last-copy`; empty if it goes now.
    pub stays: String,
    /// Seconds of the grace that are left.
    pub for_s: f64,
    /// Bytes that others may need and that would be lost with it.
    pub lost_bytes: u64,
}

/// Another image of the same name, as members say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesakeStatus {
    /// Name of both images.
    pub name: String,
    /// The other image's id, 64 hexadecimal digits.
    pub id: String,
    /// Address of a holder, `ip:port`; an origin if there is one.
    pub addr: String,
    /// True if that is one.
    pub served: bool,
    /// Number of members that claim it.
    pub nodes: u64,
}

/// A signature that was verified.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignatureStatus {
    /// The signer's public key in minisign's form.
    pub key: String,
    /// Seconds since 1970, as the signer says.
    pub timestamp: u64,
}

/// The file or object behind an image on an origin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its path; of an object, its address without secrets.
    pub path: String,
    /// `intact` (a lease keeps writers out), `checked` (each read is hashed), `changed`, or
    /// `unreachable` (an object whose store does not deliver now).
    pub state: String,
    /// If it is unreachable: the store's answer, in words.
    #[serde(default)]
    pub why: String,
    /// State of the file's name: `unlinked`, or `replaced` by another file; empty if it is in its
    /// place.
    #[serde(default)]
    pub moved: String,
}

/// A chunk that is waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitingChunk {
    /// Its number: data chunks first, then hash pages.
    pub chunk: u64,
    /// The seconds waited so far.
    pub for_s: f64,
    /// Reason in a few words.
    pub why: String,
}

/// A member of the field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id, 16 hexadecimal digits.
    pub id: String,
    /// Its address, `ip:port`.
    pub addr: String,
    /// `alive`, `leaving` (it is drained, or about to go), `suspect`, `stalled`, `unreachable`,
    /// `doubted` (it refuses announced chunks), `dragging` (nothing whole comes from it in time),
    /// `blamed` (it lied) or `self`.
    pub state: String,
    /// Its public key, 64 hexadecimal digits; empty for nodes of other zones.
    #[serde(default)]
    pub key: String,
    /// Its zone; empty without a configured zone.
    #[serde(default)]
    pub zone: String,
    /// True if it is a gateway of its zone.
    #[serde(default)]
    pub gateway: bool,
    /// Sum of its committed stores in bytes; 0 for nodes of other zones, of which it is unknown.
    pub capacity_bytes: u64,
    /// Sum of the bytes in them, likewise.
    pub held_bytes: u64,
    /// Names of the images it is an origin of.
    pub origin_of: Vec<String>,
    /// What its link carries in bytes a second, as it measured, or as its network card says before
    /// that; `null` while neither is known.
    #[serde(default)]
    pub link_bytes_per_s: Option<u64>,
}

/// A member that went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GoneStatus {
    /// Its id, 16 hexadecimal digits.
    pub id: String,
    /// Its address, `ip:port`.
    pub addr: String,
    /// `left`, `died` or `replaced` (another process has its address).
    pub how: String,
    /// Seconds since then.
    pub ago_s: f64,
}

/// Bytes transferred since the node started, by source and target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Delivered to local readers out of this node's memory (or its own source file).
    pub from_store_bytes: u64,
    /// Chunks received from peers that are not origins.
    pub from_peers_bytes: u64,
    /// Chunks received from origins.
    pub from_origin_bytes: u64,
    /// Chunks sent to peers.
    pub to_peers_bytes: u64,
    /// Of the received bytes, those of compressed chunks.
    #[serde(default)]
    pub from_compressed_bytes: u64,
    /// The bytes that these chunks have plain.
    #[serde(default)]
    pub from_compressed_plain_bytes: u64,
    /// Of the bytes sent to peers, those of compressed chunks.
    #[serde(default)]
    pub to_compressed_bytes: u64,
    /// The bytes that these chunks have plain.
    #[serde(default)]
    pub to_compressed_plain_bytes: u64,
}

/// Bytes transferred from and to one peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerTraffic {
    /// Its node id.
    pub id: String,
    /// Its address, `ip:port`.
    pub addr: String,
    /// Its zone; empty without a configured zone.
    #[serde(default)]
    pub zone: String,
    /// True if it is an origin of the image.
    pub origin: bool,
    /// Chunks received from it.
    pub received_bytes: u64,
    /// Chunks sent to it.
    pub sent_bytes: u64,
}

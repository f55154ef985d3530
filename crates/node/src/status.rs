//! What a node can say about itself and its field: the object behind `vfield status --json`.
//!
//! Field names are an interface for scripts: they are added to, not renamed.

use serde::{Deserialize, Serialize};

/// A node's view at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This node's id, 16 hexadecimal digits.
    pub node: String,
    /// The address it is known by, `ip:port`.
    pub addr: String,
    /// Program version.
    pub version: String,
    /// Seconds since the node started.
    pub uptime_s: f64,
    /// Images this node serves or has joined.
    pub images: Vec<ImageStatus>,
    /// The zone it is in, and what it knows of others.
    #[serde(default)]
    pub zone: ZoneStatus,
    /// All nodes it knows, itself first; a gateway also knows those of other zones.
    pub nodes: Vec<NodeStatus>,
    /// Members of its zone that went within ten minutes, the latest first.
    #[serde(default)]
    pub gone: Vec<GoneStatus>,
    /// Bytes delivered to this machine's readers and to peers, by where they came from.
    pub traffic: Traffic,
    /// Bytes from each peer, most first.
    pub peers: Vec<PeerTraffic>,
    /// Who may be in the field.
    pub field: FieldStatus,
    /// What strangers and peers did that they should not have.
    #[serde(default)]
    pub misdeeds: MisdeedsStatus,
    /// Things a person should know: a changed source file, a lying peer.
    pub warnings: Vec<String>,
}

/// What a node knows of zones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneStatus {
    /// The name of its own; empty for the zone of those who were told none.
    pub name: String,
    /// True if chunks come into its zone through it.
    pub gateway: bool,
    /// Zones it has heard of, its own among them.
    pub zones: u64,
    /// Gateways it knows: those of its zone, and if it is one itself those of all zones.
    pub gateways: u64,
}

/// Who may be in the field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldStatus {
    /// True if there is a key: nodes prove that they have it, and what they say is encrypted.
    pub closed: bool,
    /// Names of the keys in force, 8 hexadecimal digits each, the spoken one first.
    pub keys: Vec<String>,
    /// Connections of those who did not have any of them.
    pub turned_away: u64,
    /// Datagrams that were not sealed with any of them, or came a second time.
    pub dropped_datagrams: u64,
}

/// How often strangers and peers did what they should not have done, since the node started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MisdeedsStatus {
    /// Wrong bytes, and broken protocols: each put its peer aside for a minute or more.
    pub lies: u64,
    /// Refusals of what a peer says that it has.
    pub false_claims: u64,
    /// Times that a peer was put aside since nothing whole came from it.
    pub drags: u64,
    /// False words of this node's own death that it denied.
    pub denials: u64,
    /// Connections that did not greet in time.
    pub silent: u64,
    /// Connections that were ended for others, there being too many.
    pub shown_out: u64,
    /// Frames that did not come whole in time.
    pub slow_frames: u64,
    /// What was no frame, or one that does not belong there.
    pub broken_frames: u64,
    /// Connections over which answers were asked for and not read.
    pub unread: u64,
}

/// What would be lost of an image with one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sole {
    /// Its name.
    pub image: String,
    /// How many bytes no other node holds.
    pub bytes: u64,
    /// Their share of the image, 0 to 1.
    pub share: f64,
}

/// The node with which most of an image would be lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RiskStatus {
    /// Its address.
    pub addr: String,
    /// The share of the image that no other store is to hold, 0 to 1.
    pub share: f64,
}

/// One image, as this node sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageStatus {
    /// Its name; of several, the first.
    pub name: String,
    /// All its names.
    #[serde(default)]
    pub names: Vec<String>,
    /// Its id, 64 hexadecimal digits.
    pub id: String,
    /// Exact length.
    pub size_bytes: u64,
    /// Unit of verification and transfer.
    pub chunk_size_bytes: u64,
    /// Share of the chunks that at least one live node other than the origins holds, 0 to 1.
    pub coverage: f64,
    /// Lowest number of live nodes, origins not counted, that hold a chunk.
    pub multiplicity_min: u64,
    /// True once the stores hold all of it: no origin is needed any more.
    pub origin_may_leave: bool,
    /// With whom most of it would be lost once no origin is there; none if each chunk is held twice.
    #[serde(default)]
    pub at_risk: Option<RiskStatus>,
    /// Live origins.
    pub origins: u64,
    /// True if this node is one, with the file's path.
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
    /// Bytes it keeps besides its store, for a while.
    pub transient_bytes: u64,
    /// Who signed it, if that is one of those whom this node trusts.
    pub signed: Option<SignatureStatus>,
    /// Other images that members have under one of its names.
    #[serde(default)]
    pub namesakes: Vec<NamesakeStatus>,
    /// Chunks that a reader of this node waits for because no live node can deliver them.
    pub waiting: Vec<WaitingChunk>,
}

impl ImageStatus {
    /// True if it is called so.
    pub fn has_name(&self, name: &str) -> bool {
        self.name == name || self.names.iter().any(|own| own == name)
    }
}

/// Another image of the same name, as members say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesakeStatus {
    /// The name.
    pub name: String,
    /// The other image's id, 64 hexadecimal digits.
    pub id: String,
    /// Where it is, `ip:port`; an origin if there is one.
    pub addr: String,
    /// True if that is one.
    pub served: bool,
    /// How many members speak of it.
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

/// The file behind an image on an origin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its path as given.
    pub path: String,
    /// `intact` (a lease keeps writers out), `checked` (each read is hashed) or `changed`.
    pub state: String,
    /// What has become of the file's name: `unlinked`, or `replaced` by another file; empty if it is where it was.
    #[serde(default)]
    pub moved: String,
}

/// A chunk that is waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitingChunk {
    /// Its number: data chunks first, then hash pages.
    pub chunk: u64,
    /// For how long.
    pub for_s: f64,
    /// Why, in a few words.
    pub why: String,
}

/// A member of the field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id, 16 hexadecimal digits.
    pub id: String,
    /// `ip:port`.
    pub addr: String,
    /// `alive`, `suspect`, `stalled`, `unreachable`, `doubted` (it refuses what it says that it has), `dragging`
    /// (nothing whole comes from it), `blamed` (it lied) or `self`.
    pub state: String,
    /// Its zone; empty for the zone of those who were told none.
    #[serde(default)]
    pub zone: String,
    /// True if it is a gateway of its zone.
    #[serde(default)]
    pub gateway: bool,
    /// Sum of what it has committed to hold; 0 for nodes of other zones, of whom this is not known.
    pub capacity_bytes: u64,
    /// Sum of what it holds, likewise.
    pub held_bytes: u64,
    /// Names of the images it is an origin of.
    pub origin_of: Vec<String>,
}

/// A member that went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GoneStatus {
    /// Its id, 16 hexadecimal digits.
    pub id: String,
    /// `ip:port`.
    pub addr: String,
    /// `left`, `died` or `replaced` (another process has its address).
    pub how: String,
    /// Seconds since then.
    pub ago_s: f64,
}

/// Where bytes came from and went to, since the node started.
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
}

/// What came from one peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerTraffic {
    /// Its node id.
    pub id: String,
    /// `ip:port`.
    pub addr: String,
    /// Its zone; empty for the zone of those who were told none.
    #[serde(default)]
    pub zone: String,
    /// True if it is an origin of the image.
    pub origin: bool,
    /// Chunks received from it.
    pub received_bytes: u64,
    /// Chunks sent to it.
    pub sent_bytes: u64,
}

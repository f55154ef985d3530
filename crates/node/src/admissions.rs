//! The admission list that this node enforces, and how it travels from node to node.
//!
//! A node with trusted signers of such lists keeps the latest list that one of them signed. With
//! each snapshot exchange it asks the other node for a later one, and so tells which it has. A node
//! that hears of a later list asks in turn. It verifies a list before it keeps it or passes it on,
//! so each node sends a list that it stands for. A node without trusted signers admits everybody,
//! and takes no part.

use crate::driver::Driver;
use crate::event::Event;
use crate::log_limit::LogLimit;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use vfield_core::admission::{Admission, Version};
use vfield_core::identity::Identity;
use vfield_core::node::Input;
use vfield_core::signing::Signatures as _;
use vfield_core::wire::{self, ListQuestion, SIGNERS_MAX, SignedList, WireError};
use vfield_trust::admission::{self, BadAdmission, Verified};
use vfield_trust::signature::{self, TrustedKeys};

/// Most lists that this node asks for within a second because others said that they have a later
/// one. Some of them may lie, and a list has up to a mebibyte. The question of each snapshot
/// exchange comes besides.
const ASKED_MAX: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);

/// The list in force, and how many nodes it kept out.
#[derive(Debug)]
pub struct Admissions {
    trusted: Option<TrustedKeys>,
    in_force: watch::Sender<Option<Arc<Verified>>>,
    /// Lists asked for within a second: since when, and how many.
    asked: Mutex<(Instant, u32)>,
    turned_away: AtomicU64,
    /// The latest list that a trusted signer signed and that cannot be read here. A later version
    /// of this program may have made it.
    unreadable: Mutex<Version>,
    log_limit: LogLimit,
}

impl Admissions {
    /// The list of a start, and the signers of later ones.
    pub fn new(trusted: Option<TrustedKeys>, list: Option<Verified>) -> Self {
        Self {
            trusted,
            in_force: watch::Sender::new(list.map(Arc::new)),
            asked: Mutex::new((Instant::now(), 0)),
            turned_away: AtomicU64::new(0),
            unreadable: Mutex::default(),
            log_limit: LogLimit::default(),
        }
    }

    /// The list in force, if there is one.
    pub fn in_force(&self) -> Option<Arc<Verified>> {
        self.in_force.borrow().clone()
    }

    /// The nodes that are admitted.
    pub fn admission(&self) -> Arc<Admission> {
        self.in_force().map(|list| Arc::clone(&list.admission)).unwrap_or_default()
    }

    /// A receiver that changes with the list.
    pub fn changes(&self) -> watch::Receiver<Option<Arc<Verified>>> {
        self.in_force.subscribe()
    }

    /// Nodes that were rejected because of the list.
    pub fn turned_away_count(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// A frame that asks for a later list, and tells which one is here.
    pub fn question(&self) -> Option<Vec<u8>> {
        let mut signers = self.trusted.as_ref()?.digests();
        signers.truncate(SIGNERS_MAX);
        Some(wire::list_question_frame(0, &ListQuestion { version: self.latest_seen(), signers }))
    }

    /// The list for a node that asked, if it is later and of a signer that the node trusts.
    pub fn answer(&self, question: &ListQuestion) -> Option<Arc<Verified>> {
        let list = self.in_force()?;
        let wanted = list.version > question.version && question.signers.contains(&signature::digest(&list.signed.key));
        wanted.then_some(list)
    }

    /// True if this node asks the asker in turn, since that has a later list.
    pub fn asks_back(&self, question: &ListQuestion) -> bool {
        if self.trusted.is_none() || question.version <= self.latest_seen() {
            return false;
        }
        let (mut asked, now) = (self.asked.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if now.duration_since(asked.0) >= SECOND {
            *asked = (now, 0);
        }
        asked.1 += 1;
        asked.1 <= ASKED_MAX
    }

    /// A list from a peer, if it is of use.
    fn judge(&self, list: SignedList) -> Result<Option<Verified>, WireError> {
        let Some(trusted) = &self.trusted else { return Ok(None) };
        match admission::verify(list, trusted) {
            Ok(list) => Ok(Some(list)),
            Err(BadAdmission::Signature(_)) => Err(WireError::Field("signature")),
            Err(BadAdmission::List { why, version }) => {
                let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
                if version > *unreadable {
                    *unreadable = version;
                    tracing::warn!("a signed admission list is not enforced here, since it cannot be read: {why}");
                }
                Ok(None)
            }
        }
    }

    /// The version of the latest list that was here, whether it can be read or not. No node sends
    /// it again.
    fn latest_seen(&self) -> Version {
        let in_force = self.in_force().map(|list| list.version).unwrap_or_default();
        in_force.max(*self.unreadable.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the list by a later one; false if it is not later.
    fn replace(&self, list: Arc<Verified>) -> bool {
        self.in_force.send_if_modified(|known| {
            let later = known.as_ref().is_none_or(|known| known.version < list.version);
            if later {
                *known = Some(list);
            }
            later
        })
    }
}

impl Driver {
    /// Takes in a list from a peer, which was asked for one. A list that is not later changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// If none of the signers that this node trusts has signed it: the peer was told who they are.
    pub fn take_list(self: &Arc<Self>, list: SignedList) -> Result<(), WireError> {
        if let Some(list) = self.admissions.judge(list)? {
            self.enforce(list);
        }
        Ok(())
    }

    /// Enforces a list from now on, and ends the connections of nodes that it does not admit. False
    /// if a list that is as late is in force.
    pub fn enforce(self: &Arc<Self>, list: Verified) -> bool {
        let list = Arc::new(list);
        if !self.admissions.replace(Arc::clone(&list)) {
            return false;
        }
        let (admission, timestamp) = (Arc::clone(&list.admission), list.version.timestamp);
        let (allowed, revoked) = (admission.allowed() as u64, admission.revoked() as u64);
        self.event(Event::Admission { timestamp, allowed, revoked });
        self.links.close_excluded(&admission);
        self.apply(Input::Admission(admission));
        self.check_own();
        true
    }

    /// Warns if the list does not admit this node itself.
    pub fn check_own(&self) {
        let admission = self.admissions.admission();
        if !admission.admits(&self.key.key()) {
            self.warn(not_admitted(&admission, self.key.node().to_string()));
        }
    }

    /// Notes a node that the list does not admit; it is logged unless its address was a moment ago.
    pub fn excluded(&self, addr: SocketAddr) {
        self.admissions.turned_away.fetch_add(1, Ordering::Relaxed);
        if self.admissions.log_limit.allows(addr.ip()) {
            self.warn(format!("{} rejected: the admission list does not admit its identity", addr.ip()));
        }
    }

    /// Asks a node for a later list.
    pub fn ask_list(self: &Arc<Self>, peer: Identity) {
        if let Some(question) = self.admissions.question() {
            self.links.ask(self, peer, &question);
        }
    }
}

/// Why a list does not admit this node, in words.
pub fn not_admitted(admission: &Admission, node: String) -> String {
    let why = if admission.allowed() > 0 { "revoked, or not among those allowed" } else { "revoked" };
    format!("the admission list does not admit this node: {node} is {why}; other nodes reject it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Tuning;
    use crate::driver::Trust;
    use crate::field_keys::FieldKeys;
    use crate::gossip::Gossip;
    use std::net::Ipv4Addr;
    use tokio::net::UdpSocket;
    use vfield_core::admission::{Line, Rule};
    use vfield_core::config::Config;
    use vfield_core::identity::Zone;
    use vfield_core::membership::Member;
    use vfield_core::node::Node as Core;
    use vfield_trust::NodeKey;
    use vfield_trust::signature::Signed;

    /// The public key and the signature of "hello" are those of [`vfield_trust`]'s tests.
    const KEY: &str = include_str!("../../trust/src/testdata/minisign.pub");
    const SIGNATURE: &str = include_str!("../../trust/src/testdata/hello.minisig");

    fn key() -> String {
        KEY.lines().nth(1).unwrap().to_owned()
    }

    fn admissions(list: Option<Verified>) -> Admissions {
        Admissions::new(TrustedKeys::read(&[key()]).unwrap(), list)
    }

    fn list(timestamp: u64) -> Verified {
        let text = format!("vfield-admission 1\n# {timestamp}\n");
        let (version, signed) = (Version::of(&text, timestamp), Signed { key: key(), timestamp });
        Verified { version, signed, admission: Arc::default(), list: SignedList { text, signature: String::new() } }
    }

    fn question(of: &Admissions) -> ListQuestion {
        wire::decode_list_question(&of.question().unwrap()[wire::HEADER..]).unwrap()
    }

    #[test]
    fn a_list_that_no_trusted_signer_signed_breaks_the_protocol() {
        let judge = |text: &str, signature: &str| {
            admissions(None).judge(SignedList { text: text.to_owned(), signature: signature.to_owned() })
        };
        let broken = Err(WireError::Field("signature"));
        assert_eq!(judge("vfield-admission 1\n", SIGNATURE), broken);
        assert_eq!(judge("vfield-admission 1\n", "none"), broken);
        // Signed, and of no use.
        assert_eq!(judge("hello\n", SIGNATURE), Ok(None));
        let nobody = Admissions::new(None, None);
        assert_eq!(nobody.judge(SignedList { text: "x".to_owned(), signature: "y".to_owned() }), Ok(None));
        assert!(nobody.question().is_none());
    }

    #[test]
    fn the_later_list_is_sent_and_the_older_one_is_not() {
        let (old, new, none) = (admissions(Some(list(5))), admissions(Some(list(6))), admissions(None));
        assert_eq!(new.answer(&question(&old)).map(|list| list.version.timestamp), Some(6));
        assert_eq!(old.answer(&question(&none)).map(|list| list.version.timestamp), Some(5));
        assert!(old.answer(&question(&new)).is_none() && new.answer(&question(&new)).is_none());
        assert!(new.answer(&ListQuestion { signers: vec![7], ..question(&old) }).is_none(), "it cannot verify it");
        assert!(old.asks_back(&question(&new)) && !new.asks_back(&question(&old)) && !new.asks_back(&question(&new)));
        assert!(new.replace(Arc::new(list(7))) && !new.replace(Arc::new(list(7))) && !new.replace(Arc::new(list(6))));
        assert_eq!(new.in_force().map(|list| list.version.timestamp), Some(7));
    }

    /// It has up to a mebibyte, and each exchange of snapshots would bring it.
    #[test]
    fn a_list_that_cannot_be_read_is_sent_once() {
        let here = admissions(Some(list(5)));
        let unreadable = SignedList { text: "hello\n".to_owned(), signature: SIGNATURE.to_owned() };
        let signed = TrustedKeys::read(&[key()]).unwrap().unwrap().verify(b"hello\n", SIGNATURE).unwrap();
        let there = admissions(Some(Verified { version: Version::of(&unreadable.text, signed.timestamp), ..list(6) }));
        assert!(there.answer(&question(&here)).is_some() && here.asks_back(&question(&there)));
        assert_eq!(here.judge(unreadable), Ok(None));
        assert!(there.answer(&question(&here)).is_none() && !here.asks_back(&question(&there)), "it comes again");
        assert_eq!(here.in_force().map(|list| list.version.timestamp), Some(5), "the readable one stays in force");
        let next = admissions(Some(list(signed.timestamp + 1)));
        assert!(next.answer(&question(&here)).is_some(), "a later one comes");
    }

    /// Whoever invents later lists causes few questions.
    #[test]
    fn questions_because_of_others_are_bounded() {
        let here = admissions(None);
        let claim = |timestamp| ListQuestion { version: Version { timestamp, digest: 0 }, signers: Vec::new() };
        let asked = (1..100).filter(|timestamp| here.asks_back(&claim(*timestamp))).count();
        // A busy machine may take more than a second for them.
        assert!((ASKED_MAX as usize..50).contains(&asked), "{asked}");
    }

    /// Two lists may come at once, and the later one reach the core first.
    #[tokio::test]
    async fn the_core_is_told_of_the_list_in_force() {
        let (mine, lost) = (Arc::new(NodeKey::draw().unwrap()), NodeKey::draw().unwrap());
        let at = |key: &NodeKey, port| {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Identity { node: key.node(), addr, generation: 1, zone: Zone::default() }
        };
        let revoked = Line { rule: Rule::Revoke, key: lost.key(), name: String::new() };
        let later = Verified { admission: Arc::new(Admission::new(&[revoked], NodeKey::id)), ..list(6) };
        let keys = Arc::new(FieldKeys::new(None));
        let gossip = Gossip::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(), Arc::clone(&keys));
        let (me, signs) = (at(&mine, 1), Arc::clone(&mine));
        let core = |now| Core::new(me, signs, Config::default(), 1, now);
        let trust = Trust { key: mine, lasting_key: false, admissions: admissions(Some(list(5))) };
        let (driver, _hints) = Driver::new(core, gossip, keys, trust, Tuning::default(), false, Arc::new(|_| {}));
        assert!(driver.enforce(later));
        driver.apply(Input::Admission(Arc::default()));
        driver.apply(Input::Met(Member::signed(at(&lost, 2), 0, false, &lost)));
        assert_eq!(driver.look(|core| core.members().len()), 1, "a revoked node is a member");
    }
}

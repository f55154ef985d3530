//! Proofs: the signatures of images, passed on by every node that has some, believed by nodes that
//! trust the signer.
//!
//! A node with trusted signers reads only images that they signed under their name in the field. A
//! node without any keeps the proofs it gets, for the sake of the others. It cannot tell a good
//! signature from a bad one. So it keeps several, and the others ask several nodes.

use crate::driver::Driver;
use crate::greet::GreetError;
use crate::interview::{self, Guest, Manner};
use crate::naming::Known;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vfield_core::image::ImageId;
use vfield_core::node::Claim;
use vfield_core::statement::Statement;
use vfield_core::wire::{self, Kind, Proof, WireError};
use vfield_trust::signature::{self, SignatureError, Signed, TrustedKeys};

/// Most proofs kept of an image: for some names, by some signers, and some invented; 4 KiB each at
/// most.
const KEPT_MAX: usize = 16;
/// Most proofs taken from one member, which so cannot displace those of all others.
const OF_ONE_MEMBER_MAX: usize = 4;
/// Proofs are short, so many members are asked at once. Many may not exist, and each of those takes
/// its time.
const MANNER: Manner = Manner { at_once: 64, pace: Duration::ZERO, within: Duration::from_secs(10) };

/// Members asked by a node without trusted signers: enough to find a good proof among invented
/// ones.
const RELAY_ASKS: usize = 8;
/// After this all of them are asked if the first one, asked at once, had none. A room that is
/// switched on has work to do before, and most images are not signed.
const RELAY_AGAIN: Duration = Duration::from_secs(15);

/// Why an image is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Disbelief {
    /// No member has a signature of it.
    #[error("it is not signed")]
    Unsigned,
    /// The signature is invalid; see [`SignatureError`].
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A good signature of something else.
    #[error("its signature is one of another image, or of another name")]
    OtherImage,
}

/// A proof, and what this node knows of it.
#[derive(Debug, Clone)]
struct Held {
    proof: Arc<Proof>,
    /// The signer, if it is a trusted one.
    signed: Option<Signed>,
}

/// The proofs that this node has.
#[derive(Debug, Default)]
pub struct Proofs {
    held: Mutex<BTreeMap<ImageId, Vec<Held>>>,
}

impl Proofs {
    /// Keeps a proof, to be passed on. `signed` is its trusted signer, if there is one; such a
    /// proof is not displaced.
    pub fn keep(&self, image: ImageId, proof: Proof, signed: Option<Signed>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = held.entry(image).or_default();
        if held.iter().any(|held| *held.proof == proof && (held.signed.is_some() || signed.is_none())) {
            return;
        }
        held.retain(|held| *held.proof != proof);
        if held.len() >= KEPT_MAX {
            match held.iter().rposition(|held| held.signed.is_none()).filter(|_| signed.is_some()) {
                Some(last) => drop(held.remove(last)),
                None => return,
            }
        }
        let trusted = signed.is_some();
        let at = if trusted { 0 } else { held.len() };
        held.insert(at, Held { proof: Arc::new(proof), signed });
    }

    /// The proof of an image with this number, beginning with 0; none after the last.
    pub fn of(&self, image: ImageId, number: usize) -> Option<Arc<Proof>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&image)?.get(number).map(|held| Arc::clone(&held.proof))
    }

    /// The signer, if it is a trusted one.
    pub fn signed(&self, image: ImageId) -> Option<Signed> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&image)?.iter().find_map(|held| held.signed.clone())
    }
}

/// True if `proof` speaks of this image, which was proved, under one of its names.
pub fn is_about(proof: &Proof, known: &Known) -> bool {
    let statement: Result<Statement, _> = proof.statement.parse();
    let Known { id, names, header } = known;
    statement.is_ok_and(|said| said.id == *id && names.contains(&said.name) && said.header == *header)
}

/// The name and the signer in a valid proof; or why it is of no use.
fn judge(proof: &Proof, known: &Known, trusted: &TrustedKeys) -> Result<(String, Signed), Disbelief> {
    let signed = trusted.verify(proof.statement.as_bytes(), &proof.signature)?;
    let statement: Statement = proof.statement.parse().map_err(|_| Disbelief::OtherImage)?;
    if is_about(proof, known) { Ok((statement.name, signed)) } else { Err(Disbelief::OtherImage) }
}

/// The names of an image that have a trusted signature, or why there are none. Asks until it finds
/// a proof that is `enough`.
pub async fn believed(
    driver: &Arc<Driver>,
    known: &Known,
    (claims, met): (&[&Claim], &[SocketAddr]),
    trusted: &TrustedKeys,
    enough: impl Fn(&str) -> bool,
) -> Result<Vec<String>, Disbelief> {
    let (mut names, mut disbelief) = (Vec::new(), Disbelief::Unsigned);
    ask(driver, known.id, interview::whom(driver, claims, met), |proof| {
        match judge(&proof, known, trusted) {
            Ok((name, signed)) => {
                driver.proofs.keep(known.id, proof, Some(signed));
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Err(why) => disbelief = why,
        }
        names.iter().any(|name| enough(name))
    })
    .await;
    if names.is_empty() { Err(disbelief) } else { Ok(names) }
}

/// Gets proofs of an image that was proved, to hand on.
pub async fn pass_on(driver: Arc<Driver>, known: Known, met: Vec<SocketAddr>) {
    let claims = driver.look(|core| core.claims());
    let claims: Vec<&Claim> = claims.iter().filter(|claim| claim.subject.image == known.id).collect();
    let mut whom = interview::whom(&driver, &claims, &met);
    whom.truncate(RELAY_ASKS);
    let others = whom.split_off(whom.len().min(1));
    for (wait, whom) in [(Duration::ZERO, whom), (RELAY_AGAIN, others)] {
        if driver.proofs.of(known.id, 0).is_some() {
            return;
        }
        tokio::time::sleep(wait).await;
        ask(&driver, known.id, whom, |proof| {
            // Without trusted signers nothing but the form of a signature can be checked.
            if is_about(&proof, &known) && signature::is_one(&proof.signature) {
                driver.proofs.keep(known.id, proof, None);
            }
            false
        })
        .await;
    }
}

/// Asks the given members, all at once, until `enough` of their proofs are found.
async fn ask(driver: &Arc<Driver>, id: ImageId, whom: Vec<SocketAddr>, mut enough: impl FnMut(Proof) -> bool) {
    let ask = |addr| {
        let driver = Arc::clone(driver);
        async move { of_member(&driver, addr, id).await.unwrap_or_default() }
    };
    let take = |_, proofs: Vec<Proof>| proofs.into_iter().any(&mut enough);
    interview::ask_all(whom, MANNER, ask, take).await;
}

/// The proofs of an image that a member has: it tells one after the other, until it refuses.
async fn of_member(driver: &Driver, addr: SocketAddr, image: ImageId) -> Result<Vec<Proof>, GreetError> {
    let mut guest = Guest::at(driver, addr).await?;
    let mut proofs: Vec<Proof> = Vec::new();
    while proofs.len() < OF_ONE_MEMBER_MAX {
        let (answer, body) = guest.ask(&wire::prove_frame(proofs.len() as u64, image)).await?;
        match answer.kind {
            Kind::Proof => {
                let proof = wire::decode_proof(&body)?;
                // It knows only one, and repeats it.
                if proofs.contains(&proof) {
                    break;
                }
                proofs.push(proof);
            }
            Kind::Refuse => break,
            _ => return Err(WireError::Field("kind").into()),
        }
    }
    Ok(proofs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(number: usize) -> Proof {
        Proof { statement: number.to_string(), signature: String::new() }
    }

    #[test]
    fn claims_of_strangers_are_bounded_and_give_way() {
        let (proofs, image) = (Proofs::default(), ImageId([1; 32]));
        (0..2 * KEPT_MAX).for_each(|number| proofs.keep(image, proof(number), None));
        let kept = |number| proofs.of(image, number).map(|kept| kept.statement.clone());
        assert_eq!((kept(0), kept(KEPT_MAX - 1), kept(KEPT_MAX)), (Some("0".to_owned()), Some("15".to_owned()), None));
        let signed = Signed { key: "RW".to_owned(), timestamp: 7 };
        proofs.keep(image, proof(99), Some(signed.clone()));
        assert_eq!((kept(0), kept(KEPT_MAX - 1), kept(KEPT_MAX)), (Some("99".to_owned()), Some("14".to_owned()), None));
        assert_eq!(proofs.signed(image), Some(signed));
        proofs.keep(image, proof(3), None);
        assert_eq!(kept(KEPT_MAX), None, "none is there twice");
    }
}

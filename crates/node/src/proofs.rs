//! Proofs: the signatures of images, handed on by every node that has one, believed by those who trust the signer.
//!
//! A node that trusts somebody reads nothing that is not signed by them under the name that it has in the field.
//! A node that trusts nobody keeps what it is told, for the sake of those who do.

use crate::bootstrap::Known;
use crate::driver::Driver;
use crate::greet::{self, GreetError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use vfield_core::image::ImageId;
use vfield_core::statement::Statement;
use vfield_core::wire::{self, FrameHeader, HEADER, Kind, Proof, WireError};
use vfield_trust::signature::{SignatureError, Signed, TrustedKeys};

/// How long a member may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// So many members are asked before an image counts as unsigned; whoever has the image has its proof, as a rule.
const MEMBERS_MAX: usize = 16;

/// Why an image is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Disbelief {
    /// No member has a signature of it.
    #[error("it is not signed")]
    Unsigned,
    /// See [`SignatureError`].
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A good signature of something else.
    #[error("its signature is one of another image, or of another name")]
    OtherImage,
}

/// What this node knows of an image's signature.
#[derive(Debug, Clone)]
struct Held {
    proof: Arc<Proof>,
    signed: Option<Signed>,
}

/// The proofs that this node has.
#[derive(Debug, Default)]
pub struct Proofs {
    held: Mutex<BTreeMap<ImageId, Held>>,
}

impl Proofs {
    /// Keeps a proof, to be handed on; `signed` if its signer is trusted here.
    pub fn keep(&self, image: ImageId, proof: Proof, signed: Option<Signed>) {
        let held = Held { proof: Arc::new(proof), signed };
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(image, held);
    }

    /// The proof of an image.
    pub fn of(&self, image: ImageId) -> Option<Arc<Proof>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&image).map(|held| Arc::clone(&held.proof))
    }

    /// Who signed it, if that is one of the trusted.
    pub fn signed(&self, image: ImageId) -> Option<Signed> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&image).and_then(|held| held.signed.clone())
    }
}

/// True if `proof` speaks of this image under this name.
pub fn is_about(proof: &Proof, known: &Known) -> bool {
    let statement: Result<Statement, _> = proof.statement.parse();
    let Known { id, name, header } = known;
    statement.is_ok_and(|said| said.id == *id && said.name == *name && said.header == *header)
}

fn judge(proof: &Proof, known: &Known, trusted: &TrustedKeys) -> Result<Signed, Disbelief> {
    let signed = trusted.verify(proof.statement.as_bytes(), &proof.signature)?;
    if is_about(proof, known) { Ok(signed) } else { Err(Disbelief::OtherImage) }
}

/// Gets a proof from any member and believes it, or says why none was found that can be believed.
pub async fn believe(driver: &Arc<Driver>, known: &Known, trusted: &TrustedKeys) -> Result<(), Disbelief> {
    let mut disbelief = Disbelief::Unsigned;
    for addr in members(driver) {
        let Ok(Some(proof)) = ask(driver, addr, known.id).await else { continue };
        match judge(&proof, known, trusted) {
            Ok(signed) => {
                driver.proofs.keep(known.id, proof, Some(signed));
                return Ok(());
            }
            Err(why) => disbelief = why,
        }
    }
    Err(disbelief)
}

/// Gets a proof to hand on, if any member has one.
pub async fn pass_on(driver: Arc<Driver>, known: Known) {
    for addr in members(&driver) {
        if let Ok(Some(proof)) = ask(&driver, addr, known.id).await
            && is_about(&proof, &known)
        {
            return driver.proofs.keep(known.id, proof, None);
        }
    }
}

/// Addresses of other members.
fn members(driver: &Driver) -> Vec<SocketAddr> {
    let me = driver.look(|core| *core.me());
    let members = driver.look(|core| core.members()).into_iter().map(|member| member.identity);
    members.filter(|member| member.node != me.node).map(|member| member.addr).take(MEMBERS_MAX).collect()
}

/// The proof of an image that a member has.
async fn ask(driver: &Arc<Driver>, addr: SocketAddr, image: ImageId) -> Result<Option<Proof>, GreetError> {
    let me = driver.look(|core| *core.me());
    let (mut connection, _) = greet::dial(addr, me, driver.keys.ring()).await?;
    let exchange = async {
        connection.send(&wire::prove_frame(0, image)).await?;
        let head = connection.receive(HEADER).await?;
        let header = FrameHeader::decode(head.first_chunk().expect("as long as was asked for"))?;
        let body = connection.receive(header.length as usize).await?;
        match header.kind {
            Kind::Proof => Ok(Some(wire::decode_proof(&body)?)),
            Kind::Refuse => Ok(None),
            _ => Err(WireError::Field("kind").into()),
        }
    };
    timeout(ANSWER, exchange).await.map_err(|_| GreetError::TimedOut)?
}

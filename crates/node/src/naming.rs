//! Naming: finds the image that a selector means, from the claims of members and from proofs.
//!
//! Invariant: the chosen image has a header that belongs to its id, shown by a header proof. No
//! other image with the wanted name has such a proof. Of two candidates none is chosen, and both
//! are shown: a person decides, or a signature. [`crate::node`] calls it before it joins an image.

use crate::config::ImageSelector;
use crate::driver::Driver;
use crate::entry::{Met, Patience};
use crate::event::Event;
use crate::header::{self, Proved, Tried};
use crate::node::StartError;
use crate::proofs::{self, Disbelief};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use vfield_core::header_proof::HeaderProof;
use vfield_core::image::{Header, ImageId};
use vfield_core::names::Names;
use vfield_core::node::Claim;
use vfield_trust::signature::TrustedKeys;

/// How long an image may take to show up: its holder may have joined a moment ago too.
const SHOWS_UP: Duration = Duration::from_secs(3);
/// An image is looked for again this often meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most candidates for one wish that are proved, beginning with those that most members claim.
const CANDIDATES_MAX: usize = 16;
/// Most candidates that are proved at once. A member closes the oldest of 64 connections that have
/// not greeted it yet, and each candidate asks over its own.
const PROVED_AT_ONCE: usize = 16;

/// An image that the field has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The id of the image.
    pub id: ImageId,
    /// Its announced names.
    pub names: Names,
    /// The header of the image.
    pub header: Header,
}

/// An image that was wished for.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The image, with the names that it has in the field.
    pub known: Known,
    /// Its names on this node.
    pub here: Names,
    /// The proof of its header, if a member has shown it.
    pub proof: Option<HeaderProof>,
}

/// All claims about one image.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The image's id.
    pub id: ImageId,
    /// The claims: names, headers, tellers.
    pub claims: Vec<Claim>,
}

impl Offer {
    /// All images that the field claims to have.
    pub fn all(driver: &Driver) -> Vec<Self> {
        let mut offers: BTreeMap<ImageId, Vec<Claim>> = BTreeMap::new();
        for claim in driver.look(|core| core.claims()) {
            offers.entry(claim.subject.image).or_default().push(claim);
        }
        offers.into_iter().map(|(id, claims)| Self { id, claims }).collect()
    }

    /// True if `wanted` may mean it.
    fn is_meant(&self, wanted: &ImageSelector) -> bool {
        wanted.means(&self.id, |name| self.has_name(name))
    }

    fn has_name(&self, name: &str) -> bool {
        self.claims.iter().any(|claim| claim.subject.names.contains(name))
    }

    /// The number of members that claim it.
    fn tellers(&self) -> usize {
        self.claims.iter().map(|claim| claim.tellers.len()).sum()
    }

    /// Its names, its id, and the tellers, for display.
    fn text(&self) -> String {
        let names = Names::of(self.claims.iter().flat_map(|claim| claim.subject.names.iter()));
        let names = names.map_or_else(|_| "an image of many names".to_owned(), |names| names.to_string());
        let tellers = || self.claims.iter().flat_map(|claim| &claim.tellers);
        let said = match tellers().find(|teller| teller.origin).or_else(|| tellers().next()) {
            Some(teller) if teller.origin => format!(", served by {}", teller.identity.addr),
            Some(teller) => format!(", held by {}", teller.identity.addr),
            None => String::new(),
        };
        format!("{names} (id {}{said})", self.id.short())
    }
}

/// An offer of which a header was proved.
#[derive(Debug, Clone)]
struct Sure {
    offer: Offer,
    proved: Proved,
    /// The names that are signed, where signatures are wanted.
    signed: Option<Vec<String>>,
}

impl Sure {
    /// The claims with the right header, those of most tellers first.
    fn claims(&self) -> Vec<&Claim> {
        let header = self.proved.header.encode();
        let mut claims: Vec<&Claim> = self.offer.claims.iter().filter(|claim| claim.subject.header == header).collect();
        claims.sort_unstable_by_key(|claim| std::cmp::Reverse(claim.tellers.len()));
        claims
    }

    /// True if `wanted` may mean it.
    fn is_meant(&self, wanted: &ImageSelector) -> bool {
        // Where signatures are wanted, a name that is pinned to an id has to be a signed one.
        let unsigned = |name: &str| wanted.is_pin() && self.signed.is_some() && !self.has_name(name);
        wanted.means(&self.offer.id, |name| self.has_name(name)) && !wanted.name().is_some_and(unsigned)
    }

    /// True if it is called so, and may be.
    fn has_name(&self, name: &str) -> bool {
        let said = || self.claims().iter().any(|claim| claim.subject.names.contains(name));
        self.signed.as_ref().map_or_else(said, |signed| signed.iter().any(|own| own == name))
    }

    /// The names on this node if none was requested: all its names, if the tellers agree on them. A
    /// user who selects by id gets the image whatever its name: then the names of most tellers.
    fn names(&self, by_id: bool) -> Result<Names, StartError> {
        if let Some(signed) = &self.signed {
            let first = || signed.first().map(String::as_str);
            return Ok(
                Names::of(signed.iter().map(String::as_str)).unwrap_or_else(|_| first().unwrap_or_default().into())
            );
        }
        let claims = self.claims();
        let covers = |names: &Names| claims.iter().all(|claim| names.contains_all(&claim.subject.names));
        let agreed = claims.iter().map(|claim| &claim.subject.names).find(|names| covers(names));
        let most_tellers = claims.first().map(|claim| &claim.subject.names).filter(|_| by_id);
        agreed.or(most_tellers).cloned().ok_or_else(|| StartError::ManyNames {
            id: self.offer.id,
            names: claims.iter().map(|claim| claim.subject.names.to_string()).collect(),
        })
    }

    /// The image as it is announced and exported; called `name` here, if that was requested.
    fn chosen(&self, name: Option<&str>, by_id: bool) -> Result<Chosen, StartError> {
        let here = name.map_or_else(|| self.names(by_id), |name| Ok(name.into()))?;
        let claims = self.claims();
        let named = claims.iter().find(|claim| claim.subject.names.contains_all(&here)).or(claims.first());
        let names = named.map_or_else(|| here.clone(), |claim| claim.subject.names.clone());
        let known = Known { id: self.offer.id, names, header: self.proved.header };
        Ok(Chosen { known, here, proof: self.proved.proof.clone() })
    }
}

/// The sources of a search for images.
pub struct Search<'a> {
    /// The driver that asks members.
    pub driver: &'a Arc<Driver>,
    /// The selectors; none: the field's only image.
    pub wanted: &'a [ImageSelector],
    /// The stores that an earlier process of this node left.
    pub held: &'a [Known],
    /// Members that this node was configured with.
    pub met: &'a [SocketAddr],
    /// The signers whose signatures are needed.
    pub trusted: Option<&'a TrustedKeys>,
    /// A member to which this node is connected: the first question goes there.
    pub open: Mutex<Option<Met>>,
}

impl Search<'_> {
    /// Asks `met` first, over its connection.
    pub fn ask_first(&self, met: Option<Met>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = met;
    }

    /// Finds the wanted images. It waits a little for them to show up, unless `alone`, then
    /// searches the kept stores. It waits with `patience` for a field without any image: its first
    /// node may be about to start.
    pub async fn find(&self, alone: bool, patience: Patience) -> Result<Vec<Chosen>, StartError> {
        let end = Instant::now() + if alone { Duration::ZERO } else { SHOWS_UP };
        let mut said = false;
        let offers = loop {
            let all = Offer::all(self.driver);
            match meant(&all, self.wanted) {
                Ok(offers) => break offers,
                Err(_) if !alone && all.is_empty() && !patience.is_over() => {
                    if Instant::now() >= end && !std::mem::replace(&mut said, true) {
                        self.driver.event(Event::NoImages);
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Err(error) if Instant::now() >= end => return self.held_here().map_err(|_| error),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        };
        let (mut sure, tried) = self.prove(offers).await;
        if let Some(trusted) = self.trusted {
            sure = self.believe(sure, trusted).await?;
        }
        match choose(&sure, &tried, self.wanted) {
            // A kept store is used only if there is nothing else.
            Err(error @ StartError::Unproved { .. }) if self.trusted.is_none() => self.held_here().map_err(|_| error),
            chosen => chosen,
        }
    }

    /// The wishes, as far as they are held here.
    pub fn held_here(&self) -> Result<Vec<Chosen>, StartError> {
        let offer = |known: &Known| Sure {
            offer: Offer { id: known.id, claims: vec![claim(known)] },
            proved: Proved { header: known.header, proof: None },
            signed: None,
        };
        let sure: Vec<Sure> = self.held.iter().map(offer).collect();
        let offers: Vec<Offer> = sure.iter().map(|sure| sure.offer.clone()).collect();
        meant(&offers, self.wanted)?;
        choose(&sure, &[], self.wanted)
    }

    /// Proves offers, many at once; returns the failed attempts too.
    async fn prove(&self, offers: Vec<Offer>) -> (Vec<Sure>, Vec<(Offer, Tried)>) {
        let (mut offers, mut proving) = (offers.into_iter(), JoinSet::new());
        let (mut sure, mut failed) = (Vec::new(), Vec::new());
        loop {
            for offer in offers.by_ref().take(PROVED_AT_ONCE - proving.len()) {
                let (driver, met) = (Arc::clone(self.driver), self.met.to_vec());
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
                proving.spawn(async move {
                    let claims: Vec<&Claim> = offer.claims.iter().collect();
                    let proved = header::prove(&driver, offer.id, &claims, &met, open).await;
                    (offer, proved)
                });
            }
            let Some(proved) = proving.join_next().await else { break };
            match proved.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
                (offer, Ok(proved)) => sure.push(Sure { offer, proved, signed: None }),
                (offer, Err(tried)) => failed.push((offer, tried)),
            }
        }
        // By id, whatever the order of the answers.
        sure.sort_unstable_by_key(|sure: &Sure| sure.offer.id);
        (sure, failed)
    }

    /// The images with a trusted signature; the reason, if there is none.
    async fn believe(&self, sure: Vec<Sure>, trusted: &TrustedKeys) -> Result<Vec<Sure>, StartError> {
        let (mut believed, mut refused) = (Vec::new(), None);
        for mut sure in sure {
            let claims = sure.claims();
            let names = Names::of(claims.iter().flat_map(|claim| claim.subject.names.iter()));
            let names = names.unwrap_or_else(|_| claims.first().map_or("".into(), |claim| claim.subject.names.clone()));
            let known = Known { id: sure.offer.id, names, header: sure.proved.header };
            let enough = |name: &str| {
                self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted.name().is_none_or(|own| own == name))
            };
            match proofs::believed(self.driver, &known, (&claims, self.met), trusted, enough).await {
                Ok(names) => {
                    sure.signed = Some(names);
                    believed.push(sure);
                }
                Err(why) => refused = Some(StartError::Untrusted { image: known.names.to_string(), why }),
            }
        }
        refused.filter(|_| believed.is_empty()).map_or(Ok(believed), Err)
    }

    /// Another proved image of this name that is served: then this node must not serve one under
    /// that name.
    pub async fn namesake(&self, name: &str, id: ImageId) -> Option<String> {
        let others = Offer::all(self.driver).into_iter().filter(|offer| offer.id != id && offer.has_name(name));
        let (sure, _) = self.prove(most_tellers(others.collect())).await;
        // Nodes that still read an earlier image do not prevent another one from being served.
        let is_served =
            |sure: &&Sure| sure.claims().iter().any(|claim| claim.tellers.iter().any(|teller| teller.origin));
        sure.iter().filter(is_served).find(|sure| sure.has_name(name)).map(|sure| sure.offer.text())
    }
}

/// A label's content in the form of a claim.
fn claim(known: &Known) -> Claim {
    let subject =
        vfield_core::record::Subject { image: known.id, names: known.names.clone(), header: known.header.encode() };
    Claim { subject: subject.into(), tellers: Vec::new() }
}

fn most_tellers(mut offers: Vec<Offer>) -> Vec<Offer> {
    offers.sort_unstable_by_key(|offer| std::cmp::Reverse(offer.tellers()));
    offers.truncate(CANDIDATES_MAX);
    offers
}

/// The offers that any of the wishes may mean; an error if one of them can mean none.
fn meant(offers: &[Offer], wanted: &[ImageSelector]) -> Result<Vec<Offer>, StartError> {
    let known = || offers.iter().map(Offer::text).collect();
    if offers.is_empty() && wanted.is_empty() {
        return Err(StartError::UnknownImage { wanted: "at all".to_owned(), known: Vec::new() });
    }
    for wanted in wanted {
        if !offers.iter().any(|offer| offer.is_meant(wanted)) {
            return Err(StartError::UnknownImage { wanted: wanted.to_string(), known: known() });
        }
    }
    if wanted.is_empty() {
        return Ok(most_tellers(offers.to_vec()));
    }
    let of = |wanted| most_tellers(offers.iter().filter(|offer| offer.is_meant(wanted)).cloned().collect());
    let meant: BTreeMap<ImageId, Offer> = wanted.iter().flat_map(of).map(|offer| (offer.id, offer)).collect();
    Ok(meant.into_values().collect())
}

/// The wanted images among the proved ones.
fn choose(sure: &[Sure], tried: &[(Offer, Tried)], wanted: &[ImageSelector]) -> Result<Vec<Chosen>, StartError> {
    let unproved = |wanted: &dyn Display, meant: &dyn Fn(&Offer) -> bool| {
        let failed = tried.iter().find(|(offer, _)| meant(offer));
        let (image, tried) =
            failed.map_or_else(|| (wanted.to_string(), Tried::new()), |(offer, tried)| (offer.text(), tried.clone()));
        StartError::Unproved { image, tried }
    };
    if wanted.is_empty() {
        return match sure {
            [one] => Ok(vec![one.chosen(None, false)?]),
            [] => Err(unproved(&"of the field", &|_| true)),
            _ => Err(StartError::ChooseImage {
                known: sure.iter().map(|sure| sure.offer.text()).collect(),
                pins: pins_of_namesakes(sure),
            }),
        };
    }
    let one = |selector: &ImageSelector| {
        let meant: Vec<&Sure> = sure.iter().filter(|sure| sure.is_meant(selector)).collect();
        match meant[..] {
            [one] => one.chosen(selector.name().filter(|name| selector.is_pin() || one.has_name(name)), true),
            [] if sure.iter().any(|sure| sure.signed.is_some() && sure.offer.is_meant(selector)) => {
                Err(StartError::Untrusted { image: selector.to_string(), why: Disbelief::OtherImage })
            }
            [] => Err(unproved(selector, &|offer| offer.is_meant(selector))),
            _ => Err(StartError::Ambiguous {
                wanted: selector.to_string(),
                found: meant.iter().map(|sure| sure.offer.text()).collect(),
                pins: meant.iter().map(|sure| selector.pin(sure.offer.id)).collect(),
            }),
        }
    };
    wanted.iter().map(one).collect()
}

/// The selectors of images that share a name with another one.
fn pins_of_namesakes(sure: &[Sure]) -> Vec<String> {
    let shared = |name: &str| sure.iter().filter(|sure| sure.has_name(name)).count() > 1;
    let pin = |one: &Sure| {
        let claims = one.claims();
        let name = claims.iter().flat_map(|claim| claim.subject.names.iter()).find(|name| shared(name))?;
        Some(ImageSelector::Name(name.to_owned()).pin(one.offer.id))
    };
    sure.iter().filter_map(pin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::chunk::ChunkSize;
    use vfield_core::identity::{Identity, NodeId, Zone};
    use vfield_core::image::IdDigits;
    use vfield_core::node::Teller;
    use vfield_core::record::Subject;

    fn header(chunks: u64) -> Header {
        Header::new(chunks * ChunkSize::MIN.bytes(), ChunkSize::MIN, chunks).expect("a header")
    }

    /// Image `image` has these names (separated by `/`), as claimed by `tellers` origins.
    fn claim(image: u8, names: &str, tellers: u64) -> Claim {
        let subject = Subject { image: ImageId([image; 32]), names: names.into(), header: header(5).encode() };
        let identity = |node| Identity {
            addr: ([198, 18, 0, node as u8], 4440).into(),
            node: NodeId(node),
            generation: 1,
            zone: Zone::default(),
        };
        let teller = |node| Teller { identity: identity(node), origin: true, filled: 0 };
        Claim { subject: subject.into(), tellers: (1..=tellers).map(teller).collect() }
    }

    fn sure(claims: Vec<Claim>) -> Sure {
        let id = claims[0].subject.image;
        Sure { offer: Offer { id, claims }, proved: Proved { header: header(5), proof: None }, signed: None }
    }

    /// First byte of the id, names in the field, and here.
    fn chosen(sure: &[Sure], wanted: &[ImageSelector]) -> Result<Vec<(u8, String, String)>, StartError> {
        let text = |one: Chosen| (one.known.id.0[0], one.known.names.to_string(), one.here.to_string());
        choose(sure, &[], wanted).map(|chosen| chosen.into_iter().map(text).collect())
    }

    fn name(name: &str) -> [ImageSelector; 1] {
        [ImageSelector::Name(name.to_owned())]
    }

    fn pin(name: &str, id: u8) -> [ImageSelector; 1] {
        let id = IdDigits::new(&ImageId([id; 32]).short()).expect("digits");
        [ImageSelector::Pinned { name: name.to_owned(), id }]
    }

    #[test]
    fn two_images_of_one_name_are_none() {
        let both = [sure(vec![claim(1, "root", 3)]), sure(vec![claim(2, "root", 1)])];
        let Err(StartError::Ambiguous { wanted, found, pins }) = chosen(&both, &name("root")) else { panic!("chosen") };
        assert_eq!((wanted.as_str(), found.len()), ("root", 2));
        assert_eq!(found[0], "root (id 010101010101, served by 198.18.0.1:4440)");
        assert_eq!(pins, ["root=010101010101", "root=020202020202"]);
        let expected = (2, "root".to_owned(), "root".to_owned());
        assert_eq!(chosen(&both, &pin("root", 2)).expect("pinned"), std::slice::from_ref(&expected));
        assert_eq!(chosen(&both, &name("0202")).expect("by its id"), [expected]);
        let Err(StartError::ChooseImage { known, pins }) = chosen(&both, &[]) else { panic!("chosen") };
        assert_eq!((known.len(), pins), (2, vec!["root=010101010101".to_owned(), "root=020202020202".to_owned()]));
        let apart = [both[0].clone(), sure(vec![claim(2, "home", 1)])];
        assert!(matches!(chosen(&apart, &[]), Err(StartError::ChooseImage { pins, .. }) if pins.is_empty()));
        // A signature decides between two images.
        let signed = |mut sure: Sure, name: &str| {
            sure.signed = Some(vec![name.to_owned()]);
            sure
        };
        let one = [signed(both[0].clone(), "old"), signed(both[1].clone(), "root")];
        assert_eq!(chosen(&one, &name("root")).expect("one is signed")[0].0, 2);
        assert!(matches!(chosen(&one, &pin("root", 1)), Err(StartError::Untrusted { .. })));
    }

    #[test]
    fn a_name_that_is_the_beginning_of_an_id_is_not_taken_for_one_of_both() {
        let both = [sure(vec![claim(1, "020202020202", 3)]), sure(vec![claim(2, "root", 1)])];
        assert!(matches!(chosen(&both, &name("020202020202")), Err(StartError::Ambiguous { .. })));
        let id = [ImageSelector::Id(ImageId([2; 32]))];
        assert_eq!(chosen(&both, &id).expect("by its id")[0].0, 2);
    }

    #[test]
    fn an_image_has_the_names_on_which_all_agree() {
        let one = [sure(vec![claim(1, "a/b", 1), claim(1, "b", 5)])];
        let has = |wanted: &[ImageSelector]| chosen(&one, wanted).map(|chosen| chosen[0].2.clone());
        assert_eq!(has(&[]).expect("one says both"), "a, b");
        assert_eq!(has(&name("b")).expect("a name"), "b");
        assert_eq!(has(&pin("c", 1)).expect("another name"), "c");
        assert_eq!(chosen(&one, &pin("c", 1)).expect("another name")[0].1, "b", "it is announced as most say");
        let odds = [sure(vec![claim(1, "a", 1), claim(1, "b", 5)])];
        assert!(matches!(chosen(&odds, &[]), Err(StartError::ManyNames { names, .. }) if names == ["b", "a"]));
        assert_eq!(chosen(&odds, &name("a")).expect("a name")[0].2, "a");
        assert_eq!(chosen(&odds, &[ImageSelector::Id(ImageId([1; 32]))]).expect("by its id")[0].2, "b");
    }

    #[test]
    fn each_of_many_wishes_has_its_own_candidates() {
        let of_all = CANDIDATES_MAX as u8 * 3;
        let offers: Vec<Offer> = (0..of_all).map(|id| sure(vec![claim(id, &format!("layer-{id}"), 1)]).offer).collect();
        let wanted: Vec<ImageSelector> = (0..of_all).map(|id| ImageSelector::Name(format!("layer-{id}"))).collect();
        assert_eq!(meant(&offers, &wanted).expect("all are there").len(), usize::from(of_all));
        // One name that many claim is still no reason to ask for all of them.
        let claims = |id: u8| sure(vec![claim(id, "root", u64::from(id) + 1)]).offer;
        let namesakes: Vec<Offer> = (0..of_all).map(claims).collect();
        let found = meant(&namesakes, &name("root")).expect("some");
        assert_eq!(found.len(), CANDIDATES_MAX);
        assert!(found.iter().all(|offer| offer.id.0[0] >= of_all - CANDIDATES_MAX as u8), "those of most members");
        // Whatever the reason, the refusal says which image it is.
        let Err(StartError::Unproved { image, .. }) = chosen(&[], &name("root")) else { panic!("chosen") };
        assert_eq!(image, "root");
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let offers = [sure(vec![claim(1, "root", 1)]).offer];
        let Err(StartError::UnknownImage { wanted, known }) = meant(&offers, &name("boot")) else { panic!("found") };
        assert_eq!((wanted.as_str(), known.join("; ")), ("boot", offers[0].text()));
        assert!(matches!(meant(&[], &[]), Err(StartError::UnknownImage { .. })));
        assert_eq!(meant(&offers, &[]).expect("the only one").len(), 1);
    }
}

//! Namesakes: other images that members have under a name that an image has here. Most often a file was replaced and its origin
//! started again: two images of one name are in the field, and some nodes read the one, some the other.
//!
//! Only says so, at both ends: what a node reads does not change under its readers. What members say proves nothing, so
//! nothing follows from it.

use crate::driver::Driver;
use crate::image::LocalImage;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::image::ImageId;
use vfield_core::node::{Claim, ImageView};

/// How often it is looked for them, and whether served files are still where they were.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many are told of and shown: who makes up names does not fill a log.
const TOLD_MAX: usize = 16;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    /// The name that both have.
    pub name: String,
    /// The other image.
    pub id: ImageId,
    /// Somebody who has it, an origin if there is one.
    pub addr: Option<SocketAddr>,
    /// True if that is one.
    pub served: bool,
    /// How many members speak of it.
    pub nodes: usize,
}

/// The namesakes of an image, as far as live members speak of them.
pub fn of(image: &LocalImage, claims: &[Claim]) -> Vec<Namesake> {
    let others = claims.iter().filter(|claim| claim.subject.image != image.id() && !claim.tellers.is_empty());
    let mut found: Vec<Namesake> = Vec::new();
    for claim in others {
        let Some(name) = image.names().iter().find(|name| claim.subject.names.contains(name)) else { continue };
        let teller = claim.tellers.iter().find(|teller| teller.origin).or(claim.tellers.first());
        let (addr, served) = (teller.map(|teller| teller.identity.addr), teller.is_some_and(|teller| teller.origin));
        let (id, nodes) = (claim.subject.image, claim.tellers.len());
        match found.iter().position(|known| known.id == id) {
            Some(at) => found[at].nodes += nodes,
            None if found.len() < TOLD_MAX => found.push(Namesake { name: name.to_owned(), id, addr, served, nodes }),
            None => {}
        }
    }
    found
}

/// Says so once of each namesake, and of each served file that is not where it was; never returns.
pub async fn watch(driver: Arc<Driver>) {
    let (mut told, mut moved) = (BTreeSet::new(), BTreeSet::new());
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (claims, views) = driver.look(|core| (core.claims(), core.images()));
        for image in driver.images() {
            let Some(view) = views.iter().find(|view| view.id == image.id()) else { continue };
            for namesake in of(&image, &claims) {
                if told.len() < TOLD_MAX && told.insert((image.id(), namesake.id, namesake.served)) {
                    driver.warn(text(&namesake, view));
                }
            }
            if let Some(place) = image.source().and_then(|origin| Some((origin, origin.moved()?)))
                && moved.insert(image.id())
            {
                let (origin, moved) = place;
                let (path, id) = (origin.path().display(), image.id().short());
                driver.warn(format!(
                    "{path} was {moved}: this daemon serves the file that it opened (id {id}) until it ends"
                ));
            }
        }
    }
}

/// Who has the other image, and how it stands with the one that is here.
fn text(namesake: &Namesake, here: &ImageView) -> String {
    let Namesake { name, id, addr, served, nodes } = namesake;
    let (id, own) = (id.short(), here.id.short());
    if here.origin {
        let who = if *nodes == 1 { "1 other node has".to_owned() } else { format!("{nodes} other nodes have") };
        return format!("{name:?} is served here with id {own}, and {who} another image of that name (id {id})");
    }
    let at = addr.map_or_else(String::new, |addr| format!(" at {addr}"));
    let is = if *served { "is another image now" } else { "is another image" };
    let state = if here.coverage.multiplicity_min > 0 {
        "the stores of the field hold all of it".to_owned()
    } else if here.origins > 0 {
        "it still has an origin".to_owned()
    } else {
        format!("{:.1} % of it is held by nobody", 100.0 * (1.0 - here.coverage.share))
    };
    format!("{name:?} {is}{at} (id {id}); this node still reads id {own}: {state}")
}

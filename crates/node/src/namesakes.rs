//! Namesakes: other images that members have under the name of an image here. Mostly a file was
//! replaced and its origin restarted. Then two images of one name are in the field, and nodes read
//! either of them.
//!
//! Both ends only report it: the image that a node reads does not change under its readers. Claims
//! of members prove nothing, so nothing follows from them.

use crate::driver::Driver;
use crate::image::LocalImage;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::image::ImageId;
use vfield_core::node::{Claim, ImageView};

/// Interval of the search for namesakes, and of the check whether served files are still in their
/// place.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most namesakes reported and shown: invented names cannot fill a log.
const REPORTED_MAX: usize = 16;

/// Another image under the name of an image here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    /// The name that both have.
    pub name: String,
    /// The other image.
    pub id: ImageId,
    /// A node that has it, an origin if there is one.
    pub addr: Option<SocketAddr>,
    /// True if that is one.
    pub served: bool,
    /// The number of members that claim it.
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
            None if found.len() < REPORTED_MAX => {
                found.push(Namesake { name: name.to_owned(), id, addr, served, nodes })
            }
            None => {}
        }
    }
    found
}

/// Says so once of each namesake, and of each served file that is not where it was; never returns.
pub async fn watch(driver: Arc<Driver>) {
    let (mut reported, mut moved) = (BTreeSet::new(), BTreeSet::new());
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (claims, views) = driver.look(|core| (core.claims(), core.images()));
        for image in driver.images() {
            let Some(view) = views.iter().find(|view| view.id == image.id()) else { continue };
            for namesake in of(&image, &claims) {
                if reported.len() < REPORTED_MAX && reported.insert((image.id(), namesake.id, namesake.served)) {
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

/// The holders of the other image, and its relation to the image here.
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
        format!("{:.1} % of it is in no store", 100.0 * (1.0 - here.coverage.share))
    };
    format!("{name:?} {is}{at} (id {id}); this node still reads id {own}: {state}")
}

//! Access rules and the images that they speak of: found out once, when the images are known.
//!
//! Invariant: a rule speaks of an image that is there. One that speaks of nothing would leave open what it was to close, so
//! it is an error, and images of which no rule speaks are named.

use crate::failure::Failure;
use crate::log::Voice;
use crate::plan::Places;
use crate::selection;
use vfield_export::nbd;
use vfield_export::nbd::access::Rule;
use vfield_node::node::NodeImage;

/// The rules of `places`, each of an image by the name that exports know it by.
pub fn resolve(places: &Places, images: &[NodeImage], voice: &Voice) -> Result<Vec<Rule>, Failure> {
    let rules = places.access.iter().map(|rule| of_image(rule, images)).collect::<Result<Vec<_>, _>>()?;
    let is_tcp = places.nbd.iter().any(|place| matches!(place, nbd::Address::Tcp(_)));
    for name in closed(&rules, images).filter(|_| is_tcp) {
        voice.warn(&format!("nobody may read {name} over TCP: no --nbd-allow speaks of it"));
    }
    Ok(rules)
}

fn of_image(rule: &Rule, images: &[NodeImage]) -> Result<Rule, Failure> {
    let Some(wanted) = &rule.image else { return Ok(rule.clone()) };
    let image = selection::choose(wanted, images).map_err(|undecided| {
        let (fact, hint) = undecided.words(wanted, "this node");
        Failure::usage(format!("--nbd-allow {rule}: {fact}")).hint(hint)
    })?;
    Ok(Rule { image: Some(image.source.name().to_owned()), network: rule.network })
}

/// Names of the images that no rule speaks of, though there are some.
fn closed<'a>(rules: &'a [Rule], images: &'a [NodeImage]) -> impl Iterator<Item = &'a str> {
    let spoken_of = |name: &str| rules.iter().any(|rule| rule.image.as_deref().is_none_or(|image| image == name));
    let names = images.iter().map(|image| image.source.name());
    names.filter(move |name| !rules.is_empty() && !spoken_of(name))
}

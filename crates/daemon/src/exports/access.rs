//! Access rules and the images that they speak of: found out once, when the images are known.
//!
//! Invariant: a rule speaks of an image that is there, or of the versions of a tag that the daemon
//! follows. One that speaks of nothing would leave open
//! what it was to close, so it is an error, and images of which no rule speaks are named.

use crate::plan::Places;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::selection;
use vfield_core::tag::TagName;
use vfield_export::nbd;
use vfield_export::nbd::access::Rule;
use vfield_node::node::NodeImage;

/// Digits of an id in the name of a version.
const SHORT_DIGITS: usize = 12;

/// The rules of `places`, each of an image by the name that exports know it by, or of a tag.
pub fn resolve(
    places: &Places,
    images: &[NodeImage],
    tags: &[TagName],
    console: &Console,
) -> Result<Vec<Rule>, Failure> {
    let rules = places.access.iter().map(|rule| of_image(rule, images, tags)).collect::<Result<Vec<_>, _>>()?;
    let is_tcp = places.nbd.iter().any(|place| matches!(place, nbd::Address::Tcp(_)));
    if is_tcp {
        warn_closed(&rules, images.iter().map(|image| image.source.name()), console);
    }
    Ok(rules)
}

/// Names those of the images that no rule lets anybody read, though there are some.
pub fn warn_closed<'a>(rules: &[Rule], names: impl Iterator<Item = &'a str>, console: &Console) {
    let is_meant = |image: &str, name: &str| image == name || is_version(image, name);
    let spoken_of =
        |name: &str| rules.iter().any(|rule| rule.image.as_deref().is_none_or(|image| is_meant(image, name)));
    for name in names.filter(|name| !rules.is_empty() && !spoken_of(name)) {
        console.warn(&format!("{name} is closed to TCP clients: no --nbd-allow rule names it"));
    }
}

/// True for the name of a version of a tag.
fn is_version(tag: &str, name: &str) -> bool {
    let id = name.strip_prefix(tag).and_then(|rest| rest.strip_prefix('-'));
    id.is_some_and(|id| id.len() == SHORT_DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn of_image(rule: &Rule, images: &[NodeImage], tags: &[TagName]) -> Result<Rule, Failure> {
    let Some(wanted) = &rule.image else { return Ok(rule.clone()) };
    // An image of that name goes first, as it does for exports.
    let is_image = images.iter().any(|image| image.source.names().contains(&wanted.as_str()));
    if !is_image && tags.iter().any(|tag| tag.as_str() == wanted) {
        return Ok(rule.clone());
    }
    let image = selection::choose(wanted, images).map_err(|undecided| {
        let (fact, hint) = undecided.words(wanted, "this node");
        Failure::usage(format!("--nbd-allow {rule}: {fact}")).hint(hint)
    })?;
    Ok(Rule { image: Some(image.source.name().to_owned()), network: rule.network })
}

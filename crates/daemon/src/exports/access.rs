//! Access rules and the images that they speak of: found out once, when the images are known.
//!
//! Invariant: a rule speaks of an image that is there. One that speaks of nothing would leave open
//! what it was to close, so it is an error, and images of which no rule speaks are named.

use crate::plan::Places;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::selection;
use vfield_export::nbd;
use vfield_export::nbd::access::Rule;
use vfield_node::node::NodeImage;

/// The rules of `places`, each of an image by the name that exports know it by.
pub fn resolve(places: &Places, images: &[NodeImage], console: &Console) -> Result<Vec<Rule>, Failure> {
    let rules = places.access.iter().map(|rule| of_image(rule, images)).collect::<Result<Vec<_>, _>>()?;
    let is_tcp = places.nbd.iter().any(|place| matches!(place, nbd::Address::Tcp(_)));
    if is_tcp {
        warn_closed(&rules, images.iter().map(|image| image.source.name()), console);
    }
    Ok(rules)
}

/// Names those of the images that no rule lets anybody read, though there are some.
pub fn warn_closed<'a>(rules: &[Rule], names: impl Iterator<Item = &'a str>, console: &Console) {
    let spoken_of = |name: &str| rules.iter().any(|rule| rule.image.as_deref().is_none_or(|image| image == name));
    for name in names.filter(|name| !rules.is_empty() && !spoken_of(name)) {
        console.warn(&format!("{name} is closed to TCP clients: no --nbd-allow rule names it"));
    }
}

fn of_image(rule: &Rule, images: &[NodeImage]) -> Result<Rule, Failure> {
    let Some(wanted) = &rule.image else { return Ok(rule.clone()) };
    let image = selection::choose(wanted, images).map_err(|undecided| {
        let (fact, hint) = undecided.words(wanted, "this node");
        Failure::usage(format!("--nbd-allow {rule}: {fact}")).hint(hint)
    })?;
    Ok(Rule { image: Some(image.source.name().to_owned()), network: rule.network })
}

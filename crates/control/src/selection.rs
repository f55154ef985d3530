//! Which image a person means by a name, an id, or the beginning of an id, among those that are
//! there.
//!
//! Invariant: what could be two images is none of them. A name that looks like the beginning of
//! another image's id is no exception, or whoever names an image could take the place of another
//! one. Used by all commands and the daemon.

use vfield_console::failure::Failure;
use vfield_core::image::IdDigits;
use vfield_node::node::NodeImage;
use vfield_node::status::ImageStatus;

/// Something that has names and an id.
pub trait Named {
    /// True if it is called so.
    fn has_name(&self, name: &str) -> bool;
    /// Its id in hexadecimal.
    fn id(&self) -> String;
    /// Its names, for people.
    fn names(&self) -> String;
}

impl Named for ImageStatus {
    fn has_name(&self, name: &str) -> bool {
        ImageStatus::has_name(self, name)
    }

    fn id(&self) -> String {
        self.id.clone()
    }

    fn names(&self) -> String {
        self.names.join(", ")
    }
}

impl Named for NodeImage {
    fn has_name(&self, name: &str) -> bool {
        self.source.names().contains(&name)
    }

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn names(&self) -> String {
        self.source.names().join(", ")
    }
}

/// Why nothing was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// There is nothing of the kind; the names and ids of the images.
    None(Vec<String>),
    /// There are several; their names and ids.
    Several(Vec<String>),
    /// None was named, and there are several; their names.
    Unnamed(Vec<String>),
}

/// The one of `all` that `wanted` means; without a wish the only one.
pub fn choose_or_only<'a, T: Named>(wanted: Option<&str>, all: &'a [T]) -> Result<&'a T, Undecided> {
    match (wanted, all) {
        (Some(wanted), _) => choose(wanted, all),
        (None, [one]) => Ok(one),
        (None, []) => Err(Undecided::None(Vec::new())),
        (None, _) => Err(Undecided::Unnamed(all.iter().map(Named::names).collect())),
    }
}

/// The one of `all` that `wanted` means.
pub fn choose<'a, T: Named>(wanted: &str, all: &'a [T]) -> Result<&'a T, Undecided> {
    let digits = IdDigits::new(wanted);
    let by_id = |one: &T| digits.as_ref().is_some_and(|digits| one.id().starts_with(&digits.to_string()));
    // All digits of an id are an id, whatever somebody calls an image.
    let whole = digits.as_ref().is_some_and(IdDigits::is_whole);
    let found: Vec<&T> = all.iter().filter(|one| by_id(one) || (!whole && one.has_name(wanted))).collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(Undecided::None(all.iter().map(text).collect())),
        _ => Err(Undecided::Several(found.into_iter().map(text).collect())),
    }
}

/// Names and the first digits of the id.
fn text(one: &impl Named) -> String {
    let id = one.id();
    format!("{} (id {})", one.names(), id.get(..12).unwrap_or(&id))
}

impl Undecided {
    /// For people; `whose` names their holder: "this node".
    pub fn explain(&self, wanted: &str, whose: &str) -> Failure {
        let (fact, hint) = self.words(wanted, whose);
        let failure = if matches!(self, Self::Unnamed(_)) { Failure::usage(fact) } else { Failure::failed(fact) };
        failure.hint(hint)
    }

    /// The fact and the hint.
    pub fn words(&self, wanted: &str, whose: &str) -> (String, String) {
        match self {
            Self::None(all) if all.is_empty() => (format!("{whose} has no image"), "join or serve one".to_owned()),
            Self::None(all) => (format!("{whose} has no image {wanted:?}"), format!("{whose} has {}", all.join(", "))),
            Self::Several(found) => (
                format!("{whose} has several images {wanted:?}: {}", found.join(", ")),
                "give more digits of the id of one of them".to_owned(),
            ),
            Self::Unnamed(names) => {
                (format!("{whose} has several images"), format!("choose one of: {}", names.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Image(&'static [&'static str], &'static str);

    impl Named for Image {
        fn has_name(&self, name: &str) -> bool {
            self.0.contains(&name)
        }

        fn id(&self) -> String {
            self.1.repeat(16)
        }

        fn names(&self) -> String {
            self.0.join(", ")
        }
    }

    #[test]
    fn a_wish_means_one_image_or_none() {
        let all = [
            Image(&["red", "rot"], "ab12"),
            Image(&["blue"], "ab34"),
            Image(&["blue"], "cd56"),
            Image(&["ab12ab12"], "ef78"),
        ];
        let id = |wanted: &str| choose(wanted, &all).map(|one| one.1);
        assert_eq!(
            (id("red"), id("rot"), id("AB34"), id("cd56cd56cd56")),
            (Ok("ab12"), Ok("ab12"), Ok("ab34"), Ok("cd56"))
        );
        assert_eq!(id(&"ab12".repeat(16)), Ok("ab12"));
        let several = |wanted: &str| matches!(id(wanted), Err(Undecided::Several(found)) if found.len() == 2);
        assert!(several("blue"), "two images of one name");
        assert!(several("ab12ab12"), "a name that is the beginning of another one's id");
        assert!(matches!(id("ab1"), Err(Undecided::None(all)) if all.len() == 4), "three digits are none");
        let (fact, hint) = id("green").unwrap_err().words("green", "this node");
        assert_eq!(fact, "this node has no image \"green\"");
        assert!(hint.starts_with("this node has red, rot (id ab12ab12ab12), blue (id ab34ab34ab34), "), "{hint}");
        let only = |all| choose_or_only(None, all).map(|one: &Image| one.1);
        assert_eq!((only(&all[..1]), choose_or_only(Some("red"), &all).map(|one| one.1)), (Ok("ab12"), Ok("ab12")));
        let (fact, hint) = only(&all[..2]).unwrap_err().words("", "this node");
        assert_eq!((&fact[..], &hint[..]), ("this node has several images", "choose one of: red, rot, blue"));
        assert_eq!(only(&[]), Err(Undecided::None(Vec::new())));
        assert_eq!(
            choose::<Image>("x", &[]).err().map(|none| none.words("x", "it").0),
            Some("it has no image".to_owned())
        );
    }
}

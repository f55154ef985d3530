//! The numbers of choosing and pacing: few, in one place, and each says why.

use std::path::Path;

/// Numbers that follow from no other. A rule that needs one more is to do without another.
const NUMBERS_MAX: usize = 22;
/// Numbers that are multiples or parts of others.
const DERIVED_MAX: usize = 33;
/// The files that choose and pace. They have no numbers of their own.
const CHOOSING: [&str; 11] = [
    "node/choosing.rs",
    "node/parking.rs",
    "node/requests.rs",
    "node/rounds.rs",
    "node/serving.rs",
    "pace.rs",
    "peers.rs",
    "plan.rs",
    "plan/upstream.rs",
    "slowest.rs",
    "standing.rs",
];

/// Bounds of memory and of work in those files, which pace nothing, and how often speeds are told.
const OTHERS: [&str; 6] = ["ASKERS_MAX", "FETCHES_MAX", "COMES_BY_LOOK", "PEERS_MAX", "TOLD_STEPS", "TOLD_EVERY"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The named constants of a file outside its tests: name, value, and the lines of their docs.
fn constants(text: &str) -> Vec<(String, String, usize)> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut found, mut docs, mut rest) = (Vec::new(), 0, code);
    while let Some((line, after)) = rest.split_once('\n') {
        let line = line.trim();
        if let Some((name, _)) =
            line.strip_prefix("pub ").unwrap_or(line).strip_prefix("const ").and_then(|item| item.split_once(':'))
            && !name.starts_with("fn ")
            && name != "_"
        {
            let value = rest.split_once('=').and_then(|(_, value)| value.split_once(';')).expect("it has a value").0;
            found.push((name.to_owned(), value.to_owned(), docs));
        }
        docs = if line.starts_with("///") { docs + 1 } else { 0 };
        rest = after;
    }
    found
}

/// True if a value is made of other constants.
fn follows(value: &str) -> bool {
    let words = value.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words
        .into_iter()
        .any(|word| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'))
}

#[test]
fn numbers_of_choosing_and_pacing_are_few() {
    let numbers = constants(&read("tuning.rs"));
    let (derived, own): (Vec<_>, Vec<_>) = numbers.into_iter().partition(|(_, value, _)| follows(value));
    let names = |of: &[(String, String, usize)]| of.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>().join(" ");
    assert!((10..=NUMBERS_MAX).contains(&own.len()), "{} numbers: {}", own.len(), names(&own));
    assert!((10..=DERIVED_MAX).contains(&derived.len()), "{} derived: {}", derived.len(), names(&derived));
}

#[test]
fn each_number_says_why() {
    let silent: Vec<String> =
        constants(&read("tuning.rs")).into_iter().filter(|(.., docs)| *docs == 0).map(|(name, ..)| name).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn files_that_choose_have_no_numbers_of_their_own() {
    for file in CHOOSING {
        let mut own = constants(&read(file));
        own.retain(|(name, value, _)| !follows(value) && !OTHERS.contains(&name.as_str()));
        assert!(own.is_empty(), "{file}: {own:?}");
    }
}

//! House rules that no lint knows: short files that say what they are, and a core that touches
//! nothing.

use std::path::{Path, PathBuf};

/// Files of this many lines have more than one noun in them, or say in their heads that they have
/// [`ONE_NOUN`].
const LINES_MAX: usize = 500;
/// The same for tests, where a line is a row of a table.
const TEST_LINES_MAX: usize = 600;
/// The words in the head of a longer file, before the reason.
const ONE_NOUN: &str = "one noun";
/// What the core may be built from; each is free of clocks, sockets, files and threads as it is
/// used there.
const CORE_DEPENDENCIES: [&str; 7] = ["blake3", "bytes", "postcard", "serde", "thiserror", "tracing", "vfield-block"];
/// What the core must not name, wherever its lints do not look.
const CORE_FORBIDDEN: [&str; 17] = [
    "Instant::now",
    "SystemTime",
    "HashMap",
    "HashSet",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "fs::File",
    "thread::",
    "tokio",
    "thread_rng",
    // Of vfield-block, the core has the values and not the traits and files.
    "BlockSource",
    "BlockDevice",
    "FilePiece",
    "vfield_block::device",
    "std::os",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file below a directory, with its text.
fn rust_files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            files.push((path, text));
        }
    }
    files
}

fn all_files() -> Vec<(PathBuf, String)> {
    rust_files(&workspace().join("crates"))
}

/// Fails with all that was found, not only with the first.
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// True if the head of a file, its `//!` lines, says why it may be long.
fn says_why_it_is_long(text: &str) -> bool {
    text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains(ONE_NOUN))
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn files_are_short() {
    let long = |(path, text): &(PathBuf, String)| {
        let (lines, max) = (text.lines().count(), if is_test(path) { TEST_LINES_MAX } else { LINES_MAX });
        (lines >= max && !says_why_it_is_long(text)).then(|| format!("{}: {lines} lines", path.display()))
    };
    none("files with more than one noun", &all_files().iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn files_say_what_they_are() {
    let silent = |(path, text): &(PathBuf, String)| (!text.starts_with("//!")).then(|| path.display().to_string());
    none("files that do not begin with //!", &all_files().iter().filter_map(silent).collect::<Vec<_>>());
}

#[test]
fn the_core_touches_nothing() {
    let mut found = Vec::new();
    for (path, text) in rust_files(&workspace().join("crates/core/src")) {
        let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in code {
            let words = CORE_FORBIDDEN.iter().filter(|word| line.contains(**word));
            found.extend(words.map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
        }
    }
    none("the core is to be deterministic and without bytes of its own", &found);
}

#[test]
fn the_core_has_few_dependencies() {
    let manifest =
        std::fs::read_to_string(workspace().join("crates/core/Cargo.toml")).expect("the core has a manifest");
    let section = manifest.split("\n[").find_map(|section| section.strip_prefix("dependencies]\n"));
    let names = section.expect("it has dependencies").lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    let strange: Vec<_> = names.filter(|name| !name.is_empty() && !CORE_DEPENDENCIES.contains(name)).collect();
    none(
        "dependencies that the core has not been allowed",
        &strange.iter().map(ToString::to_string).collect::<Vec<_>>(),
    );
}

#[test]
fn rooms_have_one_direction() {
    for (of, not) in [
        ("export", "vfield-node"),
        ("node", "vfield-export"),
        ("core", "vfield-node"),
        ("lab", "vfield-core"),
        ("weather", "[dependencies]"),
        ("measure", "vfield-core"),
        ("lab", "vfield-measure"),
        ("block", "vfield-core"),
        ("console", "vfield-node"),
        ("console", "vfield-export"),
        ("control", "vfield-daemon"),
        ("netboot", "vfield-daemon"),
        ("bench", "vfield-daemon"),
        ("daemon", "vfield-netboot"),
        ("daemon", "vfield-bench"),
        ("daemon", "../cli"),
        ("netboot", "../cli"),
        ("bench", "../cli"),
    ] {
        let manifest =
            std::fs::read_to_string(workspace().join(format!("crates/{of}/Cargo.toml"))).expect("a manifest");
        assert!(!manifest.contains(not), "crates/{of} depends on {not}");
    }
}

/// True if a comment of documentation has code in it that is a test.
fn has_an_example(text: &str) -> bool {
    let comments = text.lines().map(str::trim_start);
    let comments = comments.filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
    let fences = comments.filter_map(|line| line.trim_start().strip_prefix("```"));
    // The first one of each two opens a block.
    fences.step_by(2).any(|language| !["text", "json", "sh"].contains(&language))
}

/// To start a crate's documentation tests takes more than a second, also if there are none.
#[test]
fn documentation_is_tested_where_it_has_examples() {
    assert!(has_an_example("/// ```text\n/// ```\n    /// ```no_run\n    /// ```\n"));
    assert!(!has_an_example("//! ```text\n//! ```\nlet fence = \"```\";\n"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(workspace().join("crates")).expect("crates").flatten() {
        let source = entry.path().join("src");
        if !source.join("lib.rs").exists() {
            continue;
        }
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).expect("a manifest");
        let is_tested = !manifest.contains("\ndoctest = false\n");
        if is_tested != rust_files(&source).iter().any(|(_, text)| has_an_example(text)) {
            found.push(format!("{}: doctest is {is_tested}", entry.path().display()));
        }
    }
    none("crates whose documentation has an example and is not tested, or the reverse", &found);
}

/// The files that the numbered list of a guide names, in its order.
fn places_in(guide: &str) -> Vec<String> {
    let guide = std::fs::read_to_string(workspace().join("docs/howto").join(guide)).expect("the guide");
    let numbered =
        guide.lines().filter(|line| line.split_once(". ").is_some_and(|(head, _)| head.parse::<u8>().is_ok()));
    let named = numbered.flat_map(|line| line.split('`').skip(1).step_by(2));
    named.filter(|name| name.ends_with(".rs") || name.ends_with(".md")).map(str::to_owned).collect()
}

/// The counter that the guide follows, in each form in which a file may name it.
const COUNTER: [&str; 3] = ["SlowFrames", "slow_frames", "slow frames"];

#[test]
fn the_guide_to_a_new_counter_names_every_place() {
    let mut files = all_files();
    files.retain(|(path, _)| !is_test(path) && !path.ends_with("status_tests.rs"));
    let reference = workspace().join("docs/reference/status-json.md");
    let text = std::fs::read_to_string(&reference).expect("the reference of the status");
    files.push((reference, text));
    let places = places_in("add-a-counter.md");
    assert_eq!(places.len(), 3, "a counter takes three places: {places:?}");
    let knows = |text: &str| COUNTER.iter().any(|form| text.contains(form));
    let strange = |(path, text): &(PathBuf, String)| {
        let named = places.iter().any(|place| path.ends_with(place));
        (named != knows(text)).then(|| path.display().to_string())
    };
    none(
        "files that know the counter or that the guide names, not both",
        &files.iter().filter_map(strange).collect::<Vec<_>>(),
    );
    for place in &places {
        assert!(files.iter().any(|(path, _)| path.ends_with(place)), "{place} is not there");
    }
}

/// Words of which a file has one if it knows an export, by the kinds that `status` lists.
const EXPORTS: [(&str, &[&str]); 4] =
    [("Nbd", &["nbd"]), ("Fuse", &["fuse", "mount"]), ("Ublk", &["ublk"]), ("Device", &["device"])];

/// The rows of the daemon's table of kinds whose file lacks a part that the guide asks for.
fn kinds_without_a_file(files: &[(PathBuf, String)]) -> Vec<String> {
    let text = |end: &str| files.iter().find(|(path, _)| path.ends_with(end)).map(|(_, text)| text.as_str());
    let table =
        text("daemon/src/exports.rs").and_then(|text| text.split_once("const KINDS: [Kind; ")).expect("a table");
    let rows = table.1.lines().take_while(|line| !line.starts_with("];"));
    let rows: Vec<&str> = rows.filter_map(|line| line.trim().strip_suffix("::KIND,")).collect();
    assert!(table.1.starts_with(&format!("{}]", rows.len())), "each row of the table is read: {rows:?}");
    let lacks = |row: &&&str| {
        let file = text(&format!("daemon/src/exports/{row}.rs"));
        !file.is_some_and(|file| ["const KIND: Kind", "impl Export for "].iter().all(|part| file.contains(part)))
    };
    rows.iter().filter(lacks).map(|row| format!("exports/{row}.rs is no kind")).collect()
}

#[test]
fn the_guide_to_a_new_export_names_every_place() {
    let files = all_files();
    let (_, kinds) = files
        .iter()
        .find(|(path, _)| path.ends_with("src/offer.rs") || path.ends_with("control/offer.rs"))
        .expect("the kinds of exports");
    let (_, kinds) = kinds.split_once("pub enum ExportKind {").expect("the kinds are an enum");
    let kinds = kinds.split_once('}').map_or(kinds, |(kinds, _)| kinds).lines().map(str::trim);
    let kinds: Vec<_> = kinds.filter(|line| line.ends_with(',')).map(|line| line.trim_end_matches(',')).collect();
    assert_eq!(kinds, EXPORTS.map(|(kind, _)| kind), "each kind has its words in this test");
    let places = places_in("add-an-export.md");
    assert_eq!(places, ["cli/src/args.rs", "daemon/src/exports.rs", "control/src/offer.rs"]);
    let mut found = kinds_without_a_file(&files);
    for name in &places {
        let Some((_, text)) = files.iter().find(|(path, _)| path.ends_with(name)) else {
            found.push(format!("{name} is not there"));
            continue;
        };
        let text = text.to_lowercase();
        let missing = EXPORTS.iter().filter(|(_, words)| !words.iter().any(|word| text.contains(word)));
        found.extend(missing.map(|(kind, _)| format!("{name} does not know {kind}")));
    }
    none("docs/howto/add-an-export.md", &found);
}

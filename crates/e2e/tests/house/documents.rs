//! What the documents name exists: files, sections, the version of the wire format.
//!
//! A path in backticks is one from the root of the project, from `crates/`, from the document's own
//! directory, or the end of one below `crates/`, as ARCHITECTURE.md shortens them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where documents lie, and where paths that they name begin.
const PLACES: [&str; 6] = ["crates", "docs", "examples", "integration", "dist", "scripts"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a directory, but for built ones.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for path in entries.filter(|path| path.file_name().is_some_and(|name| name != "target")) {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

struct Document {
    path: PathBuf,
    /// Without blocks of code.
    lines: Vec<(usize, String)>,
}

impl Document {
    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut fenced = false;
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            if !fenced && !fence && !line.starts_with("    ") {
                lines.push((index + 1, line.to_owned()));
            }
        }
        Self { path, lines }
    }

    fn all() -> Vec<Self> {
        let root = workspace();
        let top = std::fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
        let below = PLACES.iter().flat_map(|place| files(&root.join(place)));
        let mut paths: Vec<PathBuf> =
            top.chain(below).filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
        paths.sort();
        assert!(paths.len() > 5, "documents were found");
        paths.into_iter().map(Self::read).collect()
    }

    fn dir(&self) -> &Path {
        self.path.parent().expect("a file lies in a directory")
    }

    fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.strip_prefix(workspace()).unwrap_or(&self.path).display())
    }

    /// The anchors of its headings, as the forges make them.
    fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for (_, line) in self.lines.iter().filter(|(_, line)| line.starts_with('#')) {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
            let again = (1..).map(|count| format!("{anchor}-{count}"));
            let free = std::iter::once(anchor.clone()).chain(again).find(|anchor| !anchors.contains(anchor));
            anchors.extend(free);
        }
        anchors
    }
}

/// The parts of a line in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// `a/{b,c}.rs` as two paths.
fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((names, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    names.split(',').flat_map(|name| expanded(&format!("{before}{name}{after}"))).collect()
}

/// True for text that can be nothing but a path in this project.
fn is_path(text: &str, crates: &[String]) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-{},".contains(letter);
    if text.starts_with('/') || !text.chars().all(plain) {
        return false;
    }
    let first = text.split('/').next().unwrap_or_default();
    let below = text.contains('/') && (PLACES.contains(&first) || crates.iter().any(|name| name == first));
    below || text.ends_with(".rs") || (text.ends_with(".md") && text.len() > ".md".len())
}

/// Fails with all that was found, not only with the first.
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn paths_that_documents_name_exist() {
    let root = workspace();
    let crates: Vec<String> = std::fs::read_dir(root.join("crates"))
        .expect("crates")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let sources = files(&root.join("crates"));
    let ends_one = |short: &str| sources.iter().any(|path| path.ends_with(short));
    let mut gone = Vec::new();
    for document in Document::all() {
        for (number, line) in &document.lines {
            let paths = quoted(line).filter(|text| is_path(text, &crates)).flat_map(expanded);
            let missing = paths.filter(|path| {
                let roots = [&root, &root.join("crates"), document.dir()];
                !roots.iter().any(|dir| dir.join(path).exists()) && !ends_one(path)
            });
            gone.extend(missing.map(|path| format!("{}: {path}", document.at(*number))));
        }
    }
    none("documents name files that are not there", &gone);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let documents = Document::all();
    let mut broken = Vec::new();
    for document in &documents {
        for (number, line) in &document.lines {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for target in targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() { document.path.clone() } else { document.dir().join(file) };
                let known = documents.iter().find(|other| same(&other.path, &path));
                let anchored = anchor.is_empty() || known.is_some_and(|known| known.anchors().contains(anchor));
                if !path.exists() || !anchored {
                    broken.push(format!("{}: {target}", document.at(*number)));
                }
            }
        }
    }
    none("links that lead nowhere", &broken);
}

fn same(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok().is_some_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// A stranger opens so many documents, beginning at README.md's links, before one names the first
/// file to read.
#[test]
fn the_code_is_one_or_two_hops_from_the_readme() {
    let text = |path: &str| std::fs::read_to_string(workspace().join(path)).expect("a document");
    let readme = text("README.md");
    for (guide, first) in [
        ("docs/howto/add-an-export.md", "daemon/src/exports.rs"),
        ("docs/howto/add-a-counter.md", "core/src/misdeed.rs"),
        ("docs/benchmarks/method.md", "scripts/storm-table --only"),
    ] {
        assert!(readme.contains(&format!("]({guide})")) && text(guide).contains(first), "{guide}");
    }
    assert!(readme.contains("](ARCHITECTURE.md)"));
    let map = text("ARCHITECTURE.md");
    for row in ["a read", "how a peer is chosen", "an image's name", "saving an overlay"] {
        let first = map.lines().find_map(|line| line.strip_prefix(&format!("| {row} | `"))?.split_once('`'));
        assert!(first.is_some_and(|(file, _)| file.ends_with(".rs")), "{row}");
    }
}

#[test]
fn the_protocol_is_described_in_its_version() {
    let text = |path: &str| std::fs::read_to_string(workspace().join(path)).expect("a file of the project");
    let number = |text: &str, before: &str| {
        let rest = text.split_once(before).map(|(_, rest)| rest).unwrap_or_default();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or_else(|_| panic!("no number behind {before:?}"))
    };
    let version = number(&text("crates/core/src/wire.rs"), "pub const VERSION: u32 = ");
    let protocol = text("docs/reference/protocol.md");
    assert_eq!(number(&protocol, "\nVersion "), version, "the reference begins with its version");
    assert_eq!(number(&protocol, "| protocol version, "), version, "the reference, what a greeting says");
    assert_eq!(number(&text("CHANGELOG.md"), "### Wire format\n- Version "), version, "CHANGELOG.md, Wire format");
}

#[test]
fn shortened_paths_and_titles_are_read_as_they_are_written() {
    assert_eq!(expanded("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
    let crates = ["core".to_owned()];
    for (text, path) in [
        ("core/src/a.rs", true),
        ("a.rs", true),
        ("docs/x", true),
        ("GET/POST", false),
        ("/etc/vfield.toml", false),
        ("vfield.toml", false),
        ("cargo test", false),
    ] {
        assert_eq!(is_path(text, &crates), path, "{text}");
    }
    let lines = ["# A word", "## Two: `b` (c)", "## A word"].map(|line| (1, line.to_owned())).to_vec();
    let anchors = Document { path: PathBuf::new(), lines }.anchors();
    assert_eq!(anchors.into_iter().collect::<Vec<_>>(), ["a-word", "a-word-1", "two-b-c"]);
}

/// `CRATE MODULE::TEST` as the crate and the test's name.
fn as_test<'a>(text: &'a str, crates: &[String]) -> Option<(&'a str, &'a str)> {
    let (name, path) = text.split_once(' ')?;
    let (_, test) = path.rsplit_once("::")?;
    let plain =
        !test.is_empty() && test.chars().all(|letter| letter.is_ascii_lowercase() || "_0123456789".contains(letter));
    (plain && crates.iter().any(|known| known == name)).then_some((name, test))
}

#[test]
fn tests_that_documents_name_exist() {
    let dir = workspace().join("crates");
    let entries = std::fs::read_dir(&dir).expect("crates").flatten();
    let crates: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let source = |name: &String| {
        let sources = files(&dir.join(name)).into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
        sources.map(|path| std::fs::read_to_string(path).expect("a source file")).collect::<String>()
    };
    let sources: Vec<String> = crates.iter().map(source).collect();
    let mut gone = Vec::new();
    for document in Document::all() {
        for (number, line) in &document.lines {
            for (name, test) in quoted(line).filter_map(|text| as_test(text, &crates)) {
                let at = crates.iter().position(|known| known == name).expect("it is one of them");
                if !sources[at].contains(&format!("fn {test}(")) {
                    gone.push(format!("{}: {name} {test}", document.at(*number)));
                }
            }
        }
    }
    none("documents name tests that are not there", &gone);
}

/// Words of a quoted line that differ from one time to the next: names in capitals, numbers with
/// their units, and quoted names. They and the ends of clauses cut a line into its fixed parts.
fn fixed_parts(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in line.split(' ') {
        let bare = word.trim_matches(|char: char| !char.is_alphanumeric());
        let is_number = bare.starts_with(|char: char| char.is_ascii_digit());
        let is_name = !bare.is_empty() && bare.chars().all(|char| char.is_ascii_uppercase()) && bare != "TCP";
        let is_filler = ["", "%", "s"].contains(&word) || word.starts_with(['…', '"']);
        let varies = is_number || is_name || is_filler;
        let ends = word.ends_with([';', ':', ',', '…']);
        let last = parts.last_mut().expect("there is one");
        if !varies {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word.trim_end_matches([';', ':', ',', '…']));
        }
        if varies || ends {
            parts.push(String::new());
        }
    }
    parts.retain(|part| part.contains(' '));
    parts
}

/// A reader has a line of a log and searches for it word by word.
#[test]
fn the_lines_of_the_troubleshooter_are_said() {
    /// Of other programs, of the system, and put together from two places.
    const OF_OTHERS: [&str; 4] =
        ["address already in use", "serves another", "Transport endpoint is not connected", "cgroup limit"];
    let is_code = |path: &PathBuf| path.extension().is_some_and(|it| it == "rs") && path.iter().any(|dir| dir == "src");
    let code = files(&workspace().join("crates")).into_iter().filter(is_code);
    let code: String = code.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    // A text may go on in the next line.
    let code: Vec<&str> = code.split("\\\n").map(str::trim_start).collect();
    let code = code.concat();
    let text = std::fs::read_to_string(workspace().join("docs/howto/troubleshoot.md")).expect("it is there");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let lines = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
    let parts: Vec<String> = lines.flat_map(fixed_parts).filter(|part| !OF_OTHERS.contains(&part.as_str())).collect();
    assert!(parts.len() > 40, "lines were found: {parts:?}");
    let unsaid: Vec<_> = parts.iter().filter(|part| !code.contains(part.as_str())).collect();
    assert!(unsaid.is_empty(), "no program says {unsaid:#?}");
}

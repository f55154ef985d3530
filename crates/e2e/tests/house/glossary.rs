//! The glossary holds: its terms are in the code and in the documents, and their synonyms are not.
//!
//! Reads the tables of docs/reference/glossary.md: `| term | meaning | in code | not |`.
//! Decisions and the changelog may use any word, since they tell of other times; STYLE.md has bad
//! examples.

use std::path::{Path, PathBuf};

const GLOSSARY: &str = "docs/reference/glossary.md";
/// Where any word may stand.
const FREE: [&str; 4] = [GLOSSARY, "CHANGELOG.md", "STYLE.md", "docs/decisions"];
/// Where documents lie, below the root.
const PLACES: [&str; 7] = ["docs", "crates", "examples", "integration", "dist", "scripts", ".github"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a directory with this extension, build output left out.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for path in entries.filter(|path| path.file_name().is_some_and(|name| name != "target")) {
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found
}

/// The path of a document from the root, and its prose by lines.
struct Document {
    name: String,
    prose: Vec<(usize, String)>,
}

/// All documents that keep to the glossary.
fn documents() -> Vec<Document> {
    let root = workspace();
    let top = std::fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    let top = top.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let paths = top.chain(PLACES.iter().flat_map(|place| files(&root.join(place), "md")));
    let name = |path: &Path| path.strip_prefix(&root).expect("below the root").display().to_string();
    let mut found: Vec<Document> = paths
        .map(|path| Document { name: name(&path), prose: prose(&text(&path)) })
        .filter(|document| !FREE.iter().any(|free| document.name.starts_with(free)))
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(found.len() > 5, "documents were found");
    found
}

/// The lines of a document without code, comments and the targets of links, in lower case.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence && !line.starts_with("    ") && !line.starts_with("<!--") {
            lines.push((index + 1, plain(line)));
        }
    }
    lines
}

/// The words of a line in lower case, one space apart, without code and the targets of links.
fn plain(line: &str) -> String {
    let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut kept = String::new();
    let mut rest = outside.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        kept.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    kept.push_str(rest);
    kept.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if `word` stands in `line` and is not a part of longer words.
fn has_word(line: &str, word: &str) -> bool {
    let inner = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(word)
        .any(|(at, _)| !inner(line[..at].chars().next_back()) && !inner(line[at + word.len()..].chars().next()))
}

struct Entry {
    term: String,
    code: String,
    synonyms: Vec<String>,
}

fn entries() -> Vec<Entry> {
    let glossary = text(&workspace().join(GLOSSARY));
    let rows = glossary.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term "));
    let entries: Vec<Entry> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [term, meaning, code, synonyms] = cells[..] else { panic!("four cells are wanted: {row}") };
            assert!(meaning.ends_with('.') && !meaning.contains(". "), "one sentence is wanted: {row}");
            let code = code.strip_prefix('`').and_then(|code| code.strip_suffix('`'));
            let code = code.unwrap_or_else(|| panic!("code is wanted in the third cell: {row}"));
            let synonyms = synonyms.split(',').map(|word| word.trim().to_lowercase()).collect();
            Entry { term: term.to_lowercase(), code: code.to_owned(), synonyms }
        })
        .collect();
    assert!(entries.len() > 40, "the tables were read");
    entries
}

/// Fails with all that was found, not only with the first.
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn each_term_has_its_place_in_the_code() {
    let crates = workspace().join("crates");
    let sources: Vec<String> = files(&crates, "rs").iter().map(|path| text(path)).collect();
    let is_there = |code: &str| {
        if code.contains('/') { crates.join(code).exists() } else { sources.iter().any(|text| has_word(text, code)) }
    };
    let missing: Vec<String> = entries()
        .into_iter()
        .filter(|entry| !is_there(&entry.code))
        .map(|entry| format!("{}: {}", entry.term, entry.code))
        .collect();
    none("terms of which the code has nothing", &missing);
}

#[test]
fn each_term_is_used_by_a_document() {
    let documents = documents();
    let used = |term: &str| {
        let plural = format!("{term}s");
        documents
            .iter()
            .flat_map(|document| &document.prose)
            .any(|(_, line)| has_word(line, term) || has_word(line, &plural))
    };
    let unused: Vec<String> = entries().into_iter().map(|entry| entry.term).filter(|term| !used(term)).collect();
    none("terms that no document uses", &unused);
}

#[test]
fn no_document_uses_another_word_for_a_term() {
    let entries = entries();
    let mut found = Vec::new();
    for Document { name, prose } in documents() {
        for (number, line) in prose {
            for Entry { term, synonyms, .. } in &entries {
                let used = synonyms.iter().filter(|word| has_word(&line, word));
                found.extend(used.map(|word| format!("{name}:{number}: {word:?} is called {term:?}")));
            }
        }
    }
    none("words that the glossary does not want", &found);
}

#[test]
fn a_term_is_no_synonym() {
    let entries = entries();
    let terms: Vec<&String> = entries.iter().map(|entry| &entry.term).collect();
    let mut wrong: Vec<String> =
        entries.iter().flat_map(|entry| &entry.synonyms).filter(|word| terms.contains(word)).cloned().collect();
    let mut seen = terms.clone();
    seen.sort();
    wrong.extend(seen.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("{} twice", pair[0])));
    none("words that mean two things", &wrong);
}

#[test]
fn lines_are_read_as_prose() {
    assert_eq!(plain("The `crowd` is [a Chain](crowd.md#crowd),  in order"), "the is [a chain, in order");
    let text = "A\n```\ncrowd\n```\n    crowd\n<!-- crowd -->\nB";
    assert_eq!(prose(text), [(1, "a".to_owned()), (7, "b".to_owned())]);
    assert!(has_word("a crowd, here", "crowd") && has_word("crowd", "crowd"));
    assert!(!has_word("overcrowded crowds", "crowd"));
}

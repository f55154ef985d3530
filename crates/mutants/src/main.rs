//! Weaves mutants into a copy of the sources; `scripts/mutants` calls it.
//!
//! `vfield-mutants FOLDER --without NUMBERS FILE...` rewrites the files, whose paths are from the
//! folder. It lists their mutants: number, place, change. Mutants with the given numbers are left
//! out.
//!
//! `vfield-mutants --broken FOLDER` reads the compiler's JSON messages. It lists the numbers of the
//! mutants that do not compile.

mod weave;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// The module that the woven code asks.
const MUTANT: &str = "pub(crate) mod mutant { pub(crate) fn on(number: usize) -> bool { \
    static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new(); \
    *CHOSEN.get_or_init(|| std::env::var(\"VFIELD_MUTANT\").ok().and_then(|text| text.parse().ok()).unwrap_or(0)) \
    == number } }";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match &words[..] {
        ["--broken", folder] => broken(Path::new(folder)),
        [folder, "--without", numbers, files @ ..] => rewrite(Path::new(folder), numbers, files),
        _ => Err("usage: vfield-mutants FOLDER --without NUMBERS FILE... | --broken FOLDER".to_owned()),
    };
    match result {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("vfield-mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Rewrites the files; the list of mutants.
fn rewrite(folder: &Path, numbers: &str, files: &[&str]) -> Result<String, String> {
    let without: BTreeSet<usize> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let (mut list, mut first) = (String::new(), 1);
    for file in files {
        let path = folder.join(file);
        let failed = |error: String| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        let woven = weave::weave(&text, first, &|number| without.contains(&number));
        let (woven, mutants) = woven.map_err(|error| failed(error.to_string()))?;
        std::fs::write(&path, woven).map_err(|error| failed(error.to_string()))?;
        for (place, mutant) in mutants.iter().enumerate() {
            let number = first + place;
            if !without.contains(&number) {
                let weave::Mutant { line, within, change } = mutant;
                list.push_str(&format!("{number} {file}:{line} {within}: {change}\n"));
            }
        }
        first += mutants.len();
    }
    let root = folder.join("crates/core/src/lib.rs");
    let mut text = std::fs::read_to_string(&root).map_err(|error| error.to_string())?;
    if !text.contains("mod mutant ") {
        text.push_str(MUTANT);
        std::fs::write(&root, text).map_err(|error| error.to_string())?;
    }
    Ok(list)
}

/// The numbers of the mutants in which the compiler's errors are.
fn broken(folder: &Path) -> Result<String, String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| error.to_string())?;
    let mut numbers = BTreeSet::new();
    for line in text.lines().filter(|line| line.contains("\"level\":\"error\"")) {
        // A message has its spans, the first of which tell where the error is.
        for span in line.split("{\"byte_end\":").skip(1) {
            let field = |name: &str| span.split_once(name).map(|(_, rest)| rest);
            let file = field("\"file_name\":\"").and_then(|rest| rest.split('"').next());
            let start = field("\"byte_start\":").and_then(|rest| rest.split(',').next()?.parse::<usize>().ok());
            let (Some(file), Some(start)) = (file, start) else { continue };
            let Ok(source) = std::fs::read_to_string(folder.join(file)) else { continue };
            let before = source.get(..start).and_then(|before| before.rsplit_once(weave::ASKED));
            let number = before.and_then(|(_, rest)| rest.split("usize").next()?.trim().parse::<usize>().ok());
            numbers.extend(number);
        }
    }
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    Ok(numbers.join(" "))
}

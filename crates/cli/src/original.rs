//! The original V-FIELD's command lines, exactly as typed in 2007: `vfield -file viver.squash`,
//! `vfield -bs 192.168.1.1 -store 128 -join_boost 3`.
//!
//! Turns them into the modern form, so that there is one meaning. Long names with a single dash; a
//! bare number after `-store` is MB (2^20 bytes). The original was made for a closed LAN: a node
//! listens on all its addresses and exports over NBD to its own machine. Options with two dashes
//! pass through.

use std::ffi::{OsStr, OsString};
use vfield_console::failure::Failure;

const HINT: &str = "the original's form is `vfield -file FILE` or `vfield -bs ADDR [-store MB] [-join_boost 0..9]`";
/// Where the original's nodes listen.
const LISTEN: &str = "0.0.0.0";
/// Where the original's nodes export.
const NBD: &str = "tcp:127.0.0.1:10809";

/// The words that make a command line one of the original's.
const WORDS: [&str; 4] = ["-file", "-bs", "-store", "-join_boost"];

/// The typed options, each at most once.
#[derive(Default)]
struct Typed {
    file: Option<OsString>,
    bs: Option<OsString>,
    store: Option<OsString>,
    join_boost: Option<OsString>,
    modern: Vec<OsString>,
}

/// The modern form of `args` (program name first), or `None` if they are not in the original's
/// form.
pub fn translate(args: &[OsString]) -> Option<Result<Vec<OsString>, Failure>> {
    let first = args.get(1)?.to_str()?;
    is_original(first).then(|| read(&args[1..]).and_then(|typed| modern(&args[0], typed)))
}

/// True for a long name with a single dash; letters of the modern form may stand together, as in
/// `-vvq`.
fn is_original(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|letters| letters.len() > 1 && !letters.starts_with('-'));
    letters.is_some_and(|letters| !letters.chars().all(|letter| "vqhV".contains(letter)))
}

/// A failure about a modern option, in terms of the typed one.
pub fn in_its_words(failure: Failure) -> Failure {
    failure.renamed("--store", "-store").renamed("--join-boost", "-join_boost")
}

fn read(words: &[OsString]) -> Result<Typed, Failure> {
    let mut typed = Typed::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let place = match text {
            "-file" => &mut typed.file,
            "-bs" => &mut typed.bs,
            "-store" => &mut typed.store,
            "-join_boost" => &mut typed.join_boost,
            "-v" | "-vv" | "-q" => {
                typed.modern.push(word.clone());
                continue;
            }
            _ if text.starts_with("--") && text.len() > 2 => {
                typed.modern.push(word.clone());
                let flag = text.contains('=') || FLAGS.contains(&text);
                typed.modern.extend(if flag { None } else { words.next().cloned() });
                continue;
            }
            _ => return Err(Failure::usage(format!("{word:?} has no meaning here")).hint(HINT)),
        };
        let value = words.next().filter(|value| !WORDS.iter().any(|word| OsStr::new(word) == *value));
        let value = value.ok_or_else(|| Failure::usage(format!("{text} needs a value")).hint(HINT))?;
        if place.replace(value.clone()).is_some() {
            return Err(Failure::usage(format!("{text} is given twice")).hint(HINT));
        }
    }
    Ok(typed)
}

/// Modern options without a value.
const FLAGS: [&str; 11] = [
    "--json",
    "--verbose",
    "--quiet",
    "--help",
    "--version",
    "--rehash",
    "--no-pool",
    "--no-parallel",
    "--no-read-ahead",
    "--no-compression",
    "--no-learning",
];

fn modern(program: &OsStr, typed: Typed) -> Result<Vec<OsString>, Failure> {
    let mut line = vec![program.to_owned()];
    let positional = match (typed.file, typed.bs) {
        (Some(file), None) => {
            if typed.store.is_some() || typed.join_boost.is_some() {
                let fact = "-store and -join_boost need -bs: a node that serves a file has all of it";
                return Err(Failure::usage(fact).hint(HINT));
            }
            line.push("serve".into());
            file
        }
        (None, Some(bs)) => {
            line.push("join".into());
            for (name, value) in [("--store", typed.store.map(megabytes)), ("--join-boost", typed.join_boost)] {
                line.extend(value.map(|value| [name.into(), value]).into_iter().flatten());
            }
            bs
        }
        (Some(_), Some(_)) => {
            let fact = "-file and -bs do not go together in the original's form";
            return Err(Failure::usage(fact).hint("use `vfield serve FILE --join ADDR` to add an image to a field"));
        }
        (None, None) => return Err(Failure::usage("neither -file nor -bs is given").hint(HINT)),
    };
    for (name, value) in [("--listen", LISTEN), ("--nbd", NBD)] {
        let given = |word: &OsString| word.to_str().is_some_and(|word| word.split('=').next() == Some(name));
        if !typed.modern.iter().any(given) {
            line.extend([name.into(), value.into()]);
        }
    }
    line.extend(typed.modern);
    line.extend(["--".into(), positional]);
    Ok(line)
}

/// A bare number is MB, as in the original.
fn megabytes(value: OsString) -> OsString {
    let bare = value.to_str().is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    if bare {
        let mut with_unit = value;
        with_unit.push("M");
        return with_unit;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Result<String, String>> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let joined = |args: Vec<OsString>| args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ");
        translate(&args).map(|result| result.map(joined).map_err(|failure| failure.fact().to_owned()))
    }

    #[test]
    fn the_lines_of_the_article_become_modern_ones() {
        for (original, modern) in [
            ("vfield -file viver.squash", "vfield serve --listen 0.0.0.0 --nbd tcp:127.0.0.1:10809 -- viver.squash"),
            (
                "vfield -bs 192.168.1.1 -store 128",
                "vfield join --store 128M --listen 0.0.0.0 --nbd tcp:127.0.0.1:10809 -- 192.168.1.1",
            ),
            (
                "vfield -bs 192.168.1.1 -store 144 -join_boost 3",
                "vfield join --store 144M --join-boost 3 --listen 0.0.0.0 --nbd tcp:127.0.0.1:10809 -- 192.168.1.1",
            ),
            (
                "vfield -store 1GiB -bs 192.168.1.1",
                "vfield join --store 1GiB --listen 0.0.0.0 --nbd tcp:127.0.0.1:10809 -- 192.168.1.1",
            ),
        ] {
            assert_eq!(of(original), Some(Ok(modern.to_owned())));
        }
    }

    #[test]
    fn modern_options_pass_and_replace_the_originals_defaults() {
        assert_eq!(
            of("vfield -file x --nbd unix:/tmp/s --json --control=/tmp/c -v").unwrap().unwrap(),
            "vfield serve --listen 0.0.0.0 --nbd unix:/tmp/s --json --control=/tmp/c -v -- x"
        );
    }

    #[test]
    fn modern_lines_are_left_alone() {
        for line in ["vfield", "vfield serve -file", "vfield -v serve x", "vfield -vvq", "vfield --help", "vfield -h"] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn misuse_is_named() {
        for (line, fact) in [
            ("vfield -file", "-file needs a value"),
            ("vfield -bs -store 128", "-bs needs a value"),
            ("vfield -bs a -bs b", "-bs is given twice"),
            ("vfield -file x -bs a", "-file and -bs do not go together in the original's form"),
            ("vfield -store 128", "neither -file nor -bs is given"),
            ("vfield -file x -stroe 128", "\"-stroe\" has no meaning here"),
            ("vfield -fiel x", "\"-fiel\" has no meaning here"),
            ("vfield -store=128 -bs x", "\"-store=128\" has no meaning here"),
            ("vfield -file x y", "\"y\" has no meaning here"),
            ("vfield -file x -store 128", "-store and -join_boost need -bs: a node that serves a file has all of it"),
        ] {
            assert_eq!(of(line), Some(Err(fact.to_owned())), "{line}");
        }
    }
}

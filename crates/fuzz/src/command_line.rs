//! Command lines, in the original's form and in the modern one.
//!
//! Promises: words are a command or a refusal with a clear line; the original's form means the same
//! as its translation, and its refusal names the typed words.

use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use vfield_cli::args::Cli;
use vfield_cli::{original, refusal};

/// Longer lines are only slower.
const WORDS_MAX: usize = 12;

/// Words with a newline between them; a word need not be UTF-8.
pub fn target(bytes: &[u8]) {
    let words = bytes.split(|byte| *byte == b'\n').take(WORDS_MAX);
    let args: Vec<OsString> =
        [OsStr::new("vfield")].into_iter().chain(words.map(OsStr::from_bytes)).map(OsStr::to_owned).collect();
    let modern = match original::translate(&args) {
        Some(Ok(modern)) => {
            assert!(original::translate(&modern).is_none(), "{args:?} is turned into itself");
            modern
        }
        Some(Err(failure)) => {
            assert!(!failure.fact().is_empty() && failure.hint_text().is_some(), "{failure:?}");
            return;
        }
        None => args,
    };
    let Err(error) = Cli::try_parse_from(modern.clone()) else { return };
    // These are printed, not refused.
    let told = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ErrorKind::MissingSubcommand,
    ];
    if !told.contains(&error.kind()) {
        let failure = refusal::explain(&error, &modern).expect("a refusal");
        assert!(!failure.fact().is_empty() && failure.hint_text().is_some(), "{failure:?}");
    }
}

/// Lines as people type them.
pub fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        "-file viver.squash",
        "-bs 192.168.1.1 -store 144 -join_boost 3",
        "-bs 192.168.1.1 -stroe 144",
        "serve a.img --listen 0.0.0.0:7 --nbd tcp:127.0.0.1 --name os",
        "join 192.168.1.1 --store 30% --device auto --overlay ram --overlay-size 1G",
        "join 10.0.0.1 --field-key /k --trust RWQ --zone rack-1 --io-timeout 30s",
        "status --wait covered --json",
        "netboot 10.0.0.1 --machine 52:54:00:12:34:56=os",
        "key new k",
        "overlay save x.vfo",
        "bench --link 1G",
    ];
    lines.map(|line| line.replace(' ', "\n").into_bytes()).into()
}

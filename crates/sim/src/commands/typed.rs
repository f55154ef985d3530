//! Parses the command line and scenario files, and reports an error in one line.
//!
//! A scenario file is a list of options in place of `@FILE`: an option and its value on each line,
//! comments after `#`.

use super::{Failure, Options};
use clap::Parser as _;
use clap::error::ErrorKind;

/// The options of a command line; `None` if it asked for help, which is already printed.
///
/// # Errors
/// Unknown options, invalid values, unreadable files.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Option<Options>, Failure> {
    let mut all = Vec::new();
    for arg in args {
        match arg.strip_prefix('@') {
            Some(file) => all.extend(scenario(file)?),
            None => all.push(arg),
        }
    }
    match Options::try_parse_from(all) {
        Ok(options) => Ok(Some(options)),
        Err(help) if !help.use_stderr() || help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = help.print();
            Ok(None)
        }
        Err(error) => Err(Failure::Usage(line(&error.to_string()))),
    }
}

/// The first paragraph of a message, on one line.
fn line(message: &str) -> String {
    let first = message.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// A file is not longer than this, in bytes.
const FILE_MAX: u64 = 1 << 20;

fn scenario(file: &str) -> Result<Vec<String>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::Usage(format!("{file}: {why}"));
    let length = std::fs::metadata(file).map_err(|error| wrong(&error))?.len();
    if length > FILE_MAX {
        return Err(wrong(&format!("{length} bytes are no scenario")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let mut options = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !(line.is_empty() || line.starts_with('-')) {
            return Err(wrong(&format!("line {}: {line:?} is no option such as --nodes 50", number + 1)));
        }
        options.extend(line.split_whitespace().map(str::to_owned));
    }
    Ok(options)
}

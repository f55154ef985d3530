//! What the parser of the command line refuses, in our words: a fact and a hint.

use crate::args::Cli;
use crate::failure::{BadValue, Failure};
use crate::output;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;

/// The failure in `error`; `None` after printing the help or version that was asked for.
pub fn explain(error: &clap::Error) -> Option<Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return output::put(error.render().to_string().as_bytes()).err();
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            output::say(Cli::command().render_long_help().to_string().trim_end());
            return Some(
                Failure::usage("no command is given").hint("begin with `vfield serve FILE` or `vfield join ADDR`"),
            );
        }
        _ => {}
    }
    if let Some(bad) = error.source().and_then(|source| source.downcast_ref::<BadValue>()) {
        let fact = option(error).map_or_else(|| bad.fact.clone(), |option| format!("{option}: {}", bad.fact));
        return Some(Failure::usage(fact).hint(bad.hint.clone()));
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n");
    let fact = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
    let fact = fact.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let hint = tip.map_or_else(|| usage(&text), |tip| format!("{tip}; {}", usage(&text)));
    Some(Failure::usage(fact).hint(hint))
}

/// The option or argument that a value was given for, as it is typed.
fn option(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(name) if name.starts_with("--") => name.split([' ', '=']).next().map(str::to_owned),
        _ => None,
    }
}

/// Where to read on, from the usage line of clap's text.
fn usage(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("vfield");
    let words = line.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    format!("see `{} --help`", words.collect::<Vec<_>>().join(" "))
}

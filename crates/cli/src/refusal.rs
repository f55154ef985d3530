//! What the parser of the command line refuses, in our words: a fact and a hint.

use crate::args::Cli;
use crate::nearest::nearest;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use std::error::Error;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use vfield_console::failure::{BadValue, Failure};
use vfield_console::output;

/// Commands that a program without some of this crate's features lacks.
const LEFT_OUT: [&str; 4] = ["bench", "bucket", "completions", "man"];
/// What helps who misses something in such a program.
pub const SMALL: &str =
    "it was made for an initramfs; the vfield of packages, make install and cargo build lacks nothing";

/// The failure in `error` about the line `args`; `None` after help or version was printed.
pub fn explain(error: &clap::Error, args: &[OsString]) -> Option<Failure> {
    let asked = Asked::read(args);
    let help = || format!("see `{} --help`", asked.line);
    Some(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return output::put(error.render().to_string().as_bytes()).err();
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => asked.needs_a_command(),
        ErrorKind::UnknownArgument => asked.does_not_know(&text(error, ContextKind::InvalidArg)),
        ErrorKind::InvalidSubcommand => asked.has_no_command(&text(error, ContextKind::InvalidSubcommand)),
        ErrorKind::MissingRequiredArgument => {
            let missing = text(error, ContextKind::InvalidArg);
            let beside = if missing.starts_with('-') { " beside what was given" } else { "" };
            Failure::usage(format!("`{}` needs {missing}{beside}", asked.line)).hint(help())
        }
        ErrorKind::ArgumentConflict => {
            let (first, second) = (option(error, ContextKind::InvalidArg), option(error, ContextKind::PriorArg));
            let fact = match (first == second, first.starts_with('-')) {
                (true, true) => format!("{first} is given twice"),
                _ => format!("{first} and {second} do not go together"),
            };
            Failure::usage(fact).hint(format!("leave one of them out; {}", help()))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => bad_value(error, &help()),
        ErrorKind::TooManyValues => {
            let (option, value) = (option(error, ContextKind::InvalidArg), text(error, ContextKind::InvalidValue));
            Failure::usage(format!("{option} takes no value: {value:?}")).hint(format!("type {option} alone"))
        }
        ErrorKind::InvalidUtf8 => {
            Failure::usage("an argument is no text: it is not UTF-8").hint("type it again; file names may be anything")
        }
        _ => {
            let text = error.render().to_string();
            let fact = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            Failure::usage(fact.lines().map(str::trim).collect::<Vec<_>>().join(" ")).hint(help())
        }
    })
}

/// A value that is missing, unknown, or refused by its own parser.
fn bad_value(error: &clap::Error, help: &str) -> Failure {
    let (option, value) = (option(error, ContextKind::InvalidArg), text(error, ContextKind::InvalidValue));
    let of = |fact: String| if option.starts_with('-') { format!("{option}: {fact}") } else { fact };
    if let Some(bad) = error.source().and_then(|source| source.downcast_ref::<BadValue>()) {
        return Failure::usage(of(bad.fact.clone())).hint(bad.hint.clone());
    }
    if value.is_empty() {
        return Failure::usage(format!("{option} needs a value")).hint(help);
    }
    let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) else {
        let why = error.source().map_or_else(|| "not a value of its kind".to_owned(), ToString::to_string);
        return Failure::usage(of(format!("{value:?}: {why}"))).hint(help);
    };
    let hint = nearest(&value, known.iter().map(String::as_str)).map(|meant| format!("did you mean {meant}? "));
    let hint = format!("{}give one of {}", hint.unwrap_or_default(), known.join(", "));
    Failure::usage(of(format!("{value:?} is not one of its values"))).hint(hint)
}

/// The text of an error's context; several texts with commas.
fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    }
}

/// The option or argument that it is about, as it is typed.
fn option(error: &clap::Error, kind: ContextKind) -> String {
    let name = text(error, kind);
    let name = name.split([' ', '=']).next().unwrap_or_default().trim_end_matches("...");
    name.trim_matches(['[', ']']).to_owned()
}

/// The command that a line is for.
struct Asked {
    /// As it is typed: `vfield key`.
    line: String,
    command: Command,
    all: Command,
}

impl Asked {
    fn read(args: &[OsString]) -> Self {
        let mut all = Cli::command();
        all.build();
        let (mut line, mut command) = ("vfield".to_owned(), &all);
        for word in args.iter().skip(1).filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-')) {
            let Some(found) = command.find_subcommand(word) else { break };
            (line, command) = (format!("{line} {word}"), found);
        }
        Self { line, command: command.clone(), all }
    }

    /// The commands below it, as they are typed.
    fn commands(&self) -> Vec<String> {
        self.command.get_subcommands().map(|command| format!("`{} {}`", self.line, command.get_name())).collect()
    }

    fn needs_a_command(&self) -> Failure {
        if self.line == "vfield" {
            output::say(Cli::command().render_long_help().to_string().trim_end());
            return Failure::usage("no command is given").hint("begin with `vfield serve FILE` or `vfield join ADDR`");
        }
        let fact = format!("`{}` needs a command", self.line);
        Failure::usage(fact).hint(format!("type {}; see `{} --help`", self.commands().join(" or "), self.line))
    }

    fn has_no_command(&self, word: &str) -> Failure {
        if self.line == "vfield" && LEFT_OUT.contains(&word) {
            return Failure::usage(format!("this program was built without `vfield {word}`")).hint(SMALL);
        }
        let known = self.command.get_subcommands().map(Command::get_name);
        let hint = match nearest(word, known) {
            Some(meant) => format!("did you mean `{} {meant}`? see `{} --help`", self.line, self.line),
            None if self.line != "vfield" => format!("type {}", self.commands().join(" or ")),
            None if word.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok() => {
                format!("did you mean `vfield join {word}`? see `vfield --help`")
            }
            None if Path::new(word).exists() => format!("did you mean `vfield serve {word}`? see `vfield --help`"),
            None => "begin with `vfield serve FILE` or `vfield join ADDR`; see `vfield --help`".to_owned(),
        };
        Failure::usage(format!("`{}` has no command {word:?}", self.line)).hint(hint)
    }

    fn does_not_know(&self, word: &str) -> Failure {
        let help = format!("see `{} --help`", self.line);
        let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
            let fact = if word.starts_with('-') {
                format!("`{}` has no option {word}", self.line)
            } else {
                format!("{word:?} is one argument too many for `{}`", self.line)
            };
            return Failure::usage(fact).hint(help);
        };
        let hint = match nearest(name, longs(&self.command)) {
            Some(meant) => format!("did you mean --{meant}? {help}"),
            None => self.elsewhere(name).map_or(help.clone(), |hint| format!("{hint}; {help}")),
        };
        Failure::usage(format!("`{}` has no option --{name}", self.line)).hint(hint)
    }

    /// Which commands have an option that this one does not have.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let name = nearest(name, self.all.get_subcommands().flat_map(longs))?;
        if (self.command.get_name(), name) == ("serve", "store") {
            return Some("a node that serves a file has all of it; --store is for `vfield join`".to_owned());
        }
        let others = self.all.get_subcommands().filter(|command| longs(command).any(|long| long == name));
        let others: Vec<String> = others.map(|command| format!("`vfield {}`", command.get_name())).collect();
        Some(format!("--{name} is for {}", listed(&others)))
    }
}

/// As a sentence has it: "a, b and c".
fn listed(all: &[String]) -> String {
    match all {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        all => all.concat(),
    }
}

/// The options of a command that its help shows.
fn longs(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_left_out_is_not_taken_for_an_error_of_typing() {
        let asked = Asked::read(&["vfield".into()]);
        for word in LEFT_OUT {
            let failure = asked.has_no_command(word);
            assert_eq!(failure.fact(), format!("this program was built without `vfield {word}`"));
            assert_eq!(failure.hint_text(), Some(SMALL));
            let whole = Cli::command();
            assert_eq!(
                whole.find_subcommand(word).is_some(),
                cfg!(all(feature = "buckets", feature = "tools")),
                "{word}"
            );
        }
    }
}

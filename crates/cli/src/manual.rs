//! What a package installs beside the program, made by it from its own command line: completions
//! and manual pages.

use crate::args::{Cli, CompletionOptions, ManOptions};
use clap::{Command, CommandFactory};
use vfield_console::failure::{Failure, plain};
use vfield_console::output;

/// Runs `vfield completions`.
pub fn completions(options: &CompletionOptions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut visible(&Cli::command()), "vfield", &mut text);
    output::put(&text)
}

/// `command` without its hidden arguments, which completions would offer.
fn visible(command: &Command) -> Command {
    let shown = Command::new(command.get_name().to_owned())
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().map(visible));
    let shown = command.get_about().cloned().into_iter().fold(shown, Command::about);
    command.get_version().map(str::to_owned).into_iter().fold(shown, Command::version)
}

/// Runs `vfield man`.
pub fn man(options: &ManOptions) -> Result<(), Failure> {
    let Some(dir) = &options.dir else {
        let mut text = Vec::new();
        let rendered = clap_mangen::Man::new(Cli::command()).render(&mut text);
        rendered.map_err(|error| Failure::failed(format!("manual page: {}", plain(&error))))?;
        return output::put(&text);
    };
    clap_mangen::generate_to(Cli::command(), dir).map_err(|error| {
        let failure = Failure::failed(format!("{}: {}", dir.display(), plain(&error)));
        failure.hint("give a directory that exists and can be written")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_offer_every_option_but_the_hidden_ones() {
        let command = Cli::command();
        let join = command.find_subcommand("join").unwrap();
        let (hidden, shown): (Vec<_>, Vec<_>) =
            join.get_arguments().filter(|arg| arg.get_long().is_some()).partition(|arg| arg.is_hide_set());
        assert!(!hidden.is_empty());
        let mut text = Vec::new();
        clap_complete::generate(clap_complete::Shell::Fish, &mut visible(&command), "vfield", &mut text);
        let text = String::from_utf8(text).unwrap();
        let offered = |arg: &&clap::Arg| text.contains(&format!("-l {} ", arg.get_long().unwrap()));
        assert!(hidden.iter().all(|arg| !offered(arg)) && shown.iter().all(offered));
    }
}

//! The reference of the command line is what the program says of itself. `VFIELD_REWRITE=1` writes
//! it anew.

use clap::{Command, CommandFactory};
use std::fmt::Write;
use std::path::Path;
use vfield_cli::args::Cli;

const HEAD: &str = "\
# Command line

`vfield --help` and the help of each command, as the program prints them.
A test compares this page with the program.
To write it anew: `VFIELD_REWRITE=1 cargo test -p vfield --test texts`.

- Options may also stand in a file: [configuration](config.md).
- Exit codes, signals and variables have [a page of their own](exit-codes-and-environment.md).
";

/// Appends the help of a command, and of all that are below it and not hidden.
fn describe(command: &mut Command, name: &str, level: usize, text: &mut String) {
    let help = command.clone().bin_name(name).term_width(100).render_long_help().to_string();
    let heading = "#".repeat(level.min(3));
    let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
    write!(text, "\n{heading} `{name}`\n\n```text\n{}\n```\n", lines.join("\n")).expect("memory");
    // The first level has a help of its own, and those below have what the parser adds.
    let is_ours = |below: &&mut Command| level == 2 || below.get_name() != "help";
    for below in command.get_subcommands_mut().filter(|below| !below.is_hide_set()).filter(is_ours) {
        let name = format!("{name} {}", below.get_name());
        describe(below, &name, level + 1, text);
    }
}

#[test]
fn the_reference_is_what_the_program_says() {
    let mut text = HEAD.to_owned();
    let mut command = Cli::command();
    command.build();
    describe(&mut command, "vfield", 2, &mut text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    if std::env::var_os("VFIELD_REWRITE").is_some() {
        std::fs::write(&path, &text).expect("the document can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/reference/cli.md is not what the program says: run this test with VFIELD_REWRITE=1");
}

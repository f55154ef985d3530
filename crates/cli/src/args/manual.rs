//! Options of the commands that print what a package installs: completions and manual pages.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Options of `vfield completions`.
#[derive(Debug, Args)]
pub struct CompletionOptions {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    pub shell: clap_complete::Shell,
}

/// Options of `vfield man`.
#[derive(Debug, Args)]
pub struct ManOptions {
    /// Directory for vfield.1, vfield-serve.1 and the others
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

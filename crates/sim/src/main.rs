//! The simulator's command line: see [`vfield_sim::commands`].

use clap::Parser;
use std::process::ExitCode;
use vfield_sim::commands::{Options, run};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sim: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

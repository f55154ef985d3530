//! The simulator's command line: see [`vfield_sim::commands`].

use std::process::ExitCode;
use vfield_sim::commands::{parse, run};

fn main() -> ExitCode {
    match parse(std::env::args()).and_then(|options| options.map_or(Ok(()), |options| run(&options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sim: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

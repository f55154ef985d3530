//! Boots a machine, runs scripts in it one after the other as one, and shows its console:
//! `machine NAME SCRIPT... [--limit SECONDS]`.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use vfield_lab::Machine;

#[derive(Parser)]
struct Options {
    /// Name of the run: its directory is `runs/NAME` where the machine is.
    name: String,
    /// Bash scripts that the machine runs, in this order.
    #[arg(required = true)]
    scripts: Vec<PathBuf>,
    /// Ends the machine after so many seconds.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let machine = Machine::find().ok_or("no machine: run scripts/machine and set VFIELD_MACHINE to what it made")?;
    let scripts: Vec<String> = options.scripts.iter().map(std::fs::read_to_string).collect::<Result<_, _>>()?;
    let ran = machine.run(&options.name, &scripts.join("\n"), Duration::from_secs(options.limit))?;
    print!("{}", ran.console);
    Ok(if ran.status == Some(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! The program `vfield`; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    vfield_cli::run(std::env::args_os().collect())
}

//! The program `vfield`; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    vfield_cli::secrets::hide_memory();
    vfield_cli::crash::end_on_panic();
    vfield_cli::run(std::env::args_os().collect())
}

//! What people read: helps, errors and references, as they are written down, against the program.

mod cli_reference;
mod command_line;
mod config_reference;
mod explain_reference;
mod status_reference;
mod wrong_calls;

//! Scripts away from the machine that they were written on.

mod alone;
mod install;
mod kernel_command_line;

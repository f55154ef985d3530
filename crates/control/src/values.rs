//! The kinds of values that are asked of a daemon, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod endpoint;
pub mod until;

vfield_console::written! {
    endpoint::Endpoint: "\"unix:PATH\" or \"tcp:ADDR\"",
    until::Until: "a condition such as \"ready\"",
}

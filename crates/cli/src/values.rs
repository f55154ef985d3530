//! The kinds of values that command lines and configuration files hold, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one. None of them looks at the
//! machine or the network; that is done in [`crate::plan`].

pub mod access;
pub mod boost;
pub mod threads;
pub mod zone;

vfield_console::written! {
    access::Access: "a network such as \"192.168.1.0/24\"",
    boost::Boost: "0 to 9, or \"random\"",
    threads::Threads: "a number of threads",
    zone::ZoneChoice: "the name of a zone",
}

//! Writing to stdout and stderr without dying of it: a reader that went away is no error.

use crate::failure::{Failure, plain};
use crate::stderr;
use std::io::{self, ErrorKind, Write};

/// Writes all of `bytes` to stdout.
pub fn put(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(),
        _ => Failure::failed(format!("writing to stdout failed: {}", plain(&error)))
            .hint("check the destination of the output"),
    })
}

/// Writes a line to stderr.
pub fn say(line: &str) {
    stderr::put(format!("{line}\n").as_bytes());
}

/// Says what went wrong.
pub fn complain(failure: &Failure) {
    say(&failure.to_string());
}

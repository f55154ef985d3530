//! Why an overlay cannot be had, restored or saved, with what to do about it.

use std::io::{Error, ErrorKind};
use std::path::Path;
use vfield_console::failure::{Failure, plain};
use vfield_console::values::size::human;
use vfield_control::message::Reply;
use vfield_overlay::{OpenError, RestoreError, SaveError};

/// An overlay that cannot be opened.
pub fn open(error: &OpenError) -> Failure {
    let (fact, hint) = match error {
        OpenError::Memory(source) => (format!("no memory for an overlay: {}", plain(source)), "see limits: ulimit -a"),
        OpenError::System { path, source } => return system(path, source, "give a directory of yours to --overlay"),
        OpenError::InUse(_) => (error.to_string(), "end that daemon with `vfield leave`, or give another directory"),
        OpenError::OtherImage { .. } => {
            (error.to_string(), "give another directory to --overlay; the changes fit no other image")
        }
        OpenError::Newer { .. } => {
            (error.to_string(), "use the vfield version that made it, or give another directory")
        }
        OpenError::Damaged { .. } => (error.to_string(), "it is unchanged; give another directory, or move its files"),
        OpenError::TooLarge { path, held_bytes, max_bytes } => {
            return too_large(path, *held_bytes, *max_bytes);
        }
    };
    Failure::failed(fact).hint(hint)
}

/// A saved overlay that cannot be restored.
pub fn restore(error: &RestoreError) -> Failure {
    let (fact, hint) = match error {
        RestoreError::System { path, source } => {
            return system(path, source, "check --overlay-from; leave it out if no overlay was saved");
        }
        RestoreError::Foreign(_) => (error.to_string(), "give --overlay-from a file of `vfield overlay save`"),
        RestoreError::Newer { .. } => (error.to_string(), "use the vfield version that saved it, or a later one"),
        RestoreError::OtherImage { .. } => (error.to_string(), "changes fit only the image that they were made to"),
        RestoreError::Truncated { .. } | RestoreError::Corrupt { .. } => {
            (error.to_string(), "the file was not used; give an older one, or leave --overlay-from out")
        }
        RestoreError::TooLarge { path, held_bytes, max_bytes } => {
            return too_large(path, *held_bytes, *max_bytes);
        }
        RestoreError::NotEmpty(_) => (error.to_string(), "leave --overlay-from out to keep them"),
    };
    Failure::failed(fact).hint(hint)
}

/// A saved overlay that cannot be restored into the directory `dir`. No daemon runs that could drop
/// the present changes.
pub fn restore_into(error: &RestoreError, dir: &Path, image: &str) -> Failure {
    let failure = restore(error);
    if !matches!(error, RestoreError::NotEmpty(_)) {
        return failure;
    }
    let files = dir.join(image).display().to_string();
    failure.hint(format!(
        "leave --overlay-from out to keep them; or give another directory to --overlay; or remove {files}.index, \
         {files}.live and {files}.data"
    ))
}

/// A save or a reset that failed.
pub fn save(error: &SaveError) -> Reply {
    match error {
        SaveError::File(source) => {
            let hint = match source.kind() {
                ErrorKind::StorageFull => "the older file is unchanged; save to another file system",
                _ => "the older file is unchanged",
            };
            Reply::refused(format!("writing the file: {}", plain(source)), hint)
        }
        SaveError::Busy => Reply::refused(error.to_string(), "try again afterwards"),
        SaveError::Medium(source) => {
            Reply::refused(format!("the overlay's own file: {}", plain(source)), "see the daemon's log")
        }
    }
}

fn system(path: &Path, source: &Error, hint: &str) -> Failure {
    Failure::failed(format!("{}: {}", path.display(), plain(source))).hint(hint)
}

fn too_large(path: &Path, held_bytes: u64, max_bytes: u64) -> Failure {
    let fact = format!("{} holds {} of changes, more than {}", path.display(), human(held_bytes), human(max_bytes));
    Failure::failed(fact).hint("allow more with --overlay-size")
}

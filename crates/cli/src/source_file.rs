//! Files to be served: reasons to refuse a file before it is hashed, and remarks.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use vfield_console::failure::{Failure, plain};
use vfield_daemon::values::image::ImageName;
use vfield_node::origin::wrapping::{self, HEAD_BYTES};

/// Refuses a path that cannot be an image: missing, unreadable, a directory, a pipe, empty.
pub fn check(path: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::failed(format!("{}: {why}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => refuse("no such file").hint("check the path; it is relative to the current directory"),
        ErrorKind::PermissionDenied => {
            refuse(&plain(&error)).hint("the file must be readable for the user who runs vfield")
        }
        _ => refuse(&plain(&error)).hint("check the path"),
    })?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        let failure = refuse("a directory, not an image");
        return Err(failure
            .hint(format!("make an image of it first, for example: vfield pack {0} -o {0}.erofs", trimmed(path))));
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(
            refuse("not a regular file or block device").hint("serve an image file, or a disk such as /dev/sdb")
        );
    }
    let mut file = File::open(path)
        .map_err(|error| refuse(&plain(&error)).hint("the file must be readable for the user who runs vfield"))?;
    let length = if kind.is_block_device() { file.seek(SeekFrom::End(0)).unwrap_or(0) } else { metadata.len() };
    if length == 0 {
        return Err(refuse("empty, there is nothing to serve").hint("an image has at least one byte"));
    }
    Ok(())
}

/// A remark about a file that is hardly meant to be read as it is.
pub fn remark(path: &Path) -> Option<String> {
    let mut head = Vec::new();
    // A file that cannot be read is refused elsewhere.
    File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    wrapping::remark(&path.file_name()?.to_string_lossy(), &head)
}

fn trimmed(path: &Path) -> String {
    path.display().to_string().trim_end_matches('/').to_owned()
}

/// The name of an image that was given none: the file's.
pub fn name_of(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ImageName(name) = name.parse().map_err(|_| {
        Failure::usage(format!("{}: its file name cannot name an image", path.display()))
            .hint("choose one with --name NAME")
    })?;
    Ok(name)
}

//! `vfield mount`: the file system of the image that a tag names, at a directory.
//!
//! It waits for the daemon's news of the tag. For each version it mounts the file of the daemon's
//! FUSE mount, beneath the version before, which it then takes away. When it ends the mount stays,
//! so that it can be started again without a reader's noticing.

use crate::args::{FileSystem, MountOptions};
use crate::source_file;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_console::text::clean;
use vfield_control::client::Client;
use vfield_control::message::{DaemonStatus, FollowingStatus, Request};
use vfield_control::offer::ExportKind;
use vfield_control::values::until::Until;
use vfield_mount::{Kind, MountError, Placed};

/// How long a daemon that is being started again is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `vfield mount`: follows until it is ended, or the daemon is.
pub fn run(options: &MountOptions) -> Result<(), Failure> {
    let (control, tag) = (options.control.control.as_deref(), options.follow.0.as_str());
    let dir = directory(&options.dir)?;
    let kind = options.file_system.map(kind);
    let mut current = String::new();
    let mut first = true;
    loop {
        // Before the look, so that no news is missed.
        let patience = if std::mem::take(&mut first) { Duration::ZERO } else { PATIENCE };
        let mut daemon = Client::await_daemon(control, patience)?;
        daemon.send(&Request::Wait { until: Until::Ready, timeout_ms: None })?;
        if daemon.reply().is_err() {
            continue;
        }
        let mut news = Client::connect(control)?;
        news.send(&Request::Events { after: 0, most: 1, follow: true })?;
        while news.reply().is_ok() {
            let status = Client::connect(control)?.status()?;
            let (file, following) = version(&status, tag)?;
            if let Some(file) = file.filter(|_| following.id != current) {
                let placed = mount(&file, kind, &dir)?;
                current.clone_from(&following.id);
                say(&following, placed, &dir)?;
            }
        }
    }
}

/// The directory, as the kernel's table has it.
fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    let failed = |why: &str| Failure::failed(format!("{}: {why}", dir.display())).hint("give an empty directory");
    let dir = dir.canonicalize().map_err(|error| failed(&plain(&error)))?;
    if dir.is_dir() { Ok(dir) } else { Err(failed("not a directory")) }
}

/// The file of the tag's version, if there is one by now.
fn version(status: &DaemonStatus, tag: &str) -> Result<(Option<PathBuf>, FollowingStatus), Failure> {
    let following = status.following.iter().find(|following| following.tag == tag).cloned();
    let following = following.ok_or_else(|| {
        let failure = Failure::failed(format!("the daemon does not follow the tag {tag}"));
        failure.hint(format!("start it with `vfield join ADDR --follow {tag}`"))
    })?;
    let fuse = status.exports.iter().find(|export| export.kind == ExportKind::Fuse);
    let fuse = fuse.ok_or_else(|| {
        Failure::failed("the daemon shows its images as no files").hint("start it with --mount DIR besides --follow")
    })?;
    let file = (!following.id.is_empty()).then(|| Path::new(&fuse.address).join(&following.image));
    Ok((file, following))
}

fn mount(file: &Path, kind: Option<Kind>, dir: &Path) -> Result<Placed, Failure> {
    let mounted = vfield_mount::open(file, kind).map_err(|error| explain(&error))?;
    // What an earlier run of this command has left is replaced too.
    let ours = vfield_mount::top(dir).is_some_and(|top| top.source.parent() == file.parent());
    let placed = if ours { mounted.replace(dir) } else { mounted.attach(dir) };
    placed.map_err(|error| explain(&error))
}

fn say(following: &FollowingStatus, placed: Placed, dir: &Path) -> Result<(), Failure> {
    let FollowingStatus { tag, serial, image, .. } = following;
    let note = match placed {
        Placed::First | Placed::Beneath => "",
        Placed::Over => "; this kernel puts no mount beneath another (Linux 6.5 does): the old one stays below it",
    };
    let dir = dir.display().to_string();
    output::put(format!("{} has {} serial {serial}, {}{note}\n", clean(&dir), clean(tag), clean(image)).as_bytes())
}

fn explain(error: &MountError) -> Failure {
    let (fact, hint) = match error {
        MountError::Image { path, source } => {
            (format!("{}: {}", path.display(), plain(source)), "root has to be able to read it: is the daemon root's?")
        }
        MountError::NoFileSystem { path } => {
            let usual = "name it with --type, or mount the image by hand";
            let remark = source_file::remark(path).map(|remark| clean(&remark));
            return Failure::failed(error.to_string()).hint(remark.unwrap_or_else(|| usual.to_owned()));
        }
        MountError::Refused { what, path, source } => (
            format!("{what} {}: {}", path.display(), plain(source)),
            "it needs root, and a kernel with the file system",
        ),
    };
    Failure::failed(fact).hint(hint)
}

const fn kind(typed: FileSystem) -> Kind {
    match typed {
        FileSystem::Erofs => Kind::Erofs,
        FileSystem::Squashfs => Kind::Squashfs,
        FileSystem::Ext4 => Kind::Ext4,
        FileSystem::Xfs => Kind::Xfs,
        FileSystem::Btrfs => Kind::Btrfs,
        FileSystem::Iso9660 => Kind::Iso9660,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_with_a_disk_in_it_has_no_file_system_and_the_hint_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("viver.qcow2");
        let hint = || {
            let failure = explain(&MountError::NoFileSystem { path: path.clone() });
            failure.hint_text().unwrap().to_owned()
        };
        std::fs::write(&path, "no disk at all").unwrap();
        assert!(hint().contains("--type"), "{}", hint());
        std::fs::write(&path, b"QFI\xfb").unwrap();
        assert!(hint().starts_with("viver.qcow2 is in the format QCOW2"), "{}", hint());
    }
}

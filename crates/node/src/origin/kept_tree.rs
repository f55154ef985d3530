//! Trees that outlive the process: where one is found, whose it has to be, how a new one is made.
//!
//! A tree lies beside its file, as `NAME.vfh`, or in a cache directory. Invariant: a found tree is
//! about this very file in its present state. Its owner is a user that can change the file as well.
//! A new tree has no name before all of it is written. A process that gives up its rights
//! calls [`KeptTree::look`] before: a new file, and its directory, are open from then on. It does
//! not compare the file's bytes; [`super::comparison`] does.

use super::Origin;
use super::comparison::Comparison;
use super::file::{SourceFile, Stamp};
use super::tree_file::{BadTree, Head};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fcntl_getfl, linkat, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, BufReader, BufWriter, Seek as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vfield_core::chunk::ChunkSize;
use vfield_core::hash_tree::HashTree;
use vfield_core::image::ImageId;

/// What a tree's name ends with.
const SUFFIX: &str = ".vfh";
/// Most trees in a cache directory; the oldest go first. A daemon serves a few images, and each of
/// them has a few versions.
const CACHED_MAX: usize = 64;
/// The place of a tree that an earlier process has left, in words.
const LEFT: &str = "the memory of the process before";
/// A file server's clock may be a little ahead of this machine's.
const TICK: Duration = Duration::from_secs(2);

/// The rules for a file's tree.
#[derive(Debug, Clone, Default)]
pub struct Keeping {
    /// Hash the file in any case.
    pub rehash: bool,
    /// The directory for trees that cannot lie beside their file, if there is one.
    pub cache: Option<PathBuf>,
    /// Files with less data on their disk have no tree: hashing them takes no time.
    pub data_min_bytes: u64,
    /// Age of a file's last change from which on its next change surely has another time.
    pub settled: Duration,
}

/// The tree of a file that is to be published, and the place for a new one.
#[derive(Debug, Default)]
pub struct KeptTree {
    found: Mutex<Option<Found>>,
    place: Mutex<Option<Place>>,
    dir: Option<PathBuf>,
    settled: Duration,
}

/// A tree of an earlier start.
#[derive(Debug)]
struct Found {
    stamp: Stamp,
    id: ImageId,
    tree: HashTree,
    path: PathBuf,
    /// Open for writing, if this user may.
    file: Option<File>,
}

/// A file without a name yet, in the directory where it gets one.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    name: OsString,
    dir: OwnedFd,
    file: File,
}

/// The file at a place of a tree, judged.
enum Look {
    /// The place is empty.
    Nothing,
    /// The tree of this file as it is.
    Good(Box<Found>),
    /// A tree to be replaced: why, if that is worth a line.
    Useless(Option<String>),
    /// Not to be touched, and why.
    Foreign(String),
}

impl KeptTree {
    /// Looks for the tree of the file at `path`. If no tree can be used, it makes room for a new
    /// one. Also says what a person should know. May read 0.05 % of the file's length, and
    /// hashes that on the calling thread. A small file is not read, nor is its chunk size asked
    /// for.
    pub fn look(path: &Path, chunk_size: impl FnOnce() -> ChunkSize, keeping: &Keeping) -> (Self, Vec<String>) {
        let mut remarks = Vec::new();
        let kept = Self::of(path, chunk_size, keeping, &mut remarks);
        (kept.unwrap_or_default(), remarks)
    }

    /// `None` if the file has no stamp, is small, or cannot be published at all.
    fn of(
        path: &Path,
        chunk_size: impl FnOnce() -> ChunkSize,
        keeping: &Keeping,
        remarks: &mut Vec<String>,
    ) -> Option<Self> {
        let file = SourceFile::open(path).ok()?;
        let (stamp, real) = (file.stamp()?, path.canonicalize().ok()?);
        let about = std::fs::metadata(&real).ok()?;
        // Blocks of 512 bytes, whatever the file system's own are.
        if about.blocks().saturating_mul(512) < keeping.data_min_bytes {
            return None;
        }
        let (chunk_size, mut open) = (chunk_size(), Vec::new());
        for place in places(&real, stamp, keeping.cache.as_deref()) {
            match look_at(&place, stamp, chunk_size, &about) {
                Look::Good(found) if !keeping.rehash => {
                    return Some(Self::with(*found));
                }
                Look::Nothing => open.push((place, false)),
                Look::Good(_) | Look::Useless(None) => open.push((place, true)),
                Look::Useless(Some(why)) => {
                    remarks.push(format!("{} is not used, and {} is hashed: {why}", place.display(), path.display()));
                    open.push((place, true));
                }
                Look::Foreign(why) => {
                    remarks.push(format!("{} is not used as kept hashes: {why}", place.display()));
                }
            }
        }
        let mut refused = None;
        for (place, replaced) in open {
            match Place::make(&place, replaced, keeping.cache.as_deref()) {
                Ok(place) => {
                    let dir = place.path.parent().map(Path::to_owned);
                    let (place, settled) = (Mutex::new(Some(place)), keeping.settled);
                    return Some(Self { place, dir, settled, ..Self::default() });
                }
                Err(error) => refused = refused.or(Some((place, error))),
            }
        }
        if let Some((place, error)) = refused {
            remarks.push(not_kept(path, &place, &error));
        }
        None
    }

    /// The tree in a file that another process has opened, for a file that it has opened as well:
    /// at `path`, which is not looked at. `None` if it is not to be used; why, if that is worth a
    /// line. May read 0.05 % of the file's length, and hashes that on the calling thread.
    pub fn handed(
        file: &Arc<OwnedFd>,
        tree: File,
        path: &Path,
        chunk_size: ChunkSize,
    ) -> (Option<Self>, Option<String>) {
        let Some((stamp, about)) = known(file, path) else { return (None, None) };
        let place = beside(path);
        let writable = fcntl_getfl(&tree).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        match judge(&place, tree, writable, stamp, chunk_size, &about) {
            Look::Good(found) => (Some(Self::with(*found)), None),
            Look::Nothing | Look::Useless(None) => (None, None),
            Look::Useless(Some(why)) | Look::Foreign(why) => {
                (None, Some(format!("{} is not used, and {} is hashed: {why}", place.display(), path.display())))
            }
        }
    }

    /// The tree in a memory file of an earlier process, which has left its file too: that at
    /// `path`, which is not looked at. `None` if it is not the tree of this very file as it is.
    /// Reads up to 0.05 % of the file's length, and hashes that on the calling thread.
    pub fn left(file: &Arc<OwnedFd>, tree: OwnedFd, path: &Path, chunk_size: ChunkSize) -> Option<Self> {
        let (stamp, about) = known(file, path)?;
        let mut tree = File::from(tree);
        // It was written through the same open file.
        tree.rewind().ok()?;
        match read(Path::new(LEFT), tree, true, stamp, chunk_size, &about) {
            Look::Good(found) => Some(Self::with(*found)),
            Look::Nothing | Look::Useless(_) | Look::Foreign(_) => None,
        }
    }

    fn with(found: Found) -> Self {
        Self { found: Mutex::new(Some(found)), ..Self::default() }
    }

    /// The directory in which a new file is to be given a name.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// The tree for a file with this stamp, to be compared with it; `None` at a second call.
    pub(super) fn take(&self, stamp: Option<Stamp>) -> Option<(ImageId, HashTree, Comparison)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Found { id, tree, path, file, .. } = found.filter(|found| stamp == Some(found.stamp))?;
        let populated = tree.geometry().header().populated();
        Some((id, tree, Comparison::new(populated, file, path)))
    }

    /// Keeps the tree of a file that was hashed, if there is room for it and its next change would
    /// be seen.
    ///
    /// # Errors
    /// Says in one line why the next start has to hash again.
    pub fn keep(&self, origin: &Origin) -> Result<(), String> {
        let Some(place) = self.place.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let sure = |stamp: &Stamp| origin.file.stamp() == Some(*stamp) && is_older(stamp, self.settled);
        let Some(stamp) = origin.stamp.filter(sure) else {
            if let Some(ahead) = origin.stamp.as_ref().and_then(|stamp| ahead_of(stamp, now())) {
                return Err(in_the_future(origin.path(), ahead));
            }
            tracing::info!("{}: changed a moment ago, so its hashes are not kept", origin.path().display());
            return Ok(());
        };
        let head = Head { id: origin.id(), header: *origin.header(), file: stamp };
        place.keep(&head, origin.tree()).map_err(|error| not_kept(origin.path(), &place.path, &error))
    }
}

impl Place {
    /// Makes a file without a name that is to be `path`, and removes an old file there if it is
    /// `replaced`. The directory `cache` is made if need be.
    fn make(path: &Path, replaced: bool, cache: Option<&Path>) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let parent = path.parent().unwrap_or(Path::new("/"));
        if cache == Some(parent) {
            make_own(parent)?;
        }
        let dir = open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&dir, ".", flags, Mode::from_raw_mode(0o644))?;
        if replaced {
            unlinkat(&dir, &name, AtFlags::empty())?;
        }
        Ok(Self { path: path.to_owned(), name, dir, file: file.into() })
    }

    /// Writes the tree, then gives the file its name.
    fn keep(&self, head: &Head, tree: &HashTree) -> io::Result<()> {
        head.write(tree, &mut BufWriter::new(&self.file))?;
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match linkat(CWD, unnamed, &self.dir, &self.name, AtFlags::SYMLINK_FOLLOW) {
            // Another daemon that serves the same file was faster.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes the tree of a file as it is kept: for the place beside an object with the same bytes, or
/// for [`KeptTree::left`].
pub fn write(origin: &Origin, to: &mut impl io::Write) -> io::Result<()> {
    const NO_FILE: Stamp = Stamp { device: 0, inode: 0, modified_ns: 0, status_changed_ns: 0 };
    let file = origin.stamp.unwrap_or(NO_FILE);
    Head { id: origin.id(), header: *origin.header(), file }.write(origin.tree(), to)
}

fn not_kept(path: &Path, place: &Path, error: &io::Error) -> String {
    let (path, place) = (path.display(), place.display());
    format!("the hashes of {path} are not kept, so the next start hashes it again: {place}: {error}")
}

fn in_the_future(path: &Path, ahead: Duration) -> String {
    let (path, hours) = (path.display(), ahead.as_secs().div_ceil(3600));
    format!(
        "the hashes of {path} are not kept, so the next start hashes it again: its last change is {hours} hours ahead \
         of this machine's clock"
    )
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.to_owned().into_os_string();
    beside.push(SUFFIX);
    PathBuf::from(beside)
}

/// Where the tree of a file may lie, the better place first.
fn places(real: &Path, stamp: Stamp, cache: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    let cached = cache.map(|dir| dir.join(format!("{:x}-{:x}{SUFFIX}", stamp.device, stamp.inode)));
    [Some(beside(real)), cached].into_iter().flatten()
}

/// Opens the file that may have the tree of the file at `path`, for another process to judge; see
/// [`KeptTree::handed`].
pub fn open_for(path: &Path, cache: Option<&Path>) -> Option<File> {
    let (stamp, real) = (SourceFile::open(path).ok()?.stamp()?, path.canonicalize().ok()?);
    places(&real, stamp, cache).find_map(|place| open_tree(&place).ok()).map(|(file, _)| file)
}

/// What lies at `place`, for a file with this stamp.
fn look_at(place: &Path, stamp: Stamp, chunk_size: ChunkSize, about: &Metadata) -> Look {
    match open_tree(place) {
        Ok((file, writable)) => judge(place, file, writable, stamp, chunk_size, about),
        Err(Errno::NOENT) => Look::Nothing,
        Err(Errno::LOOP) => Look::Foreign("it is a symbolic link".to_owned()),
        Err(error) => Look::Foreign(io::Error::from(error).to_string()),
    }
}

/// Stamp and properties of an open file, the one at `path`; `None` if it has no stamp.
fn known(file: &Arc<OwnedFd>, path: &Path) -> Option<(Stamp, Metadata)> {
    let source = SourceFile::opened(Arc::clone(file), path).ok()?;
    Some((source.stamp()?, File::from(file.try_clone().ok()?).metadata().ok()?))
}

/// What an open file at `place` is to a file with this stamp.
fn judge(place: &Path, file: File, writable: bool, stamp: Stamp, chunk_size: ChunkSize, about: &Metadata) -> Look {
    let Ok(own) = file.metadata() else { return Look::Foreign("it cannot be looked at".to_owned()) };
    if !own.is_file() {
        return Look::Foreign("it is no regular file".to_owned());
    }
    if ![geteuid().as_raw(), 0, about.uid()].contains(&own.uid()) {
        return Look::Foreign(format!("it belongs to user {}", own.uid()));
    }
    if own.mode() & 0o022 != 0 {
        return Look::Foreign("other users may write to it".to_owned());
    }
    read(place, file, writable, stamp, chunk_size, about)
}

/// What the content of an open file is to a file with this stamp.
fn read(place: &Path, file: File, writable: bool, stamp: Stamp, chunk_size: ChunkSize, about: &Metadata) -> Look {
    let mut reader = BufReader::new(&file);
    let found = Head::read(&mut reader).and_then(|head| {
        let header = &head.header;
        if (head.file.device, head.file.inode) != (stamp.device, stamp.inode) {
            return Err(BadTree::OtherFile);
        }
        let fits = head.file == stamp && header.length_bytes() == about.size() && header.chunk_size() == chunk_size;
        let tree = fits.then(|| head.read_tree(&mut reader)).transpose()?;
        Ok(tree.map(|tree| (head.id, tree)))
    });
    match found {
        Ok(Some((id, tree))) => {
            let file = writable.then_some(file);
            Look::Good(Box::new(Found { stamp, id, tree, path: place.to_owned(), file }))
        }
        Ok(None) => Look::Useless(None),
        Err(why @ BadTree::Foreign) => Look::Foreign(why.to_string()),
        Err(why) => Look::Useless(Some(why.to_string())),
    }
}

/// Opens the file itself and never what a link leads to; true if it may be written too. Waits for
/// nobody at a pipe.
fn open_tree(place: &Path) -> Result<(File, bool), Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open(place, OFlags::RDWR | flags, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            Ok((open(place, OFlags::RDONLY | flags, Mode::empty())?.into(), false))
        }
        opened => Ok((opened?.into(), true)),
    }
}

/// True if the file changed last before that age.
fn is_older(stamp: &Stamp, age: Duration) -> bool {
    nanos(now()).saturating_sub(stamp.status_changed_ns) >= nanos(age)
}

/// How far ahead of `now` the file's last change is, if it is: this machine's clock was set back.
fn ahead_of(stamp: &Stamp, now: Duration) -> Option<Duration> {
    let ahead = stamp.status_changed_ns.saturating_sub(nanos(now));
    u64::try_from(ahead).ok().map(Duration::from_nanos).filter(|ahead| *ahead > TICK)
}

/// Since 1970, by this machine's clock.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

/// Makes a directory where nobody else can put a tree, and leaves room in it for one more.
fn make_own(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let about = std::fs::metadata(dir)?;
    if about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
        return Err(io::Error::other("other users may write to this directory"));
    }
    leave_room(dir);
    Ok(())
}

/// Removes the oldest trees of a cache directory that has too many.
fn leave_room(dir: &Path) {
    let is_tree = |path: &Path| path.extension() == Some(OsStr::new(&SUFFIX[1..]));
    let paths = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let aged = |path: PathBuf| Some((std::fs::symlink_metadata(&path).ok()?.modified().ok()?, path));
    let mut trees: Vec<_> = paths.filter(|path| is_tree(path)).filter_map(aged).collect();
    trees.sort_unstable();
    for (_, path) in trees.iter().rev().skip(CACHED_MAX - 1) {
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "removing an old tree");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ahead_of_the_clock_is_told_in_hours() {
        let at = |seconds: u64| Stamp {
            device: 1,
            inode: 2,
            modified_ns: 0,
            status_changed_ns: nanos(Duration::from_secs(seconds)),
        };
        let now = Duration::from_secs(1_700_000_000);
        for (seconds, ahead) in [(0, None), (1_700_000_000, None), (1_700_000_001, None), (1_700_086_400, Some(86_400))]
        {
            assert_eq!(ahead_of(&at(seconds), now), ahead.map(Duration::from_secs), "{seconds}");
        }
        let said = in_the_future(Path::new("/srv/x.img"), Duration::from_secs(86_400));
        assert!(said.ends_with("its last change is 24 hours ahead of this machine's clock"), "{said}");
    }
}

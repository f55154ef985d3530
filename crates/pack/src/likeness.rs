//! What a tree has in common with an earlier image: by its path, or by its contents.

use crate::contents::Sources;
use crate::earlier::Earlier;
use crate::error::PackError;
use crate::listing::{Listing, Place};
use crate::tree::{Inode, InodeId, Kind};
use std::collections::HashMap;

/// The inodes of an earlier image that those of a tree are like, by places of its listing.
#[derive(Debug)]
pub struct Likeness {
    /// The inode of the same path and kind.
    pub inodes: Vec<Option<InodeId>>,
    /// The inode whose blocks are those to keep: of the same path, or of the same contents.
    pub contents: Vec<Option<InodeId>>,
    /// True for a file whose contents seem to be those of the inode in `contents`. They have one
    /// length, and one time or one hash.
    pub equal: Vec<bool>,
}

impl Likeness {
    /// Compares paths first. Then files of new paths are compared with files whose paths are gone;
    /// those of one length are hashed, and no others are read.
    ///
    /// # Errors
    /// If a file of the source or the earlier image cannot be read.
    pub fn new(listing: &Listing<'_>, earlier: &Earlier, sources: &Sources) -> Result<Self, PackError> {
        let count = listing.listed().len();
        let mut inodes: Vec<Option<InodeId>> = vec![None; count];
        let mut taken = vec![false; earlier.tree.inodes()];
        inodes[0] = Some(InodeId::ROOT);
        for place in 1..count {
            let listed = listing.listed()[place];
            let found = inodes[listed.parent].and_then(|parent| earlier.tree.child(parent, listed.name));
            let new = listing.tree.inode(listed.id);
            let is_like = |old: &InodeId| earlier.tree.inode(*old).kind.mode() == new.kind.mode();
            inodes[place] = found.filter(is_like).filter(|old| !std::mem::replace(&mut taken[old.index()], true));
        }
        let mut equal = vec![false; count];
        for place in 0..count {
            let new = listing.tree.inode(listing.listed()[place].id);
            equal[place] = inodes[place].is_some_and(|old| seems_equal(earlier.tree.inode(old), new));
        }
        let mut likeness = Self { contents: inodes.clone(), inodes, equal };
        likeness.find_moved(listing, earlier, sources)?;
        Ok(likeness)
    }

    /// Finds contents that have got another path.
    fn find_moved(&mut self, listing: &Listing<'_>, earlier: &Earlier, sources: &Sources) -> Result<(), PackError> {
        let size = |inode: &Inode| match &inode.kind {
            Kind::File(file) if file.size_bytes() > 0 && file.data().is_none() => Some(file.size_bytes()),
            _ => None,
        };
        let new_size = |place: Place| size(listing.tree.inode(listing.listed()[place].id));
        let has_its_size = |place: Place| {
            let old = self.inodes[place].and_then(|old| size(earlier.tree.inode(old)));
            new_size(place).is_some_and(|new| old == Some(new))
        };
        let mut is_free = vec![true; earlier.tree.inodes()];
        for place in (0..self.inodes.len()).filter(|place| has_its_size(*place)) {
            if let Some(old) = self.inodes[place] {
                is_free[old.index()] = false;
            }
        }
        let mut free: HashMap<u64, Vec<(InodeId, Option<blake3::Hash>)>> = HashMap::new();
        for id in earlier.tree.ids().filter(|id| is_free[id.index()] && earlier.spot(*id).blocks.is_some()) {
            if let Some(size) = size(earlier.tree.inode(id)) {
                free.entry(size).or_default().push((id, None));
            }
        }
        let moved: Vec<Place> = (0..self.inodes.len()).filter(|place| !has_its_size(*place)).collect();
        for place in moved {
            let Some(candidates) = new_size(place).and_then(|size| free.get_mut(&size)) else { continue };
            let hash = sources.hash(listing, place)?;
            for index in 0..candidates.len() {
                let (id, known) = &mut candidates[index];
                if known.is_none() {
                    *known = earlier.hash(*id)?;
                }
                if *known == Some(hash) {
                    (self.contents[place], self.equal[place]) = (Some(*id), true);
                    candidates.swap_remove(index);
                    break;
                }
            }
        }
        Ok(())
    }
}

fn seems_equal(old: &Inode, new: &Inode) -> bool {
    let time = |inode: &Inode| (inode.attributes.mtime_s, inode.attributes.mtime_ns());
    match (&old.kind, &new.kind) {
        (Kind::File(one), Kind::File(other)) => one.size_bytes() == other.size_bytes() && time(old) == time(new),
        _ => false,
    }
}

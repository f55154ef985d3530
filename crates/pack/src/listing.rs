//! The inodes of a tree in the order in which an image holds them.
//!
//! Each directory is followed by its files in order of their names, and then by its subdirectories
//! in the same way. A look into a directory thus touches one place. An inode stands under the first
//! of its names.

use crate::tree::{InodeId, Kind, Tree};

/// Index of an inode in a [`Listing`].
pub type Place = usize;

/// One inode that has a name.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// The inode's index in the tree.
    pub id: InodeId,
    /// The directory with the first name; the root's is itself.
    pub parent: Place,
    /// The first name; empty for the root.
    pub name: &'a [u8],
}

/// All inodes of a tree that have a name.
#[derive(Debug)]
pub struct Listing<'a> {
    /// The tree that is listed.
    pub tree: &'a Tree,
    listed: Vec<Listed<'a>>,
    /// The place of each inode; `Place::MAX` without a name.
    places: Vec<Place>,
    /// Names of each inode of the tree. Of a directory: its own entries and those of its
    /// subdirectories.
    links: Vec<u32>,
}

impl<'a> Listing<'a> {
    /// Takes time linear in the number of names.
    pub fn new(tree: &'a Tree) -> Self {
        let count = tree.inodes();
        let mut listing = Self { tree, listed: Vec::new(), places: vec![Place::MAX; count], links: vec![0; count] };
        let mut ahead = vec![Listed { id: InodeId::ROOT, parent: 0, name: b"".as_slice() }];
        while let Some(directory) = ahead.pop() {
            let parent = listing.list(directory);
            let mut below = Vec::new();
            for (name, id) in tree.names(directory.id) {
                let listed = Listed { id: *id, parent, name };
                if matches!(tree.inode(*id).kind, Kind::Directory(_)) {
                    below.push(listed);
                    continue;
                }
                if listing.places[id.index()] == Place::MAX {
                    listing.list(listed);
                }
                listing.links[id.index()] += 1;
            }
            listing.links[directory.id.index()] = 2 + below.len() as u32;
            ahead.extend(below.into_iter().rev());
        }
        listing
    }

    fn list(&mut self, listed: Listed<'a>) -> Place {
        self.places[listed.id.index()] = self.listed.len();
        self.listed.push(listed);
        self.listed.len() - 1
    }

    /// The inodes in their order, the root directory first.
    pub fn listed(&self) -> &[Listed<'a>] {
        &self.listed
    }

    /// Where an inode stands; `None` if it has lost all its names.
    pub fn place(&self, id: InodeId) -> Option<Place> {
        Some(self.places[id.index()]).filter(|place| *place != Place::MAX)
    }

    /// Names of the inode at a place. Of a directory: two, and one for each of its subdirectories.
    pub fn links(&self, place: Place) -> u32 {
        self.links[self.listed[place].id.index()]
    }

    /// The path of an inode's first name from the root, without a slash in front.
    pub fn path(&self, place: Place) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = place;
        while at != 0 {
            names.push(self.listed[at].name);
            at = self.listed[at].parent;
        }
        names.reverse();
        names.join(&b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Attributes, Inode};

    #[test]
    fn a_directory_is_followed_by_what_it_holds() {
        let inode = |kind| Inode { attributes: Attributes::default(), kind };
        let mut tree = Tree::new(Attributes::default());
        let a = tree.add(InodeId::ROOT, b"a", inode(Kind::directory())).unwrap();
        let deep = tree.add(a, b"deep", inode(Kind::directory())).unwrap();
        let z = tree.add(InodeId::ROOT, b"z", inode(Kind::Fifo)).unwrap();
        tree.add(a, b"x", inode(Kind::Socket)).unwrap();
        tree.link(deep, b"z again", z).unwrap();
        tree.add(InodeId::ROOT, b"b", inode(Kind::directory())).unwrap();
        tree.add(InodeId::ROOT, b"gone", inode(Kind::Fifo)).unwrap();
        tree.remove(InodeId::ROOT, b"gone");
        let listing = Listing::new(&tree);
        let paths: Vec<_> = (0..listing.listed().len())
            .map(|place| (String::from_utf8(listing.path(place)).unwrap(), listing.links(place)))
            .collect();
        let expected = [("", 4), ("z", 2), ("a", 3), ("a/x", 1), ("a/deep", 2), ("b", 2)];
        assert_eq!(paths, expected.map(|(path, links)| (path.to_owned(), links)));
    }
}

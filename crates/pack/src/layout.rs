//! Where each inode and each file of a tree lies in an image.
//!
//! The rules, in order:
//! - Contents of an earlier image stay where they are. A new version of a file takes the blocks of
//!   the last one if it fits, and an inode keeps its number.
//! - Metadata lies in front, with an eighth of it left free.
//! - A file of half a chunk and more begins at a chunk.
//! - Shorter files lie in bundles of at most a chunk, which fill the rest of other chunks. A
//!   hash of the path says where a bundle ends, so a new file moves no bundle but its own.
//! - The length has room for a 32nd more, and is rounded up to an eighth of an octave. Versions of
//!   nearly one size then have one number of chunks, and with it the same places in a field.
//!
//! A pure function of the tree and the earlier image; knows no bytes.

use crate::earlier::Earlier;
use crate::erofs::{BLOCK_BYTES, BLOCKS_MAX, Form, ROOT_NID_MAX};
use crate::error::PackError;
use crate::likeness::Likeness;
use crate::listing::{Listing, Place};
use crate::need::{Contents, Need};
use crate::slots::{self, SLOTS_PER_BLOCK, Slots, slots};
use crate::space::{Claims, Run, Space};
use crate::tree::Kind;
use vfield_core::chunk::ChunkSize;

/// An area that no metadata fills: the slots of the largest image.
const ENDLESS: Run = Run { start: 0, blocks: BLOCKS_MAX * SLOTS_PER_BLOCK };
/// A bundle of small files ends behind one path in so many. With files of ten KiB, as packages have
/// them, most bundles then have half a chunk and fit behind other files.
const BUNDLE_ENDS: u8 = 4;
/// An image has this part of it free for later versions, so few of them need a longer one. Zeros
/// cost a field nothing.
const ROOM_TO_GROW: u64 = 32;
/// Chunks of contents that grow in their last chunk, whatever small files lie there. That chunk is
/// new anyway, and the small files get one new chunk at most. Else the contents would go to the end
/// of the image, which may then need another length.
const LARGE_CHUNKS: u64 = 16;
/// Room for one more name in a directory beside its inode, in bytes.
const NAME_SLACK_BYTES: u64 = 32;

/// Where one inode lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Slots of the inode and all that lies beside it.
    pub body: Run,
    /// How its contents are found.
    pub form: Form,
    /// Blocks of its contents, if they do not lie beside it.
    pub blocks: Option<Run>,
}

/// Where all of a tree lies.
#[derive(Debug)]
pub struct Layout {
    /// One for each place of the listing.
    pub spots: Vec<Spot>,
    /// What each inode needs.
    pub needs: Vec<Need>,
    /// Bytes of the metadata in front, whole chunks.
    pub metadata_bytes: u64,
    /// Bytes of the image, whole chunks.
    pub length_bytes: u64,
}

/// A spot that is not complete.
#[derive(Debug, Clone, Copy, Default)]
struct Draft {
    body: Option<Run>,
    /// True if contents that could lie beside the inode do not.
    apart: bool,
    blocks: Option<Run>,
}

/// Lays out a tree in chunks of `chunk_size`, like an earlier image of such chunks if there is one.
///
/// # Errors
/// If the tree is larger than an image can be, or the earlier image's root directory cannot grow.
pub fn lay(
    listing: &Listing<'_>,
    chunk_size: ChunkSize,
    earlier: Option<(&Earlier, &Likeness)>,
) -> Result<Layout, PackError> {
    let count = listing.listed().len();
    let mut work = Work {
        listing,
        needs: (0..count).map(|place| Need::of(listing, place, chunk_size.bytes())).collect(),
        drafts: vec![Draft::default(); count],
        chunk_blocks: chunk_size.bytes() / BLOCK_BYTES,
        areas: Vec::new(),
    };
    let metadata_blocks = match earlier {
        Some((earlier, likeness)) => work.like(earlier, likeness)?,
        None => work.anew(),
    };
    work.finish(metadata_blocks, earlier.map_or(0, |(earlier, _)| earlier.length_bytes))
}

struct Work<'a> {
    listing: &'a Listing<'a>,
    needs: Vec<Need>,
    drafts: Vec<Draft>,
    chunk_blocks: u64,
    /// The metadata areas of the earlier image, in slots, ascending and apart.
    areas: Vec<Run>,
}

impl Work<'_> {
    /// Lays out all without an earlier image; the blocks of the metadata in front.
    fn anew(&mut self) -> u64 {
        let mut slots = Slots::new(&slots::claims(), &[ENDLESS]);
        let mut near = 0;
        for place in 0..self.drafts.len() {
            near = self.place_metadata(place, near, &mut slots, &mut None);
        }
        let used = slots.end().div_ceil(SLOTS_PER_BLOCK);
        let metadata_blocks = (used + used / 8).next_multiple_of(self.chunk_blocks);
        let mut claims = Claims::default();
        claims.claim(Run { start: 0, blocks: metadata_blocks });
        let mut space = Space::new(&claims, self.chunk_blocks, |_| false);
        self.place_large(&mut space);
        let mut bundle: Vec<(Place, u64)> = Vec::new();
        for place in 0..self.drafts.len() {
            let Some(blocks) = self.unplaced(place) else { continue };
            if bundle.iter().map(|(_, blocks)| blocks).sum::<u64>() + blocks > self.chunk_blocks {
                self.place_bundle(&mut bundle, &mut space);
            }
            bundle.push((place, blocks));
            if blake3::hash(&self.listing.path(place)).as_bytes()[0].is_multiple_of(BUNDLE_ENDS) {
                self.place_bundle(&mut bundle, &mut space);
            }
        }
        self.place_bundle(&mut bundle, &mut space);
        metadata_blocks
    }

    /// Lays out all like an earlier image; the blocks of the metadata in front.
    fn like(&mut self, earlier: &Earlier, likeness: &Likeness) -> Result<u64, PackError> {
        let metadata_blocks = earlier.metadata_bytes / BLOCK_BYTES;
        let (mut taken_slots, mut taken) = (slots::claims(), Claims::default());
        self.areas = self.areas(earlier, metadata_blocks);
        for area in &self.areas {
            taken.claim(Run { start: area.start / SLOTS_PER_BLOCK, blocks: area.blocks / SLOTS_PER_BLOCK });
        }
        // Contents that may be equal go first, but for those in the way of large ones. Then all
        // that fit, and those that may grow last.
        for claim in [Fit::InLastChunk, Fit::Equal, Fit::Within, Fit::Longer] {
            for place in 0..self.drafts.len() {
                self.keep_blocks(place, claim, earlier, likeness, &mut taken, &mut taken_slots);
            }
        }
        for beside in [true, false] {
            for place in 0..self.drafts.len() {
                self.keep_body(place, beside, earlier, likeness, &mut taken_slots);
            }
        }
        let changed = self.changed_chunks(earlier, likeness);
        let is_changed = |chunk: u64| changed.get(chunk as usize).copied().unwrap_or(true);
        let mut slots = Slots::new(&taken_slots, &self.areas);
        let mut space = Some(Space::new(&taken, self.chunk_blocks, is_changed));
        for place in 0..self.drafts.len() {
            let parent = self.drafts[self.listing.listed()[place].parent].body.map_or(0, |body| body.start);
            self.place_metadata(place, parent, &mut slots, &mut space);
        }
        let root = self.drafts[0].body.map_or(0, |body| body.start);
        if root > ROOT_NID_MAX {
            let why = "the root directory's attributes have outgrown their place".to_owned();
            return Err(PackError::Like(earlier.path.clone(), why));
        }
        let mut space = space.expect("it was made above");
        self.place_large(&mut space);
        for place in 0..self.drafts.len() {
            if let Some(blocks) = self.unplaced(place) {
                self.drafts[place].blocks = Some(space.take_small(blocks));
            }
        }
        Ok(metadata_blocks)
    }

    /// The metadata areas of an earlier image, in slots: the front, and chunks behind it.
    fn areas(&self, earlier: &Earlier, metadata_blocks: u64) -> Vec<Run> {
        let chunk_slots = self.chunk_blocks * SLOTS_PER_BLOCK;
        let front = Run { start: 0, blocks: metadata_blocks * SLOTS_PER_BLOCK };
        let mut behind: Vec<u64> = Vec::new();
        for run in earlier.metadata() {
            let chunks = run.start / chunk_slots..run.end().div_ceil(chunk_slots);
            behind.extend(chunks.filter(|chunk| chunk * chunk_slots >= front.blocks));
        }
        behind.sort_unstable();
        behind.dedup();
        let mut areas = vec![front];
        for chunk in behind {
            let area = Run { start: chunk * chunk_slots, blocks: chunk_slots };
            match areas.last_mut() {
                // A run may cross the line between the two.
                Some(last) if last.end() == area.start => last.blocks += area.blocks,
                _ => areas.push(area),
            }
        }
        areas
    }

    /// True if a run of slots lies in one of the metadata areas: a longer one may reach beyond.
    fn is_metadata(&self, run: Run) -> bool {
        let behind = self.areas.partition_point(|area| area.start <= run.start);
        behind > 0 && run.end() <= self.areas[behind - 1].end()
    }

    /// Keeps the blocks of an inode's contents if they fit as `fit` says.
    fn keep_blocks(
        &mut self,
        place: Place,
        fit: Fit,
        earlier: &Earlier,
        likeness: &Likeness,
        taken: &mut Claims,
        taken_slots: &mut Claims,
    ) {
        let Some(id) = likeness.contents[place].filter(|_| self.drafts[place].blocks.is_none()) else { return };
        let spot = earlier.spot(id);
        let (Some(old), Some((blocks, apart))) = (spot.blocks, self.blocks_like(place, spot.form)) else { return };
        let chunks = |blocks: u64| blocks.div_ceil(self.chunk_blocks);
        let fits_its_chunks = chunks(blocks) == chunks(old.blocks) && chunks(blocks) >= LARGE_CHUNKS;
        let found = match blocks.cmp(&old.blocks) {
            _ if likeness.equal[place] => Fit::Equal,
            std::cmp::Ordering::Greater if fits_its_chunks => Fit::InLastChunk,
            std::cmp::Ordering::Greater => Fit::Longer,
            _ => Fit::Within,
        };
        if blocks == 0 || found != fit {
            return;
        }
        let run = Run { start: old.start, blocks };
        let kept = if self.is_directory(place) {
            let run = Run { start: run.start * SLOTS_PER_BLOCK, blocks: run.blocks * SLOTS_PER_BLOCK };
            self.is_metadata(run) && taken_slots.claim(run)
        } else {
            taken.claim(run)
        };
        if kept {
            self.drafts[place] = Draft { apart, blocks: Some(run), ..self.drafts[place] };
        }
    }

    /// Blocks of an inode's contents in the form that they had. True if they could lie beside the
    /// inode. `None` if they cannot have that form.
    fn blocks_like(&self, place: Place, form: Form) -> Option<(u64, bool)> {
        match (self.needs[place].contents, form) {
            (Contents::Beside(bytes), Form::Plain(_)) => Some((bytes.div_ceil(BLOCK_BYTES), true)),
            (Contents::Blocks(bytes), Form::Plain(_)) => Some((bytes.div_ceil(BLOCK_BYTES), false)),
            (Contents::Chunked(new), Form::Chunked { bits }) if new.bits == bits => Some((new.blocks, false)),
            _ => None,
        }
    }

    /// Keeps an inode's number, with contents beside it if that is asked for; else without.
    fn keep_body(&mut self, place: Place, beside: bool, earlier: &Earlier, likeness: &Likeness, taken: &mut Claims) {
        let Some(id) = likeness.inodes[place].filter(|_| self.drafts[place].body.is_none()) else { return };
        let need = self.needs[place];
        let contents = match need.contents {
            Contents::Beside(bytes) if !self.drafts[place].apart => bytes,
            _ => 0,
        };
        let bytes = need.head_bytes + if beside { contents } else { 0 };
        let run = Run { start: earlier.spot(id).body.start, blocks: slots(bytes) };
        if slots::is_placed_well(run) && self.is_metadata(run) && taken.claim(run) {
            let draft = &mut self.drafts[place];
            draft.body = Some(run);
            draft.apart |= !beside && contents > 0;
        }
    }

    /// The chunks of an earlier image that get new bytes in any case.
    fn changed_chunks(&self, earlier: &Earlier, likeness: &Likeness) -> Vec<bool> {
        let chunks = earlier.length_bytes / BLOCK_BYTES / self.chunk_blocks;
        let mut changed = vec![false; chunks as usize];
        let mut kept = Claims::default();
        let same = (0..self.drafts.len()).filter(|place| likeness.equal[*place]);
        for run in same.filter_map(|place| self.drafts[place].blocks) {
            kept.claim(run);
        }
        for run in earlier.contents() {
            // A run that can be claimed is not kept as it was.
            if kept.claim(run) {
                for chunk in run.start / self.chunk_blocks..run.end().div_ceil(self.chunk_blocks) {
                    if let Some(changed) = changed.get_mut(chunk as usize) {
                        *changed = true;
                    }
                }
            }
        }
        changed
    }

    /// Gives an inode its slots, and a directory its blocks, unless they have them. Returns where
    /// the next inode should be near to.
    fn place_metadata(&mut self, place: Place, near: u64, slots_free: &mut Slots, space: &mut Option<Space>) -> u64 {
        let chunk_slots = self.chunk_blocks * SLOTS_PER_BLOCK;
        let (need, is_directory) = (self.needs[place], self.is_directory(place));
        let body = self.drafts[place].body.unwrap_or_else(|| {
            let beside = match need.contents {
                Contents::Beside(_) if self.drafts[place].apart => 0,
                Contents::Beside(bytes) if is_directory => {
                    (bytes + bytes / 8 + NAME_SLACK_BYTES).min(BLOCK_BYTES - need.head_bytes)
                }
                Contents::Beside(bytes) => bytes,
                _ => 0,
            };
            slots_free.take(slots(need.head_bytes + beside), near, chunk_slots, space)
        });
        self.drafts[place].body = Some(body);
        if is_directory
            && self.drafts[place].blocks.is_none()
            && let Some(blocks) = self.unplaced(place)
        {
            let run = slots_free.take(blocks * SLOTS_PER_BLOCK, body.start, chunk_slots, space);
            self.drafts[place].blocks = Some(Run { start: run.start / SLOTS_PER_BLOCK, blocks });
        }
        body.start
    }

    /// Gives their blocks to all contents of half a chunk and more.
    fn place_large(&mut self, space: &mut Space) {
        for place in 0..self.drafts.len() {
            let is_large = |blocks: &u64| blocks * 2 >= self.chunk_blocks;
            if let Some(blocks) = self.unplaced(place).filter(is_large) {
                self.drafts[place].blocks = Some(space.take_large(blocks));
            }
        }
    }

    /// Gives a bundle of small files one run of blocks.
    fn place_bundle(&mut self, bundle: &mut Vec<(Place, u64)>, space: &mut Space) {
        let blocks: u64 = bundle.iter().map(|(_, blocks)| blocks).sum();
        if blocks == 0 {
            return;
        }
        let mut start = space.take_small(blocks).start;
        for (place, blocks) in bundle.drain(..) {
            self.drafts[place].blocks = Some(Run { start, blocks });
            start += blocks;
        }
    }

    /// Blocks that the contents of an inode still need.
    fn unplaced(&self, place: Place) -> Option<u64> {
        let draft = self.drafts[place];
        let blocks = match self.needs[place].contents {
            Contents::Beside(bytes) if draft.apart => bytes.div_ceil(BLOCK_BYTES),
            Contents::Blocks(bytes) => bytes.div_ceil(BLOCK_BYTES),
            Contents::Chunked(chunked) => chunked.blocks,
            Contents::None | Contents::Beside(_) => 0,
        };
        (blocks > 0 && draft.blocks.is_none()).then_some(blocks)
    }

    fn is_directory(&self, place: Place) -> bool {
        matches!(self.kind(place), Kind::Directory(_))
    }

    fn kind(&self, place: Place) -> &Kind {
        &self.listing.tree.inode(self.listing.listed()[place].id).kind
    }

    fn finish(self, metadata_blocks: u64, earlier_bytes: u64) -> Result<Layout, PackError> {
        let mut end = metadata_blocks;
        let mut spots = Vec::with_capacity(self.drafts.len());
        for (place, draft) in self.drafts.iter().enumerate() {
            let body = draft.body.expect("each inode was given its slots");
            end = end.max(body.end().div_ceil(SLOTS_PER_BLOCK)).max(draft.blocks.map_or(0, Run::end));
            if end > BLOCKS_MAX {
                return Err(PackError::TooLarge);
            }
            let start = draft.blocks.map_or(0, |run| run.start as u32);
            let form = match (self.needs[place].contents, self.kind(place)) {
                (_, Kind::Character(number) | Kind::Block(number)) => Form::Device(*number),
                (Contents::Beside(_), _) if !draft.apart => Form::Inline,
                (Contents::Chunked(chunked), _) => Form::Chunked { bits: chunked.bits },
                _ => Form::Plain(start),
            };
            spots.push(Spot { body, form, blocks: draft.blocks });
        }
        let length_bytes = match end * BLOCK_BYTES {
            needed if needed <= earlier_bytes => earlier_bytes,
            needed => {
                let with_room = needed + needed / ROOM_TO_GROW;
                rounded(with_room, self.chunk_blocks * BLOCK_BYTES).min(BLOCKS_MAX * BLOCK_BYTES)
            }
        };
        Ok(Layout { spots, needs: self.needs, metadata_bytes: metadata_blocks * BLOCK_BYTES, length_bytes })
    }
}

/// How contents fit into the blocks of their last version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// They are, or seem to be, the same.
    Equal,
    /// They need more blocks, and no more chunks: large contents.
    InLastChunk,
    /// They need no more blocks.
    Within,
    /// They need more.
    Longer,
}

/// `length` up to the next eighth of an octave, and to a whole chunk.
fn rounded(length: u64, chunk_bytes: u64) -> u64 {
    let step = (1 << length.max(8).ilog2()) >> 3;
    length.next_multiple_of(step).next_multiple_of(chunk_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_eight_values_in_an_octave() {
        let mib = |count: u64| count << 20;
        for (length, expected) in
            [(1, 65536), (mib(1), mib(1)), (mib(410), mib(416)), (mib(512), mib(512)), (mib(513), mib(576))]
        {
            assert_eq!(rounded(length, 65536), expected);
        }
    }
}

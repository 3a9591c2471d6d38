//! Where the blocks of a table lie while the cache holds them: a lookup that knows which block it wants
//! finds it here without a search of the cache.
//!
//! 1. Each leaf of a table's index has a *place* for each of its blocks, once the first of them is cached: a
//!    reference to the block's buffer, five of them behind one lock in two neighbouring cache lines.
//! 2. The cache stays the owner: it weighs, and it evicts. What it lets go of leaves its place, by the drop
//!    of what it held ([`Cached`]); a block sits down before the cache has it, so no place outlives it.
//! 3. A use that is seen here only is told to the cache once in a *turn*: whenever a 32nd of what the cache
//!    may hold has come in. Where nothing is replaced, nothing is told.
//! 4. Places take memory of the cache's share, at most a 32nd, first come, first served: enough for data of
//!    five times the cache in blocks of 4 KiB. Blocks of leaves that found none are looked up in the cache, as
//!    is what is not here, and what another thread is looking at: nobody waits here but who lets go of a
//!    block.
//!
//! Whoever holds a group's lock takes no other; the cache may let go of a block behind a lock of its own.
//! Called by [`Source`](crate::source::Source), for lookups and walks, and by lookups of many keys.

use std::sync::{Arc, OnceLock, Weak};

use trommel_base::sync::quiet::{Mutex, lock};
use trommel_filter::prefetch_at;

use crate::block::{Layout, SharedBlock, ask_for_columns};
use crate::cache::{BlockCache, Room};
use crate::format::Handle;
use crate::index::{At, Index};

/// Places behind one lock: as many as fill two cache lines with it.
const GROUP: usize = 5;

/// A data block that is wanted: where it lies in its file, in the index and in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) leaf: &'a Index,
    pub(crate) at: At,
    pub(crate) handle: Handle,
    places: &'a Places,
    group: Option<&'a Mutex<Group>>,
}

impl<'a> Spot<'a> {
    /// The block at `at` of a table with these `places`, which is stored at `handle` as `leaf` says.
    #[inline]
    pub(crate) fn new(places: &'a Places, leaf: &'a Index, at: At, handle: Handle) -> Self {
        Self { leaf, at, handle, places, group: places.group(at) }
    }

    /// The block in this slot of the same leaf, if there is one.
    #[inline]
    pub(crate) fn moved_to(self, slot: usize) -> Option<Self> {
        let handle = self.leaf.handle(slot)?;
        Some(Self::new(self.places, self.leaf, At { slot, ..self.at }, handle))
    }

    /// The block, if it is in its place, and whether the cache is to be told in this `turn` that it is
    /// used.
    #[inline]
    pub(crate) fn block(&self, turn: u32) -> Option<(SharedBlock, bool)> {
        let mut group = self.group?.try_lock().ok()?;
        let place = group.0.get_mut(self.at.slot % GROUP)?;
        let buffer = place.buffer.as_ref()?;
        ask_for_columns(buffer);
        let (buffer, len) = (Arc::clone(buffer), place.len);
        let is_first = std::mem::replace(&mut place.told, turn) != turn;
        drop(group);
        let layout = Layout::parse(buffer.get(..len as usize)?).ok()?;
        Some((SharedBlock { buffer, start: 0, len, layout }, is_first))
    }

    /// Asks the processor for the block's place.
    #[inline]
    pub(crate) fn ask_for_place(&self) {
        if let Some(group) = self.group {
            let first = std::ptr::from_ref(group).addr();
            prefetch_at(first);
            prefetch_at(first + 64);
        }
    }

    /// Asks the processor for what taking up the block in its place looks at, and a search of it first.
    #[inline]
    pub(crate) fn ask_for_block(&self) {
        let Some(group) = self.group.and_then(|group| group.try_lock().ok()) else { return };
        let place = group.0.get(self.at.slot % GROUP);
        if let Some(buffer) = place.and_then(|place| place.buffer.as_ref()) {
            // The count of its references lies before it.
            prefetch_at(buffer.as_ptr().addr() - 1);
            ask_for_columns(buffer);
        }
    }

    /// A seat for the block, if the cache has memory for its place.
    pub(crate) fn seat(&self, cache: &Arc<BlockCache>) -> Option<Seat> {
        let leaf = self.places.leaves.get(self.at.leaf)?;
        if leaf.get().is_none()
            && let Some(places) = LeafPlaces::of(self.leaf.len(), cache)
        {
            // Another thread may have been faster.
            let _ = leaf.set(places);
        }
        Some(Seat { leaf: Arc::downgrade(leaf.get()?), slot: self.at.slot })
    }
}

/// The places of one table's blocks, by leaf of the index.
#[derive(Debug)]
pub(crate) struct Places {
    leaves: Box<[OnceLock<Arc<LeafPlaces>>]>,
}

impl Places {
    /// None yet, for an index of so many leaves.
    pub(crate) fn of(leaves: usize) -> Self {
        Self { leaves: std::iter::repeat_with(OnceLock::new).take(leaves).collect() }
    }

    /// Memory that it takes beside the cache's share, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.leaves)
    }

    #[inline]
    fn group(&self, at: At) -> Option<&Mutex<Group>> {
        self.leaves.get(at.leaf)?.get()?.group(at.slot)
    }
}

/// The places of the blocks of one leaf: apart from the count of its references, which each block that
/// comes or goes changes.
#[derive(Debug)]
#[repr(align(64))]
struct LeafPlaces {
    groups: Box<[Lines]>,
    _room: Room,
}

/// Two cache lines, which processors bring together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lines(Mutex<Group>);

#[cfg(all(target_os = "linux", not(trommel_loom)))]
const _: () = assert!(size_of::<Lines>() == 128, "a lock and its places fill two lines");

#[derive(Debug, Default)]
struct Group([Place; GROUP]);

#[derive(Debug, Default)]
struct Place {
    /// The buffer that the block fills; none where the cache does not hold it.
    buffer: Option<Arc<[u8]>>,
    /// Length of its payload.
    len: u32,
    /// The turn in which the cache was last told of a use.
    told: u32,
}

impl LeafPlaces {
    /// Empty places for a leaf of so many blocks, if the cache has memory for them.
    #[cold]
    fn of(blocks: usize, cache: &Arc<BlockCache>) -> Option<Arc<Self>> {
        let groups = blocks.div_ceil(GROUP);
        let room = cache.room((groups * size_of::<Lines>()) as u64)?;
        let groups = std::iter::repeat_with(Lines::default).take(groups).collect();
        Some(Arc::new(Self { groups, _room: room }))
    }

    #[inline]
    fn group(&self, slot: usize) -> Option<&Mutex<Group>> {
        self.groups.get(slot / GROUP).map(|lines| &lines.0)
    }
}

/// The place that a cached block has, if its table is still open.
#[derive(Debug)]
pub(crate) struct Seat {
    leaf: Weak<LeafPlaces>,
    slot: usize,
}

/// What the cache holds of a block: as long as it lives, the block may be in its place.
#[derive(Debug)]
pub(crate) struct Cached {
    block: SharedBlock,
    seat: Option<Seat>,
}

impl Cached {
    /// `block`, in its place from now on if it has a seat; the cache has not been told of it in this `turn`.
    pub(crate) fn new(block: SharedBlock, seat: Option<Seat>, turn: u32) -> Arc<Self> {
        debug_assert_eq!(block.start, 0, "a place speaks of buffers from their start");
        let cached = Self { block, seat };
        cached.sit(turn);
        Arc::new(cached)
    }

    /// Has the block take its place, unless it is there or another thread looks at it just now.
    pub(crate) fn sit(&self, turn: u32) {
        let Some(Seat { leaf, slot }) = &self.seat else { return };
        let Some(leaf) = leaf.upgrade() else { return };
        let Some(mut group) = leaf.group(*slot).and_then(|group| group.try_lock().ok()) else {
            return;
        };
        let SharedBlock { buffer, len, .. } = &self.block;
        let is_other = |place: &&mut Place| {
            !place.buffer.as_ref().is_some_and(|held| Arc::ptr_eq(held, buffer))
        };
        if let Some(place) = group.0.get_mut(*slot % GROUP).filter(is_other) {
            let (buffer, told) = (Some(Arc::clone(buffer)), turn.wrapping_sub(1));
            *place = Place { buffer, len: *len, told };
        }
    }

    #[inline]
    pub(crate) fn block(&self) -> &SharedBlock {
        &self.block
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let Some(Seat { leaf, slot }) = &self.seat else { return };
        let Some(leaf) = leaf.upgrade() else { return };
        let Some(group) = leaf.group(*slot) else { return };
        // Another thread may have read the block as well, and sit here.
        let is_own = |held: &mut Arc<[u8]>| Arc::ptr_eq(held, &self.block.buffer);
        if let Some(place) = lock(group).0.get_mut(*slot % GROUP) {
            place.buffer.take_if(is_own);
        }
    }
}

#[cfg(test)]
mod fixtures {
    use super::*;
    use crate::format::{BlockKind, unseal};
    use crate::index::IndexBuilder;

    /// An index of so many blocks of ten bytes.
    pub(super) fn index(blocks: u8) -> Index {
        let mut builder = IndexBuilder::default();
        (0..blocks).for_each(|block| builder.push(&[block], 10));
        let mut out = Vec::new();
        builder.finish(&mut out, 1, 0, usize::MAX);
        let (payload, _) = unseal(&out, 1, 0, BlockKind::IndexTop).unwrap();
        Index::decode(payload, 10 * u64::from(blocks)).unwrap()
    }

    /// A block of one entry, in a buffer of its own.
    pub(super) fn block() -> SharedBlock {
        let payload: &[u8] = &[0, 0, 0, 0, b't', 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let layout = Layout::parse(payload).unwrap();
        SharedBlock { buffer: Arc::from(payload), start: 0, len: payload.len() as u32, layout }
    }
}

#[cfg(all(test, not(trommel_loom)))]
mod tests {
    use super::fixtures::{block, index};
    use super::*;

    fn spot<'a>(places: &'a Places, leaf: &'a Index, slot: usize) -> Spot<'a> {
        let handle = leaf.handle(slot).expect("the leaf has it");
        Spot::new(places, leaf, At { leaf: 0, slot }, handle)
    }

    /// The buffer in the place, and whether the cache is to be told.
    fn found(spot: Spot<'_>, turn: u32) -> Option<(*const u8, bool)> {
        spot.block(turn).map(|(block, is_first)| (block.buffer.as_ptr(), is_first))
    }

    #[test]
    fn a_block_is_in_its_place_while_the_cache_holds_it() {
        let (cache, places, leaf) = (BlockCache::new(1 << 20), Places::of(1), index(12));
        let (one, other) = (block(), block());
        let buffers = [one.buffer.as_ptr(), other.buffer.as_ptr()];
        let insert = |slot, block| {
            let spot = spot(&places, &leaf, slot);
            cache.insert(7, spot.handle.offset, block, spot.seat(&cache));
        };
        assert_eq!(found(spot(&places, &leaf, 8), 0), None);
        insert(8, one);
        for (turn, is_first) in [(0, true), (0, false), (1, true), (1, false)] {
            assert_eq!(found(spot(&places, &leaf, 8), turn), Some((buffers[0], is_first)));
        }
        // A second reader of the same block takes the place, and keeps it when the first is let go of.
        insert(8, other);
        assert_eq!(found(spot(&places, &leaf, 8), 1), Some((buffers[1], true)));
        assert_eq!(found(spot(&places, &leaf, 3), 1), None);
        cache.remove(7, 80);
        assert_eq!(found(spot(&places, &leaf, 8), 1), None);
    }

    /// Another thread that read the same block took the place, and was let go of.
    #[test]
    fn a_block_sits_down_again_when_it_is_looked_up_in_the_cache() {
        let (cache, places, leaf) = (BlockCache::new(1 << 20), Places::of(1), index(5));
        let seat = || spot(&places, &leaf, 2).seat(&cache);
        let (one, other) = (Cached::new(block(), seat(), 0), Cached::new(block(), seat(), 0));
        drop(other);
        assert_eq!(found(spot(&places, &leaf, 2), 0), None);
        one.sit(4);
        let buffer = one.block().buffer.as_ptr();
        assert_eq!(found(spot(&places, &leaf, 2), 4), Some((buffer, true)));
        one.sit(4);
        assert_eq!(found(spot(&places, &leaf, 2), 4), Some((buffer, false)), "it sits already");
    }

    #[test]
    fn memory_of_places_is_given_back_with_their_table() {
        let (cache, leaf) = (BlockCache::new(4096 * 4), index(12));
        let places_bytes = 3 * size_of::<Lines>() as u64;
        for _ in 0..20 {
            let places = Places::of(1);
            assert!(spot(&places, &leaf, 0).seat(&cache).is_some());
            assert_eq!(cache.stats().used_bytes, places_bytes);
            let more = Places::of(1);
            assert!(spot(&more, &leaf, 0).seat(&cache).is_none(), "more than a 32nd");
        }
        assert_eq!(cache.stats().used_bytes, 0);
    }
}

#[cfg(all(test, trommel_loom))]
mod models {
    use trommel_base::sync::models::{check, thread};

    use super::fixtures::block;
    use super::*;

    /// Two threads have read one block, and let go of it; a third finds one of the two in the cache
    /// meanwhile, and has it sit down again. In the end the place is empty.
    #[test]
    fn what_was_let_go_of_is_in_no_place() {
        check("what_was_let_go_of_is_in_no_place", || {
            let cache = BlockCache::new(1 << 20);
            let leaf = LeafPlaces::of(1, &cache).unwrap();
            let seat = || Some(Seat { leaf: Arc::downgrade(&leaf), slot: 0 });
            let one = Cached::new(block(), seat(), 0);
            let again = {
                let one = Arc::clone(&one);
                thread::spawn(move || one.sit(1))
            };
            let other = {
                let seat = seat();
                thread::spawn(move || drop(Cached::new(block(), seat, 0)))
            };
            drop(one);
            again.join().unwrap();
            other.join().unwrap();
            let mut group = lock(leaf.group(0).unwrap());
            assert!(group.0.iter_mut().all(|place| place.buffer.is_none()), "left in its place");
        });
    }
}

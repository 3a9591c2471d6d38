//! Where the blocks of a table lie while the cache holds them: a lookup that knows which block it wants
//! finds it here without a search of the cache.
//!
//! 1. Each leaf of a table's index has a *place* for each of its blocks, once the first of them is cached: a
//!    reference to the block's buffer, five of them behind one lock in two neighbouring cache lines.
//! 2. The cache stays the owner: it weighs, and it evicts. What it lets go of leaves its place, by the drop
//!    of what it held ([`Cached`]); a block sits down before the cache has it, so no place outlives it.
//! 3. A use that is seen here only is told to the cache once in a *turn*: whenever an eighth of what the
//!    cache holds has come in. What nobody replaces is never told, what is used stays.
//! 4. Places take memory of the cache's share, at most a 32nd. Blocks of leaves that found none are looked up
//!    in the cache, as is what is not here, and what another thread is looking at: nobody waits here but who
//!    lets go of a block.

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
        if leaf.get().is_none() {
            // Another thread may have been faster.
            let _ = leaf.set(LeafPlaces::of(self.leaf.len(), cache)?);
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

/// The places of the blocks of one leaf.
#[derive(Debug)]
struct LeafPlaces {
    groups: Box<[Lines]>,
    _room: Room,
}

/// Begins with a cache line.
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
        // A place speaks of whole buffers only.
        let cached = Self { seat: seat.filter(|_| block.start == 0), block };
        cached.sit(turn);
        Arc::new(cached)
    }

    /// Has the block take its place, unless another thread looks at it just now.
    pub(crate) fn sit(&self, turn: u32) {
        let Some(Seat { leaf, slot }) = &self.seat else { return };
        let Some(leaf) = leaf.upgrade() else { return };
        let Some(mut group) = leaf.group(*slot).and_then(|group| group.try_lock().ok()) else {
            return;
        };
        if let Some(place) = group.0.get_mut(*slot % GROUP) {
            let SharedBlock { buffer, len, .. } = &self.block;
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

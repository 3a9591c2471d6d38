//! Slots: a shortcut from a table's index to its cached blocks, without a search of the block
//! cache.
//!
//! 1. Each leaf of the index gets one *slot* per block when its first block is cached: a reference
//!    to the block's buffer. Five slots share a lock and two neighbouring cache lines.
//! 2. The cache remains the owner: it weighs entries and evicts them. A block enters its slot
//!    before it enters the cache, and dropping the cache's entry ([`CachedBlock`]) empties the
//!    slot, so no slot outlives the entry.
//! 3. A hit in a slot is reported to the cache once per *turn*, that is, each time 1/32 of the
//!    capacity was inserted. While nothing is replaced, nothing is reported.
//! 4. The memory of slots is charged to the cache ([`SlotBudget`]), first come, first served. A
//!    lookup falls back to the cache if the leaf has no slots, if the slot is empty, or if another
//!    thread holds its lock. Only dropping an entry waits for the lock.
//!
//! A thread that holds a group's lock takes no other lock; the cache may drop an entry while it
//! holds one of its own. Called by [`Source`](crate::source::Source) for lookups and cursors, and
//! by batched lookups.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use trommel_base::sync::quiet::{Mutex, lock};
use trommel_filter::prefetch_at;

use crate::block::{Layout, SharedBlock, prefetch_columns};
use crate::format::Handle;
use crate::index::{At, Index};

/// Slots per lock: as many as fill two cache lines together with it.
const GROUP: usize = 5;

/// Location of a data block: in the file, in the index, and its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockLocation<'a> {
    pub(crate) leaf: &'a Index,
    pub(crate) at: At,
    pub(crate) handle: Handle,
    slots: &'a BlockSlots,
    group: Option<&'a Mutex<SlotGroup>>,
}

impl<'a> BlockLocation<'a> {
    /// The block at `at` of the table with these `slots`; `leaf` lists it with this `handle`.
    #[inline]
    pub(crate) fn new(slots: &'a BlockSlots, leaf: &'a Index, at: At, handle: Handle) -> Self {
        Self { leaf, at, handle, slots, group: slots.group(at) }
    }

    /// Another block of the same leaf, if it has one with this number.
    #[inline]
    pub(crate) fn moved_to(self, slot: usize) -> Option<Self> {
        let handle = self.leaf.handle(slot)?;
        Some(Self::new(self.slots, self.leaf, At { slot, ..self.at }, handle))
    }

    /// The block, if it is in its slot, and whether this is the first hit of the `turn`, which must
    /// be reported to the cache.
    #[inline]
    pub(crate) fn block(&self, turn: u32) -> Option<(SharedBlock, bool)> {
        let mut group = self.group?.try_lock().ok()?;
        let slot = group.0.get_mut(self.at.slot % GROUP)?;
        let buffer = slot.buffer.as_ref()?;
        prefetch_columns(buffer);
        let (buffer, len) = (Arc::clone(buffer), slot.len);
        let is_first = std::mem::replace(&mut slot.reported, turn) != turn;
        drop(group);
        let layout = Layout::parse(buffer.get(..len as usize)?).ok()?;
        Some((SharedBlock { buffer, start: 0, len, layout }, is_first))
    }

    /// Prefetches the block's slot.
    #[inline]
    pub(crate) fn prefetch_slot(&self) {
        self.group.into_iter().for_each(prefetch_group);
    }

    /// Prefetches the memory that taking the block out of its slot reads, and the first that a
    /// search reads.
    #[inline]
    pub(crate) fn prefetch_block(&self) {
        self.group.into_iter().for_each(|group| prefetch_block(group, self.at.slot));
    }

    /// The block's slot, if its leaf has slots or `budget` allows their memory.
    pub(crate) fn slot(&self, budget: &Arc<SlotBudget>) -> Option<SlotRef> {
        let leaf = self.slots.leaves.get(self.at.leaf)?;
        if leaf.get().is_none()
            && let Some(slots) = LeafSlots::new(self.leaf.len(), budget)
        {
            // Another thread may have allocated the slots first.
            let _ = leaf.set(slots);
        }
        Some(SlotRef { leaf: Arc::downgrade(leaf.get()?), slot: self.at.slot })
    }
}

/// The slots of one table's blocks, by leaf of the index.
#[derive(Debug)]
pub(crate) struct BlockSlots {
    leaves: Box<[OnceLock<Arc<LeafSlots>>]>,
}

impl BlockSlots {
    /// No slots yet, for an index of this many leaves.
    pub(crate) fn new(leaf_count: usize) -> Self {
        Self { leaves: std::iter::repeat_with(OnceLock::new).take(leaf_count).collect() }
    }

    /// Memory in bytes, without the slots, which are charged to the cache.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.leaves)
    }

    /// Prefetches the slot of the block at `at`.
    #[inline]
    pub(crate) fn prefetch(&self, at: At) {
        self.group(at).into_iter().for_each(prefetch_group);
    }

    /// As [`BlockLocation::prefetch_block`].
    #[inline]
    pub(crate) fn prefetch_block(&self, at: At) {
        self.group(at).into_iter().for_each(|group| prefetch_block(group, at.slot));
    }

    #[inline]
    fn group(&self, at: At) -> Option<&Mutex<SlotGroup>> {
        self.leaves.get(at.leaf)?.get()?.group(at.slot)
    }
}

/// Prefetches the block in this slot of a group.
#[inline]
fn prefetch_block(group: &Mutex<SlotGroup>, slot: usize) {
    let Ok(group) = group.try_lock() else { return };
    let slot = group.0.get(slot % GROUP);
    if let Some(buffer) = slot.and_then(|slot| slot.buffer.as_ref()) {
        // The reference count precedes the bytes.
        prefetch_at(buffer.as_ptr().addr() - 1);
        prefetch_columns(buffer);
    }
}

/// Prefetches both cache lines of a group.
#[inline]
fn prefetch_group(group: &Mutex<SlotGroup>) {
    let first = std::ptr::from_ref(group).addr();
    prefetch_at(first);
    prefetch_at(first + 64);
}

/// Memory of slots, part of the block cache's capacity, and its limit.
#[derive(Debug)]
pub(crate) struct SlotBudget {
    used: AtomicU64,
    limit: AtomicU64,
}

impl SlotBudget {
    /// A budget of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit: AtomicU64::new(limit) })
    }

    /// Changes the limit. Existing slots stay.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges `bytes`, unless that exceeds the limit.
    fn charge(self: &Arc<Self>, bytes: u64) -> Option<SlotCharge> {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |used: u64| Some(used + bytes).filter(|used| *used <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(SlotCharge { budget: Arc::clone(self), bytes })
    }
}

/// Memory charged to a [`SlotBudget`], released when dropped.
#[derive(Debug)]
struct SlotCharge {
    budget: Arc<SlotBudget>,
    bytes: u64,
}

impl Drop for SlotCharge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The slots of one leaf's blocks, aligned apart from their reference count, which changes with
/// every insertion and eviction of a block.
#[derive(Debug)]
#[repr(align(64))]
struct LeafSlots {
    groups: Box<[GroupLines]>,
    _charge: SlotCharge,
}

/// Two cache lines, which processors fetch as a pair.
#[derive(Debug, Default)]
#[repr(align(128))]
struct GroupLines(Mutex<SlotGroup>);

#[cfg(all(target_os = "linux", not(trommel_loom)))]
const _: () = assert!(size_of::<GroupLines>() == 128, "a lock and its slots fill two lines");

#[derive(Debug, Default)]
struct SlotGroup([BlockSlot; GROUP]);

#[derive(Debug, Default)]
struct BlockSlot {
    /// The block's buffer; none while the block is not cached.
    buffer: Option<Arc<[u8]>>,
    /// Length of its payload.
    len: u32,
    /// The turn in which a hit was last reported to the cache.
    reported: u32,
}

impl LeafSlots {
    /// Empty slots for a leaf of this many blocks, if `budget` allows their memory.
    #[cold]
    fn new(blocks: usize, budget: &Arc<SlotBudget>) -> Option<Arc<Self>> {
        let groups = blocks.div_ceil(GROUP);
        let charge = budget.charge((groups * size_of::<GroupLines>()) as u64)?;
        let groups = std::iter::repeat_with(GroupLines::default).take(groups).collect();
        Some(Arc::new(Self { groups, _charge: charge }))
    }

    #[inline]
    fn group(&self, slot: usize) -> Option<&Mutex<SlotGroup>> {
        self.groups.get(slot / GROUP).map(|lines| &lines.0)
    }
}

/// The slot of a cached block. It does not keep the table's slots alive.
#[derive(Debug)]
pub(crate) struct SlotRef {
    leaf: Weak<LeafSlots>,
    slot: usize,
}

/// A block as an entry of the cache. While it lives, the block may be in its slot.
#[derive(Debug)]
pub(crate) struct CachedBlock {
    block: SharedBlock,
    slot: Option<SlotRef>,
}

impl CachedBlock {
    /// Puts `block` into its slot, if it has one, with no hit reported in this `turn` yet.
    pub(crate) fn new(block: SharedBlock, slot: Option<SlotRef>, turn: u32) -> Arc<Self> {
        debug_assert_eq!(block.start, 0, "a slot refers to whole buffers");
        let cached = Self { block, slot };
        cached.fill_slot(turn);
        Arc::new(cached)
    }

    /// Puts the block into its slot, unless it is there already or another thread holds the lock.
    pub(crate) fn fill_slot(&self, turn: u32) {
        let Some(SlotRef { leaf, slot }) = &self.slot else { return };
        let Some(leaf) = leaf.upgrade() else { return };
        let Some(mut group) = leaf.group(*slot).and_then(|group| group.try_lock().ok()) else {
            return;
        };
        let SharedBlock { buffer, len, .. } = &self.block;
        let is_other = |slot: &&mut BlockSlot| {
            !slot.buffer.as_ref().is_some_and(|held| Arc::ptr_eq(held, buffer))
        };
        if let Some(slot) = group.0.get_mut(*slot % GROUP).filter(is_other) {
            let (buffer, reported) = (Some(Arc::clone(buffer)), turn.wrapping_sub(1));
            *slot = BlockSlot { buffer, len: *len, reported };
        }
    }

    #[inline]
    pub(crate) fn block(&self) -> &SharedBlock {
        &self.block
    }
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        let Some(SlotRef { leaf, slot }) = &self.slot else { return };
        let Some(leaf) = leaf.upgrade() else { return };
        let Some(group) = leaf.group(*slot) else { return };
        // Another thread may have read the block too, and put its own buffer into the slot.
        let is_own = |held: &mut Arc<[u8]>| Arc::ptr_eq(held, &self.block.buffer);
        if let Some(slot) = lock(group).0.get_mut(*slot % GROUP) {
            slot.buffer.take_if(is_own);
        }
    }
}

#[cfg(test)]
#[cfg_attr(trommel_loom, allow(dead_code, reason = "the model needs but one block"))]
pub(crate) mod fixtures {
    use super::*;
    use crate::format::{BlockKind, unseal};
    use crate::index::IndexBuilder;

    /// An index of this many blocks of ten bytes.
    pub(crate) fn index(blocks: u8) -> Index {
        let mut builder = IndexBuilder::default();
        (0..blocks).for_each(|block| _ = builder.push(&[block], 10));
        let mut out = Vec::new();
        builder.finish(&mut out, 1, 0);
        let (payload, _) = unseal(&out, 1, 0, BlockKind::IndexTop).unwrap();
        Index::decode(payload, 10 * u64::from(blocks)).unwrap()
    }

    /// A block of one entry, in a buffer of its own.
    pub(crate) fn block() -> SharedBlock {
        let payload: &[u8] = &[0, 0, 0, 0, b't', 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let layout = Layout::parse(payload).unwrap();
        SharedBlock { buffer: Arc::from(payload), start: 0, len: payload.len() as u32, layout }
    }

    /// Block `slot` of a table whose only leaf is `leaf`.
    pub(crate) fn location<'a>(
        slots: &'a BlockSlots,
        leaf: &'a Index,
        slot: usize,
    ) -> BlockLocation<'a> {
        let handle = leaf.handle(slot).expect("the leaf has it");
        BlockLocation::new(slots, leaf, At { leaf: 0, slot }, handle)
    }

    /// The buffer in the slot, and whether the hit must be reported to the cache.
    pub(crate) fn hit(location: BlockLocation<'_>, turn: u32) -> Option<(*const u8, bool)> {
        location.block(turn).map(|(block, is_first)| (block.buffer.as_ptr(), is_first))
    }
}

#[cfg(all(test, not(trommel_loom)))]
mod tests {
    use super::fixtures::{block, hit, index, location};
    use super::*;

    /// Another reader of the same block took the slot, and its entry was dropped.
    #[test]
    fn a_block_returns_to_its_slot_when_it_is_looked_up_in_the_cache() {
        let (budget, slots, leaf) = (SlotBudget::new(1 << 15), BlockSlots::new(1), index(5));
        let slot = || location(&slots, &leaf, 2).slot(&budget);
        let one = CachedBlock::new(block(), slot(), 0);
        let other = CachedBlock::new(block(), slot(), 0);
        drop(other);
        assert_eq!(hit(location(&slots, &leaf, 2), 0), None);
        one.fill_slot(4);
        let buffer = one.block().buffer.as_ptr();
        assert_eq!(hit(location(&slots, &leaf, 2), 4), Some((buffer, true)));
        one.fill_slot(4);
        assert_eq!(hit(location(&slots, &leaf, 2), 4), Some((buffer, false)), "it is there");
    }

    #[test]
    fn memory_of_slots_is_released_with_their_table() {
        let bytes = 3 * size_of::<GroupLines>() as u64;
        let (budget, leaf) = (SlotBudget::new(bytes + bytes / 2), index(12));
        for _ in 0..20 {
            let slots = BlockSlots::new(1);
            assert!(location(&slots, &leaf, 0).slot(&budget).is_some());
            assert_eq!(budget.used(), bytes);
            let more = BlockSlots::new(1);
            assert!(location(&more, &leaf, 0).slot(&budget).is_none(), "more than the limit");
        }
        assert_eq!(budget.used(), 0);
    }
}

#[cfg(all(test, trommel_loom))]
mod models {
    use trommel_base::sync::models::{check, thread};

    use super::fixtures::block;
    use super::*;

    /// Two threads have read one block and both entries are dropped, while a third thread finds one
    /// of them in the cache and puts it back into the slot. In the end the slot is empty.
    #[test]
    fn a_dropped_block_is_in_no_slot() {
        check("a_dropped_block_is_in_no_slot", || {
            let leaf = LeafSlots::new(1, &SlotBudget::new(1 << 15)).unwrap();
            let slot_ref = || Some(SlotRef { leaf: Arc::downgrade(&leaf), slot: 0 });
            let one = CachedBlock::new(block(), slot_ref(), 0);
            let again = {
                let one = Arc::clone(&one);
                thread::spawn(move || one.fill_slot(1))
            };
            let other = {
                let slot_ref = slot_ref();
                thread::spawn(move || drop(CachedBlock::new(block(), slot_ref, 0)))
            };
            drop(one);
            again.join().unwrap();
            other.join().unwrap();
            let mut group = lock(leaf.group(0).unwrap());
            assert!(group.0.iter_mut().all(|slot| slot.buffer.is_none()), "left in its slot");
        });
    }
}

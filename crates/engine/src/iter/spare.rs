//! The memory of the lists of a scan's sources, which each thread keeps for its next scan, and the
//! blocks that its scans have entered for lack of a sorted view.
//!
//! A source holds a whole cursor over a table, so the list takes some kilobytes: more than
//! allocators serve from their fast lists, and short scans need one each. Only memory is kept: the
//! list is empty. Called where a scan begins and where it is dropped.

use std::cell::Cell;

use super::merge::MergeLists;
use super::source::Source;

/// Most sources whose memory is kept, some 15 KiB.
const MOST_KEPT: usize = 16;

/// Blocks of a thread that are counted together, as all threads count at one place.
const COUNTED_TOGETHER: u64 = 1024;

thread_local! {
    static BLOCKS: Cell<u64> = const { Cell::new(0) };
    static KEPT: Cell<Option<MergeLists<Source>>> = const { Cell::new(None) };
}

/// Counts blocks that scans of this thread have entered. Returns their number once they are to be
/// counted elsewhere.
pub(super) fn count(blocks: u64) -> Option<u64> {
    let count = |kept: &Cell<u64>| {
        let all = kept.get() + blocks;
        let is_enough = all >= COUNTED_TOGETHER;
        kept.set(if is_enough { 0 } else { all });
        is_enough.then_some(all)
    };
    BLOCKS.try_with(count).ok().flatten()
}

/// Lists with room for `count` sources, and none in them.
pub(crate) fn lists(count: usize) -> MergeLists<Source> {
    let mut lists = KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default();
    lists.sources.reserve_exact(count);
    lists
}

/// Drops these sources, and keeps the memory of their lists.
pub(super) fn keep(mut lists: MergeLists<Source>) {
    lists.sources.clear();
    if lists.sources.capacity() <= MOST_KEPT {
        // A thread that ends keeps nothing.
        let _ = KEPT.try_with(|kept| kept.set(Some(lists)));
    }
}

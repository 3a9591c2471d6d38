//! Reuses the memory of the lists of a scan's sources: each thread keeps it for its next scan.
//!
//! A source holds a whole cursor over a table, so a list takes several kilobytes, more than the
//! fast paths of allocators serve, and every short scan needs one. Only the memory is kept; the
//! list is empty. Called when a scan begins and when it is dropped.

use std::cell::Cell;

use super::merge::MergeLists;
use super::source::Source;

/// Most sources whose memory is kept, some 15 KiB.
const MOST_KEPT: usize = 16;

thread_local! {
    static KEPT: Cell<Option<MergeLists<Source>>> = const { Cell::new(None) };
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

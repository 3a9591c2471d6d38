//! The memory of the list of a scan's sources, which each thread keeps for its next scan.
//!
//! A source holds a whole cursor over a table, so the list takes some kilobytes: more than
//! allocators serve from their fast lists, and short scans need one each. Only memory is kept: the
//! list is empty. Called where a scan begins and where it is dropped.

use std::cell::Cell;

use super::source::Source;

/// Most sources whose memory is kept, some 15 KiB.
const MOST_KEPT: usize = 16;

thread_local! {
    static KEPT: Cell<Vec<Source>> = const { Cell::new(Vec::new()) };
}

/// An empty list with room for `count` sources.
pub(crate) fn list(count: usize) -> Vec<Source> {
    let mut sources = KEPT.try_with(Cell::take).unwrap_or_default();
    sources.reserve_exact(count);
    sources
}

/// Drops these sources, and keeps the memory of their list.
pub(super) fn keep(mut sources: Vec<Source>) {
    sources.clear();
    if sources.capacity() <= MOST_KEPT {
        // A thread that ends keeps nothing.
        let _ = KEPT.try_with(|kept| kept.set(sources));
    }
}

//! Builds a sorted view: a merge of all runs that reads keys only, and checks their order.

use std::cmp::Ordering;
use std::sync::Arc;

use trommel_base::{Cursor, CursorHints, KeyHead};
use trommel_sstable::ScanOptions;

use crate::iter::level::{LevelCursor, ScanTables};
use crate::iter::merge::MergeCursor;
use crate::memory::MemoryShares;
use crate::version::{SortedBuilder, SortedView, TableCache, Version, runs_of};

/// Entries between two questions whether to go on.
const STEP: usize = 1 << 12;

/// Why there is no view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoView {
    /// The caller wants none any more.
    Stopped,
    /// There is no memory for it, a table cannot be read, or its entries are not in order. Readers
    /// will notice themselves.
    Refused,
}

/// Builds the view of all tables of `version`, as long as it `goes_on`.
pub(crate) fn build(
    version: &Version,
    tables: &Arc<TableCache>,
    shares: &Arc<MemoryShares>,
    goes_on: impl Fn() -> bool,
) -> Result<SortedView, NoView> {
    let runs = runs_of(version);
    let entries = runs.iter().flatten().map(|table| table.entries).sum::<u64>();
    let entries = usize::try_from(entries).map_err(|_| NoView::Refused)?;
    let bytes = SortedView::memory_bytes(entries, runs.len());
    let share = MemoryShares::reserve_view(shares, bytes).ok_or(NoView::Refused)?;
    let builder = SortedBuilder::new(&runs, entries, share, tables);
    let mut builder = builder.map_err(|_| NoView::Refused)?;
    let scan = ScanOptions { fill_cache: false, check_order: true, ..ScanOptions::default() };
    let level = |run| LevelCursor::new(ScanTables::List(run), Arc::clone(tables), scan);
    let mut merge = MergeCursor::new(runs.into_iter().map(level).collect());
    let mut previous = PreviousKey::default();
    merge.seek_to_first().map_err(|_| NoView::Refused)?;
    for at in 0.. {
        if at % STEP == 0 && !goes_on() {
            return Err(NoView::Stopped);
        }
        let Some(key) = merge.internal_key().map(|internal| internal.key) else { break };
        let places = merge.sources().iter().map(LevelCursor::place);
        let added = previous
            .replace(&merge)
            .and_then(|repeats| builder.add(key, merge.current(), repeats, places));
        added.ok_or(NoView::Refused)?;
        merge.next().map_err(|_| NoView::Refused)?;
    }
    builder.finish().ok_or(NoView::Refused)
}

/// The entry before the current one.
#[derive(Default)]
struct PreviousKey {
    head: Option<KeyHead>,
    /// The key, if it is long.
    long: Vec<u8>,
}

impl PreviousKey {
    /// Sets the current entry of `merge`, and returns whether it is a version of the same key as
    /// the one before; `None` if it comes before that.
    fn replace(&mut self, merge: &MergeCursor<LevelCursor>) -> Option<bool> {
        let now = merge.internal_key()?;
        let head = now.head();
        let before = self.head.replace(head);
        let order = before.map(|before| {
            let keys = || self.long.as_slice().cmp(now.key);
            let order = before.compare(&head, keys);
            // Of two runs, identical entries come one after the other.
            let is_same = (before.words, before.len) == (head.words, head.len)
                && (!head.is_long() || keys().is_eq());
            (order, is_same)
        });
        if head.is_long() {
            self.long.clear();
            self.long.extend_from_slice(now.key);
        }
        match order {
            None => Some(false),
            Some((Ordering::Greater, _)) => None,
            Some((_, is_same)) => Some(is_same),
        }
    }
}

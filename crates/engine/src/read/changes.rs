//! The writes since a moment: the reads for conditions and transactions.
//!
//! 1. The newest version of a key in memory is found as by a get. Range tombstones count as
//!    versions; expiry does not count as a change.
//! 2. The memtables hold everything written since a moment, unless the oldest of them was flushed
//!    meanwhile. Only then are tables read, and of these only those with a newer entry.
//!
//! Called outside the write queue, and by its leader.

use trommel_base::{Cursor, EntryKind, MAX_SEQNO, SeqNo};
use trommel_sstable::{ScanOptions, Wants};

use super::probe::{Lookup, Tally};
use crate::bounds::Bounds;
use crate::engine::Engine;
use crate::error::Result;
use crate::view::{ReadMoment, Since, View};

/// What became of a key since a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// It was not written to, as far as the memtables show.
    None,
    /// It was put, with this value.
    Value(&'a [u8]),
    /// It was deleted.
    Deleted,
    /// An operand was merged into it, so its value must be read.
    Merged,
}

impl View {
    /// The change of `key` since `since`, according to the memtables. Range tombstones are taken
    /// from `ranges`.
    pub(crate) fn change_of(
        &self,
        key: &[u8],
        since: SeqNo,
        ranges: Option<&ReadMoment<'_>>,
    ) -> Change<'_> {
        let deleted = ranges.map_or(0, |ranges| ranges.deleting(key));
        match self.get_in_memory(key, MAX_SEQNO) {
            Some(entry) if entry.seqno > deleted.max(since) => match entry.kind {
                EntryKind::Put => Change::Value(entry.value),
                EntryKind::Delete => Change::Deleted,
                EntryKind::Merge => Change::Merged,
            },
            _ if deleted > since => Change::Deleted,
            _ => Change::None,
        }
    }

    /// The first key within `bounds` that was written since `since`, according to the memtables.
    pub(crate) fn changed_in(
        &self,
        bounds: &Bounds,
        since: SeqNo,
        ranges: Option<&ReadMoment<'_>>,
    ) -> Option<Vec<u8>> {
        let written = self.memtables().filter(|logged| !logged.memtable.is_empty());
        let mut keys = written.filter_map(|logged| {
            let mut cursor = logged.memtable.cursor();
            let Ok(()) = cursor.seek(&bounds.from, SeqNo::MAX);
            cursor.skip_older(since + 1, bounds.to.as_deref());
            let entry = cursor.entry().filter(|entry| !bounds.ends_before(entry.key));
            entry.map(|entry| entry.key.to_vec())
        });
        keys.next().or_else(|| ranges?.deleted_in(bounds, since))
    }
}

impl Engine {
    /// A moment such that every later read sees all writes before it.
    pub(crate) fn since_now(&self) -> Since {
        let view = self.view.load();
        view.since(self.snapshots.visible(), &self.snapshots)
    }

    /// Whether a table has a version of `key` that is newer than `since`.
    pub(crate) fn changed_in_tables(&self, view: &View, key: &[u8], since: SeqNo) -> Result<bool> {
        let lookup = Lookup::new(self, key, MAX_SEQNO, Wants::Presence);
        let (mut candidates, mut place) = (view.tables_for(key), [None]);
        let (mut tally, mut found) = (Tally::new(), None);
        let mut outcome = Ok(());
        while let [Some(fence)] = candidates.next(&mut place) {
            if fence.file.max_seqno > since {
                outcome = lookup.probe(fence, &mut tally, &mut found);
            }
            if outcome.is_err() || found.is_some() {
                break;
            }
        }
        self.statistics.counters.with(|shard| tally.count(shard));
        outcome.map(|()| found.is_some_and(|found| found.seqno > since))
    }

    /// The first key within `bounds` that has a version newer than `since` in a table.
    pub(crate) fn range_changed_in_tables(
        &self,
        view: &View,
        bounds: &Bounds,
        since: SeqNo,
    ) -> Result<Option<Vec<u8>>> {
        for (_, table) in view.version.tables() {
            if table.max_seqno <= since || !table.meets(bounds) {
                continue;
            }
            let mut cursor = self.files.tables.reader(table)?.cursor(ScanOptions::default());
            cursor.seek(&bounds.from, MAX_SEQNO)?;
            while let Some(entry) = cursor.entry().filter(|entry| !bounds.ends_before(entry.key)) {
                if entry.seqno > since {
                    return Ok(Some(entry.key.to_vec()));
                }
                cursor.next()?;
            }
        }
        Ok(None)
    }
}

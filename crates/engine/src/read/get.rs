//! Looking up one key.

use trommel_base::{EntryKind, SeqNo, Slice};
use trommel_sstable::{Found, Wants};

use super::probe::{Lookup, Tally};
use crate::engine::Engine;
use crate::error::Result;
use crate::latencies::TimedOperation;
use crate::trace::{Outcome, Place};
use crate::view::{ReadAt, View};

impl Engine {
    /// The value of `key` as of `at`, or now.
    ///
    /// Searches the memtables, then the runs of level 0 from newest to oldest, then in each deeper
    /// level the one table whose key range holds the key. The first version found is the newest; it
    /// counts only if no newer range tombstone applies to the key, and if it has not expired.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], at: Option<ReadAt<'_>>) -> Result<Option<Slice>> {
        self.look_up(key, at, Wants::Value)
    }

    /// Whether `key` has a value as of `at`, or now.
    pub(crate) fn contains(&self, key: &[u8], at: Option<ReadAt<'_>>) -> Result<bool> {
        Ok(self.look_up(key, at, Wants::Presence)?.is_some())
    }

    /// As `get`, with an empty value if only presence is wanted.
    fn look_up(&self, key: &[u8], at: Option<ReadAt<'_>>, wants: Wants) -> Result<Option<Slice>> {
        let latencies = &self.statistics.latencies;
        if latencies.samples() {
            return latencies.timed(TimedOperation::Get, || self.look_up(key, at, wants));
        }
        self.access.check_open()?;
        // The view must be pinned before the sequence number is read: see `Snapshots::visible`.
        let current;
        let view: &View = match at.and_then(|at| at.view) {
            Some(kept) => kept,
            None => {
                current = self.view.load();
                &current
            }
        };
        let seen = at.map(|at| at.seqno);
        let (mut seqno, mut deleted) = (seen.unwrap_or_else(|| self.snapshots.visible()), 0);
        if view.needs_moment(at, &self.snapshots) {
            let moment = view.moment(seen, &self.snapshots);
            (seqno, deleted) = (moment.seqno, moment.covering(key));
        }
        if let Some(entry) = view.get_in_memory(key, seqno) {
            let wanted = if wants == Wants::Value { entry.value } else { &[] };
            let is_value = entry.kind == EntryKind::Put && entry.seqno >= deleted;
            let value = match entry.kind {
                _ if is_value => Some(Slice::from(wanted)),
                EntryKind::Merge if entry.seqno >= deleted => {
                    self.merged_value(view, key, seqno, deleted)?
                }
                _ => None,
            };
            self.count_in_memory(value.is_some());
            self.traced(view, key, Place::Memory, value.is_some());
            return Ok(value);
        }
        let mut tally = Tally::new();
        let lookup = Lookup::new(self, key, seqno, wants);
        let found = lookup.search(view.tables_for(key), &mut tally);
        let place = tally.level().map_or(Place::Nowhere, |level| Place::Level(level as u8));
        let is_value = |found: &Found| found.kind == EntryKind::Put && found.seqno >= deleted;
        let is_found = matches!(&found, Ok(Some(found)) if is_value(found));
        self.statistics.counters.with(|shard| {
            tally.count(shard);
            shard.gets.add(u64::from(found.is_ok()));
            shard.found.add(u64::from(is_found));
        });
        let value = match found? {
            Some(found) if is_found => Some(found.value),
            Some(found) if found.kind == EntryKind::Merge && found.seqno >= deleted => {
                return self.look_up_operands(view, key, (seqno, deleted), place);
            }
            _ => None,
        };
        self.traced(view, key, place, is_found);
        Ok(value)
    }

    /// Ends a lookup that has found an operand in a table at `place`.
    #[cold]
    #[inline(never)]
    fn look_up_operands(
        &self,
        view: &View,
        key: &[u8],
        (seqno, deleted): (SeqNo, SeqNo),
        place: Place,
    ) -> Result<Option<Slice>> {
        let value = self.merged_value(view, key, seqno, deleted)?;
        self.statistics.counters.with(|shard| shard.found.add(u64::from(value.is_some())));
        self.traced(view, key, place, value.is_some());
        Ok(value)
    }

    /// Adds a finished lookup to the trace, if one is being recorded. Levels are those of the
    /// view's version, as stored.
    #[inline]
    pub(super) fn traced(&self, view: &View, key: &[u8], place: Place, found: bool) {
        if self.statistics.trace.is_on() {
            self.statistics.trace.note(&view.version, key, Outcome { place, found });
        }
    }

    /// Counts a lookup that a memtable answered.
    fn count_in_memory(&self, found: bool) {
        self.statistics.counters.with(|shard| {
            shard.gets.add(1);
            shard.found.add(u64::from(found));
            shard.memtable_hits.add(1);
        });
    }
}

//! Reading a key whose newest version is a merge operand.
//!
//! 1. The sources are searched newest first, as by a get: the memtables, the runs of level 0, one
//!    table of each deeper level. Each gives all its versions of the key, newest first, until one
//!    ends the search: a value, a tombstone, or a version that a range tombstone deletes or that
//!    has expired.
//! 2. The merge operator computes the value from these versions, oldest operand first.
//!
//! Only lookups and scans that have found an operand get here, so the others pay nothing. Filters
//! are queried, and counted, as by a get.

use std::sync::Arc;

use trommel_base::{Cursor, CursorHints, EntryKind, EntryRef, SeqNo, Slice};
use trommel_memtable::Memtable;
use trommel_sstable::{ScanOptions, Verdict};

use super::probe::{count_reads, is_decided};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::keyspaces::OwnOperator;
use crate::merge_failure::{MergeCause, MergeFailure};
use crate::merge_operator::UserMergeOperator;
use crate::space::{Space, id_of, user_key};
use crate::version::Fence;
use crate::view::View;

/// Versions of a key in one memtable that are looked up one by one. A cursor finds the others; it
/// first has to sort the entries written since the last scan.
const LOOKUPS: usize = 16;

/// The versions of a key found so far.
struct FoundVersions {
    /// Versions before this sequence number are deleted or have expired.
    covering: SeqNo,
    /// Newest first.
    operands: Vec<Slice>,
    /// The value below them, if there is one.
    existing: Option<Slice>,
}

impl FoundVersions {
    /// Takes the next older version. Returns whether nothing older counts.
    fn take(&mut self, entry: EntryRef<'_>, value: impl FnOnce() -> Slice) -> bool {
        if entry.seqno < self.covering {
            return true;
        }
        match entry.kind {
            EntryKind::Merge => self.operands.push(value()),
            EntryKind::Put => self.existing = Some(value()),
            EntryKind::Delete => {}
        }
        entry.kind != EntryKind::Merge
    }

    /// Takes the versions in a memtable up to `seqno`. Returns whether nothing older counts.
    fn take_from(&mut self, memtable: &Arc<Memtable>, key: &[u8], seqno: SeqNo) -> bool {
        let mut next = seqno;
        for _ in 0..LOOKUPS {
            let Some(entry) = memtable.get(key, next) else { return false };
            if self.take(entry, || Slice::from(entry.value)) {
                return true;
            }
            let Some(older) = entry.seqno.checked_sub(1) else { return false };
            next = older;
        }
        let mut cursor = memtable.cursor();
        let Ok(()) = cursor.seek(key, next);
        while let Some(entry) = cursor.entry().filter(|entry| *entry.key == *key) {
            if self.take(entry, || Slice::from(entry.value)) {
                return true;
            }
            let Ok(()) = cursor.next();
        }
        false
    }
}

/// The user key of a physical key, in a store that keeps the default keyspace in this way.
fn key_known(default: Space, physical: &[u8]) -> &[u8] {
    if default == Space::Plain { physical } else { user_key(physical) }
}

impl Engine {
    /// The merge operator for a physical key.
    ///
    /// # Errors
    /// [`Error::Merge`] if the store, or the keyspace of the key, was opened without one.
    pub(crate) fn merge_operator_for(&self, physical: &[u8]) -> Result<UserMergeOperator> {
        self.operator_for(self.options.keyspaces.default_of_tables(), physical)
    }

    /// The value of a physical key, as a reader as of `seqno` finds it, after these operands,
    /// oldest first.
    pub(crate) fn apply_operands(
        &self,
        (physical, seqno): (&[u8], SeqNo),
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>> {
        let default = self.options.keyspaces.default_found_at(seqno);
        self.apply_operands_in(default, physical, existing, operands)
    }

    /// As `apply_operands`, where the default keyspace is stored in this way.
    pub(crate) fn apply_operands_in(
        &self,
        default: Space,
        physical: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>> {
        let operator = self.operator_for(default, physical)?;
        operator.full_merge(key_known(default, physical), existing, operands)
    }

    fn operator_for(&self, default: Space, physical: &[u8]) -> Result<UserMergeOperator> {
        let keyspaces = &self.options.keyspaces;
        let id = if default == Space::Plain { None } else { id_of(physical) };
        let own = if keyspaces.have_operators() { keyspaces.own_operator(id) } else { None };
        let (name, keyspace) = match own {
            Some(OwnOperator::Given(operator)) => return Ok(operator),
            Some(OwnOperator::Missing { name, keyspace }) => (name, Some(keyspace)),
            Some(OwnOperator::Unknown) => (String::new(), None),
            None => match &self.options.load().writes.merge_operator {
                Some(operator) => return Ok(operator.clone()),
                None => (self.version().merge_operator.as_deref().unwrap_or_default().into(), None),
            },
        };
        let key = key_known(default, physical);
        let failure = MergeFailure::new(&name, key, MergeCause::NoOperator);
        Err(Error::Merge(Box::new(MergeFailure { keyspace, ..failure })))
    }

    /// The value, as of `seqno`, of a `key` whose newest version in `view` is an operand. Versions
    /// before `covering` are deleted or have expired, perhaps including the newest.
    #[cold]
    #[inline(never)]
    pub(crate) fn merged_value(
        &self,
        view: &View,
        key: &[u8],
        seqno: SeqNo,
        covering: SeqNo,
    ) -> Result<Option<Slice>> {
        let mut found = FoundVersions { covering, operands: Vec::new(), existing: None };
        let is_whole = view.memtables().any(|logged| found.take_from(&logged.memtable, key, seqno));
        if !is_whole {
            self.find_in_tables(view, key, seqno, &mut found)?;
        }
        if found.operands.is_empty() {
            return Ok(None);
        }
        let operands: Vec<&[u8]> = found.operands.iter().rev().map(|operand| &**operand).collect();
        let merged = self.apply_operands((key, seqno), found.existing.as_deref(), &operands)?;
        Ok(merged.map(Slice::from))
    }

    /// Takes the versions in tables.
    fn find_in_tables(
        &self,
        view: &View,
        key: &[u8],
        seqno: SeqNo,
        found: &mut FoundVersions,
    ) -> Result<()> {
        let hash = self.files.hash_seed.hash(key);
        let (mut candidates, mut place) = (view.tables_for(key), [None]);
        while let [Some(fence)] = candidates.next(&mut place) {
            if self.find_in_table(fence, (key, hash), seqno, found)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes the versions in one table. Returns whether nothing older counts.
    fn find_in_table(
        &self,
        fence: &Fence,
        (key, hash): (&[u8], u64),
        seqno: SeqNo,
        found: &mut FoundVersions,
    ) -> Result<bool> {
        let Fence { file, level, .. } = fence;
        let table = self.files.tables.reader(file)?;
        let mut verdict = table.filters().query(key, hash);
        if verdict == Verdict::UNFILTERED {
            verdict = self.probe_prefix(&table, key);
        }
        if !verdict.maybe {
            if is_decided(file, false, seqno) {
                self.count_negatives(*level, verdict, 1);
            }
            return Ok(false);
        }
        let mut cursor = table.cursor(ScanOptions::default());
        cursor.seek(key, seqno)?;
        let (mut has_key, mut is_whole) = (false, false);
        while let Some(entry) = cursor.entry().filter(|entry| *entry.key == *key) {
            has_key = true;
            is_whole = found.take(entry, || cursor.value());
            if is_whole {
                break;
            }
            cursor.next()?;
        }
        if is_decided(file, has_key, seqno) {
            self.count_maybe(*level, verdict, has_key);
        }
        let stats = cursor.stats();
        self.statistics.counters.with(|shard| count_reads(shard, &stats));
        Ok(is_whole)
    }
}

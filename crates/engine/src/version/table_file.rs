//! One table of a version: its metadata, its reader once opened, and its removal: when the last
//! version that holds it is dropped, its obsolete files are queued for deletion.
//!
//! A table that gets another filter sidecar is replaced by a new [`TableFile`] for the same file.
//! The file is queued when the last of the two is dropped, the old sidecar when the old
//! [`TableFile`] is.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::kept_files::KeptFiles;
use super::table_cache::OpenTable;
use crate::files::deletion_queue::DeletionQueue;
use crate::files::{sidecar_path, table_path};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, SwapOption};

/// The manifest's record of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableMeta {
    /// Its file number: the file is `<number>.sst`.
    pub number: u64,
    /// The random id that its blocks are bound to.
    pub table_id: u64,
    /// Exact length of the file.
    pub file_bytes: u64,
    /// Smallest user key.
    pub smallest: Box<[u8]>,
    /// Largest user key in the table.
    pub largest: Box<[u8]>,
    /// Lowest sequence number.
    pub min_seqno: u64,
    /// Highest sequence number.
    pub max_seqno: u64,
    /// Entries, tombstones and older versions included.
    pub entries: u64,
    /// Of these, tombstones.
    pub deletions: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Its filters.
    pub filters: FilterMeta,
    /// No range tombstone up to this sequence number deletes any of its entries.
    pub ranges_applied: u64,
}

/// The manifest's record of a table's filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilterMeta {
    /// Their stored bytes, or those of the filters in the sidecar if there is one.
    pub bytes: u64,
    /// Level that they were built for; a trivial move does not change it.
    pub built_for: u8,
    /// Number of the sidecar that replaces the table's own filters, if there is one.
    pub sidecar: Option<u64>,
}

impl TableMeta {
    /// Whether the table's key range overlaps `smallest..=largest`.
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.smallest <= *largest && *smallest <= *self.largest
    }

    /// Its keys, except for tombstones.
    pub(crate) fn valued_keys(&self) -> u64 {
        self.keys.saturating_sub(self.deletions)
    }

    /// Bytes of the filters in its sidecar, if it has one.
    pub(crate) fn sidecar_bytes(&self) -> u64 {
        self.filters.sidecar.map_or(0, |_| self.filters.bytes)
    }

    /// Whether `key` is in the table's key range.
    #[inline]
    pub(crate) fn may_hold(&self, key: &[u8]) -> bool {
        *self.smallest <= *key && *key <= *self.largest
    }
}

/// Whether the filters of a table are held in memory and queried, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Held,
    /// The table is in the last level, whose filters are disabled.
    NotInLastLevel,
    /// More valuable filters use up the budget, or the table has left the version.
    NotInBudget,
}

impl Keeping {
    const ALL: [Self; 3] = [Self::Held, Self::NotInLastLevel, Self::NotInBudget];
}

/// A table of the store, shared by all versions that hold it.
#[derive(Debug)]
pub(crate) struct TableFile {
    meta: TableMeta,
    /// The open reader; removed when too many are open.
    pub(super) reader: SwapOption<OpenTable>,
    /// Whether the reader was used since the table cache last checked.
    pub(super) used: AtomicBool,
    /// A [`Keeping`].
    keeping: AtomicUsize,
    /// Stored bytes of the table's own filters if these are the fallback for an unusable sidecar;
    /// otherwise [`NOTHING_LOST`].
    fallback_bytes: AtomicU64,
    /// Stored bytes of the range filter among the filters in use, [`UNKNOWN`] until it is opened.
    range_bytes: AtomicU64,
    /// Estimated bytes of its entries that range tombstones delete, or that have expired.
    deleted_bytes: AtomicU64,
    /// The newest of these tombstones, and the newest of all when it was estimated.
    deleted_by: AtomicU64,
    estimated_at: AtomicU64,
    /// Whether it is the output of a compaction of small tables that did not reduce their number.
    stays_small: AtomicBool,
    /// Whether it is the output of a rewrite for the sake of dead entries: readers need all that is
    /// left.
    is_rid_of_dead: AtomicBool,
    /// Bytes that were estimated to be deleted just after such a rewrite, which had kept them.
    kept_bytes: AtomicU64,
    /// Whether it has left the store, or was replaced by a successor for the same file.
    is_obsolete: AtomicBool,
    /// Its open files, if others may remove them.
    kept_files: OnceLock<KeptFiles>,
    /// The table's file, shared with predecessors and successors.
    file: Arc<QueuedOnDrop>,
    sidecar: QueuedOnDrop,
}

/// No fallback: more bytes than the filters of any table take.
const NOTHING_LOST: u64 = u64::MAX;

/// Stored bytes that are not known yet.
const UNKNOWN: u64 = u64::MAX;

/// A file to be queued for deletion when its last owner is dropped. The path and the deletion queue
/// are set once the manifest has durably dropped the file.
#[derive(Debug, Default)]
struct QueuedOnDrop(OnceLock<Removal>);

/// The removal of a file.
#[derive(Debug)]
struct Removal {
    path: PathBuf,
    /// Its number and its length, if it is a table.
    table: Option<(u64, u64)>,
    deletion_queue: Arc<DeletionQueue>,
}

impl QueuedOnDrop {
    /// Queues the file for deletion when its last owner is dropped.
    fn queue_when_dropped(&self, removal: Removal) {
        let deletion_queue = Arc::clone(&removal.deletion_queue);
        if self.0.set(removal).is_ok() {
            deletion_queue.announce();
        }
    }
}

impl Drop for QueuedOnDrop {
    fn drop(&mut self) {
        let Some(Removal { path, table, deletion_queue }) = self.0.take() else { return };
        match table {
            Some((number, bytes)) => deletion_queue.add_spare(path, number, bytes),
            None => deletion_queue.add(path),
        }
        deletion_queue.arrived();
    }
}

impl TableFile {
    /// A table without a reader.
    pub(crate) fn new(meta: TableMeta) -> Self {
        Self {
            meta,
            reader: SwapOption::empty(),
            used: AtomicBool::new(false),
            keeping: AtomicUsize::new(Keeping::Held as usize),
            fallback_bytes: AtomicU64::new(NOTHING_LOST),
            range_bytes: AtomicU64::new(UNKNOWN),
            deleted_bytes: AtomicU64::new(0),
            deleted_by: AtomicU64::new(0),
            estimated_at: AtomicU64::new(0),
            stays_small: AtomicBool::new(false),
            is_rid_of_dead: AtomicBool::new(false),
            kept_bytes: AtomicU64::new(0),
            is_obsolete: AtomicBool::new(false),
            kept_files: OnceLock::new(),
            file: Arc::default(),
            sidecar: QueuedOnDrop::default(),
        }
    }

    /// The replacement for this table when the manifest records other metadata for the same file.
    pub(crate) fn successor(&self, meta: TableMeta) -> Self {
        let mut next = Self::new(meta);
        next.file = Arc::clone(&self.file);
        // Otherwise each rebuild of its filters would make it worth another rewrite, whose output
        // needs its filters rebuilt, and so on.
        next.stays_small = AtomicBool::new(self.stays_small());
        next.is_rid_of_dead = AtomicBool::new(self.is_rid_of_dead());
        next.kept_bytes = AtomicU64::new(self.kept_bytes());
        next
    }

    /// The manifest's record of it.
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Its reader, if it is open.
    pub(crate) fn open_reader(&self) -> Option<Arc<OpenTable>> {
        self.reader.load_full()
    }

    /// Whether its filters are held and queried.
    pub(crate) fn keeping(&self) -> Keeping {
        let number = self.keeping.load(Ordering::Acquire);
        Keeping::ALL.get(number).copied().unwrap_or(Keeping::Held)
    }

    /// Sets whether its filters are held. The table must not be opened concurrently.
    pub(super) fn set_keeping(&self, keeping: Keeping) {
        self.keeping.store(keeping as usize, Ordering::Release);
    }

    /// Stored bytes of the filters in use: the table's own, if its sidecar was found unusable.
    pub(crate) fn built_bytes(&self) -> u64 {
        match self.fallback_bytes.load(Ordering::Acquire) {
            NOTHING_LOST => self.meta.filters.bytes,
            own => own,
        }
    }

    /// Stored bytes of the range filter among these filters, once the table was opened with them.
    pub(crate) fn range_bytes(&self) -> Option<u64> {
        Some(self.range_bytes.load(Ordering::Acquire)).filter(|bytes| *bytes != UNKNOWN)
    }

    /// Records the bytes of that range filter.
    pub(super) fn note_range_bytes(&self, bytes: u64) {
        self.range_bytes.store(bytes, Ordering::Release);
    }

    /// Records that its sidecar is unusable, and that `own` bytes of the table's own filters are
    /// the fallback. Returns whether that is new.
    pub(super) fn lose_sidecar(&self, own: u64) -> bool {
        self.fallback_bytes.swap(own, Ordering::AcqRel) != own
    }

    /// Records that its sidecar was opened.
    pub(super) fn find_sidecar(&self) {
        self.fallback_bytes.store(NOTHING_LOST, Ordering::Release);
    }

    /// Estimated bytes of its entries that range tombstones delete, or that have expired.
    pub(crate) fn deleted_bytes(&self) -> u64 {
        self.deleted_bytes.load(Ordering::Relaxed)
    }

    /// Estimated keys of these entries.
    pub(crate) fn deleted_keys(&self) -> u64 {
        let part = self.deleted_bytes() as f64 / self.file_bytes.max(1) as f64;
        (self.keys as f64 * part.min(1.0)) as u64
    }

    /// Estimated bytes of its entries with sequence numbers below `horizon`.
    pub(crate) fn expired_bytes(&self, horizon: u64) -> u64 {
        let span = self.max_seqno - self.min_seqno + 1;
        let expired = horizon.saturating_sub(self.min_seqno).min(span);
        let bytes = u128::from(self.file_bytes) * u128::from(expired);
        bytes.div_ceil(u128::from(span)) as u64
    }

    /// The newest range tombstone that deletes any of them; 0 if none does.
    pub(crate) fn deleted_by(&self) -> u64 {
        self.deleted_by.load(Ordering::Relaxed)
    }

    /// Whether the deleted bytes were estimated when `newest` was the newest range tombstone.
    pub(crate) fn is_estimated_at(&self, newest: u64) -> bool {
        self.estimated_at.load(Ordering::Relaxed) == newest
    }

    /// Sets the estimate: bytes, and the newest tombstone that deletes some of them, when `newest`
    /// is the newest of all.
    pub(crate) fn set_deleted(&self, bytes: u64, by: u64, newest: u64) {
        self.deleted_bytes.store(bytes, Ordering::Relaxed);
        self.deleted_by.store(by, Ordering::Relaxed);
        self.estimated_at.store(newest, Ordering::Relaxed);
    }

    /// Records that it is small even though tables were compacted to reduce their number.
    pub(crate) fn note_stays_small(&self) {
        self.stays_small.store(true, Ordering::Relaxed);
    }

    /// Whether compacting it with its neighbours again would be futile.
    pub(crate) fn stays_small(&self) -> bool {
        self.stays_small.load(Ordering::Relaxed)
    }

    /// Records that it is the output of a rewrite for the sake of dead entries.
    pub(crate) fn note_rid_of_dead(&self) {
        self.is_rid_of_dead.store(true, Ordering::Relaxed);
        self.kept_bytes.store(self.deleted_bytes(), Ordering::Relaxed);
    }

    /// Bytes that were estimated to be deleted just after a rewrite for the sake of dead entries,
    /// which had kept them.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Whether a rewrite for the sake of dead entries would be futile.
    pub(crate) fn is_rid_of_dead(&self) -> bool {
        self.is_rid_of_dead.load(Ordering::Relaxed)
    }

    /// Removes its files in `dir` when the table is dropped. The manifest must have durably dropped
    /// it.
    pub(crate) fn retire(&self, dir: &Path, deletion_queue: &Arc<DeletionQueue>) {
        let path = table_path(dir, self.number);
        let table = Some((self.number, self.file_bytes));
        self.file.queue_when_dropped(Removal {
            path,
            table,
            deletion_queue: Arc::clone(deletion_queue),
        });
        self.give_way(dir, deletion_queue);
    }

    /// Removes its sidecar, if it has one, when the sidecar is no longer used. The manifest must
    /// durably record its replacement.
    pub(crate) fn give_way(&self, dir: &Path, deletion_queue: &Arc<DeletionQueue>) {
        self.leave();
        if let Some(number) = self.filters.sidecar {
            let (path, deletion_queue) = (sidecar_path(dir, number), Arc::clone(deletion_queue));
            self.sidecar.queue_when_dropped(Removal { path, table: None, deletion_queue });
        }
    }

    /// Records that the current version no longer holds it; another owner disposes of its files.
    pub(crate) fn leave(&self) {
        self.is_obsolete.store(true, Ordering::Release);
    }

    /// Its files, if they are kept open.
    pub(super) fn kept_files(&self) -> Option<&KeptFiles> {
        self.kept_files.get()
    }

    /// Keeps its files open for as long as it lives, even if another owner removes them.
    pub(super) fn keep_files(&self, files: KeptFiles) {
        let _ = self.kept_files.set(files);
    }

    /// Whether the current version no longer holds it.
    pub(super) fn is_retired(&self) -> bool {
        self.is_obsolete.load(Ordering::Acquire)
    }

    /// Marks the reader as used, writing only if it was not marked.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        // The table is not used again: frees its space in the block cache at once.
        if self.is_obsolete.load(Ordering::Acquire)
            && let Some(open) = self.reader.swap(None)
        {
            open.table().evict();
        }
    }
}

impl Deref for TableFile {
    type Target = TableMeta;

    fn deref(&self) -> &TableMeta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: with a filter budget, a table whose merge operands a rewrite could not drop was
    /// rewritten, and its filters rebuilt, without end.
    #[test]
    fn a_table_with_rebuilt_filters_is_not_worth_another_rewrite() {
        let filters = FilterMeta { bytes: 100, built_for: 0, sidecar: None };
        let meta = TableMeta {
            number: 7,
            table_id: 7,
            file_bytes: 1000,
            smallest: b"a".as_slice().into(),
            largest: b"b".as_slice().into(),
            min_seqno: 1,
            max_seqno: 9,
            entries: 9,
            deletions: 0,
            keys: 2,
            filters,
            ranges_applied: 0,
        };
        let table = TableFile::new(meta.clone());
        let rebuilt = || {
            let filters = FilterMeta { bytes: 0, sidecar: Some(8), ..meta.filters };
            table.successor(TableMeta { filters, ..meta.clone() })
        };
        assert!(!rebuilt().is_rid_of_dead() && !rebuilt().stays_small());
        table.note_rid_of_dead();
        assert!(rebuilt().is_rid_of_dead() && !rebuilt().stays_small());
        table.note_stays_small();
        assert!(rebuilt().stays_small());
    }
}

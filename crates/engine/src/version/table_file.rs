//! One table of a version: what the manifest knows of it, its reader once it was opened, and its
//! end: when no version holds it any more, its files are queued for removal.
//!
//! A table that gets another filter sidecar is another [`TableFile`] from then on, of the same
//! file: that one is queued once the last of both is gone, the old sidecar with the old one.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use trommel_base::planted::{Bug, planted};

use super::table_cache::OpenTable;
use crate::files::graveyard::Graveyard;
use crate::files::{sidecar_path, table_path};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, SwapOption};

/// What the manifest records of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableMeta {
    /// Its file number: the file is `<number>.sst`.
    pub number: u64,
    /// The random id its blocks are bound to.
    pub table_id: u64,
    /// Exact length of the file.
    pub file_bytes: u64,
    /// Smallest user key.
    pub smallest: Box<[u8]>,
    /// Largest user key, itself in the table.
    pub largest: Box<[u8]>,
    /// Lowest sequence number.
    pub min_seqno: u64,
    /// Highest sequence number.
    pub max_seqno: u64,
    /// Entries, tombstones and older versions included.
    pub entries: u64,
    /// Tombstones among them.
    pub deletions: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Stored bytes of its filters: of those in its sidecar, if it has one.
    pub filter_bytes: u64,
    /// Level that its filters were built for, which a trivial move does not change.
    pub built_for: u8,
    /// Number of the sidecar file whose filter replaces the table's own, if there is one.
    pub filter_sidecar: Option<u64>,
}

impl TableMeta {
    /// Whether some key between `smallest` and `largest`, both included, may be in the table.
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.smallest <= *largest && *smallest <= *self.largest
    }

    /// Bytes of the filters in its sidecar, if it has one.
    pub(crate) fn sidecar_bytes(&self) -> u64 {
        self.filter_sidecar.map_or(0, |_| self.filter_bytes)
    }

    /// Whether `key` lies in the table's key range.
    #[inline]
    pub(crate) fn may_hold(&self, key: &[u8]) -> bool {
        *self.smallest <= *key && *key <= *self.largest
    }
}

/// Whether the filters of a table are held in memory and asked, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Held,
    /// It lies in the last level, whose filters are not wanted.
    NotInLastLevel,
    /// They are worth less than others, and the budget is spent; or the table has left the version.
    NotInBudget,
}

impl Keeping {
    const ALL: [Self; 3] = [Self::Held, Self::NotInLastLevel, Self::NotInBudget];
}

/// A table of the store, shared by all versions that hold it.
#[derive(Debug)]
pub(crate) struct TableFile {
    meta: TableMeta,
    /// The open reader; emptied when too many are open.
    pub(super) reader: SwapOption<OpenTable>,
    /// Whether the reader was asked for since the table cache last looked.
    pub(super) used: AtomicBool,
    /// A [`Keeping`].
    keeping: AtomicUsize,
    /// Stored bytes of the table's own filters where these stand in for a sidecar that is of no
    /// use; [`NOTHING_LOST`] else.
    instead: AtomicU64,
    /// Whether small tables were merged into it, and others, that are no fewer.
    stays_small: AtomicBool,
    /// Whether it has left the store, by itself or for another one of the same file.
    is_over: AtomicBool,
    /// The table's file, shared with those that it took the place of, or that took its.
    file: Arc<Remains>,
    /// Its sidecar.
    sidecar: Remains,
}

/// No table's filters take as many bytes.
const NOTHING_LOST: u64 = u64::MAX;

/// A file that may have to be removed once nobody holds it: where it lies and who removes it, set
/// once the manifest has durably forgotten it.
#[derive(Debug, Default)]
struct Remains(OnceLock<Grave>);

/// Where a file is to be buried.
#[derive(Debug)]
struct Grave {
    path: PathBuf,
    /// Its number and its length, if it is a table.
    table: Option<(u64, u64)>,
    graveyard: Arc<Graveyard>,
}

impl Remains {
    /// Has the file buried there once nobody holds it.
    fn bury(&self, grave: Grave) {
        let graveyard = Arc::clone(&grave.graveyard);
        if self.0.set(grave).is_ok() {
            graveyard.expect();
        }
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        let Some(Grave { path, table, graveyard }) = self.0.take() else { return };
        match table {
            Some((number, bytes)) => graveyard.add_spare(path, number, bytes),
            None => graveyard.add(path),
        }
        graveyard.has_come();
    }
}

impl TableFile {
    /// A table that nothing has been read from yet.
    pub(crate) fn new(meta: TableMeta) -> Self {
        Self {
            meta,
            reader: SwapOption::empty(),
            used: AtomicBool::new(false),
            keeping: AtomicUsize::new(Keeping::Held as usize),
            instead: AtomicU64::new(NOTHING_LOST),
            stays_small: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            file: Arc::default(),
            sidecar: Remains::default(),
        }
    }

    /// What takes its place where the manifest says something else of the same table.
    pub(crate) fn successor(&self, meta: TableMeta) -> Self {
        let mut next = Self::new(meta);
        next.file = Arc::clone(&self.file);
        next
    }

    /// What the manifest records of it.
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Its reader if it is open, without opening it.
    pub(crate) fn open_reader(&self) -> Option<Arc<OpenTable>> {
        self.reader.load_full()
    }

    /// Whether its filters are held and asked.
    pub(crate) fn keeping(&self) -> Keeping {
        let number = self.keeping.load(Ordering::Acquire);
        Keeping::ALL.get(number).copied().unwrap_or(Keeping::Held)
    }

    /// Says whether they are. The table must not be opened meanwhile.
    pub(super) fn set_keeping(&self, keeping: Keeping) {
        self.keeping.store(keeping as usize, Ordering::Release);
    }

    /// Stored bytes of the filters that are asked: of the table's own, where its sidecar was found
    /// to be of no use.
    pub(crate) fn built_bytes(&self) -> u64 {
        match self.instead.load(Ordering::Acquire) {
            NOTHING_LOST => self.meta.filter_bytes,
            own => own,
        }
    }

    /// Notes that its sidecar is of no use, and that `own` bytes of the table's own filters stand
    /// in; whether that is news.
    pub(super) fn lose_sidecar(&self, own: u64) -> bool {
        self.instead.swap(own, Ordering::AcqRel) != own
    }

    /// Notes that its sidecar could be opened.
    pub(super) fn find_sidecar(&self) {
        self.instead.store(NOTHING_LOST, Ordering::Release);
    }

    /// Notes that it is small although tables were merged to be fewer.
    pub(crate) fn note_stays_small(&self) {
        self.stays_small.store(true, Ordering::Relaxed);
    }

    /// Whether to merge it with its neighbours once more would be as much in vain.
    pub(crate) fn stays_small(&self) -> bool {
        self.stays_small.load(Ordering::Relaxed)
    }

    /// Has its files, which lie in `dir`, removed once nobody holds the table. The manifest must
    /// have durably forgotten it.
    pub(crate) fn retire(&self, dir: &Path, graveyard: &Arc<Graveyard>) {
        let path = table_path(dir, self.number);
        if planted(Bug::TableRemovedUnderReader) {
            graveyard.add(path.clone());
        }
        let table = Some((self.number, self.file_bytes));
        self.file.bury(Grave { path, table, graveyard: Arc::clone(graveyard) });
        self.give_way(dir, graveyard);
    }

    /// Has its sidecar, if it has one, removed once nobody holds it. In the manifest, another one
    /// must durably have taken its place.
    pub(crate) fn give_way(&self, dir: &Path, graveyard: &Arc<Graveyard>) {
        self.is_over.store(true, Ordering::Release);
        if let Some(number) = self.filter_sidecar {
            let (path, graveyard) = (sidecar_path(dir, number), Arc::clone(graveyard));
            self.sidecar.bury(Grave { path, table: None, graveyard });
        }
    }

    /// Whether no version in force holds it any more.
    pub(super) fn is_retired(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Notes that the reader is in use, writing only where that was not known.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        // Nobody will ask for it again: what it has in the block cache makes room at once.
        if self.is_over.load(Ordering::Acquire)
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

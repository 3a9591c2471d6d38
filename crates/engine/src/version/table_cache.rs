//! The table cache: table readers, opened on first use and closed when too many are open.
//!
//! A reader is stored in its [`TableFile`], so finding it costs one load and no shared write. The
//! cache only bounds the number of open readers: it keeps the open tables in a ring and evicts by
//! the clock algorithm, skipping once each table used since the hand last passed.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::Guard;
use trommel_base::Corruption;
use trommel_filter::HashSeed;
use trommel_sstable::{
    BlockCache, Expected, FilterHost, FilterState, Sidecar, Table, TableConfig, UserFilterReader,
    Verdict,
};
use trommel_vfs::{Access, ReadFile, Vfs, is_out_of_handles};

use super::shared_files::SharedFiles;
use super::{Keeping, TableFile, Version};
use crate::error::{Error, Result};
use crate::files::{sidecar_path, table_path};
use crate::memory::MemoryShares;
use crate::prefix::Prefix;
use crate::read_mode::ReadMode;
use crate::sync::{AtomicBool, Mutex, lock};
use crate::user_filters::UserPolicy;

/// A reader for the duration of one call.
pub(crate) struct Reader(Guard<Option<Arc<OpenTable>>>);

impl Reader {
    /// The built-in prefix rule of the table's filter, if its stored name defines one.
    pub(crate) fn stored_prefix(&self) -> Option<&Prefix> {
        self.0.as_ref()?.stored_prefix.as_ref()
    }

    /// The verdict of the table's prefix filter on `prefix`, whose hash is `hash`; `None` if the
    /// filter was not built with `extractor`.
    pub(crate) fn query_prefix(
        &self,
        extractor: &Prefix,
        prefix: &[u8],
        hash: u64,
    ) -> Option<Verdict> {
        let open = self.0.as_ref()?;
        let is_maker = open.table.filters().prefixes_part()?.extractor == extractor.name();
        (is_maker && open.is_known_to(extractor))
            .then(|| open.table.filters().query_prefix(prefix, hash, extractor.name()))
    }
}

impl Deref for Reader {
    type Target = Arc<Table>;

    #[inline]
    fn deref(&self) -> &Arc<Table> {
        &self.0.as_ref().expect("a reader is made only around an open table").table
    }
}

/// An open table, and its share of the memory of open tables.
#[derive(Debug)]
pub(crate) struct OpenTable {
    table: Arc<Table>,
    stored_prefix: Option<Prefix>,
    /// First and last key of a table whose prefix filter was built with a closure.
    ends: Option<[Box<[u8]>; 2]>,
    /// The [`Prefix::id`] of the closure whose prefixes of these keys the filter last confirmed.
    known_to: AtomicU64,
    bytes: u64,
    memory: Arc<MemoryShares>,
    /// Counts the table's handle among those of all stores, if they share a limit.
    _shared: Option<OpenCount>,
    /// Counts the handle of its sidecar, if it has one.
    _sidecar: Option<OpenCount>,
}

/// An open sidecar, which takes a file handle as well.
#[derive(Debug)]
struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenTable {
    fn new(
        table: Table,
        file: &TableFile,
        memory: &Arc<MemoryShares>,
        sidecars: &Arc<AtomicUsize>,
        of_all: Option<&Arc<AtomicUsize>>,
    ) -> Self {
        let sidecar_count = table.filters().are_beside().then(|| OpenCount::new(sidecars));
        // Filters are counted as they are loaded: see `TableHost`.
        let held = table.memory_bytes();
        let bytes = (held.index + held.other) as u64;
        let prefixes = table.filters().prefixes_part();
        let stored_prefix = prefixes.and_then(|part| Prefix::stored(&part.extractor));
        let by_closure = prefixes.is_some() && stored_prefix.is_none();
        let ends = by_closure.then(|| [file.smallest.clone(), file.largest.clone()]);
        let bytes = bytes + ends.iter().flatten().map(|key| key.len() as u64).sum::<u64>();
        memory.add_table(bytes);
        let (table, memory) = (Arc::new(table), Arc::clone(memory));
        let known_to = AtomicU64::new(0);
        Self {
            table,
            stored_prefix,
            ends,
            known_to,
            bytes,
            memory,
            _shared: of_all.map(OpenCount::new),
            _sidecar: sidecar_count,
        }
    }

    /// Whether `extractor`, whose name is stored with the filter, is the one it was built with: the
    /// filter must hold its prefixes of the table's first and last key. If not, it is distrusted
    /// from now on. Checked once per extractor while the table is open.
    fn is_known_to(&self, extractor: &Prefix) -> bool {
        // A built-in rule is fully defined by its name.
        let Some(ends) = &self.ends else { return true };
        if extractor.breach().is_some() {
            return false;
        }
        if self.known_to.load(Ordering::Relaxed) == extractor.id() {
            return true;
        }
        let mut was_queried = true;
        for key in ends {
            let Some(prefix) = extractor.believed(key) else { continue };
            let hash = self.table.hash_seed().hash(prefix);
            let verdict = self.table.filters().query_prefix(prefix, hash, extractor.name());
            if !verdict.maybe {
                extractor.distrust("it has changed: a table's filter denies its own key");
            }
            // A filter that cannot be held now may be queried later.
            was_queried &= verdict != Verdict::UNFILTERED;
        }
        if extractor.breach().is_some() {
            return false;
        }
        if was_queried {
            self.known_to.store(extractor.id(), Ordering::Relaxed);
        }
        true
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

impl Drop for OpenTable {
    fn drop(&mut self) {
        // When reopened, the table gets another number in the cache and does not find these blocks.
        self.table.filters().evict();
        self.memory.remove_table(self.bytes);
    }
}

/// Tables with unusable filters, as far as they were found.
#[derive(Debug, Default)]
struct Unusable(Mutex<Vec<UnusableFilter>>);

#[derive(Debug)]
struct UnusableFilter {
    /// The table's number.
    table: u64,
    why: String,
}

impl Unusable {
    fn note(&self, table: u64, why: &str) {
        let mut known = lock(&self.0);
        if known.iter().all(|other| other.why != why) {
            crate::events::filter_unusable(table, why);
        }
        if known.iter().all(|other| other.table != table) {
            known.push(UnusableFilter { table, why: why.to_owned() });
        }
    }

    fn forget(&self, table: u64) {
        lock(&self.0).retain(|known| known.table != table);
    }
}

/// Grants memory to the filters of one table, and records unusable ones.
#[derive(Debug)]
struct TableHost {
    number: u64,
    memory: Arc<MemoryShares>,
    unusable: Arc<Unusable>,
    user_filters: Option<UserPolicy>,
    keeping: Keeping,
    is_of_level_0: bool,
}

impl FilterHost for TableHost {
    fn pin(&self, bytes: u64) -> bool {
        self.memory.pin_filter(bytes, self.is_of_level_0)
    }

    fn unpin(&self, bytes: u64) {
        self.memory.unpin_filter(bytes);
    }

    fn grows(&self, bytes: u64) {
        self.memory.add_table(bytes);
    }

    fn shrinks(&self, bytes: u64) {
        self.memory.remove_table(bytes);
    }

    fn not_held(&self) {
        self.memory.note_filter_not_held();
    }

    fn unusable(&self, state: &FilterState) {
        match state {
            FilterState::Damaged(why) | FilterState::Unknown(why) | FilterState::Foreign(why) => {
                self.unusable.note(self.number, why);
            }
            FilterState::Loaded | FilterState::Absent | FilterState::Spared => {}
        }
    }

    fn user_filters(&self) -> Option<Arc<dyn UserFilterReader>> {
        let policy = self.user_filters.clone()?;
        Some(Arc::new(policy))
    }

    fn wants_filters(&self) -> bool {
        self.keeping == Keeping::Held
    }
}

/// Handles reserved for logs, outputs and the rest of the process.
const SPARED_HANDLES: u64 = 32;
/// Fewest tables that may be open, however few handles there are.
const FEWEST_OPEN: u64 = 4;

/// Tables that the process's limit on open files allows: half of the handles not reserved.
fn handle_share() -> usize {
    let limit = trommel_vfs::open_file_limit().unwrap_or(u64::MAX);
    let share = (limit.saturating_sub(SPARED_HANDLES) / 2).max(FEWEST_OPEN);
    usize::try_from(share).unwrap_or(usize::MAX)
}

/// The manifest names the table, so its absence is corruption.
pub(super) fn missing(path: &Path, what: &'static str) -> Error {
    Corruption::new(path, 0, what).into()
}

/// Opens tables and bounds the number of open ones.
#[derive(Debug)]
pub(crate) struct TableCache {
    pub(super) dir: PathBuf,
    pub(super) vfs: Arc<dyn Vfs>,
    blocks: Arc<BlockCache>,
    read_mode: ReadMode,
    max_open: usize,
    /// The open tables. Locked while a file is opened, so that no table is opened twice.
    ring: Mutex<VecDeque<Weak<TableFile>>>,
    /// Number of open sidecars.
    sidecars: Arc<AtomicUsize>,
    /// How often a sidecar was found unusable.
    losses: AtomicU64,
    memory: Arc<MemoryShares>,
    unusable_filters: Arc<Unusable>,
    user_filters: Option<UserPolicy>,
    /// The seed of the store, with which lookups hash keys.
    hash_seed: HashSeed,
    /// The shared limit on open files, if the stores share one.
    shared: Option<Arc<SharedFiles>>,
    closed: AtomicBool,
    /// Whether a table with a range filter was opened or is to be written.
    ranges: AtomicBool,
}

impl TableCache {
    /// Whether a table may have a range filter, as far as tables were opened. Scans that begin
    /// before that is known query none.
    #[inline]
    pub(crate) fn have_ranges(&self) -> bool {
        self.ranges.load(Ordering::Relaxed)
    }

    /// Records that a table has a range filter, or may get one.
    pub(crate) fn note_ranges(&self) {
        self.ranges.store(true, Ordering::Relaxed);
    }

    pub(crate) fn new(
        dir: PathBuf,
        vfs: Arc<dyn Vfs>,
        blocks: Arc<BlockCache>,
        read_mode: ReadMode,
        max_open: usize,
        memory: Arc<MemoryShares>,
        user_filters: Option<UserPolicy>,
    ) -> Self {
        Self {
            user_filters,
            hash_seed: HashSeed::NONE,
            dir,
            vfs,
            blocks,
            read_mode,
            max_open: max_open.min(handle_share()),
            ring: Mutex::default(),
            sidecars: Arc::default(),
            losses: AtomicU64::new(0),
            memory,
            unusable_filters: Arc::default(),
            shared: None,
            closed: AtomicBool::new(false),
            ranges: AtomicBool::new(false),
        }
    }

    /// Sets the seed of the store. A table with another seed is refused: its filters and tags would
    /// deny the keys of lookups.
    pub(crate) fn of_seed(self, hash_seed: HashSeed) -> Self {
        Self { hash_seed, ..self }
    }

    /// Sets the shared limit on open files, if there is one.
    pub(crate) fn sharing(self, shared: Option<Arc<SharedFiles>>) -> Self {
        let max_open =
            shared.as_ref().map_or(self.max_open, |files| files.most().min(handle_share()));
        Self { max_open, shared, ..self }
    }

    /// How tables are read.
    #[inline]
    pub(crate) fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    /// The reader of `file`, opened if it is not open.
    #[inline]
    pub(crate) fn reader(&self, file: &Arc<TableFile>) -> Result<Reader> {
        match self.reader_if_open(file) {
            Some(reader) => Ok(reader),
            None => self.open(file),
        }
    }

    /// The reader of `file`, if it is open.
    #[inline]
    pub(crate) fn reader_if_open(&self, file: &TableFile) -> Option<Reader> {
        file.touch();
        let reader = file.reader.load();
        reader.is_some().then_some(Reader(reader))
    }

    /// Runs `operation`, which needs a file handle. If the process has none left, releases half of
    /// ours and retries once.
    pub(crate) fn with_handles<T>(&self, operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match operation() {
            Err(error) if is_out_of_handles(&error) => {
                self.release_handles();
                operation()
            }
            outcome => outcome,
        }
    }

    /// Releases half of the file handles.
    pub(crate) fn release_handles(&self) {
        self.close_half(&mut lock(&self.ring));
    }

    /// Marks the store as closed: iterators that outlive it still read its files, but these may
    /// belong to another opener by then, and a table that cannot be opened is not corruption.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    #[cold]
    fn open(&self, file: &Arc<TableFile>) -> Result<Reader> {
        if let Some(files) = &self.shared {
            files.close_excess();
        }
        let mut ring = lock(&self.ring);
        let reader = file.reader.load();
        if reader.is_some() {
            return Ok(Reader(reader));
        }
        let crowded = |open: usize| {
            let handles = open + self.sidecars.load(Ordering::Relaxed);
            handles >= self.max_open || self.memory.tables_are_heavy()
        };
        while crowded(ring.len()) && self.close_one(&mut ring) {}
        let table = match self.open_table(file) {
            Err(Error::Io { source, .. }) if is_out_of_handles(&source) => {
                self.close_half(&mut ring);
                self.open_table(file)?
            }
            // The next opener of the directory may have removed it.
            Err(_) if self.closed.load(Ordering::Acquire) => return Err(Error::Closed),
            outcome => outcome?,
        };
        if table.filters().have_ranges() {
            self.note_ranges();
        }
        file.reader.store(Some(Arc::new(OpenTable::new(
            table,
            file,
            &self.memory,
            &self.sidecars,
            self.shared.as_deref().map(SharedFiles::open),
        ))));
        ring.push_back(Arc::downgrade(file));
        Ok(Reader(file.reader.load()))
    }

    fn open_table(&self, file: &TableFile) -> Result<Table> {
        let path = table_path(&self.dir, file.number);
        let handle = match file.kept_files() {
            Some(kept) => kept.table(),
            None => self.open_file(&path)?,
        };
        let expected = Expected { file_bytes: file.file_bytes, table_id: file.table_id };
        let host = TableHost {
            number: file.number,
            memory: Arc::clone(&self.memory),
            unusable: Arc::clone(&self.unusable_filters),
            user_filters: self.user_filters.clone(),
            keeping: file.keeping(),
            is_of_level_0: file.filters.built_for == 0,
        };
        let config = TableConfig {
            cache: Arc::clone(&self.blocks),
            access: self.read_mode.access(),
            filter_host: Some(Arc::new(host)),
        };
        let mut table = Table::open(handle, &path, expected, &config)?;
        if table.hash_seed() != self.hash_seed {
            return Err(Corruption::new(&path, 0, "its hash seed is not that of its store").into());
        }
        if self.read_mode.verifies_once() {
            table = table.verifying_once();
        }
        if file.keeping() == Keeping::Held {
            if let Some(number) = file.filters.sidecar {
                self.open_sidecar(&mut table, file, number)?;
            }
            file.note_range_bytes(table.filters().range_bytes());
        }
        Ok(table)
    }

    /// Opens the file of a table.
    pub(super) fn open_file(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let opened = self.vfs.open(path, self.read_mode.access());
        opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => missing(path, "the table is missing"),
            io::ErrorKind::InvalidInput => missing(path, "it is no regular file"),
            _ => Error::io(path, "opening", source),
        })
    }

    /// How the filters of sidecars are read: into memory, so that a map is useless.
    pub(super) fn sidecar_access(&self) -> Access {
        match self.read_mode.access() {
            Access::Mapped => Access::Buffered,
            other => other,
        }
    }

    /// Makes `table`, the reader of `file`, query sidecar `number`; its own filters are the
    /// fallback if the sidecar is unusable.
    ///
    /// # Errors
    /// If there is no file handle left.
    fn open_sidecar(&self, table: &mut Table, file: &TableFile, number: u64) -> Result<()> {
        let path = sidecar_path(&self.dir, number);
        let opened = match file.kept_files() {
            Some(kept) => kept.sidecar(&path),
            None => self.vfs.open(&path, self.sidecar_access()),
        };
        let opened = opened.map_err(|error| Error::io(&path, "opening", error));
        let taken = match opened {
            Err(error) if error.is_out_of_handles() => return Err(error),
            Err(error) => Err(error),
            Ok(opened) => Sidecar::open(opened, &path)
                .and_then(|sidecar| table.take_sidecar(sidecar))
                .map_err(Error::from),
        };
        match taken {
            Ok(()) => file.find_sidecar(),
            Err(error) => {
                table.miss_sidecar(&error.to_string());
                self.lose_sidecar(file, table);
            }
        }
        Ok(())
    }

    /// Counts the table's own filters, instead of the sidecar's, for `file`.
    fn lose_sidecar(&self, file: &TableFile, table: &Table) {
        file.note_range_bytes(table.filters().range_bytes());
        if file.lose_sidecar(table.footer().filter_bytes) {
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Finds the tables of `version` whose own filters have become the fallback for their sidecars,
    /// and accounts for these filters instead. Returns how often a sidecar was lost since the store
    /// was opened.
    pub(crate) fn look_for_damage(&self, version: &Version) -> u64 {
        for (_, file) in version.tables().filter(|(_, file)| file.filters.sidecar.is_some()) {
            if let Some(open) = file.open_reader()
                && open.table.filters().have_stand_in()
            {
                self.lose_sidecar(file, &open.table);
            }
        }
        self.losses.load(Ordering::Acquire)
    }

    /// Closes an open table, preferably one not used recently. Returns whether there was one.
    pub(crate) fn close_any(&self) -> bool {
        self.close_one(&mut lock(&self.ring))
    }

    /// Closes half of the open tables.
    fn close_half(&self, ring: &mut VecDeque<Weak<TableFile>>) {
        // A dropped table has no handle to release.
        ring.retain(|file| file.strong_count() > 0);
        for _ in 0..ring.len().div_ceil(2) {
            self.close_one(ring);
        }
    }

    /// Closes the next table of the ring that was not used recently; false if the ring is empty.
    fn close_one(&self, ring: &mut VecDeque<Weak<TableFile>>) -> bool {
        for _ in 0..ring.len() * 2 {
            let Some(next) = ring.pop_front() else { return false };
            let Some(file) = next.upgrade() else {
                return true;
            };
            if file.used.swap(false, Ordering::Relaxed) {
                ring.push_back(next);
                continue;
            }
            file.reader.store(None);
            return true;
        }
        false
    }

    /// The tables of `version` with unusable filters, as far as they were found, with the reason.
    pub(crate) fn unusable_filters(&self, version: &Version) -> Vec<(u64, String)> {
        let known = lock(&self.unusable_filters.0);
        if known.is_empty() {
            return Vec::new();
        }
        let current: HashSet<u64> = version.tables().map(|(_, file)| file.number).collect();
        let current = known.iter().filter(|filter| current.contains(&filter.table));
        current.map(|filter| (filter.table, filter.why.clone())).collect()
    }

    /// Removes the record of unusable filters of table `number`, which has new filters.
    pub(crate) fn forget_unusable(&self, number: u64) {
        self.unusable_filters.forget(number);
    }

    /// Records that table `number` has no filter because the user-defined policy failed to build
    /// it.
    pub(crate) fn note_unbuilt(&self, number: u64, why: &str) {
        let why = format!("the policy failed to build it: {why}");
        self.unusable_filters.note(number, &why);
    }

    /// Sets whether the filters of `file` are held and queried. If that changes, closes an open
    /// table, so that its filters are released; current users of the reader keep it.
    pub(crate) fn keep_filters(&self, file: &Arc<TableFile>, keeping: Keeping) {
        let before = file.keeping();
        if before == keeping {
            return;
        }
        let mut ring = lock(&self.ring);
        file.set_keeping(keeping);
        if before != Keeping::Held && keeping != Keeping::Held {
            return;
        }
        let closed = file.reader.swap(None);
        ring.retain(|other| other.as_ptr() != Arc::as_ptr(file));
        drop(ring);
        drop(closed);
    }

    /// Closes open tables, those not used recently first, until `enough` or none is left. Their
    /// contents are read again on demand.
    pub(crate) fn close_until(&self, enough: impl Fn() -> bool) {
        let mut ring = lock(&self.ring);
        while !enough() && self.close_one(&mut ring) {}
    }

    /// Open tables that hold their filters and have left the current version.
    pub(crate) fn retired(&self) -> Vec<Arc<TableFile>> {
        let ring = lock(&self.ring);
        let open = ring.iter().filter_map(Weak::upgrade);
        open.filter(|file| file.is_retired() && file.keeping() == Keeping::Held).collect()
    }

    /// Number of open tables.
    pub(crate) fn open_tables(&self) -> usize {
        let mut ring = lock(&self.ring);
        ring.retain(|file| file.strong_count() > 0);
        ring.len()
    }
}

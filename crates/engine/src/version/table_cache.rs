//! Readers of tables: opened at first use, and closed again when too many are open.
//!
//! A reader hangs in its [`TableFile`], so finding it costs one load and no shared write. The
//! cache only bounds how many are open: it keeps the open tables in a ring and, when one too many
//! is opened, walks round it like a clock's hand, sparing once each table used since it last came
//! by.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::Guard;
use trommel_sstable::{
    BlockCache, Expected, FilterHost, FilterState, Sidecar, Table, TableConfig, UserFilterReader,
    Verdict,
};
use trommel_vfs::{Access, Vfs, is_out_of_handles};

use super::shared_files::SharedFiles;
use super::{Keeping, TableFile, Version};
use crate::error::{Error, Result};
use crate::files::{sidecar_path, table_path};
use crate::memory::MemoryShares;
use crate::prefix::Prefix;
use crate::read_mode::ReadMode;
use crate::sync::{AtomicBool, Mutex, lock};
use crate::user_filters::UserPolicy;

/// A reader for the time of one call.
pub(crate) struct Reader(Guard<Option<Arc<OpenTable>>>);

impl Reader {
    /// The rule that made the prefixes in the table's filter, if the table says all of it.
    pub(crate) fn stored_prefix(&self) -> Option<&Prefix> {
        self.0.as_ref()?.stored_prefix.as_ref()
    }

    /// What the table's filter of prefixes says of `prefix`, whose hash this is; `None` where
    /// `extractor`, which made the prefix, is not the one that made the filter.
    pub(crate) fn ask_prefix(
        &self,
        extractor: &Prefix,
        prefix: &[u8],
        hash: u64,
    ) -> Option<Verdict> {
        let open = self.0.as_ref()?;
        let is_maker = open.table.filters().prefixes_part()?.extractor == extractor.name();
        (is_maker && open.is_known_to(extractor))
            .then(|| open.table.filters().ask_prefix(prefix, hash, extractor.name()))
    }
}

impl Deref for Reader {
    type Target = Arc<Table>;

    #[inline]
    fn deref(&self) -> &Arc<Table> {
        &self.0.as_ref().expect("a reader is made only around an open table").table
    }
}

/// An open table, and what it adds to the bytes that open tables hold.
#[derive(Debug)]
pub(crate) struct OpenTable {
    table: Arc<Table>,
    stored_prefix: Option<Prefix>,
    /// First and last key of a table whose filter of prefixes a closure made.
    ends: Option<[Box<[u8]>; 2]>,
    /// The closure whose prefixes of these the filter was last seen to hold, by [`Prefix::id`].
    known_to: AtomicU64,
    bytes: u64,
    memory: Arc<MemoryShares>,
    /// Counts its handle among those of all stores, where they share them.
    _shared: Option<Beside>,
    /// Counts the handle of its sidecar, if it has one.
    _beside: Option<Beside>,
}

/// One of the sidecars that are open: they need file handles, too.
#[derive(Debug)]
struct Beside(Arc<AtomicUsize>);

impl Beside {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Beside {
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
        let beside = table.filters().are_beside().then(|| Beside::new(sidecars));
        // Filters are counted as they come: see `TableHost`.
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
            _shared: of_all.map(Beside::new),
            _beside: beside,
        }
    }

    /// Whether `extractor`, which bears the name of the filter's maker, may be it: the filter holds
    /// what it makes of the table's first and last key. If not it is distrusted from now on. Asked
    /// once a table, as long as it stays open, and extractor.
    fn is_known_to(&self, extractor: &Prefix) -> bool {
        // A rule that is built in is all in its name.
        let Some(ends) = &self.ends else { return true };
        if extractor.breach().is_some() {
            return false;
        }
        if self.known_to.load(Ordering::Relaxed) == extractor.id() {
            return true;
        }
        let mut was_asked = true;
        for key in ends {
            let Some(prefix) = extractor.believed(key) else { continue };
            let hash = trommel_filter::hash(prefix);
            let verdict = self.table.filters().ask_prefix(prefix, hash, extractor.name());
            if !verdict.maybe {
                extractor.distrust("it has changed: a table's filter denies its own key");
            }
            // A filter that cannot be held now may be asked later.
            was_asked &= verdict != Verdict::UNFILTERED;
        }
        if extractor.breach().is_some() {
            return false;
        }
        if was_asked {
            self.known_to.store(extractor.id(), Ordering::Relaxed);
        }
        true
    }

    /// The table's reader.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

impl Drop for OpenTable {
    fn drop(&mut self) {
        // Opened again it has another number in the cache, and finds nothing of this one there.
        self.table.filters().evict();
        self.memory.remove_table(self.bytes);
    }
}

/// Tables with filters that cannot be used, as far as they were met.
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

/// Lets the filters of one table have memory, and hears of those that cannot be used.
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

/// Handles that are left to logs, outputs and the rest of the process.
const SPARED_HANDLES: u64 = 32;
/// Tables that may be open however few handles there are.
const FEWEST_OPEN: u64 = 4;

/// Tables that the process's limit on open files allows: half of what is not spared.
fn handle_share() -> usize {
    let limit = trommel_vfs::open_file_limit().unwrap_or(u64::MAX);
    let share = (limit.saturating_sub(SPARED_HANDLES) / 2).max(FEWEST_OPEN);
    usize::try_from(share).unwrap_or(usize::MAX)
}

/// The manifest names a table, so that it is not there is damage.
fn missing(path: &Path, what: &'static str) -> Error {
    trommel_base::Corruption::new(path, 0, what).into()
}

/// Opens tables and bounds how many are open.
#[derive(Debug)]
pub(crate) struct TableCache {
    dir: PathBuf,
    vfs: Arc<dyn Vfs>,
    blocks: Arc<BlockCache>,
    read_mode: ReadMode,
    max_open: usize,
    /// The open tables. Held while a file is opened, so no table is opened twice.
    ring: Mutex<VecDeque<Weak<TableFile>>>,
    /// Sidecars that are open.
    sidecars: Arc<AtomicUsize>,
    /// How often one was found to be of no use.
    losses: AtomicU64,
    memory: Arc<MemoryShares>,
    unusable_filters: Arc<Unusable>,
    user_filters: Option<UserPolicy>,
    /// What bounds the open files of all stores, where they share them.
    shared: Option<Arc<SharedFiles>>,
    closed: AtomicBool,
}

impl TableCache {
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
        }
    }

    /// As before, but within what bounds the open files of all stores, if anything does.
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

    /// Runs `operation`, which needs a file handle; where the process has none left, gives half of
    /// ours back and runs it once more.
    pub(crate) fn with_handles<T>(&self, operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match operation() {
            Err(error) if is_out_of_handles(&error) => {
                self.release_handles();
                operation()
            }
            outcome => outcome,
        }
    }

    /// Gives half of the file handles back.
    pub(crate) fn release_handles(&self) {
        self.close_half(&mut lock(&self.ring));
    }

    /// Notes that the store is closed: iterators that outlive it still read its files, but these
    /// may be somebody else's, and a table that cannot be opened is no damage.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    #[cold]
    fn open(&self, file: &Arc<TableFile>) -> Result<Reader> {
        if let Some(files) = &self.shared {
            files.make_room();
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
            // The next owner of the directory may have removed it.
            Err(_) if self.closed.load(Ordering::Acquire) => return Err(Error::Closed),
            outcome => outcome?,
        };
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
        let handle =
            self.vfs.open(&path, self.read_mode.access()).map_err(|source| {
                match source.kind() {
                    io::ErrorKind::NotFound => missing(&path, "the table is missing"),
                    io::ErrorKind::InvalidInput => missing(&path, "it is no regular file"),
                    _ => Error::io(&path, "opening", source),
                }
            })?;
        let expected = Expected { file_bytes: file.file_bytes, table_id: file.table_id };
        let host = TableHost {
            number: file.number,
            memory: Arc::clone(&self.memory),
            unusable: Arc::clone(&self.unusable_filters),
            user_filters: self.user_filters.clone(),
            keeping: file.keeping(),
            is_of_level_0: file.built_for == 0,
        };
        let config = TableConfig {
            cache: Arc::clone(&self.blocks),
            access: self.read_mode.access(),
            filter_host: Some(Arc::new(host)),
        };
        let mut table = Table::open(handle, &path, expected, &config)?;
        if self.read_mode.verifies_once() {
            table = table.verifying_once();
        }
        if let Some(number) = file.filter_sidecar.filter(|_| file.keeping() == Keeping::Held) {
            self.open_sidecar(&mut table, file, number)?;
        }
        Ok(table)
    }

    /// Has `table`, the reader of `file`, asked through sidecar `number`; where that cannot be
    /// used, by its own filters.
    ///
    /// # Errors
    /// Where there is no file handle left.
    fn open_sidecar(&self, table: &mut Table, file: &TableFile, number: u64) -> Result<()> {
        let path = sidecar_path(&self.dir, number);
        // Filters are read into memory, so nothing is to be mapped.
        let access = match self.read_mode.access() {
            Access::Mapped => Access::Buffered,
            other => other,
        };
        let opened =
            self.vfs.open(&path, access).map_err(|error| Error::io(&path, "opening", error));
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

    /// Has `file` counted by the filters of the table itself.
    fn lose_sidecar(&self, file: &TableFile, table: &Table) {
        if file.lose_sidecar(table.footer().filter_bytes) {
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Has those tables of `version` counted by their own filters that were found to answer instead
    /// of their sidecars. How often a sidecar was lost since the store was opened.
    pub(crate) fn look_for_damage(&self, version: &Version) -> u64 {
        for (_, file) in version.tables().filter(|(_, file)| file.filter_sidecar.is_some()) {
            if let Some(open) = file.open_reader()
                && open.table.filters().have_stand_in()
            {
                self.lose_sidecar(file, &open.table);
            }
        }
        self.losses.load(Ordering::Acquire)
    }

    /// Closes an open table, one not used of late if there is one; whether there was any.
    pub(crate) fn close_any(&self) -> bool {
        self.close_one(&mut lock(&self.ring))
    }

    /// Closes half of the open tables.
    fn close_half(&self, ring: &mut VecDeque<Weak<TableFile>>) {
        // A table that is gone has no handle to give.
        ring.retain(|file| file.strong_count() > 0);
        for _ in 0..ring.len().div_ceil(2) {
            self.close_one(ring);
        }
    }

    /// Closes the next table of the ring that was not used of late; false if the ring is empty.
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

    /// The tables of `version` whose filter cannot be used, with the reason, as far as they were
    /// met.
    pub(crate) fn unusable_filters(&self, version: &Version) -> Vec<(u64, String)> {
        let known = lock(&self.unusable_filters.0);
        if known.is_empty() {
            return Vec::new();
        }
        let current: HashSet<u64> = version.tables().map(|(_, file)| file.number).collect();
        let current = known.iter().filter(|filter| current.contains(&filter.table));
        current.map(|filter| (filter.table, filter.why.clone())).collect()
    }

    /// Forgets what was wrong with the filters of table `number`: it has others.
    pub(crate) fn forget_unusable(&self, number: u64) {
        self.unusable_filters.forget(number);
    }

    /// Notes that table `number` has no filter, as the user's policy failed to build it.
    pub(crate) fn note_unbuilt(&self, number: u64, why: &str) {
        let why = format!("the policy failed to build it: {why}");
        self.unusable_filters.note(number, &why);
    }

    /// Has the filters of `file` held and asked, or neither. An open table is closed if that is
    /// news, so that its filters go; whoever reads in it goes on.
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

    /// Closes open tables, those not used of late first, until `enough` or none is left; what they
    /// held is read again when it is asked for.
    pub(crate) fn close_until(&self, enough: impl Fn() -> bool) {
        let mut ring = lock(&self.ring);
        while !enough() && self.close_one(&mut ring) {}
    }

    /// Tables that are open, hold their filters, and have left the version.
    pub(crate) fn retired(&self) -> Vec<Arc<TableFile>> {
        let ring = lock(&self.ring);
        let open = ring.iter().filter_map(Weak::upgrade);
        open.filter(|file| file.is_retired() && file.keeping() == Keeping::Held).collect()
    }

    /// Tables that are open.
    pub(crate) fn open_tables(&self) -> usize {
        let mut ring = lock(&self.ring);
        ring.retain(|file| file.strong_count() > 0);
        ring.len()
    }
}

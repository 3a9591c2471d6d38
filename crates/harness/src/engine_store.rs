//! Trommel as a [`Store`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trommel::inspect::{ListedTable, Manifest};
use trommel::trace::{TraceOptions, TraceTotals};
use trommel::{
    BackgroundTrace, Db, LookupTrace, MetricsFile, Options, VerifyReport, WriteBatch, WriteOptions,
};

use crate::error::{Error, StoreError};
use crate::record::{Product, State};
use crate::repeatable_disk::RepeatableDisk;
use crate::store::{Direction, Level, Lookups, Opener, Operation, Store, Visit};
use crate::units;

/// A Trommel store behind the [`Store`] trait.
pub struct EngineStore {
    db: Db,
    /// Ends before the store is closed.
    metrics: Option<MetricsFile>,
}

impl EngineStore {
    /// Wraps `db`.
    pub fn new(db: Db) -> Self {
        Self { db, metrics: None }
    }

    /// The wrapped store.
    pub fn db(&self) -> &Db {
        &self.db
    }
}

/// Longest key displayed in full, in bytes.
const KEY_SHOWN_BYTES: usize = 24;

fn table_lines(tables: &[ListedTable]) -> String {
    let mut text = String::from("Level  Table   Size(KB)    Entries  Filter(KB)  Keys\n");
    text += &format!("{}\n", "-".repeat(64));
    for ListedTable { level, meta: table, .. } in tables {
        text += &format!(
            "{level:5} {:6} {:10.0} {:10} {:11.0}  {} .. {}\n",
            table.number,
            table.file_bytes as f64 / 1024.0,
            table.entries,
            table.filters.bytes as f64 / 1024.0,
            shown(&table.smallest),
            shown(&table.largest)
        );
    }
    text
}

/// A printable form of a key, truncated if it is long.
fn shown(key: &[u8]) -> String {
    match key.get(..KEY_SHOWN_BYTES) {
        Some(start) if key.len() > start.len() => format!("{}...", start.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}

fn batch_of(operations: &[Operation<'_>]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for operation in operations {
        match *operation {
            Operation::Put { key, value } => batch.put(key, value),
            Operation::Delete { key } => batch.delete(key),
        };
    }
    batch
}

impl Store for EngineStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.db.put(key, value)?;
        Ok(())
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.db.write(batch_of(operations))?;
        Ok(())
    }

    fn write_durably(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.db.write_with(batch_of(operations), WriteOptions::sync())?;
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.db.delete(key)?;
        Ok(())
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.db.delete_range(from..to)?;
        Ok(())
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<(), StoreError> {
        self.db.merge(key, operand)?;
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        Ok(self.db.get(key)?.map(|value| found(&value)).is_some())
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        for (at, value) in self.db.multi_get(keys)?.iter().enumerate() {
            if let Some(value) = value {
                found(at, value);
            }
        }
        Ok(())
    }

    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut cursor = self.db.cursor()?;
        match (start, direction) {
            (None, Direction::Forward) => cursor.seek_to_first()?,
            (None, Direction::Backward) => cursor.seek_to_last()?,
            (Some(start), Direction::Forward) => cursor.seek(start)?,
            (Some(start), Direction::Backward) => cursor.seek_for_prev(start)?,
        }
        match direction {
            Direction::Forward => cursor.visit(visit)?,
            Direction::Backward => cursor.visit_back(visit)?,
        }
        Ok(())
    }

    fn scan_prefix(
        &self,
        start: &[u8],
        prefix_bytes: usize,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut cursor = self.db.prefix_cursor(&start[..prefix_bytes])?;
        match direction {
            Direction::Forward => {
                cursor.seek(start)?;
                cursor.visit(visit)?;
            }
            Direction::Backward => {
                cursor.seek_for_prev(start)?;
                cursor.visit_back(visit)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<(), StoreError> {
        Ok(self.db.wait_idle()?)
    }

    fn compact(&self) -> Result<(), StoreError> {
        Ok(self.db.compact_range(..)?)
    }

    fn verify(&self) -> Result<String, StoreError> {
        let report = self.db.verify()?;
        let VerifyReport { tables, logs, bytes, entries, keys, .. } = report;
        let foreign = match report.foreign_filters {
            0 => String::new(),
            filters => format!(", {filters} filters that this program cannot query"),
        };
        Ok(format!(
            "{tables} tables with {entries} entries of {keys} keys, {logs} logs and manifests, \
             {}{foreign}",
            units::bytes(bytes)
        ))
    }

    fn checkpoint(&self, dir: &Path) -> Result<(), StoreError> {
        Ok(self.db.checkpoint(dir)?)
    }

    fn make_iterator(&self) -> Result<(), StoreError> {
        drop(self.db.cursor()?);
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<(), StoreError> {
        match Arc::into_inner(self) {
            Some(store) => {
                drop(store.metrics);
                Ok(store.db.close()?)
            }
            None => Ok(()),
        }
    }

    fn lookups(&self) -> Lookups {
        let stats = self.db.stats();
        Lookups { block_reads: stats.lookups.block_reads, cache_hits: stats.lookups.cache_hits }
    }

    fn levels(&self) -> Vec<Level> {
        let levels = self.db.stats().levels;
        levels
            .iter()
            .map(|level| Level { level: level.level, files: level.tables, bytes: level.bytes })
            .collect()
    }

    fn filter_stats(&self) -> String {
        self.db.filter_report().to_string()
    }

    fn stats(&self) -> String {
        self.db.stats().to_string()
    }

    fn memory_stats(&self) -> String {
        let memory = self.db.stats().memory;
        let parts = [
            ("Memtables", memory.memtables),
            ("Idle arenas", memory.idle_arenas),
            ("Block cache", memory.block_cache),
            ("- its filters", memory.cached_filters),
            ("Filters", memory.filters),
            ("Index", memory.index),
            ("Other", memory.other),
            ("Construction", memory.construction),
            ("Deleted ranges", memory.deleted_ranges),
            ("Total", memory.total()),
        ];
        parts.map(|(part, bytes)| format!("{part:<14} {:>12}\n", units::bytes(bytes))).concat()
    }

    fn table_stats(&self) -> String {
        let manifest = Manifest::in_force(&**self.db.vfs(), self.db.dir());
        match manifest.and_then(|manifest| manifest.info()) {
            Ok(info) => table_lines(&info.contents.tables),
            Err(error) => format!("the tables cannot be listed: {error}"),
        }
    }

    fn state(&self) -> State {
        State::of(&self.db.stats(), &self.db.filter_report())
    }

    fn reset_stats(&self) {
        self.db.reset_stats();
    }
}

/// Opens Trommel stores in one directory.
///
/// A non-empty directory is never emptied, unless this opener filled it.
pub struct EngineOpener {
    dir: PathBuf,
    options: Options,
    settings: Vec<(&'static str, String)>,
    owns_content: AtomicBool,
    trace: Option<Traced>,
    background_trace: Option<BackgroundTrace>,
    metrics: Option<PathBuf>,
}

/// How often metrics are written.
const METRICS_PERIOD: Duration = Duration::from_secs(1);

/// The trace of the lookups in an opener's stores.
struct Traced {
    path: PathBuf,
    options: TraceOptions,
    /// Started with the first store.
    current: Mutex<Option<LookupTrace>>,
}

impl EngineOpener {
    /// Stores in `dir` on the [`RepeatableDisk`], opened with `options`; `settings` describe the
    /// options in results.
    pub fn new(
        dir: impl Into<PathBuf>,
        options: Options,
        settings: Vec<(&'static str, String)>,
    ) -> Self {
        let (dir, owns_content) = (dir.into(), AtomicBool::new(false));
        let options = options.vfs(Arc::new(RepeatableDisk));
        Self {
            dir,
            options,
            settings,
            owns_content,
            trace: None,
            background_trace: None,
            metrics: None,
        }
    }

    /// Records the background work of all stores to `trace`.
    #[must_use]
    pub fn background_traced(mut self, trace: &BackgroundTrace) -> Self {
        self.background_trace = Some(trace.clone());
        self
    }

    /// Measures latencies, and writes the metrics of the store that is open to the file at `path`
    /// each second and when it is closed.
    #[must_use]
    pub fn publishing(mut self, path: impl Into<PathBuf>) -> Self {
        self.metrics = Some(path.into());
        self
    }

    /// Records the stores' lookups in a new file at `path`: those in the last store opened fresh,
    /// including its reopenings.
    #[must_use]
    pub fn traced(mut self, path: impl Into<PathBuf>, options: TraceOptions) -> Self {
        self.trace = Some(Traced { path: path.into(), options, current: Mutex::default() });
        self
    }

    /// Ends the trace, if there is one.
    ///
    /// # Errors
    /// The first error of its file.
    pub fn finish_trace(&self) -> Result<Option<TraceTotals>, Error> {
        let Some(traced) = &self.trace else { return Ok(None) };
        let current = traced.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        current.map(LookupTrace::finish).transpose().map_err(|error| Error::Store(error.into()))
    }

    /// Opens the store as its concrete type.
    ///
    /// # Errors
    /// As [`Opener::open`].
    pub fn open_engine(&self, fresh: bool) -> Result<EngineStore, Error> {
        if fresh {
            self.require_empty_dir()?;
        }
        let options = self.options.clone().opening(|o| o.create_if_missing(fresh));
        let db = Db::open(&self.dir, options).map_err(|error| Error::Store(error.into()))?;
        if let Some(traced) = &self.trace {
            traced.follow(&db, fresh).map_err(|error| Error::Store(error.into()))?;
        }
        if let Some(trace) = &self.background_trace {
            db.trace_background(trace);
        }
        let publish = |path| {
            db.measure_latencies(true);
            let name = self.dir.file_name().unwrap_or(self.dir.as_os_str());
            db.write_metrics(path, &name.to_string_lossy(), METRICS_PERIOD)
        };
        let metrics = self.metrics.as_ref().map(publish).transpose();
        let metrics = metrics.map_err(|error| Error::Store(error.into()))?;
        Ok(EngineStore { db, metrics })
    }

    /// Makes sure that the directory is missing or empty, or fails without touching it.
    fn require_empty_dir(&self) -> Result<(), Error> {
        if self.owns_content.load(Relaxed) {
            match fs::remove_dir_all(&self.dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(&self.dir, "removing", error));
                }
                _ => return Ok(()),
            }
        }
        if !is_absent_or_empty(&self.dir)? {
            return Err(Error::Usage(format!(
                "{} is not empty, and a fresh store would replace what is there: give a directory \
                 that is new or empty, or --use-existing-db to work on the store in it",
                self.dir.display()
            )));
        }
        self.owns_content.store(true, Relaxed);
        Ok(())
    }
}

impl Traced {
    /// Records the lookups in `db`. If `db` is fresh, the trace of the store it replaces is
    /// obsolete, and starts over.
    fn follow(&self, db: &Db, fresh: bool) -> trommel::Result<()> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trace) = &*current
            && !fresh
        {
            return trace.go_on(db);
        }
        if let Some(trace) = current.take() {
            trace.finish()?;
            let removed = db.vfs().remove(&self.path);
            removed.map_err(|source| trommel::Error::Io {
                file: self.path.clone(),
                doing: "removing",
                source: Arc::new(source),
            })?;
        }
        *current = Some(db.trace_lookups(&self.path, self.options)?);
        Ok(())
    }
}

fn is_absent_or_empty(dir: &Path) -> Result<bool, Error> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io(dir, "reading directory", error)),
    }
}

impl Opener for EngineOpener {
    fn open(&self, fresh: bool) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(self.open_engine(fresh)?))
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![("DB path", format!("[{}]", self.dir.display()))];
        settings.extend(self.settings.iter().cloned());
        settings
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn name(&self) -> String {
        self.dir.display().to_string()
    }

    fn product(&self) -> Product {
        // All crates of the workspace share one version.
        Product { name: "trommel".into(), version: env!("CARGO_PKG_VERSION").into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchDir;

    fn opener(dir: &Path) -> EngineOpener {
        EngineOpener::new(dir, Options::default(), Vec::new())
    }

    #[test]
    fn the_engine_is_a_store() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let store = opener(&scratch.path().join("db")).open(true).unwrap();
        crate::conformance::check(store);
    }

    #[test]
    fn a_fresh_store_replaces_only_what_the_opener_made() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let dir = scratch.path().join("db");
        let ours = opener(&dir);
        let store = ours.open(true).unwrap();
        store.put(b"k", b"v").unwrap();
        store.close().unwrap();
        let store = ours.open(true).unwrap();
        assert!(!store.get(b"k", &mut |_| {}).unwrap(), "the second store starts empty");
        store.put(b"k", b"v").unwrap();
        store.close().unwrap();

        let theirs = opener(&dir);
        assert!(matches!(theirs.open(true), Err(Error::Usage(what)) if what.contains("not empty")));
        let store = theirs.open(false).unwrap();
        assert!(store.get(b"k", &mut |_| {}).unwrap(), "it was left as it was");
        store.close().unwrap();
    }

    #[test]
    fn an_existing_store_must_exist() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let dir = scratch.path().join("db");
        assert!(matches!(opener(&dir).open(false), Err(Error::Store(_))));
        assert!(!dir.exists(), "a failed open creates nothing");
    }

    #[test]
    fn a_trace_is_of_the_last_fresh_store_however_often_it_is_opened() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let (dir, file) = (scratch.path().join("db"), scratch.path().join("trace"));
        let opener = opener(&dir).traced(&file, TraceOptions::default());
        for (fresh, key) in [(true, b"1"), (true, b"2"), (false, b"3")] {
            let store = opener.open(fresh).unwrap();
            store.get(key, &mut |_| {}).unwrap();
            store.close().unwrap();
        }
        assert_eq!(opener.finish_trace().unwrap().unwrap().lookups, 2);
        assert!(opener.finish_trace().unwrap().is_none());
        let again = opener.open(true).err().unwrap().to_string();
        assert!(again.contains("trace"), "a file that is there is not replaced: {again}");
    }

    #[test]
    fn tables_and_memory_are_listed() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let store = opener(&scratch.path().join("db")).open(true).unwrap();
        store.put(b"a\n", b"1").unwrap();
        store.put(&[b'z'; 100], b"2").unwrap();
        store.flush().unwrap();
        let text = store.table_stats();
        let line = text.lines().nth(2).unwrap();
        assert!(line.starts_with("    0 ") && line.contains(" 2 "), "{text}");
        assert!(line.ends_with(&format!("  a\\n .. {}...", "z".repeat(24))), "{text}");
        assert!(store.memory_stats().contains("Filters"), "{}", store.memory_stats());
        store.close().unwrap();
    }
}

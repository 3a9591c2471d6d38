//! Verification: reads every byte of every file of a store.
//!
//! 1. Each table: every block's checksum, the order of its entries, its properties against the
//!    manifest's record, each of its keys against its filter, and each key's prefix against its
//!    prefix filter, if the extractor is known. For a filter sidecar: every byte, and each of the
//!    keys and prefixes against its filters.
//! 2. `CURRENT`, the manifest, and the needed logs: every record. In a live store appends are
//!    blocked meanwhile, so the files must be exactly as long as their writers know, and none may
//!    look torn. In a store that was opened read-only, or whose writes have failed, an incomplete
//!    end is reported when it is opened and is not an error here.
//! 3. The archived logs: every record.
//!
//! [`Engine::verify`] stops at the first corruption, [`Engine::verify_all`] lists all of it, and
//! [`directory`] does so for a store that cannot be opened.

mod directory;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use trommel_base::Corruption;
use trommel_sstable::Verified;
use trommel_vfs::{Access, DirEntry};

use crate::damage::KeySpan;
use crate::damage::{Damage, Remedy};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::{archived_log_path, list, log_path, table_path};
use crate::log::reader::{LogImage, Verdict};
use crate::log::{FileKind, LogEnds, read_whole};
use crate::log_archive::archived;
use crate::manifest::active::ActiveManifest;
use crate::manifest::current::{self, Current};
use crate::names::{self, Numbered};
use crate::options_file;
use crate::prefix::Prefix;
use crate::recovery_report::DroppedBytes;
use crate::rescue::table;
use crate::rescue::table::VerifiedSidecar;
use crate::sync::lock;
use crate::version::TableFile;
use crate::write_queue::Leader;

pub(crate) use directory::{hold, verify_dir, verify_store};

/// The result of [`Db::verify`](crate::Db::verify) and related functions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Filter sidecars read, and queried for every key of their table.
    pub sidecars: u64,
    /// Logs and manifests read.
    pub logs: u64,
    /// Whether the store has an options file; a store last written before options files existed has
    /// none.
    pub options_recorded: bool,
    /// Bytes read of all these files, `CURRENT` and `OPTIONS`.
    pub bytes: u64,
    /// Entries of the tables.
    pub entries: u64,
    /// Distinct keys of the tables, each of which passed its table's filter.
    pub keys: u64,
    /// Tables with an intact filter that was not queried for their keys, because this version does
    /// not know its kind, or its user-defined policy is missing or rejects it.
    /// [`FilterStats::unusable`](crate::Stats) lists them.
    pub foreign_filters: u64,
    /// All corruption, by file and offset. [`Db::verify`](crate::Db::verify) returns the first as
    /// an error instead.
    pub damage: Vec<Damage>,
    /// Ends of files that a crash explains, and that an open drops.
    pub incomplete: Vec<DroppedBytes>,
    /// Orphans: files that the store does not need, left by a crash and removed by the next open.
    pub orphans: Vec<PathBuf>,
    /// Foreign entries. They are never read, and never removed.
    pub foreign: Vec<PathBuf>,
}

impl VerifyReport {
    /// Whether no corruption was found.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Counts a verified table.
    fn add(&mut self, verified: &Verified) {
        self.tables += 1;
        self.bytes += verified.bytes;
        self.entries += verified.entries;
        self.keys += verified.keys;
        self.foreign_filters += u64::from(verified.foreign_filter);
    }

    /// Counts the options file, if it exists.
    fn add_options(&mut self, listing: &[DirEntry]) {
        let record = listing.iter().find(|entry| entry.name == names::OPTIONS);
        self.options_recorded = record.is_some();
        self.bytes += record.map_or(0, |entry| entry.bytes);
    }

    /// Counts a verified sidecar, if there is one.
    fn add_sidecar(&mut self, verified: Option<&VerifiedSidecar>) {
        let Some(verified) = verified else { return };
        self.sidecars += 1;
        self.bytes += verified.bytes;
        self.foreign_filters += u64::from(verified.has_foreign);
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tables, logs, bytes, keys, damage, .. } = self;
        write!(f, "{tables} tables, {logs} logs and manifests, {bytes} bytes, {keys} keys")?;
        damage.iter().try_for_each(|damage| write!(f, "\n{damage}"))
    }
}

/// The permitted end of a log or manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// An end marker: it was rotated out.
    Marker,
    /// This many bytes, at the end of a record: it is being written.
    At(u64),
    /// This many bytes, at the end of a record, as recorded in the manifest: bytes after it are
    /// ignored.
    Stated(u64),
    /// Any end that a crash explains.
    Any,
}

/// A log or manifest to verify.
struct FileToVerify {
    path: PathBuf,
    kind: FileKind,
    number: u64,
    end: End,
}

/// Handles an error, with a function that lists all corruption from there on. An error that it
/// returns ends the verification.
type OnError<'a> = dyn FnMut(&mut VerifyReport, Error, &dyn Fn() -> Vec<Damage>) -> Result<()> + 'a;

impl Engine {
    /// Reads every byte of every file; checks every checksum, the order of entries, and every key
    /// against its table's filter. Returns the first corruption as an error.
    pub(crate) fn verify(&self) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        self.verify_files(&mut report, &mut |_, error, _| Err(error))?;
        Ok(report)
    }

    /// Like [`Engine::verify`], but continues after corruption.
    pub(crate) fn verify_all(&self) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        self.verify_files(&mut report, &mut |report, error, damage| {
            // A shortage is no evidence of corruption.
            if error.is_shortage() {
                return Err(error);
            }
            report.damage.extend(damage());
            Ok(())
        })?;
        Ok(report)
    }

    fn verify_files(&self, report: &mut VerifyReport, on_error: &mut OnError<'_>) -> Result<()> {
        self.access.check_open()?;
        let version = self.version();
        for (_, file) in version.tables() {
            if let Err(error) = self.verify_table(file, report) {
                on_error(report, error.clone(), &|| self.damage_of(file, &error))?;
            }
            if let Err(error) = self.verify_sidecar(file, report) {
                let damage = || vec![table::damage_of_sidecar(&error, &self.files.dir, file)];
                on_error(report, error.clone(), &damage)?;
            }
        }
        if self.options.load().opening.follows {
            // Others change the remaining files, and a follower verifies them as it reads them.
            return Ok(());
        }
        if let Err(error) = self.verify_options(report) {
            let damage = || vec![options_file::damage(&error, &self.files.dir)];
            on_error(report, error.clone(), &damage)?;
        }
        self.verify_archive(report, on_error)?;
        if self.options.load().opening.read_only || self.access.poisoned().is_some() {
            // A concurrent flush may remove a log once its table is installed.
            let manifest = lock(&self.files.manifest);
            let needed = self.logs_at_rest(manifest.as_ref(), report);
            return self.verify_needed(needed, report, on_error);
        }
        self.verify_logs_in_use(report, on_error)
    }

    /// Verifies the files that are appended to in a live store, while appends are blocked.
    fn verify_logs_in_use(
        &self,
        report: &mut VerifyReport,
        on_error: &mut OnError<'_>,
    ) -> Result<()> {
        self.exclusively(|leader| {
            let manifest = lock(&self.files.manifest);
            // An earlier operation of the queue, or an install, may have failed in an append.
            let needed = match self.access.poisoned() {
                Some(_) => self.logs_at_rest(manifest.as_ref(), report),
                None => self.logs_in_use(leader, manifest.as_ref(), report),
            };
            self.verify_needed(needed, report, on_error)
        })
    }

    /// Verifies the archived logs, of which some may be removed meanwhile.
    fn verify_archive(&self, report: &mut VerifyReport, on_error: &mut OnError<'_>) -> Result<()> {
        let listing = list(&*self.files.vfs, &self.files.dir)?;
        for number in archived(&listing).into_keys() {
            let path = archived_log_path(&self.files.dir, number);
            let needed =
                FileToVerify { path: path.clone(), kind: FileKind::Log, number, end: End::Any };
            match self.verify_log(&needed, report) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let damage = || vec![Damage::of(&error, &path, Remedy::Remove)];
                    on_error(report, error.clone(), &damage)?;
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Verifies the options file, if there is one, while changes are blocked.
    fn verify_options(&self, report: &mut VerifyReport) -> Result<()> {
        let _no_change = self.options.hold();
        let listing = list(&*self.files.vfs, &self.files.dir)?;
        report.add_options(&listing);
        options_file::read(&*self.files.vfs, &self.files.dir, &listing).map(drop)
    }

    fn in_logs(&self, error: &Error) -> Vec<Damage> {
        vec![Damage::of(error, &self.files.dir, Remedy::RestoreOrSalvage)]
    }

    /// All corruption of a table in which `first` was found.
    fn damage_of(&self, file: &TableFile, first: &Error) -> Vec<Damage> {
        let path = table_path(&self.files.dir, file.number);
        let all = KeySpan::new(&file.smallest, &file.largest);
        match self.files.vfs.open(&path, Access::Buffered) {
            Ok(handle) => table::damages(&handle, &path, first, &all),
            Err(_) => vec![Damage::of(first, &path, Remedy::RestoreOrRepair).costing(all)],
        }
    }

    fn verify_table(&self, file: &Arc<TableFile>, report: &mut VerifyReport) -> Result<()> {
        let path = table_path(&self.files.dir, file.number);
        // A long scan holds no filters, which may have to be released meanwhile.
        let (opened, maker) = {
            let reader = self.files.tables.reader(file)?;
            let part = reader.filters().own().prefixes_part();
            (reader.without_filters(), part.map(|part| part.extractor.clone()))
        };
        let set = self.options.extractor_for(&file.smallest);
        let prefix = maker.and_then(|maker| Prefix::maker(&maker, set.as_ref()));
        let verified = opened.verify_with(prefix.map(|prefix| prefix.extractor()))?;
        table::agrees(&opened, file, &path)?;
        report.add(&verified);
        Ok(())
    }

    fn verify_sidecar(&self, file: &Arc<TableFile>, report: &mut VerifyReport) -> Result<()> {
        if file.filters.sidecar.is_none() || self.options.load().opening.follows {
            return Ok(());
        }
        // Corruption of the table was reported already.
        let opened = self.files.tables.reader(file).ok().map(|reader| reader.without_filters());
        let set = self.options.extractor_for(&file.smallest);
        let (vfs, dir) = (&*self.files.vfs, &*self.files.dir);
        let verified = table::check_sidecar(vfs, dir, file, opened.as_ref(), set.as_ref())?;
        report.add_sidecar(verified.as_ref());
        Ok(())
    }

    /// The current manifest. Verifies `CURRENT` as well.
    fn current_manifest(&self, end: End, report: &mut VerifyReport) -> Result<FileToVerify> {
        let listing = list(&*self.files.vfs, &self.files.dir)?;
        let Current::Manifest(number) = current::find(&*self.files.vfs, &self.files.dir, &listing)?
        else {
            let path = self.files.dir.join(names::CURRENT);
            return Err(Corruption::new(&path, 0, "the file is missing").into());
        };
        let current = listing.iter().find(|entry| entry.name == names::CURRENT);
        report.bytes += current.map_or(0, |entry| entry.bytes);
        let path = self.files.dir.join(names::manifest(number));
        Ok(FileToVerify { path, kind: FileKind::Manifest, number, end })
    }

    /// The files of a live store, with the lengths that their writers know.
    fn logs_in_use(
        &self,
        leader: &Leader,
        manifest: Option<&ActiveManifest>,
        report: &mut VerifyReport,
    ) -> Result<Vec<FileToVerify>> {
        let bytes = manifest.map_or(0, ActiveManifest::bytes);
        let mut needed = vec![self.current_manifest(End::At(bytes), report)?];
        let Some(log) = leader.log() else { return Ok(needed) };
        let view = self.view.load();
        let log_file = |number, end| {
            let path = log_path(&self.files.dir, number);
            FileToVerify { path, kind: FileKind::Log, number, end }
        };
        needed.push(log_file(view.active.log_number, End::At(log.bytes())));
        needed.extend(view.frozen.iter().map(|frozen| log_file(frozen.log_number, End::Marker)));
        let ends = self.log_ends_of(manifest);
        for number in view.memtables().flat_map(|memtable| &memtable.earlier_logs) {
            let end = ends.of(*number).map_or(End::Marker, |stated| End::Stated(stated.end));
            needed.push(log_file(*number, end));
        }
        Ok(needed)
    }

    /// The recorded ends of logs without an end marker.
    fn log_ends_of<'a>(&'a self, manifest: Option<&'a ActiveManifest>) -> &'a LogEnds {
        manifest.map_or(&self.files.log_ends, |manifest| &manifest.state().log_ends)
    }

    /// The files of a store without writers.
    fn logs_at_rest(
        &self,
        manifest: Option<&ActiveManifest>,
        report: &mut VerifyReport,
    ) -> Result<Vec<FileToVerify>> {
        let mut needed = vec![self.current_manifest(End::Any, report)?];
        let ends = self.log_ends_of(manifest);
        let oldest = self.view.load().memtables().map(|m| m.oldest_log()).min().unwrap_or(0);
        let listing = list(&*self.files.vfs, &self.files.dir)?;
        for entry in listing.iter().filter(|entry| entry.is_file) {
            if let Some(Numbered::Log(number)) = Numbered::parse(&entry.name)
                && oldest != 0
                && number >= oldest
                && !ends.ignores(number)
            {
                let path = log_path(&self.files.dir, number);
                let end = ends.of(number).map_or(End::Any, |stated| End::Stated(stated.end));
                needed.push(FileToVerify { path, kind: FileKind::Log, number, end });
            }
        }
        Ok(needed)
    }

    fn verify_needed(
        &self,
        needed: Result<Vec<FileToVerify>>,
        report: &mut VerifyReport,
        on_error: &mut OnError<'_>,
    ) -> Result<()> {
        let needed = match needed {
            Ok(needed) => needed,
            Err(error) => return on_error(report, error.clone(), &|| self.in_logs(&error)),
        };
        for needed in needed {
            if let Err(error) = self.verify_log(&needed, report) {
                on_error(report, error.clone(), &|| self.in_logs(&error))?;
            }
        }
        Ok(())
    }

    fn verify_log(&self, needed: &FileToVerify, report: &mut VerifyReport) -> Result<()> {
        let FileToVerify { path, kind, number, end } = needed;
        let mut bytes = read_whole(&*self.files.vfs, path)?;
        let length = bytes.len() as u64;
        report.bytes += length;
        report.logs += 1;
        if let End::Stated(end) = end {
            bytes.truncate(usize::try_from(*end).unwrap_or(usize::MAX));
        }
        let image = LogImage::decode(bytes, path, *kind, *number)?;
        let summary = image.summary();
        let what = match (&summary.verdict, end) {
            (Verdict::Damaged(damage), _) => return Err(damage.clone().into()),
            (_, End::Any) | (Verdict::Ended { .. }, End::Marker) => return Ok(()),
            (Verdict::Clean, End::At(written)) if *written == summary.end => return Ok(()),
            (Verdict::Clean | Verdict::Ended { .. }, End::Stated(end)) if *end == summary.end => {
                return Ok(());
            }
            (_, End::Marker) => "it has lost its end marker".to_owned(),
            (_, End::At(written) | End::Stated(written)) => {
                format!("{written} bytes were written, and it does not end there")
            }
        };
        Err(Corruption::new(path, length, what).into())
    }
}

#[cfg(test)]
mod tests {
    use trommel_sim::{Failure, Fault, OpKind, SimDisk};

    use super::*;
    use crate::{Db, Options};

    /// Regression: after a single failed read of a filter, every later check reported the intact
    /// table as corrupt.
    #[test]
    fn a_failed_read_of_a_filter_is_not_corruption() {
        let disk = SimDisk::new();
        let options = Options::default().vfs(Arc::new(disk.clone()));
        let db = Db::open("db", options).unwrap();
        for i in 0..1000 {
            db.put(format!("key{i:04}"), "value").unwrap();
        }
        db.flush().unwrap();
        db.verify().unwrap();
        let reads = disk.calls(OpKind::Read);
        disk.inject(Fault::new(Failure::Io).on(OpKind::Read).named(".sst"));
        assert_eq!(db.get("key0500x").unwrap(), None, "the filter's read failed, not the block's");
        assert!(disk.calls(OpKind::Read) > reads + 1);
        assert_eq!(db.verify().unwrap().keys, 1000);
        assert_eq!(db.stats().filters.unusable, []);
        assert_eq!(db.get("key0500y").unwrap(), None);
        let refused: u64 = db.filter_report().levels.iter().map(|row| row.counts.negatives).sum();
        assert_eq!(refused, 1, "it is read again, and queried");
    }

    /// Regression: a check that was queued after a failed write reported the log as corrupt.
    #[test]
    fn a_write_that_fails_while_a_check_waits_is_not_corruption() {
        let end_of = |name| Fault::new(Failure::NoSpace).on(OpKind::Append).named(name);
        for (name, bytes) in [(".log", 1), (".log", 60), ("MANIFEST", 1), ("MANIFEST", 60)] {
            let disk = SimDisk::new();
            let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
            let db = Db::open("db", options).unwrap();
            db.put("key", "value").unwrap();
            let way = end_of(name).writing_part(bytes);
            disk.inject(way.clone());
            let failed =
                if name == ".log" { db.put("other", "value").map(drop) } else { db.flush() };
            assert!(failed.is_err() && disk.faults_fired() == 1, "{way:?}");
            // The state of a check that found the store healthy before its turn in the queue.
            let mut report = VerifyReport::default();
            let found = db.engine().verify_logs_in_use(&mut report, &mut |_, error, _| Err(error));
            found.unwrap_or_else(|error| panic!("{way:?}: {error}"));
            assert!(report.logs > 1, "{way:?}");
        }
    }
}

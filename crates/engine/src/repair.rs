//! Repair: makes a new store from the rest of a corrupt one.
//!
//! 1. The new directory must be empty or not exist, and must not be inside the old store, by
//!    whatever path or link. The old store is locked for reading, so that no process writes to it;
//!    nothing in it is ever changed. If there is no lock file or it was replaced, so that another
//!    process may have written to the store meanwhile, the repair fails. It also fails if the
//!    process runs out of file handles or memory, which is not corruption.
//! 2. A manifest is chosen ([`manifest`](crate::rescue::manifest)). If it is complete, the tables
//!    are those that it names. If it may be incomplete, or there is none, they are all tables in
//!    the directory.
//! 3. Each table is read in full. From a corrupt one every intact block is kept that its index
//!    still lists. The possible keys of a corrupt block or a missing table are recorded, with its
//!    highest possible sequence number. A table with a corrupt footer or top index is lost
//!    entirely, as nothing else locates its blocks. A file of a newer version is not corrupt: the
//!    repair is refused.
//! 4. The logs are read up to the first corruption, or beyond it on request.
//! 5. All remaining entries are iterated in order ([`sources`](crate::rescue::sources)), and the
//!    newest version of each key is written to the new store, unless it is a deletion; merge
//!    operands are written with the version below them. The old levels are neither needed nor
//!    preserved.
//! 6. A version that a lost part may have overwritten is *doubtful*
//!    ([`doubt`](crate::rescue::doubt)): it is counted, its key range is reported, and it is left
//!    out if only certain entries are requested.
//!
//! Until the new store is complete its directory holds a file `UNFINISHED`, and cannot be opened.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::MAX_SEQNO;
use trommel_vfs::{Access, DirEntry, Vfs};

use crate::batch::{Batch, OpKind, WriteBatch};
use crate::damage::{Damage, KeySpan, Remedy};
use crate::db::Db;
use crate::error::{Error, Result};
use crate::expiry::{Expiry, Horizons};
use crate::files::{UNFINISHED, lies_in, table_path, unfinished};
use crate::inspect;
use crate::manifest::edit::{OperatorsEdit, VersionEdit};
use crate::names::{self, Numbered};
use crate::options::{Options, WriteOptions};
use crate::ranges::{RangeSet, Readers};
use crate::recovery_report::DroppedBytes;
use crate::rescue::doubt::{Doubt, Lost, spans};
use crate::rescue::keyspaces::{CatalogEvidence, CatalogLeft, KeyspacesLeft};
use crate::rescue::logs::{self, LoggedOperations, RecordBeyond};
use crate::rescue::manifest::{Chosen, choose};
use crate::rescue::newest::NewestState;
use crate::rescue::sources::{Everything, TableLeft, left};
use crate::rescue::table;
use crate::rescue::watched::Watched;
use crate::verify::{VerifyReport, hold, verify_dir};
use crate::version::{TableMeta, Version};

/// Bytes per write batch for the new store.
const BATCH_BYTES: usize = 1 << 20;

/// Options of [`Db::repair`](crate::Db::repair).
#[derive(Debug, Clone, Copy, Default)]
pub struct RepairOptions {
    dry_run: bool,
    beyond_damage: bool,
    only_certain: bool,
}

impl RepairOptions {
    /// Whether to report only what would be saved, and to write nothing. Default: false.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Whether to keep records of a log after lost ones. They may depend on lost writes, so the
    /// result may be a state that the store never had. Default: false, the log ends at the first
    /// corruption.
    #[must_use]
    pub fn beyond_damage(mut self, beyond_damage: bool) -> Self {
        self.beyond_damage = beyond_damage;
        self
    }

    /// Whether to leave out doubtful entries: those whose key may have lost a newer version or a
    /// deletion. Default: false, the newest remaining version is kept.
    #[must_use]
    pub fn only_certain(mut self, only_certain: bool) -> Self {
        self.only_certain = only_certain;
        self
    }
}

/// What [`Db::repair`](crate::Db::repair) found, saved, and could not save.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// The manifest that was used; `None` if none was readable, and the tables were found by
    /// listing the directory.
    pub manifest: Option<PathBuf>,
    /// The contents of the new store (or its future contents, in a dry run).
    pub saved: Saved,
    /// Entries of unreadable parts of tables, according to the manifest: values, deletions, and
    /// older versions. A lower bound of the loss, as the entries of lost logs, and of tables that
    /// no manifest describes, are not counted.
    pub unreadable: u64,
    /// All corrupt and missing files, and their consequences.
    pub damage: Vec<Damage>,
    /// Key ranges in which entries may be missing, outdated, or present though deleted: disjoint,
    /// in order.
    pub in_doubt: Vec<KeySpan>,
    /// Why that holds for all keys, if it does.
    pub all_in_doubt: Option<String>,
    /// Verifiable log records after lost ones: kept only on request.
    pub beyond_damage: Vec<RecordBeyond>,
    /// Ends of files that a crash explains, and that an open would drop too.
    pub incomplete: Vec<DroppedBytes>,
}

/// What a repair saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Saved {
    /// Tables that were readable at least in part.
    pub tables: u64,
    /// Log records that were kept.
    pub log_records: u64,
    /// Entries written to the new store.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Keys whose newest remaining version is a deletion.
    pub deleted: u64,
    /// Entries that may have lost a newer version or a deletion. If only certain entries were
    /// requested, these were left out, and `entries` does not include them.
    pub doubtful: u64,
}

impl RepairReport {
    /// Whether everything was saved.
    pub fn is_complete(&self) -> bool {
        self.in_doubt.is_empty()
            && self.all_in_doubt.is_none()
            && self.damage.iter().all(|damage| !damage.remedy.is_for_lost())
    }
}

impl Db {
    /// Makes a new store in `to`, which must not exist or be empty, from the rest of the store in
    /// `from`, however corrupt; nothing in `from` is changed. The report lists everything that
    /// could not be saved, by file and key, and the key ranges in which an outdated or deleted
    /// version may appear because a newer one is lost. `options` are those of the new store.
    ///
    /// # Errors
    /// [`Error::Locked`] if `from` is open for writing; [`Error::NotAStore`] if it holds no file of
    /// a store; [`Error::InvalidOption`] if `to` is not empty, or is inside `from`, by whatever
    /// path; [`Error::Unsupported`] if a newer version wrote a file, in which case nothing is lost;
    /// errors of the file system. The directory of an unfinished repair holds a file `UNFINISHED`
    /// and cannot be opened: remove it and try again.
    ///
    /// ```
    /// # use trommel::{Db, Options, RepairOptions};
    /// # let home = tempfile::tempdir().unwrap();
    /// # let (old, new) = (home.path().join("old"), home.path().join("new"));
    /// # Db::open(&old, Options::default())?.put("a", "1")?;
    /// let report = Db::repair(&old, &new, Options::default(), RepairOptions::default())?;
    /// assert!(report.is_complete() && report.saved.entries == 1);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn repair(
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: Options,
        how: RepairOptions,
    ) -> Result<RepairReport> {
        repair(from.as_ref(), to.as_ref(), options, how)
    }
}

/// Makes the store `to` from the rest of the store `from`.
fn repair(from: &Path, to: &Path, options: Options, how: RepairOptions) -> Result<RepairReport> {
    let watched = Arc::new(Watched::new(&options.vfs));
    let vfs: Arc<dyn Vfs> = Arc::<Watched>::clone(&watched);
    check_target(&*vfs, from, to)?;
    let mut locked = VerifyReport::default();
    let (held, listing) = hold(&*vfs, from, &mut locked)?;
    let mut work = Work::begin(Arc::clone(&vfs), from, listing)?;
    work.report.damage.append(&mut locked.damage);
    let tables = work.tables();
    let logged = work.logs(how)?;
    work.refuse_newer()?;
    watched.check()?;
    held.check(&*vfs, from)?;
    let horizons = work.horizons(&logged, &options);
    let mut deleted =
        work.chosen.state.version.ranges.with(logged.ranges, &Readers::at(Vec::new()));
    deleted.expire(&horizons);
    let everything = Everything::new(&vfs, tables, logged.entries)?;
    let mut target = match how.dry_run {
        true => None,
        false => Some(NewStore::create(from, to, options, &work.chosen.state.version)?),
    };
    let (salt, is_doubtful) = (work.chosen.state.version.catalog_salt, work.chosen.doubt.is_some());
    let report = work.copy(everything, &deleted, how, |newest| match &mut target {
        Some(target) => target.put(newest),
        None => Ok(()),
    })?;
    held.check(&*vfs, from)?;
    let evidence = CatalogEvidence { salt, is_doubtful, is_incomplete: !report.is_complete() };
    target.map_or(Ok(()), |target| target.finish(evidence))?;
    Ok(report)
}

/// The data gathered from the old store.
struct Work<'a> {
    vfs: Arc<dyn Vfs>,
    dir: &'a Path,
    listing: Vec<DirEntry>,
    chosen: Chosen,
    lost: Vec<Lost>,
    report: RepairReport,
}

impl<'a> Work<'a> {
    fn begin(vfs: Arc<dyn Vfs>, dir: &'a Path, listing: Vec<DirEntry>) -> Result<Self> {
        let mut chosen = choose(&*vfs, dir, &listing);
        let is_ours = |entry: &DirEntry| Numbered::parse(&entry.name).is_some();
        if chosen.number.is_none() && !listing.iter().any(is_ours) {
            let what = "it holds no file of a store".to_owned();
            return Err(Error::NotAStore { dir: dir.to_path_buf(), what });
        }
        let report = RepairReport {
            manifest: chosen.number.map(|number| dir.join(names::manifest(number))),
            damage: std::mem::take(&mut chosen.damage),
            incomplete: chosen.torn.iter().map(Into::into).collect(),
            all_in_doubt: chosen.doubt.clone(),
            ..RepairReport::default()
        };
        Ok(Self { vfs, dir, listing, chosen, lost: Vec::new(), report })
    }

    /// Reads all tables. Returns those that are readable at least in part.
    fn tables(&mut self) -> Vec<TableLeft> {
        let mut known: Vec<(u64, Option<TableMeta>)> = Vec::new();
        for (_, file) in self.chosen.state.version.tables() {
            known.push((file.number, Some(file.meta().clone())));
        }
        if self.chosen.doubt.is_some() {
            let others =
                self.listing.iter().filter_map(|entry| match Numbered::parse(&entry.name)? {
                    Numbered::Table(number) => Some(number),
                    _ => None,
                });
            for number in others {
                if known.iter().all(|(other, _)| *other != number) {
                    known.push((number, None));
                }
            }
        }
        let left: Vec<TableLeft> = known
            .into_iter()
            .filter_map(|(number, meta)| match meta {
                Some(meta) => self.listed_table(&meta),
                None => self.found_table(number),
            })
            .collect();
        self.report.saved.tables = left.len() as u64;
        left
    }

    fn lose(&mut self, damage: Damage, max_seqno: u64) {
        self.report.damage.push(damage.clone());
        if damage.remedy.is_for_lost() {
            self.lost.push(Lost { damage, max_seqno });
        }
    }

    /// The rest of a table that the manifest describes.
    fn listed_table(&mut self, meta: &TableMeta) -> Option<TableLeft> {
        let name = names::table(meta.number);
        let entry = self.listing.iter().find(|entry| entry.name == *name);
        let dissected = table::dissect(&*self.vfs, self.dir, meta, entry);
        self.report.unreadable += meta.entries.saturating_sub(dissected.entries());
        // A corrupt index leaf loses the blocks that it lists, each of which is reported on its
        // own.
        let (costly, other): (Vec<Damage>, Vec<Damage>) =
            dissected.damage.into_iter().partition(|damage| damage.keys.is_some());
        for damage in costly {
            self.lose(damage, meta.max_seqno);
        }
        self.report.damage.extend(other);
        left(table_path(self.dir, meta.number), dissected.blocks)
    }

    /// The rest of a table that no manifest describes.
    fn found_table(&mut self, number: u64) -> Option<TableLeft> {
        let path = table_path(self.dir, number);
        let file = match self.vfs.open(&path, Access::Buffered) {
            Ok(file) => file,
            Err(error) => {
                let error = Error::io(&path, "opening", error);
                self.lose(Damage::of(&error, &path, Remedy::RestoreOrRepair), MAX_SEQNO);
                return None;
            }
        };
        let checked = inspect::Table::open(&*self.vfs, &path).and_then(|table| {
            table.check()?;
            table.info()
        });
        let first = checked.err();
        // Its key range is unknown: a lost block at either end may hold any key.
        let dissected = table::dissect_blocks(&file, &path, first.as_ref(), &KeySpan::default());
        for mut damage in dissected.damage {
            let is_open = |keys: &KeySpan| keys.first.is_empty() || keys.last.is_empty();
            if damage.keys.as_ref().is_some_and(is_open) {
                damage.keys = None;
            }
            self.lose(damage, MAX_SEQNO);
        }
        left(path, dissected.blocks)
    }

    /// An error if a newer version wrote an unsupported file, in which nothing is lost.
    fn refuse_newer(&self) -> Result<()> {
        let is_newer = |damage: &&Damage| damage.remedy == Remedy::Upgrade;
        match self.report.damage.iter().find(is_newer) {
            None => Ok(()),
            Some(damage) => {
                Err(Error::Unsupported { file: damage.file.clone(), what: damage.what.clone() })
            }
        }
    }

    /// The expiry horizons: of the default keyspace, with the `ttl` of the new store; of the
    /// others, as recorded in the manifest.
    fn horizons(&self, logged: &LoggedOperations, options: &Options) -> Arc<Horizons> {
        let state = &self.chosen.state;
        let marks = state.version.times();
        let expiry = Expiry::new(Arc::clone(&self.vfs), marks, options.writes.ttl);
        logged.marks.iter().for_each(|(seqno, until)| expiry.add(*seqno, *until));
        // Later writes may have had a mark that is lost: with records of the logs, or with edits of
        // the manifest and the logs that they replaced.
        if self.chosen.doubt.is_none() {
            return expiry.horizons(|| state.last_seqno.max(logged.last_seqno));
        }
        let recorded = state.version.time_marks.horizon();
        let now = expiry.horizons(|| state.last_seqno);
        Arc::new(now.with_default(now.of_default().min(state.last_seqno + 1).max(recorded)))
    }

    /// The operations of the logs to keep.
    fn logs(&mut self, how: RepairOptions) -> Result<LoggedOperations> {
        let oldest = match self.chosen.doubt {
            None => self.chosen.state.log_number,
            // A needed log may be older than the chosen manifest records, or newer.
            Some(_) => {
                let log = |entry: &DirEntry| match Numbered::parse(&entry.name)? {
                    Numbered::Log(number) => Some(number),
                    _ => None,
                };
                self.listing.iter().filter_map(log).min().unwrap_or(0)
            }
        };
        let left = logs::left(&*self.vfs, self.dir, &self.listing, &self.chosen, oldest)?;
        let doubt = left.doubt();
        self.report.damage.extend(left.damage.iter().cloned());
        self.report.incomplete.extend(left.torn.iter().map(Into::into));
        let found = logs::entries(&*self.vfs, self.dir, left)?;
        self.report.saved.log_records = found.records;
        let doubt = doubt.or_else(|| Some(found.damage.first()?.to_string()));
        self.report.damage.extend(found.damage);
        self.report.all_in_doubt = self.report.all_in_doubt.take().or(doubt);
        let mut operations = found.replayed;
        for (record, more) in found.beyond {
            self.report.beyond_damage.push(record);
            if how.beyond_damage {
                self.report.saved.log_records += 1;
                operations.extend(more);
            }
        }
        Ok(operations)
    }

    /// Passes the newest state of each key to `put`, unless a range tombstone deletes it or it has
    /// expired.
    fn copy(
        mut self,
        mut everything: Everything,
        deleted: &RangeSet,
        how: RepairOptions,
        mut put: impl FnMut(&NewestState) -> Result<()>,
    ) -> Result<RepairReport> {
        let mut doubt = Doubt::new(&self.lost);
        let is_all_doubtful = self.report.all_in_doubt.is_some();
        while let Some(newest) = NewestState::next(&mut everything, deleted)? {
            let is_doubtful = doubt.is_doubtful(&newest.key, newest.seqno) || is_all_doubtful;
            let saved = &mut self.report.saved;
            if newest.is_deleted() {
                saved.deleted += 1;
                continue;
            }
            saved.doubtful += u64::from(is_doubtful);
            if !(is_doubtful && how.only_certain) {
                saved.entries += 1;
                saved.bytes += newest.bytes();
                put(&newest)?;
            }
        }
        if !everything.damage.is_empty() {
            let first = everything.damage[0].to_string();
            self.report.all_in_doubt = self.report.all_in_doubt.take().or(Some(first));
        }
        self.report.damage.append(&mut everything.damage);
        let unknown = self.lost.iter().find(|lost| lost.damage.keys.is_none());
        if let Some(lost) = unknown {
            let text = lost.damage.to_string();
            self.report.all_in_doubt = self.report.all_in_doubt.take().or(Some(text));
        }
        self.report.in_doubt = spans(self.lost.iter().filter_map(|lost| lost.damage.keys.as_ref()));
        self.report.damage.sort_by(|a, b| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
        Ok(self.report)
    }
}

/// An error unless a new store can be made at `to`, outside `from`.
fn check_target(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    let is_in_from = match vfs.real_path(from) {
        Ok(real) => lies_in(vfs, &real, to)?,
        // The reader of `from` reports the error.
        Err(_) => false,
    };
    if is_in_from || to.starts_with(from) {
        let to = to.display();
        return Err(Error::option(format!(
            "{to} lies in the store that is repaired, which is left as it is: name another directory"
        )));
    }
    match vfs.list(to) {
        Ok(listing) if listing.is_empty() => Ok(()),
        Ok(_) => Err(Error::not_empty(to)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(to, "listing", error)),
    }
}

/// The new store.
struct NewStore {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    db: Db,
    /// The name of the merge operator, if it is known.
    operator: Option<Arc<str>>,
    batch: WriteBatch,
    keyspaces: KeyspacesLeft,
}

impl NewStore {
    /// A new store, with the merge operator that `version` of the old one has recorded.
    fn create(from: &Path, dir: &Path, options: Options, version: &Version) -> Result<Self> {
        let operator = version.merge_operator.clone();
        if let Some((recorded, given)) =
            operator.as_ref().zip(options.writes.merge_operator.as_ref())
            && recorded != given.name()
        {
            let (recorded, given) = (recorded.to_string(), given.name().to_string());
            return Err(Error::OtherMergeOperator {
                dir: from.to_path_buf(),
                keyspace: None,
                recorded,
                given,
            });
        }
        let operator = operator
            .or_else(|| options.writes.merge_operator.as_ref().map(|given| given.name().clone()));
        let vfs = Arc::clone(&options.vfs);
        match vfs.create_dir(dir) {
            Ok(()) => {}
            // It was empty a moment ago; if it is not a directory, the next call fails.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io(dir, "creating", error)),
        }
        let marker = dir.join(UNFINISHED);
        let mut file = vfs.create(&marker).map_err(Error::on(&marker))?;
        file.append(unfinished::text(from).as_bytes()).map_err(Error::on(&marker))?;
        file.sync().map_err(Error::on(&marker))?;
        vfs.sync_dir(dir).map_err(Error::on(dir))?;
        let options = options.opening(|o| o.degraded(None).read_only(false).salvage(false));
        let options = options.opening(|o| o.create_if_missing(true)).writes(|w| w.log(false));
        let db = Db::open_unfinished(dir, options)?;
        let keyspaces = KeyspacesLeft::new(version.has_keyspace_operators);
        let batch = WriteBatch::new();
        Ok(Self { vfs, dir: dir.to_path_buf(), db, operator, batch, keyspaces })
    }

    /// Adds the newest state of a physical key.
    fn put(&mut self, newest: &NewestState) -> Result<()> {
        if let Some(value) = &newest.value {
            self.keyspaces.note(&newest.key, value);
            self.batch.push_physical(OpKind::Put, &newest.key, value);
        }
        if !newest.operands.is_empty() && !self.keyspaces.note_operands(&newest.key) {
            self.record_operator()?;
        }
        for operand in &newest.operands {
            self.batch.push_physical(OpKind::Merge, &newest.key, operand);
        }
        if self.batch.encoded_bytes() < BATCH_BYTES { Ok(()) } else { self.write() }
    }

    /// Writes the batch. Operands are copied, whether or not this process has their operator.
    fn write(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.db.engine().write(Batch::Sealed(batch.seal()?), WriteOptions::default()).map(drop)
    }

    /// Records the merge operator before the first operand.
    fn record_operator(&mut self) -> Result<()> {
        let engine = self.db.engine();
        if engine.version().merge_operator.is_some() {
            return Ok(());
        }
        let operator = self.operator.as_ref().ok_or_else(|| {
            Error::option(
                "the store holds merge operands, and the record of its merge operator is lost: \
                 give the operator in the options, WriteSettings::merge_operator",
            )
        })?;
        engine.record_operator(operator)
    }

    /// Writes the rest and the catalog of keyspaces, verifies everything, and removes the mark.
    fn finish(mut self, evidence: CatalogEvidence) -> Result<()> {
        let keyspaces = std::mem::take(&mut self.keyspaces);
        let left = keyspaces.catalog(evidence);
        if let Some(CatalogLeft { salt, entries, has_operators }) = left {
            let edit = VersionEdit {
                catalog_salt: Some(salt),
                operators: OperatorsEdit::of_keyspaces(has_operators),
                ..VersionEdit::default()
            };
            self.db.engine().install(edit, None, None)?;
            for (key, value) in entries {
                self.batch.push_physical(OpKind::Put, &key, value.as_bytes());
            }
        }
        self.write()?;
        let Self { vfs, dir, db, .. } = self;
        let options = db.options();
        db.close()?;
        let report = verify_dir(&dir, &options)?;
        if let Some(first) = report.damage.first() {
            let what = &first.what;
            let text = format!("the new store is damaged already, by the disk it lies on: {what}");
            return Err(trommel_base::Corruption::new(&first.file, first.offset, text).into());
        }
        let marker = dir.join(UNFINISHED);
        vfs.remove(&marker).map_err(Error::on(&marker))?;
        vfs.sync_dir(&dir).map_err(Error::on(&dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: harmless corruption hid everything listed after it.
    #[test]
    fn a_repair_is_complete_only_if_all_damage_is_harmless() {
        let damage = |remedies: &[Remedy]| {
            let at = |remedy: &Remedy| Damage::at(Path::new("f"), 0, "it", *remedy);
            RepairReport { damage: remedies.iter().map(at).collect(), ..RepairReport::default() }
        };
        assert!(damage(&[]).is_complete());
        assert!(damage(&[Remedy::Remove, Remedy::Compact]).is_complete());
        for lost in [Remedy::RestoreOrRepair, Remedy::RestoreOrSalvage, Remedy::AllowReading] {
            assert!(!damage(&[Remedy::Remove, lost]).is_complete(), "{lost:?}");
            assert!(!damage(&[Remedy::Compact, lost, Remedy::Remove]).is_complete(), "{lost:?}");
        }
    }
}

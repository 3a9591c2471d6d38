//! Verification of the store in a directory, whether or not it can be opened.
//!
//! 1. Take a shared lock, if there is a lock file, so that no process writes meanwhile. Without a
//!    lock file, writers cannot be excluded; if a lock file exists at the end that is not the one
//!    that was locked, the verification fails.
//! 2. Read `CURRENT` and all manifests; choose one (see `rescue::manifest`).
//! 3. Read each table that it names in full. No two may be the same table, and none may have a
//!    sequence number above the manifest's. Reading the manifest checks that their key ranges are
//!    disjoint.
//! 4. Read each log that may be needed in full, and check all of them together as an open would.
//! 5. Read the archived logs, and the options file, if there are any.
//! 6. List the other entries: orphans and foreign files.
//!
//! Writes nothing.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use trommel_vfs::{DirEntry, FileLock, Vfs};

use super::VerifyReport;
use crate::damage::{Damage, NO_FILE, Remedy};
use crate::error::{Error, Result};
use crate::files::{LOCK, UNFINISHED, archived_log_path, list, log_path, unfinished};
use crate::log::reader::{LogImage, Verdict};
use crate::log::recover::{self, Needed};
use crate::log::{FileKind, read_whole};
use crate::log_archive::archived;
use crate::names::{self, CURRENT, CURRENT_TMP, Numbered, OPTIONS, OPTIONS_TMP};
use crate::options::Options;
use crate::options_file;
use crate::rescue::manifest::{Chosen, choose};
use crate::rescue::table;
use crate::rescue::watched::Watched;

/// Reads every byte of every file of the store in `dir` and lists all corruption, including the
/// mark of an unfinished repair.
pub(crate) fn verify_store(dir: &Path, options: &Options) -> Result<VerifyReport> {
    let mut report = verify_dir(dir, options)?;
    let vfs = &*options.vfs;
    let listing = list(vfs, dir)?;
    if let Some(mark) = unfinished::find(vfs, dir, &listing)? {
        let remedy = if mark.is_ours() { Remedy::RepairAgain } else { Remedy::Remove };
        report.damage.push(Damage::at(&dir.join(UNFINISHED), 0, mark.to_string(), remedy));
        report.damage.sort_by(|a, b| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
    }
    Ok(report)
}

/// Like [`verify_store`], for a store that a repair may still be filling.
pub(crate) fn verify_dir(dir: &Path, options: &Options) -> Result<VerifyReport> {
    let watched = Watched::new(&options.vfs);
    let vfs: &dyn Vfs = &watched;
    let mut report = VerifyReport::default();
    let (held, listing) = hold(vfs, dir, &mut report)?;
    let mut chosen = choose(vfs, dir, &listing);
    if chosen.number.is_none() && chosen.damage.is_empty() && !listing.iter().any(is_numbered) {
        let what = "it holds no file of a store".to_owned();
        return Err(Error::NotAStore { dir: dir.to_path_buf(), what });
    }
    // Otherwise another manifest, and the files that only it names, may be needed.
    let is_certain = chosen.damage.is_empty() && chosen.doubt.is_none();
    report.damage.append(&mut chosen.damage);
    report.logs += u64::from(chosen.number.is_some());
    let current = listing.iter().find(|entry| entry.name == CURRENT);
    report.bytes += chosen.bytes + current.map_or(0, |entry| entry.bytes);
    report.incomplete.extend(chosen.torn.iter().map(Into::into));
    let tables = TableInputs { vfs, dir, listing: &listing, options };
    tables.verify(&chosen, &mut report);
    verify_logs(vfs, dir, &listing, &chosen, &mut report);
    verify_archive(vfs, dir, &listing, &mut report);
    report.add_options(&listing);
    if let Err(error) = options_file::read(vfs, dir, &listing) {
        report.damage.push(options_file::damage(&error, dir));
    }
    list_others(dir, &listing, &chosen, is_certain, &mut report);
    held.check(vfs, dir)?;
    watched.check()?;
    report.damage.sort_by(|a, b| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
    Ok(report)
}

fn is_numbered(entry: &DirEntry) -> bool {
    entry.name == CURRENT || Numbered::parse(&entry.name).is_some()
}

/// The protection of a store under examination from writers.
#[derive(Debug)]
pub(crate) struct WriterLock {
    lock: Option<Box<dyn FileLock>>,
    /// Whether the lock file's place is taken by something other than a file.
    lock_is_no_file: bool,
}

impl WriterLock {
    /// An error if there may have been a writer meanwhile: a lock file has appeared, or the locked
    /// one is gone.
    pub(crate) fn check(&self, vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        let may_have_changed = match &self.lock {
            Some(lock) => !lock.is_in_place(),
            None if self.lock_is_no_file => false,
            None => {
                let now = list(vfs, dir)?;
                now.iter().any(|entry| entry.name == LOCK)
            }
        };
        if may_have_changed { Err(Error::Locked { dir: dir.to_path_buf() }) } else { Ok(()) }
    }
}

/// Takes the lock to exclude writers, and lists the directory. Anything except a regular file in
/// the lock's place is reported as corruption and does not stop the examination, because no process
/// can hold it. Any other failure to lock is an error, as the store may be in use.
pub(crate) fn hold(
    vfs: &dyn Vfs,
    dir: &Path,
    report: &mut VerifyReport,
) -> Result<(WriterLock, Vec<DirEntry>)> {
    let not_a_store =
        |what: &str| Error::NotAStore { dir: dir.to_path_buf(), what: what.to_owned() };
    let list = || {
        vfs.list(dir).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => not_a_store("there is no such directory"),
            io::ErrorKind::NotADirectory => not_a_store("it is a file, not a directory"),
            _ => Error::io(dir, "listing", source),
        })
    };
    let is_no_file = |entry: &DirEntry| entry.name == LOCK && !entry.is_file;
    let lock_is_no_file = list()?.iter().any(is_no_file);
    let path = dir.join(LOCK);
    let lock = match vfs.lock_shared(&path) {
        Ok(held) => Some(held),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(Error::Locked { dir: dir.to_path_buf() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) if lock_is_no_file => {
            report.damage.push(Damage::at(&path, 0, NO_FILE, Remedy::Remove));
            None
        }
        Err(error) => return Err(Error::io(&path, "locking", error)),
    };
    Ok((WriterLock { lock, lock_is_no_file }, list()?))
}

/// The inputs for verifying tables.
struct TableInputs<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    listing: &'a [DirEntry],
    options: &'a Options,
}

impl TableInputs<'_> {
    fn verify(&self, chosen: &Chosen, report: &mut VerifyReport) {
        let extractor = self.options.filtering.prefix_extractor.as_ref();
        let entries: HashMap<_, _> =
            self.listing.iter().map(|entry| (entry.name.to_os_string(), entry)).collect();
        let mut ids: HashMap<u64, u64> = HashMap::new();
        for (_, file) in chosen.state.version.tables() {
            let name = names::table(file.number);
            let entry = entries.get(std::ffi::OsStr::new(&name)).copied();
            let (damage, verified) =
                table::survey(self.vfs, self.dir, file.meta(), entry, extractor);
            report.damage.extend(damage);
            if let Some(verified) = verified {
                report.add(&verified);
            }
            let damaged =
                |what: String| Damage::at(&self.dir.join(&name), 0, what, Remedy::RestoreOrRepair);
            let meta = file.meta();
            let (damage, sidecar) = table::survey_sidecar(self.vfs, self.dir, meta, extractor);
            report.damage.extend(damage);
            report.add_sidecar(sidecar.as_ref());
            if let Some(other) = ids.insert(file.table_id, file.number) {
                let what = format!("it is the same table as {}", names::table(other));
                report.damage.push(damaged(what));
            }
            if chosen.state.last_seqno < file.max_seqno {
                let (max, last) = (file.max_seqno, chosen.state.last_seqno);
                let what =
                    format!("it holds sequence number {max}, and the manifest ends at {last}");
                report.damage.push(damaged(what));
            }
        }
    }
}

/// Reads the logs that may be needed, one by one and as an open would.
fn verify_logs(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    chosen: &Chosen,
    report: &mut VerifyReport,
) {
    let mut present = Vec::new();
    for entry in listing.iter().filter(|entry| entry.is_file) {
        let Some(Numbered::Log(number)) = Numbered::parse(&entry.name) else { continue };
        let has_manifest = chosen.number.is_some();
        if has_manifest && !chosen.state.needs_log(number) {
            continue;
        }
        present.push(number);
        report.logs += 1;
        let path = log_path(dir, number);
        let counted = chosen.state.log_ends.counted_bytes(number);
        let image = read_whole(vfs, &path).and_then(|mut bytes| {
            bytes.truncate(counted);
            LogImage::decode(bytes, &path, FileKind::Log, number)
        });
        let error = match image {
            Err(error) => error,
            Ok(image) => {
                report.bytes += image.summary().file_bytes;
                match &image.summary().verdict {
                    Verdict::Damaged(damage) => damage.clone().into(),
                    _ => continue,
                }
            }
        };
        report.damage.push(Damage::of(&error, &path, Remedy::RestoreOrSalvage));
    }
    let Some(store_id) = chosen.store_id.filter(|_| chosen.number.is_some()) else { return };
    let needed = Needed {
        dir,
        store_id,
        oldest: chosen.state.log_number,
        present: &present,
        ends: &chosen.state.log_ends,
        closed: chosen.closed,
        salvage: false,
    };
    match recover::plan(vfs, &needed) {
        Ok(plan) => report.incomplete.extend(plan.dropped().iter().map(Into::into)),
        Err(error) => {
            let damage = Damage::of(&error, dir, Remedy::RestoreOrSalvage);
            let is_new =
                |known: &Damage| (&known.file, known.offset) != (&damage.file, damage.offset);
            if report.damage.iter().all(is_new) {
                report.damage.push(damage);
            }
        }
    }
}

/// Reads the archived logs, which only change feeds read.
fn verify_archive(vfs: &dyn Vfs, dir: &Path, listing: &[DirEntry], report: &mut VerifyReport) {
    for number in archived(listing).into_keys() {
        report.logs += 1;
        let path = archived_log_path(dir, number);
        let image = read_whole(vfs, &path);
        let image = image.and_then(|bytes| LogImage::decode(bytes, &path, FileKind::Log, number));
        match image.map(|image| image.summary().clone()) {
            Err(error) => report.damage.push(Damage::of(&error, &path, Remedy::Remove)),
            Ok(summary) => {
                report.bytes += summary.file_bytes;
                if let Verdict::Damaged(damage) = summary.verdict {
                    report.damage.push(Damage::of(&damage.into(), &path, Remedy::Remove));
                }
            }
        }
    }
}

/// Lists the entries that the store does not need.
fn list_others(
    dir: &Path,
    listing: &[DirEntry],
    chosen: &Chosen,
    is_certain: bool,
    report: &mut VerifyReport,
) {
    for entry in listing {
        let numbered = Numbered::parse(&entry.name).filter(|_| entry.is_file);
        let is_needed = match numbered {
            None => [LOCK, CURRENT, OPTIONS, UNFINISHED].iter().any(|name| entry.name == *name),
            // Without an intact manifest, orphans cannot be identified.
            Some(file) if chosen.number.is_none() || !is_certain => {
                !matches!(file, Numbered::Spare(_))
            }
            Some(file) => chosen.state.needs(file, chosen.number),
        };
        let path = dir.join(&entry.name);
        match numbered {
            _ if is_needed => {}
            Some(_) => report.orphans.push(path),
            None if entry.name == CURRENT_TMP && entry.is_dir => {
                report.damage.push(Damage::at(&path, 0, NO_FILE, Remedy::Remove));
            }
            None if entry.name == CURRENT_TMP => report.orphans.push(path),
            None if entry.name == OPTIONS_TMP && entry.is_file => report.orphans.push(path),
            None => report.foreign.push(path),
        }
    }
}

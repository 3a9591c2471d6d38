//! Recovers the state recorded in a directory's manifest.
//!
//! 1. `CURRENT` names the current manifest ([`current`]); it must exist.
//! 2. The manifest is read as a log is ([`LogImage`]). Its first record, a snapshot, was synced
//!    before `CURRENT` named it, so it must be intact; each later record is an edit.
//! 3. Corruption is `Corruption`, with file and offset. A torn tail is dropped and reported, if the
//!    rest is consistent with the directory: every table, with its exact length, and the oldest
//!    needed log must still exist. (Had the torn edit ever been durable, the files it made obsolete
//!    might be gone.)
//! 4. The same check is made without a tear: a table in the manifest that is missing from the
//!    directory is `Corruption` at once, not at its first read.
//! 5. The next file number is raised above every number in the directory, so that no number is used
//!    twice, not even that of a file unknown to the manifest.
//!
//! Writes nothing. An open for writing always continues with a new manifest, as the old one may end
//! in a tear. After `tail_dropped` the caller deletes no orphans: they may belong to the lost edit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use trommel_base::Corruption;
use trommel_vfs::{DirEntry, Vfs};

use super::current::{self, Current};
use super::edit::{EditError, VersionEdit};
use super::state::{InvalidEdit, ManifestState};
use crate::error::Error;
use crate::log::reader::{LogImage, Record, Verdict};
use crate::log::{DropReason, Dropped, FileKind, read_whole};
use crate::names::{self, MAX_FILE_NUMBER, Numbered};

/// The state recovered from a directory's manifest.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The state, with `next_file_number` above every number in use.
    pub(crate) state: ManifestState,
    /// The random id of the store.
    pub(crate) store_id: u64,
    /// The number of the manifest.
    pub(crate) number: u64,
    /// The dropped tail of the manifest.
    pub(crate) tail_dropped: Option<Dropped>,
    /// Whether the store was closed: the manifest has an end marker.
    pub(crate) closed: bool,
}

/// Reads the current manifest of `dir`, whose entries are `listing`. `None` if there never was one:
/// `dir` is not a store, or its creation was interrupted.
///
/// With `salvage`, corruption after the first record ends the manifest as a tear does, under the
/// same condition.
pub(crate) fn recover(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: &[DirEntry],
    salvage: bool,
) -> Result<Option<Recovered>, Error> {
    let Current::Manifest(number) = current::find(vfs, dir, listing)? else { return Ok(None) };
    let path = dir.join(names::manifest(number));
    if !listing.iter().any(|entry| entry.name == names::manifest(number).as_str()) {
        let what = "the manifest that CURRENT names is missing";
        return Err(Corruption::new(&path, 0, what).into());
    }
    let image = LogImage::decode(read_whole(vfs, &path)?, &path, FileKind::Manifest, number)?;
    let summary = image.summary();
    let Some(header) = summary.header.filter(|_| summary.records > 0) else {
        return Err(first_damage(&image, &path).into());
    };
    let mut state = ManifestState::default();
    for (index, record) in image.records().enumerate() {
        let edit = decode_edit(record, &path)?;
        state = apply(&state, index as u64 + 1, record, &edit, &path)?;
    }
    let tail_dropped = tail_dropped(&image, &path, salvage)?;
    check_files(&state, dir, listing, tail_dropped.as_ref())?;
    state.next_file_number = state.next_file_number.max(above_all(listing));
    if state.next_file_number > MAX_FILE_NUMBER {
        let what = "there are no file numbers left; copy the data to a new store".to_owned();
        return Err(Error::Unsupported { file: dir.to_path_buf(), what });
    }
    let closed = matches!(summary.verdict, Verdict::Ended { .. });
    Ok(Some(Recovered { state, store_id: header.store_id, number, tail_dropped, closed }))
}

/// Why there is no snapshot.
fn first_damage(image: &LogImage, path: &Path) -> Corruption {
    match &image.summary().verdict {
        Verdict::Damaged(corruption) => corruption.clone(),
        _ => {
            let what = "the first record, which was synced before CURRENT named this file, is gone";
            Corruption::new(path, image.summary().end, what)
        }
    }
}

/// Decodes the edit in a record.
pub(crate) fn decode_edit(record: Record<'_>, path: &Path) -> Result<VersionEdit, Error> {
    VersionEdit::decode(record.payload).map_err(|error| match error {
        EditError::Damaged(what) => Corruption::new(path, record.offset, what).into(),
        EditError::Unsupported(what) => Error::Unsupported { file: path.to_path_buf(), what },
    })
}

/// The state after `edit`, decoded from `record`, which must have number `ordinal`.
pub(crate) fn apply(
    state: &ManifestState,
    ordinal: u64,
    record: Record<'_>,
    edit: &VersionEdit,
    path: &Path,
) -> Result<ManifestState, Error> {
    let damaged = |what: String| Error::from(Corruption::new(path, record.offset, what));
    if record.first_seqno != ordinal {
        return Err(damaged(format!("the record is edit {}, not {ordinal}", record.first_seqno)));
    }
    state.apply(edit).map_err(|InvalidEdit(what)| damaged(what))
}

fn tail_dropped(image: &LogImage, path: &Path, salvage: bool) -> Result<Option<Dropped>, Error> {
    let summary = image.summary();
    let reason = match &summary.verdict {
        Verdict::Clean | Verdict::Ended { .. } => return Ok(None),
        Verdict::Torn(reason) => DropReason::Torn(*reason),
        Verdict::Damaged(corruption) if salvage => DropReason::Damaged(corruption.clone()),
        Verdict::Damaged(corruption) => return Err(corruption.clone().into()),
    };
    Ok(Some(Dropped {
        file: path.to_path_buf(),
        offset: summary.end,
        bytes: summary.file_bytes - summary.end,
        records: summary.later_records,
        reason,
    }))
}

/// Checks that all files that `state` needs exist.
fn check_files(
    state: &ManifestState,
    dir: &Path,
    listing: &[DirEntry],
    tail_dropped: Option<&Dropped>,
) -> Result<(), Error> {
    let Some((file, problem)) = first_missing(state, dir, listing) else { return Ok(()) };
    Err(match tail_dropped {
        None => Corruption::new(&file, 0, problem),
        Some(dropped) => {
            let what = format!(
                "the manifest ends in a damaged record that had taken effect, because a file \
                 that earlier records need does not match them: {}: {problem}",
                file.display()
            );
            Corruption::new(&dropped.file, dropped.offset, what)
        }
    }
    .into())
}

pub(crate) fn first_missing(
    state: &ManifestState,
    dir: &Path,
    listing: &[DirEntry],
) -> Option<(PathBuf, String)> {
    let ours = |entry: &DirEntry| Some((Numbered::parse(&entry.name)?, entry.bytes));
    let there: HashMap<Numbered, u64> =
        listing.iter().filter(|entry| entry.is_file).filter_map(ours).collect();
    for (_, table) in state.version.tables() {
        let name = Numbered::Table(table.number);
        let problem = match there.get(&name) {
            Some(bytes) if *bytes == table.file_bytes => continue,
            Some(bytes) => {
                format!("it has {bytes} bytes, and the manifest says {}", table.file_bytes)
            }
            None => "the table is missing".to_owned(),
        };
        return Some((dir.join(name.name()), problem));
    }
    let log = Numbered::Log(state.log_number);
    if state.log_number != 0 && !there.contains_key(&log) {
        let problem = "the oldest needed log is missing";
        return Some((dir.join(log.name()), problem.to_owned()));
    }
    None
}

/// A number above those of all files of a store in `listing`.
fn above_all(listing: &[DirEntry]) -> u64 {
    let numbers = listing.iter().filter_map(|entry| Numbered::parse(&entry.name));
    numbers.map(|file| file.number() + 1).max().unwrap_or(1)
}

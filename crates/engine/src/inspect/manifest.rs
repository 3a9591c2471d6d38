//! One manifest: the edits that produced the store's state.

use std::path::{Path, PathBuf};

use trommel_base::Corruption;
use trommel_vfs::Vfs;

use super::files::Role;
use super::log::{Ending, Framed, LogSpan, record_bytes};
use crate::error::{Error, Result};
use crate::expiry::{TimeMark, TimeMarks};
use crate::log::format::FORMAT_VERSION;
use crate::log::{FileKind, LogEnd};
use crate::manifest::current::{self, Current};
use crate::manifest::reader::{apply, decode_edit};
use crate::manifest::state::ManifestState;
use crate::names;
use crate::ranges::RangeTombstone;
use crate::version::logical_level;
use crate::version::{TableMeta, Version};

/// A manifest, read and verified.
#[derive(Debug)]
pub struct Manifest {
    framed: Framed,
}

/// The contents of a manifest.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ManifestInfo {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Version of the format.
    pub format_version: u32,
    /// The number in its header.
    pub number: u64,
    /// Random; every checksum in the file is bound to it.
    pub salt: u64,
    /// The random id of the store.
    pub store_id: u64,
    /// Number of edits, including the first one, the snapshot.
    pub edits: u64,
    /// No file has this number or a higher one.
    pub next_file_number: u64,
    /// Highest sequence number in the tables.
    pub last_seqno: u64,
    /// The oldest log still needed, 0 for none.
    pub log_number: u64,
    /// The data.
    pub contents: ManifestContents,
    /// How it ends; with an end marker if the store was closed.
    pub ending: Ending,
}

/// The data that a manifest records.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ManifestContents {
    /// The tables: level 0 first and newest first, deeper levels by key.
    pub tables: Vec<ListedTable>,
    /// The range tombstones, cut where others begin or end. Range tombstones in the logs are not
    /// among them.
    pub range_tombstones: Vec<RangeTombstone>,
    /// Everything with a lower sequence number has expired; in a store with keyspaces that expire,
    /// everything of the default one.
    pub expiry_horizon: u64,
    /// The numbers of named keyspaces, and their own horizons.
    pub keyspace_horizons: Vec<(u32, u64)>,
    /// The times of entries that have not expired, oldest first; empty if entries do not expire.
    pub time_marks: Vec<TimeMark>,
    /// The name of the merge operator, if the store may hold operands of one.
    pub merge_operator: Option<String>,
    /// Whether keyspaces may have merge operators of their own, which the catalog names.
    pub keyspace_operators: bool,
    /// Whether keys are hashed with a secret seed: in all stores, except those that were created
    /// by a version without seeds.
    pub has_hash_seed: bool,
}

/// A table of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedTable {
    /// Its level as numbered in reports and filter policies: 0, or 1 for the first deeper level
    /// that holds data, and so on.
    pub level: usize,
    /// Its level as stored in the manifest.
    pub stored_level: usize,
    /// The manifest's record.
    pub meta: TableMeta,
}

/// The result of [`Manifest::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManifestCheck {
    /// Bytes of the file.
    pub bytes: u64,
    /// Edits.
    pub edits: u64,
    /// Tables of the store after the last edit.
    pub tables: u64,
    /// How it ends. A torn end is not corruption, as a crash explains it.
    pub ending: Ending,
}

/// One change to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edit {
    /// Offset of its record in the file.
    pub offset: u64,
    /// Length of the record in bytes.
    pub bytes: u64,
    /// 1 for the first edit, and so on.
    pub ordinal: u64,
    /// Tables added, with their stored levels. A table moved to another level is removed and added.
    pub added: Vec<(u8, TableMeta)>,
    /// Numbers of the tables removed, with their stored levels.
    pub removed: Vec<(u8, u64)>,
    /// No file has this number or a higher one, if the edit sets it.
    pub next_file_number: Option<u64>,
    /// Highest sequence number in the tables, if the edit sets it.
    pub last_seqno: Option<u64>,
    /// The oldest log still needed, 0 for none, if the edit sets it.
    pub log_number: Option<u64>,
    /// Ends of needed logs without an end marker.
    pub log_ends: Vec<LogEnd>,
    /// Range tombstones added.
    pub range_tombstones: Vec<RangeTombstone>,
    /// Whether they replace all earlier ones.
    pub replaces_range_tombstones: bool,
    /// The expiry horizon, if the edit sets it.
    pub expiry_horizon: Option<u64>,
}

/// The state of the store after one edit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// The edit.
    pub edit: Edit,
    /// Number of tables in each stored level.
    pub tables: Vec<u64>,
    /// Bytes of all tables.
    pub table_bytes: u64,
    /// Number of range tombstones.
    pub range_tombstones: u64,
    /// Highest sequence number in the tables.
    pub last_seqno: u64,
    /// The oldest log still needed, 0 for none.
    pub log_number: u64,
}

impl Manifest {
    /// Reads the whole manifest at `path` into memory.
    ///
    /// # Errors
    /// [`Error::WrongFile`] for something else, [`Error::Unsupported`] for a newer format,
    /// [`Error::Io`]. Corruption is not an error here: see [`Manifest::check`].
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = super::open(vfs, path, Role::Manifest)?;
        Ok(Self { framed: Framed::read(&*file, path, FileKind::Manifest)? })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.framed.path
    }

    /// The current manifest of `dir`: the one that `CURRENT` names.
    ///
    /// # Errors
    /// [`Error::NotAStore`] if there is none; [`Error::Corruption`] if `CURRENT` is corrupt, or
    /// missing in a directory with tables; as [`Manifest::open`].
    pub fn in_force(vfs: &dyn Vfs, dir: &Path) -> Result<Self> {
        let listing = super::files::list(vfs, dir)?;
        match current::find(vfs, dir, &listing)? {
            Current::Manifest(number) => Self::open(vfs, &dir.join(names::manifest(number))),
            Current::Never => {
                let what = "there is no CURRENT in it".to_owned();
                Err(Error::NotAStore { dir: dir.to_path_buf(), what })
            }
        }
    }

    /// The contents of the manifest after its last good edit.
    ///
    /// # Errors
    /// [`Error::Corruption`] if its header, or an edit with a valid checksum, is invalid;
    /// [`Error::Unsupported`] for an edit of a newer version.
    pub fn info(&self) -> Result<ManifestInfo> {
        let header = self.framed.header()?;
        let state = self.state()?;
        Ok(ManifestInfo {
            path: self.framed.path.clone(),
            file_bytes: self.framed.summary().file_bytes,
            format_version: FORMAT_VERSION,
            number: header.number,
            salt: header.salt,
            store_id: header.store_id,
            edits: self.framed.summary().records,
            next_file_number: state.next_file_number,
            last_seqno: state.last_seqno,
            log_number: state.log_number,
            contents: ManifestContents {
                tables: listed(&state.version).collect(),
                range_tombstones: state.version.ranges.tombstones().collect(),
                expiry_horizon: state.version.time_marks.horizon(),
                keyspace_horizons: state.version.ranges.horizons().named().collect(),
                time_marks: state.version.time_marks.list().to_vec(),
                merge_operator: state.version.merge_operator.as_deref().map(str::to_owned),
                keyspace_operators: state.version.has_keyspace_operators,
                has_hash_seed: state.version.hash_seed.is_some(),
            },
            ending: self.framed.ending(),
        })
    }

    /// Checks every byte and every edit, and that a file with a manifest's name has the number it
    /// was created with.
    ///
    /// # Errors
    /// The first corruption found. A torn end is not an error, but a manifest without its first
    /// edit is: that was synced before anything named the file.
    pub fn check(&self) -> Result<ManifestCheck> {
        self.framed.check()?;
        let state = self.state()?;
        let summary = self.framed.summary();
        if summary.records == 0 {
            let what = "the first record, which was synced before anything named the file, is gone";
            return Err(Corruption::new(&self.framed.path, summary.end, what).into());
        }
        Ok(ManifestCheck {
            bytes: summary.file_bytes,
            edits: summary.records,
            tables: state.version.tables().count() as u64,
            ending: self.framed.ending(),
        })
    }

    /// The good edits, oldest first; ends after the first invalid one.
    pub fn scan(&self) -> impl Iterator<Item = Result<Edit>> {
        self.history().map(|moment| moment.map(|moment| moment.edit))
    }

    /// The state after each good edit, oldest first; ends after the first invalid one.
    pub fn history(&self) -> impl Iterator<Item = Result<Moment>> {
        let mut state = Some(ManifestState::default());
        self.framed.image.records().enumerate().map_while(move |(index, record)| {
            let before = state.take()?;
            let step = decode_edit(record, &self.framed.path).and_then(|edit| {
                let after = apply(&before, index as u64 + 1, record, &edit, &self.framed.path)?;
                Ok((edit, after))
            });
            Some(step.map(|(edit, after)| {
                let times = edit.time_marks.as_deref();
                let edit = Edit {
                    expiry_horizon: times.map(TimeMarks::horizon),
                    offset: record.offset,
                    bytes: record_bytes(&record),
                    ordinal: record.first_seqno,
                    added: edit.added,
                    removed: edit.removed,
                    next_file_number: edit.next_file_number,
                    last_seqno: edit.last_seqno,
                    log_number: edit.log_number,
                    log_ends: edit.log_ends,
                    range_tombstones: edit.ranges,
                    replaces_range_tombstones: edit.replaces_ranges,
                };
                let moment = Moment {
                    edit,
                    tables: after.version.levels.iter().map(|run| run.len() as u64).collect(),
                    table_bytes: after.version.tables().map(|(_, table)| table.file_bytes).sum(),
                    range_tombstones: after.version.ranges.tombstones().count() as u64,
                    last_seqno: after.last_seqno,
                    log_number: after.log_number,
                };
                state = Some(after);
                moment
            }))
        })
    }

    /// Every range of the file, in order and without gaps.
    pub fn layout(&self) -> Vec<LogSpan> {
        self.framed.layout()
    }

    /// Whether the file is unchanged since `earlier` was read.
    pub(super) fn is_unchanged_since(&self, earlier: &Self) -> bool {
        self.framed.summary() == earlier.framed.summary()
    }

    /// The state after the last good edit.
    pub(super) fn state(&self) -> Result<ManifestState> {
        let mut state = ManifestState::default();
        for (index, record) in self.framed.image.records().enumerate() {
            let edit = decode_edit(record, &self.framed.path)?;
            state = apply(&state, index as u64 + 1, record, &edit, &self.framed.path)?;
        }
        Ok(state)
    }
}

/// The tables of a version.
pub(super) fn listed(version: &Version) -> impl Iterator<Item = ListedTable> {
    version.tables().map(|(stored_level, table)| ListedTable {
        level: logical_level(version, stored_level).0,
        stored_level,
        meta: table.meta().clone(),
    })
}

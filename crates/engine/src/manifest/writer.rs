//! Writes manifests: a new one when the store is opened or the old one has grown, and an edit for
//! each change.
//!
//! 1. A new manifest: header and a snapshot of the state, synced; the directory synced;
//!    `CURRENT.tmp` written and synced, renamed, the directory synced ([`current`]). Only then is
//!    it the current one, and only then may the caller unlink its predecessor.
//! 2. An edit: appended and synced. Only then may the caller unlink the files it made obsolete.
//!    Everything it refers to was durable before: tables synced, logs created, the directory
//!    synced.
//!
//! After a failure nothing more is written ([`LogWriter`]); the caller poisons the store and
//! unlinks nothing, and the next open starts a new manifest.

use std::path::Path;

use trommel_vfs::Vfs;

use super::current;
use super::edit::VersionEdit;
use super::state::ManifestState;
use crate::error::Error;
use crate::log::{FileHeader, FileKind, LogWriter};
use crate::names;

/// Below this length a manifest is never rolled over, in bytes.
const ROLL_BYTES: u64 = 1 << 20;

/// The current manifest, open for appending.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    log: LogWriter,
    number: u64,
    snapshot_bytes: u64,
    /// Ordinal of the last edit.
    ordinal: u64,
}

impl ManifestWriter {
    /// Writes manifest `number` with `state`, and installs it.
    ///
    /// `salt` must be fresh from the source of randomness; `number` must be below
    /// `state.next_file_number` and above every number in the directory.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        dir: &Path,
        number: u64,
        salt: u64,
        store_id: u64,
        state: &ManifestState,
    ) -> Result<Self, Error> {
        let header = FileHeader { kind: FileKind::Manifest, number, salt, store_id, previous: 0 };
        let path = dir.join(names::manifest(number));
        let mut log = LogWriter::create_unsynced(vfs, &path, &header)?;
        log.set_previous_durable();
        log.append(1, &[&state.snapshot().encode()])?;
        log.sync()?;
        vfs.sync_dir(dir).map_err(Error::on(dir))?;
        current::install(vfs, dir, number)?;
        Ok(Self { snapshot_bytes: log.bytes(), log, number, ordinal: 1 })
    }

    /// Appends `edit` and makes it durable.
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<(), Error> {
        self.ordinal += 1;
        self.log.append(self.ordinal, &[&edit.encode()])?;
        self.log.sync()
    }

    /// Records durably that nothing follows: the store is closed.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.log.finish(0)?;
        self.log.sync()
    }

    /// Whether a new manifest would be much shorter.
    pub(crate) fn should_roll(&self) -> bool {
        self.log.bytes() > ROLL_BYTES.max(2 * self.snapshot_bytes)
    }

    /// Its length, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

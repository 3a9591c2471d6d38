//! The manifest of an open store, and its contents. Only an install appends to it, under the lock
//! that guards it.

use std::path::Path;

use trommel_vfs::Vfs;

use super::edit::VersionEdit;
use super::state::ManifestState;
use super::writer::ManifestWriter;
use crate::env;
use crate::error::Result;
use crate::version::Version;

/// The current manifest, and its contents.
#[derive(Debug)]
pub(crate) struct ActiveManifest {
    writer: ManifestWriter,
    state: ManifestState,
}

impl ActiveManifest {
    /// Writes manifest `number` with this state into `dir` and makes it the current one.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        dir: &Path,
        number: u64,
        store_id: u64,
        state: ManifestState,
    ) -> Result<Self> {
        let writer = ManifestWriter::create(vfs, dir, number, env::random_u64(), store_id, &state)?;
        Ok(Self { writer, state })
    }

    pub(crate) fn number(&self) -> u64 {
        self.writer.number()
    }

    /// Its length, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// The tables in it.
    pub(crate) fn version(&self) -> &Version {
        &self.state.version
    }

    /// Its contents.
    pub(crate) fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Whether it has grown enough to be replaced by a new one.
    pub(crate) fn should_roll(&self) -> bool {
        self.writer.should_roll()
    }

    /// Appends `edit` durably; `state` is the state after it.
    pub(crate) fn append(&mut self, edit: &VersionEdit, state: ManifestState) -> Result<()> {
        self.writer.append(edit)?;
        self.state = state;
        Ok(())
    }

    /// Records durably that the store was closed.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.writer.finish()
    }
}

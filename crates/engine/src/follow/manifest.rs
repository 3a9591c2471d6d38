//! The manifest of a store that another owner may write to: its state so far, and the edits since.

use std::path::Path;
use std::sync::Arc;

use trommel_base::Corruption;
use trommel_vfs::Vfs;

use crate::error::Result;
use crate::log::FileKind;
use crate::log::tail::{LogTail, TakenRecord};
use crate::manifest::reader::{apply, decode_edit};
use crate::manifest::state::ManifestState;
use crate::names;
use crate::version::Version;

/// A manifest, as far as it was read.
#[derive(Debug)]
pub(super) struct FollowedManifest {
    tail: LogTail,
    /// Number of the edits read.
    edits: u64,
    /// The state after them.
    pub(super) state: ManifestState,
    /// The random id of the store.
    pub(super) store_id: u64,
    /// Whether the store was closed.
    pub(super) is_closed: bool,
}

impl FollowedManifest {
    /// Reads manifest `number` in `dir`, which `CURRENT` names.
    pub(super) fn open(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<Self> {
        let path = dir.join(names::manifest(number));
        let mut manifest = Self {
            tail: LogTail::new(path, FileKind::Manifest, number, None),
            edits: 0,
            state: ManifestState::default(),
            store_id: 0,
            is_closed: false,
        };
        manifest.read(vfs)?;
        let header = manifest.tail.header().filter(|_| manifest.edits > 0);
        let Some(header) = header else {
            let what = "the first record, which was synced before CURRENT named this file, is gone";
            return Err(Corruption::new(manifest.tail.path(), manifest.tail.end(), what).into());
        };
        manifest.store_id = header.store_id;
        Ok(manifest)
    }

    /// Its number, and the number of edits read: different for each state.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.tail.number(), self.edits)
    }

    /// Reads the edits since the last call.
    pub(super) fn read(&mut self, vfs: &dyn Vfs) -> Result<()> {
        let Self { tail, edits, state, .. } = self;
        if self.is_closed {
            return tail.check_header(vfs);
        }
        let path = tail.path().to_path_buf();
        let ended = tail.read(vfs, &mut |record| {
            let edit = decode_edit(record, &path)?;
            *state = apply(state, *edits + 1, record, &edit, &path)?;
            *edits += 1;
            Ok(TakenRecord::Taken)
        })?;
        self.is_closed = ended.is_some();
        Ok(())
    }

    /// Takes over the tables of `version`, with their open readers, that this manifest names too.
    pub(super) fn take_over(&mut self, version: &Version) {
        for run in &mut self.state.version.levels {
            for table in run {
                let same = version.tables().find(|(_, known)| known.number == table.number);
                if let Some((_, known)) = same.filter(|(_, known)| known.meta() == table.meta()) {
                    *table = Arc::clone(known);
                }
            }
        }
    }
}

//! One filter sidecar.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_sstable::{BlockInfo, FilterPart};
use trommel_vfs::{ReadFile, Vfs};

use super::files::Role;
use crate::error::Result;

/// A file with replacement filters for a table: `n.flt`.
#[derive(Debug)]
pub struct Sidecar {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
}

/// The metadata of a sidecar.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SidecarInfo {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// The random id of its table.
    pub table_id: u64,
    /// Distinct keys of that table.
    pub keys: u64,
    /// Its filters, except those of kinds unknown to this version.
    pub filters: Vec<FilterPart>,
}

impl Sidecar {
    /// Opens the sidecar at `path`. Reads nothing yet, except the first and last bytes of a file
    /// without a sidecar's name.
    ///
    /// # Errors
    /// [`crate::Error::WrongFile`] for something else; [`crate::Error::Io`].
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = super::open(vfs, path, Role::FilterSidecar)?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Its metadata.
    ///
    /// # Errors
    /// [`crate::Error::Corruption`] if its end is corrupt; [`crate::Error::Unsupported`] for a
    /// newer format.
    pub fn info(&self) -> Result<SidecarInfo> {
        let opened = self.opened()?;
        Ok(SidecarInfo {
            path: self.path.clone(),
            file_bytes: opened.file_bytes(),
            table_id: opened.footer().table_id,
            keys: opened.footer().keys,
            filters: opened.parts().cloned().collect(),
        })
    }

    /// Reads every byte and checks everything that can be checked without the table.
    ///
    /// # Errors
    /// The first corruption found.
    pub fn check(&self) -> Result<()> {
        Ok(self.opened()?.check()?)
    }

    /// Every block in file order, corrupt ones with the reason.
    ///
    /// # Errors
    /// If its end is corrupt, so that the rest cannot be located.
    pub fn layout(&self) -> Result<Vec<BlockInfo>> {
        Ok(self.opened()?.layout())
    }

    /// Makes `table` query this sidecar.
    pub(super) fn apply_to(&self, table: &mut trommel_sstable::Table) -> Result<()> {
        Ok(table.take_sidecar(self.opened()?)?)
    }

    fn opened(&self) -> Result<trommel_sstable::Sidecar> {
        Ok(trommel_sstable::Sidecar::open(Arc::clone(&self.file), &self.path)?)
    }
}

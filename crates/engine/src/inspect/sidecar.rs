//! One filter sidecar.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_sstable::{BlockInfo, FilterPart};
use trommel_vfs::{ReadFile, Vfs};

use super::files::Role;
use crate::error::Result;

/// A file with other filters of a table than the table itself: `n.flt`.
#[derive(Debug)]
pub struct Sidecar {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
}

/// What a sidecar says of itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SidecarInfo {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// The random id of the table that it is for.
    pub table_id: u64,
    /// Distinct keys of that table.
    pub keys: u64,
    /// Its filters, as far as this version knows what they are.
    pub filters: Vec<FilterPart>,
}

impl Sidecar {
    /// Opens the sidecar at `path`. Reads nothing yet but, for a file that is not named as one is,
    /// its first and last bytes.
    ///
    /// # Errors
    /// [`crate::Error::WrongFile`] for something else; [`crate::Error::Io`].
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = super::open(vfs, path, Role::FilterSidecar)?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// [`crate::Error::Corruption`] if its end is damaged; [`crate::Error::Unsupported`] for a
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

    /// Reads every byte and checks all that can be checked without the table.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<()> {
        Ok(self.opened()?.check()?)
    }

    /// Every block in file order, damaged ones with the reason.
    ///
    /// # Errors
    /// If its end is damaged, for then nothing is known of the rest.
    pub fn layout(&self) -> Result<Vec<BlockInfo>> {
        Ok(self.opened()?.layout())
    }

    /// Has `table` asked through it.
    pub(super) fn stand_before(&self, table: &mut trommel_sstable::Table) -> Result<()> {
        Ok(table.take_sidecar(self.opened()?)?)
    }

    fn opened(&self) -> Result<trommel_sstable::Sidecar> {
        Ok(trommel_sstable::Sidecar::open(Arc::clone(&self.file), &self.path)?)
    }
}

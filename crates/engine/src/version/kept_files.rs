//! Open files of tables that another owner of the store may remove at any time.
//!
//! An open file can still be read after it has been removed, and is not recycled. A table that a
//! follower reads is therefore opened as soon as a version names it, and stays open as long as a
//! version, a snapshot or an iterator holds it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_vfs::{Access, ReadFile};

use super::table_cache::missing;
use super::{TableCache, TableFile};
use crate::error::{Error, Result};
use crate::files::{sidecar_path, table_path};

/// The open files of one table.
#[derive(Debug)]
pub(super) struct KeptFiles {
    table: Arc<dyn ReadFile>,
    sidecar: Option<Arc<dyn ReadFile>>,
    /// A map does not keep other processes from recycling its file; an open file does.
    _open: Arc<dyn ReadFile>,
}

impl KeptFiles {
    pub(super) fn table(&self) -> Arc<dyn ReadFile> {
        Arc::clone(&self.table)
    }

    /// The sidecar, which is at `path`; `NotFound` if it was removed before it could be opened.
    pub(super) fn sidecar(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let removed = || {
            let text = format!("{} was removed by the owner of the store", path.display());
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        self.sidecar.clone().ok_or_else(removed)
    }
}

impl TableCache {
    /// Opens the files of `file` and keeps them open as long as it lives.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the table is missing, [`Error::Io`] if it cannot be opened, or no
    /// file handle is left. A missing sidecar is not an error: its table does without it.
    pub(crate) fn keep_open(&self, file: &TableFile) -> Result<()> {
        if file.kept_files().is_some() {
            return Ok(());
        }
        let path = table_path(&self.dir, file.number);
        let open =
            self.with_handles(|| self.vfs.open(&path, Access::Buffered)).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::NotFound => missing(&path, "the table is missing"),
                    _ => Error::io(&path, "opening", error),
                }
            })?;
        // Opened a second time: if the name still exists, the file opened first cannot be recycled
        // any more.
        let table = self.open_file(&path)?;
        let sidecar = match file.filters.sidecar {
            None => None,
            Some(number) => self.open_sidecar_file(&sidecar_path(&self.dir, number))?,
        };
        file.keep_files(KeptFiles { table, sidecar, _open: open });
        Ok(())
    }

    fn open_sidecar_file(&self, path: &Path) -> Result<Option<Arc<dyn ReadFile>>> {
        match self.with_handles(|| self.vfs.open(path, self.sidecar_access())) {
            Err(error) if trommel_vfs::is_out_of_handles(&error) => {
                Err(Error::io(path, "opening", error))
            }
            opened => Ok(opened.ok()),
        }
    }
}

//! A file system that records shortages of resources.
//!
//! When a corrupt store is examined, a file that cannot be opened or read counts as lost, and the
//! work continues. However, a lack of file handles or memory is no evidence about the file, which
//! would be readable a moment later. Therefore each such error is recorded, even if the caller
//! ignores it, and fails the whole operation. Used by [`repair`](crate::repair) and `verify`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_vfs::{Access, DirEntry, Layer, ReadFile, Vfs, WriteFile, is_out_of_handles};

use crate::error::{Error, Result};
use crate::sync::{Mutex, lock};

/// See the module.
#[derive(Debug)]
pub(crate) struct Watched {
    vfs: Arc<dyn Vfs>,
    first: Mutex<Option<Error>>,
}

impl Watched {
    pub(crate) fn new(vfs: &Arc<dyn Vfs>) -> Self {
        Self { vfs: Arc::clone(vfs), first: Mutex::default() }
    }

    /// The first shortage, if there was one.
    pub(crate) fn check(&self) -> Result<()> {
        lock(&self.first).clone().map_or(Ok(()), Err)
    }

    fn note<T>(&self, path: &Path, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            if !is_out_of_handles(&error) && error.kind() != io::ErrorKind::OutOfMemory {
                return error;
            }
            let copy = io::Error::new(error.kind(), error.to_string());
            lock(&self.first).get_or_insert_with(|| Error::io(path, "reading", error));
            copy
        })
    }
}

impl Layer for Watched {
    fn below(&self) -> &dyn Vfs {
        &*self.vfs
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.note(path, self.vfs.create(path))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.note(path, self.vfs.open(path, access))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.note(dir, self.vfs.list(dir))
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.note(path, self.vfs.read(path, limit))
    }
}

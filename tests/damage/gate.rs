//! A file system in memory whose disk can be full for tables, and for nothing else: memtables
//! stay in memory, and their logs pile up.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trommel::vfs::{Layer, MemoryVfs, Vfs, WriteFile};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct GatedVfs {
    inner: MemoryVfs,
    shut: Arc<AtomicBool>,
}

impl GatedVfs {
    /// From now on no table can be created.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }
}

impl Layer for GatedVfs {
    fn below(&self) -> &dyn Vfs {
        &self.inner
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let is_table = path.extension().is_some_and(|extension| extension == "sst");
        if is_table && self.shut.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inner.create(path)
    }
}

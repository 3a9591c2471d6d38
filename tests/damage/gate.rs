//! A file system in memory that can run out of space for tables only: memtables stay in memory, and
//! their logs accumulate.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trommel::vfs::{Layer, Vfs, WriteFile};
use trommel_sim::MemoryVfs;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct GatedVfs {
    inner: MemoryVfs,
    shut: Arc<AtomicBool>,
}

impl GatedVfs {
    /// Makes the creation of tables fail from now on.
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

//! A disk that counts the reads of its files: an independent count of the store's system calls.
//! Mapped bytes are not read, and so not counted.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use trommel::vfs::{Access, DiskVfs, Layer, ReadFile, SharedMap, Vfs};

/// The disk. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted(Arc<AtomicU64>);

impl Counted {
    /// Number of calls so far that read a part of an open file.
    pub(super) fn reads(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Debug)]
struct Reader {
    reads: Counted,
    file: Arc<dyn ReadFile>,
}

impl ReadFile for Reader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads.0.fetch_add(1, Relaxed);
        self.file.read_at(offset, buffer)
    }

    fn will_need(&self, offset: u64, bytes: usize) {
        self.file.will_need(offset, bytes);
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.file.mapped()
    }

    fn shared_map(&self) -> Option<SharedMap> {
        self.file.shared_map()
    }
}

impl Layer for Counted {
    fn below(&self) -> &dyn Vfs {
        &DiskVfs
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = DiskVfs.open(path, access)?;
        Ok(Arc::new(Reader { reads: self.clone(), file }))
    }
}

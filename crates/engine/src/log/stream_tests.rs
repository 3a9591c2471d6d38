//! Logs too large to be kept in memory are read one record at a time.
#![expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trommel_sim::MemoryVfs;
use trommel_vfs::{Access, DirectHandle, Layer, ReadFile, Vfs};

use crate::{Compression, Db, Durability, Options};

/// An in-memory file system that records the largest read of a log.
#[derive(Debug, Default)]
struct Noting {
    inner: MemoryVfs,
    largest: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct NotedFile {
    file: Arc<dyn ReadFile>,
    largest: Arc<AtomicUsize>,
}

impl Layer for Noting {
    fn below(&self) -> &dyn Vfs {
        &self.inner
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.inner.open(path, access)?;
        if path.extension().is_none_or(|extension| extension != "log") {
            return Ok(file);
        }
        Ok(Arc::new(NotedFile { file, largest: Arc::clone(&self.largest) }))
    }
}

impl ReadFile for NotedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.largest.fetch_max(buffer.len(), Ordering::Relaxed);
        self.file.read_at(offset, buffer)
    }

    fn direct_handle(&self) -> Option<DirectHandle<'_>> {
        None
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

/// Regression: a log of 413 MiB took as much memory under a limit of 64 MiB, and twice as much for
/// a read-only open.
#[test]
fn a_large_log_is_read_record_by_record() {
    for durability in [Durability::Os, Durability::Sync] {
        let vfs = Arc::new(Noting::default());
        let options = || {
            let options = Options::default().vfs(Arc::clone(&vfs) as Arc<dyn Vfs>);
            options.compression(Compression::None).durability(durability).background_threads(0)
        };
        let db = Db::open("db", options()).unwrap();
        // Zeros, which are masked, and a record longer than a read.
        for key in 0..24_u32 {
            let byte = (key % 2) as u8;
            let bytes = if key == 7 { 3 << 20 } else { 1 << 20 };
            db.put(key.to_be_bytes(), vec![byte; bytes]).unwrap();
        }
        // Killed: it neither closes the store nor releases its lock.
        std::mem::forget(db);
        vfs.inner.remove(Path::new("db/LOCK")).unwrap();
        let check = |db: &Db| {
            assert_eq!(db.recovery_report().replayed_batches, 24);
            assert!(db.recovery_report().dropped.is_empty());
            for key in 0..24_u32 {
                let value = db.get(key.to_be_bytes()).unwrap().unwrap();
                assert!(value.iter().all(|byte| *byte == (key % 2) as u8), "{key}");
            }
        };
        check(&Db::open_read_only("db", options()).unwrap());
        check(&Db::open("db", options().memory_limit(8 << 20)).unwrap());
        let largest = vfs.largest.load(Ordering::Relaxed);
        assert!(largest < 4 << 20, "{largest} bytes of the log were read at once");
    }
}

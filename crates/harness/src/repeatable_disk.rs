//! The disk, for runs that repeat exactly.

use std::io;
use std::path::Path;

use trommel::vfs::{DiskVfs, Layer, Vfs, WriteFile};

/// The disk, where new stores have no hash seed, so that filters of the same keys return the same
/// false positives in each run. Anyone can choose keys for such filters: not for stores in use.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepeatableDisk;

impl Layer for RepeatableDisk {
    fn below(&self) -> &dyn Vfs {
        &DiskVfs
    }

    fn writes_over(&self) -> bool {
        DiskVfs.writes_over()
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        DiskVfs.create_over(old, path)
    }

    fn random_u64(&self) -> u64 {
        0
    }
}

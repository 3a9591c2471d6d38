//! The result of a power cut.

use std::fmt;

use super::SimDisk;
use crate::MemoryVfs;
use crate::tree::Tree;

/// The content of a disk after a crash. Cheap to make and to keep, since it shares what did not
/// change.
#[derive(Clone)]
pub struct Image {
    tree: Tree,
    hash: u64,
}

impl Image {
    pub(super) fn new(tree: Tree) -> Self {
        Self { hash: tree.hash(), tree }
    }

    /// A hash of all names and contents: different images have different hashes (for all practical
    /// purposes), whatever crash they stem from.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// A new disk on which all this is durable.
    pub fn disk(&self) -> SimDisk {
        SimDisk::from_tree(&self.tree)
    }

    /// A new in-memory file system with this content, which keeps no log.
    pub fn memory(&self) -> MemoryVfs {
        MemoryVfs::from_tree(self.tree.clone())
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({:016x})", self.hash)
    }
}

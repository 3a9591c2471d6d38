//! What a power cut left.

use std::fmt;

use super::SimDisk;
use crate::MemoryVfs;
use crate::tree::Tree;

/// What a disk holds after a crash: cheap to make and to keep, as it shares what did not change.
#[derive(Clone)]
pub struct Image {
    tree: Tree,
    hash: u64,
}

impl Image {
    pub(super) fn new(tree: Tree) -> Self {
        Self { hash: tree.hash(), tree }
    }

    /// A hash of all names and contents: images that differ have different hashes (to all practical
    /// purposes), whatever crash they stem from.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// A new disk on which all this is durable.
    pub fn disk(&self) -> SimDisk {
        SimDisk::from_tree(&self.tree)
    }

    /// A new file system in memory that holds this, and keeps no log.
    pub fn memory(&self) -> MemoryVfs {
        MemoryVfs::from_tree(self.tree.clone())
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({:016x})", self.hash)
    }
}

//! The number of levels of the tree.

/// Levels of a tree, level 0 included.
pub(crate) const LEVELS: usize = 7;

//! How many levels the tree has.

/// Levels of a tree, level 0 included.
pub(crate) const LEVELS: usize = 7;

//! Cursors over cursors: the merge of all sources, and its visible entries.

pub(crate) mod gate;
pub(crate) mod level;
pub(crate) mod merge;
pub(crate) mod range;
pub(crate) mod source;
pub(crate) mod spare;
pub(crate) mod visible;

//! Cursors over cursors: the merge of all sources, and what is visible of it.

pub(crate) mod gate;
pub(crate) mod level;
pub(crate) mod merge;
pub(crate) mod range;
pub(crate) mod source;
pub(crate) mod visible;

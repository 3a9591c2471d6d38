//! Walking over several sources as one.

pub(crate) mod merge;

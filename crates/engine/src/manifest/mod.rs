//! Which files make up the store: a log of version edits, and `CURRENT`, which names it.
//!
//! * [`edit`]: one change, as bytes; [`state`]: what changes add up to.
//! * [`current`]: which manifest is in force; [`active`]: that one, in an open store; [`writer`]
//!   and
//!   [`reader`]: manifests.
//!
//! The page is `docs/format/manifest.md`. Records are framed as in a log ([`crate::log`]).

pub(crate) mod active;
pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod reader;
pub(crate) mod state;
pub(crate) mod writer;

#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

//! The files of the store: a log of version edits, and `CURRENT`, which names that log.
//!
//! * [`edit`]: encoding of one change; [`state`]: the state that edits add up to.
//! * [`current`]: the name of the current manifest; [`active`]: the manifest of an open store;
//!   [`writer`] and [`reader`]: manifests on disk.
//!
//! `docs/format/manifest.md` specifies the bytes. Records are framed as in a log ([`crate::log`]).

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

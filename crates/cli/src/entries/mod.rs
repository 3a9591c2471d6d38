//! Streams of entries, from one store and into another, in four forms.
//!
//! * `jsonl`: a header line, one object per line, and a line with their number and the XXH3 (64
//!   bits, 16 hexadecimal digits) of all bytes before it.
//! * `text`: key, tab, value, one entry per line.
//! * `csv`: a header with the columns `key` and `value`, then one entry per record.
//! * `binary`: a checksummed dump ([`trommel::dump`]).
//!
//! In the first and the last the entries of named keyspaces follow those of the default one, each
//! keyspace after a line or a block with its name and its options.
//!
//! The first three write keys and values according to `--key-format` and `--value-format`; jsonl
//! records which. The first and the last detect truncation and corruption.

mod reading;
mod writing;

#[cfg(test)]
mod tests;

use clap::ValueEnum;

pub(crate) use reading::{EntryReader, Item, Source};
pub(crate) use writing::EntryWriter;

use crate::text::TextForm;

/// The schema of a jsonl dump, and of one with named keyspaces.
const SCHEMA: &str = "trommel.dump.v1";
const SCHEMA_OF_KEYSPACES: &str = "trommel.dump.v2";

/// The form of a stream of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamForm {
    /// An object {"key":..,"value":..} a line
    Jsonl,
    /// Key, tab, value, a line each
    Text,
    /// Comma-separated values with the columns key and value
    Csv,
    /// Checked blocks; see docs/format/dump.md
    Binary,
}

impl StreamForm {
    /// Whether it can hold named keyspaces.
    pub(crate) fn takes_keyspaces(self) -> bool {
        matches!(self, Self::Jsonl | Self::Binary)
    }
}

/// The text forms of keys and values in a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forms {
    pub(crate) key: TextForm,
    pub(crate) value: TextForm,
}

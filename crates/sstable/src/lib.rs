//! One immutable sorted file: data blocks, a filter, a sparse index, properties, a footer.
//!
//! * [`TableBuilder`] takes entries in order and writes the file in one pass.
//! * [`Table`] is the reader: [`get`](Table::get), [`cursor`](Table::cursor),
//!   [`verify`](Table::verify); [`get_many`] looks up many keys in many tables.
//! * [`Sidecar`] is a file of replacement filters for one table. They take precedence over the
//!   table's own.
//! * [`BlockCache`] keeps verified blocks in memory, shared by all tables.
//! * [`format`](mod@format) holds every constant of the file format, which `docs/format/sstable.md`
//!   describes.
//!
//! The crate takes one resolved [`FilterPlan`] per table, stores the engine's properties as opaque
//! bytes, and knows neither levels nor other tables. Bytes from a file are used only after their
//! checksum was verified, and every decoder is total even then: hostile bytes with valid checksums
//! end in an [`Error`], never in a panic, a hang or a huge allocation.

#![forbid(unsafe_code)]

mod block;
mod block_slots;
mod builder;
mod cache;
mod compression;
mod cursor;
mod error;
mod filter_block;
mod filter_host;
mod filter_memory;
mod filters;
pub mod format;
mod index;
mod index_tree;
mod keys;
mod layout;
mod many;
mod parallel_reads;
mod prefetch_queue;
mod properties;
mod range_trial;
mod salvage;
pub mod sidecar;
mod sink;
mod source;
mod table;
mod user_filter;
mod verdict;
mod verified;
mod verify;

pub use builder::{TableBuilder, TableOptions, TableSummary};
pub use cache::{BlockCache, CacheStats};
pub use compression::Compression;
pub use cursor::{ScanOptions, TableCursor};
pub use error::Error;
pub use filter_block::FILTER_OVERHEAD_BYTES;
pub use filter_host::{FilterHost, FilterState};
pub use filter_memory::{FilterBytes, FilterMemory};
pub use filters::{
    FilterFacts, FilterPart, FilterPlan, FilterRole, FilterShape, Filters, PrefixExtractor,
    ScanRange, prefix_of,
};
pub use layout::{BlockContent, BlockInfo, layout};
pub use many::{Request, get_many};
pub use properties::{Properties, TableContents};
pub use salvage::Salvage;
pub use sidecar::{Sidecar, SidecarSummary};
pub use source::ReadStats;
pub use table::{Expected, Found, Table, TableConfig, TableMemory, Wants};
pub use user_filter::{UserFilter, UserFilterBuilder, UserFilterReader, contained};
pub use verdict::{Answers, FilterLabel, Verdict};
pub use verify::Verified;

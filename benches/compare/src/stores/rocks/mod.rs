//! RocksDB, through crate `rocksdb`: its set-ups, and the store unless it is built without.

#[cfg(feature = "rocksdb")]
mod store;

use crate::settings::Settings;
use crate::stores::{self, Facts};
#[cfg(feature = "rocksdb")]
pub(crate) use store::{RocksAccounts, RocksLoads, RocksStore};

/// The options of RocksDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) set_up: SetUp,
    /// Whether it writes its log.
    pub(crate) log: bool,
}

/// Options beyond equal limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetUp {
    /// None.
    Equal,
    /// As its documentation advises for point lookups through its cache.
    Cached,
    /// The same, without the page cache.
    Direct,
    /// The same tables, mapped: a mapped block that is not compressed does not go to the cache.
    Mapped,
}

/// A table is marked for compaction if of this many entries in a row this many are tombstones, or
/// of all of its entries this part.
const MARKED: (usize, usize, f64) = (10_000, 5_000, 0.5);
/// The version of the crate, and after the plus sign that of RocksDB.
fn version() -> String {
    format!(
        "rocksdb {}, librocksdb-sys {}",
        stores::locked("rocksdb"),
        stores::locked("librocksdb-sys")
    )
}

/// The fairness block of this set-up.
pub(crate) fn facts(settings: &Settings, variant: Variant) -> Facts {
    let mut facts = stores::tree_facts(settings);
    let (cache, tuned) = match variant.set_up {
        SetUp::Equal => ("LRUCache", "nothing"),
        SetUp::Cached | SetUp::Direct | SetUp::Mapped => (
            "HyperClockCache",
            "hash index in data blocks (0.75), pipelined writes, bytes_per_sync 1 MiB, format_version 6, \
             optimize_filters_for_memory",
        ),
    };
    let (read_by, checksums) = match variant.set_up {
        SetUp::Mapped => ("mmap, not through the cache", "not looked at in reads"),
        SetUp::Direct => (stores::DIRECT, stores::VERIFIED_ONCE),
        SetUp::Equal | SetUp::Cached => ("pread", stores::VERIFIED_ONCE),
    };
    facts.extend([
        ("version", version()),
        ("writes", stores::SINGLE.into()),
        ("log", stores::log(settings, variant.log).into()),
        ("filter", format!("full Bloom, {} bits a key", settings.filter_bits)),
        ("cache", format!("{}, {cache}", stores::size(settings.cache_bytes))),
        ("tables are read by", read_by.into()),
        ("checksum of a block", checksums.into()),
        ("tuned besides", tuned.into()),
    ]);
    if settings.deletes {
        let (entries, tombstones, part) = MARKED;
        let more = format!(
            "{tuned}, CompactOnDeletionCollector ({tombstones} of {entries} entries, or {part} of all)"
        );
        facts.insert("tuned besides", more);
    }
    if variant.set_up != SetUp::Equal {
        facts.insert("level-0 runs that slow, stop writers", "RocksDB's own (20, 36)".into());
    }
    facts
}

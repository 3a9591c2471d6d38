//! Flags of db_bench that this program has not: what becomes of each (see [`crate::foreign`]).
//!
//! Flags that this program has are in `args.rs` and `store.rs`, under db_bench's names or with
//! those as aliases.

use crate::foreign::{Any, Group, Only, Tables, group};

/// Flags of db_bench.
#[derive(Debug)]
pub(crate) enum DbBench {}

impl Tables for DbBench {
    const SWITCHES: &[Group] = SWITCHES;
    const VALUES: &[Group] = VALUES;
}

/// Flags that are on or off.
const SWITCHES: &[Group] = &[
    group(&["verify-checksum"], Only(&["true"]), "checksums are always verified"),
    group(
        &["level-compaction-dynamic-level-bytes"],
        Only(&["true"]),
        "the sizes of levels always follow the largest one",
    ),
    group(
        &["paranoid-checks", "force-consistency-checks", "check-flush-compaction-key-order"],
        Any,
        "what it checks is always checked",
    ),
    group(
        &["disable-data-sync"],
        Only(&["false"]),
        "tables are always synced before the manifest names them",
    ),
    group(
        &["use-data-block-hash-index", "use-hash-search", "enable-index-compression"],
        Any,
        "the format of tables is the store's own",
    ),
    group(
        &["partition-index", "index-with-first-key"],
        Only(&["false"]),
        "the format of tables is the store's own and has no such variant",
    ),
    group(&["use-plain-table", "use-cuckoo-table"], Only(&["false"]), "there is one table format"),
    group(
        &["optimize-filters-for-memory"],
        Any,
        "filters have exactly the bits asked for, without slack of the allocator",
    ),
    group(&["memtable-whole-key-filtering"], Only(&["false"]), "memtables have no filters"),
    group(
        &["allow-concurrent-memtable-write", "enable-pipelined-write", "use-spdb-writes"],
        Any,
        "writers form groups; large batches of a group are inserted side by side",
    ),
    group(
        &["unordered-write", "manual-wal-flush", "inplace-update-support"],
        Only(&["false"]),
        "writes are visible in order, and logged before they are",
    ),
    group(
        &["enable-write-thread-adaptive-yield", "use-adaptive-mutex", "use-dynamic-delay"],
        Any,
        "how writers wait is the store's own choice",
    ),
    group(
        &["use-direct-io-for-flush-and-compaction", "mmap-write"],
        Only(&["false"]),
        "tables are written through the page cache",
    ),
    group(
        &["use-fsync", "advise-random-on-open"],
        Any,
        "the store asks the system for what it needs",
    ),
    group(
        &["enable-io-prio", "enable-cpu-prio", "enable-numa", "rate-limiter-auto-tuned"],
        Only(&["false"]),
        "background work has no priorities of its own; --rate_limiter_bytes_per_sec limits it",
    ),
    group(&["rate-limit-bg-reads"], Only(&["false"]), "reads of compactions are not limited"),
    group(
        &["use-blob-db", "enable-blob-files", "use-blob-cache"],
        Only(&["false"]),
        "values lie in the tables, there are no blob files",
    ),
    group(
        &["transaction-db", "optimistic-transaction-db"],
        Only(&["false"]),
        "there are no transactions; batches are atomic",
    ),
    group(
        &["use-existing-keys", "use-secondary-db", "readonly", "use-tailing-iterator"],
        Only(&["false"]),
        "there is no such thing; --use_existing_db works on a store that is there",
    ),
    group(
        &[
            "use-uint64-comparator",
            "prefix-same-as-start",
            "auto-prefix-mode",
            "seek-missing-prefix",
        ],
        Only(&["false"]),
        "keys are ordered by their bytes, and a seek of a benchmark has no upper end, so that no \
         filter of prefixes may stop it",
    ),
    group(&["total-order-seek", "multiread-batched"], Any, "it is always so"),
    group(
        &["use-compressed-secondary-cache", "cost-write-buffer-to-cache"],
        Only(&["false"]),
        "there is one cache, of blocks as they are read",
    ),
    group(&["async-io"], Only(&["false"]), "reads are synchronous"),
    group(
        &["adaptive-readahead", "io-uring-enabled", "optimize-multiget-for-io"],
        Any,
        "how the store reads ahead is its own choice",
    ),
    group(
        &["expand-range-tombstones", "finish-after-writes", "sine-write-rate", "sine-mix-rate"],
        Only(&["false"]),
        "there is no such workload",
    ),
    group(&["simulate-hdd"], Only(&["false"]), "devices are not simulated"),
    group(
        &[
            "dump-malloc-stats",
            "print-malloc-stats",
            "persist-stats-to-disk",
            "report-bg-io-stats",
            "report-open-timing",
            "report-file-operations",
            "show-table-properties",
        ],
        Any,
        "the workloads stats, memstats and sstables show what the store knows",
    ),
    group(&["progress-reports"], Any, "progress is shown on a terminal only"),
    group(
        &["disable-seek-compaction", "memtable-use-huge-page", "avoid-flush-during-recovery"],
        Any,
        "the store has no such thing to switch",
    ),
    group(
        &["avoid-unnecessary-blocking-io", "allow-data-in-errors", "universal-allow-trivial-move"],
        Any,
        "the store has no such thing to switch",
    ),
    group(&["track-and-verify-wals-in-manifest"], Any, "logs are always chained and checked"),
];

/// Flags with a value.
const VALUES: &[Group] = &[
    group(
        &["cache-numshardbits", "table-cache-numshardbits", "cache-type"],
        Any,
        "the cache divides itself, and is of one kind",
    ),
    group(
        &["cache-high-pri-pool-ratio", "cache-low-pri-pool-ratio"],
        Any,
        "the cache has no priorities",
    ),
    group(&["num-levels"], Any, "levels are added as the data needs them, 7 at most"),
    group(&["perf-level"], Any, "filterstats and stats count for all threads, always"),
    group(
        &["stats-per-interval", "thread-status-per-interval", "slow-usecs", "stats-level"],
        Any,
        "the workloads stats, levelstats and filterstats show it when asked; --histogram shows \
         slow operations",
    ),
    group(
        &["stats-dump-period-sec", "stats-persist-period-sec", "stats-history-buffer-size"],
        Any,
        "the store writes no statistics by itself",
    ),
    group(
        &["ops-between-duration-checks"],
        Any,
        "a thread of its own ends the workload when its time is up",
    ),
    group(
        &["bytes-per-sync", "wal-bytes-per-sync", "delete-obsolete-files-period-micros"],
        Any,
        "when files are written back and removed is the store's own choice",
    ),
    group(
        &[
            "compaction-readahead-size",
            "readahead-size",
            "readahead",
            "log-readahead-size",
            "random-access-max-buffer-size",
            "writable-file-max-buffer-size",
            "compaction-fadvice",
            "initial-auto-readahead-size",
            "max-auto-readahead-size",
            "num-file-reads-for-auto-readahead",
        ],
        Any,
        "the sizes of reads and writes of files are the store's own choice",
    ),
    group(
        &[
            "max-grandparent-overlap-factor",
            "source-compaction-factor",
            "max-compaction-bytes",
            "compaction-pri",
        ],
        Any,
        "what a compaction takes is the store's own choice",
    ),
    group(
        &[
            "hard-rate-limit",
            "soft-rate-limit",
            "rate-limit",
            "rate-limit-delay-max-milliseconds",
            "soft-pending-compaction-bytes-limit",
            "delayed-write-rate",
        ],
        Any,
        "writers are slowed smoothly before the limits at which they are stopped",
    ),
    group(
        &[
            "block-restart-interval",
            "index-block-restart-interval",
            "format-version",
            "index-shortening-mode",
            "data-block-hash-table-util-ratio",
            "checksum-type",
        ],
        Any,
        "the format of tables is the store's own",
    ),
    group(&["bloom-locality"], Any, "blocked and paired filters are always cache-local"),
    group(&["memtable-bloom-size-ratio"], Only(&["0"]), "memtables have no filters"),
    group(&["memtablerep"], Only(&["skip_list", "skiplist"]), "there is one kind of memtable"),
    group(
        &["skip-list-lookahead", "hash-bucket-count", "arena-block-size", "file-opening-threads"],
        Any,
        "the store has no such thing to set",
    ),
    group(
        &["write-thread-max-yield-usec", "write-thread-slow-yield-usec"],
        Any,
        "how writers wait is the store's own choice",
    ),
    group(&["compaction-style"], Only(&["0"]), "there is leveled compaction only"),
    group(
        &[
            "universal-size-ratio",
            "universal-min-merge-width",
            "universal-max-merge-width",
            "universal-max-size-amplification-percent",
            "universal-compression-size-percent",
            "fifo-compaction-max-table-files-size-mb",
            "fifo-compaction-ttl",
        ],
        Any,
        "it is for a style of compaction that is not here",
    ),
    group(
        &["periodic-compaction-seconds", "ttl-seconds", "preclude-last-level-data-seconds"],
        Only(&["0"]),
        "entries do not expire, and tables are not rewritten for their age",
    ),
    group(&["ttl"], Only(&["-1"]), "entries do not expire"),
    group(&["subcompactions"], Only(&["0", "1"]), "a compaction is done by one thread"),
    group(&["target-file-size-multiplier"], Only(&["1"]), "tables of all levels have one size"),
    group(
        &["max-bytes-for-level-multiplier-additional", "column-family-distribution"],
        Only(&[""]),
        "all levels have one ratio, and there is one key space",
    ),
    group(
        &["compression-max-dict-bytes", "compression-zstd-max-train-bytes"],
        Only(&["0"]),
        "there are no dictionaries for compression",
    ),
    group(&["compression-parallel-threads"], Only(&["1"]), "a table is built by one thread"),
    group(&["compression-level", "sample-for-compression"], Any, "LZ4 has one level here"),
    group(&["wal-compression"], Only(&["none"]), "the log is not compressed"),
    group(
        &["num-column-families"],
        Only(&["0", "1"]),
        "there are no column families: a store has one key space",
    ),
    group(
        &["num-hot-column-families", "num-multi-db"],
        Only(&["0"]),
        "there are no column families, and one store in a run",
    ),
    group(&["merge-operator"], Only(&[""]), "there are no merge operators"),
    group(
        &["merge-keys", "mergereadpercent", "deletepercent", "numdistinct", "truth-db"],
        Any,
        "it is for a workload that is not here",
    ),
    group(
        &["keys-per-prefix"],
        Only(&["0"]),
        "keys are numbers in order; --prefix_size makes their first bytes prefixes",
    ),
    group(
        &["memtable-insert-with-hint-prefix-size"],
        Only(&["0"]),
        "memtables know nothing of prefixes",
    ),
    group(&["max-scan-distance"], Only(&["0"]), "seeks have no bound but --seek_nexts"),
    group(
        &["row-cache-size", "prepopulate-block-cache", "read-amp-bytes-per-bit"],
        Only(&["0"]),
        "there is one cache, of blocks as they are read",
    ),
    group(
        &["compressed-cache-size", "simcache-size"],
        Only(&["-1", "0"]),
        "there is one cache, of blocks as they are read",
    ),
    group(&["secondary-cache-uri", "read-cache-path"], Only(&[""]), "there is one cache"),
    group(
        &["read-random-exp-range"],
        Only(&["0"]),
        "keys are drawn evenly; the ycsb workloads have skewed ones",
    ),
    group(&["value-size-distribution-type"], Only(&["fixed"]), "values are of one size"),
    group(
        &["value-size-min", "value-size-max", "overwrite-window-size"],
        Any,
        "it is for a distribution that is not here",
    ),
    group(&["overwrite-probability"], Only(&["0"]), "filluniquerandom writes each key once"),
    group(&["user-timestamp-size"], Only(&["0"]), "keys have no timestamps"),
    group(
        &["writes-per-range-tombstone", "max-num-range-tombstones", "writes-before-delete-range"],
        Only(&["0"]),
        "there are no range tombstones",
    ),
    group(&["range-tombstone-width"], Any, "there are no range tombstones"),
    group(&["multiread-stride"], Only(&["0"]), "the keys of a multi-get are drawn"),
    group(
        &["min-write-buffer-number-to-merge"],
        Only(&["0", "1"]),
        "each memtable becomes a table of its own",
    ),
    group(
        &["max-write-buffer-number-to-maintain", "max-write-buffer-size-to-maintain"],
        Any,
        "nothing is kept for transactions, as there are none",
    ),
    group(
        &["db-write-buffer-size"],
        Only(&["0"]),
        "--write_buffer_size is the limit of a memtable",
    ),
    group(
        &["num-high-pri-threads", "num-low-pri-threads", "num-bottom-pri-threads"],
        Any,
        "--max_background_jobs threads do all work in the background",
    ),
    group(
        &["min-blob-size", "blob-file-size", "blob-compression-type", "blob-cache-size"],
        Any,
        "there are no blob files",
    ),
    group(
        &["rate-limiter-refill-period-us"],
        Any,
        "the limit of background writes is kept without periods",
    ),
    group(
        &["write-batch-protection-bytes-per-key", "memtable-protection-bytes-per-key"],
        Any,
        "what is logged and stored is protected by checksums, memory is not",
    ),
    group(
        &["env-uri", "fs-uri", "options-file", "trace-file", "block-cache-trace-file"],
        Only(&[""]),
        "there is no such file or place to name",
    ),
    group(
        &["max-total-wal-size", "wal-ttl-seconds", "wal-size-limit-MB"],
        Any,
        "a log is removed when all that is in it lies in tables",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::ForeignFlags;

    fn judge(given: &[(&'static str, &str)]) -> Result<Vec<String>, String> {
        let given = given.iter().map(|(name, value)| (*name, (*value).into())).collect();
        ForeignFlags::<DbBench>::new(given).judge().map_err(|failure| failure.to_string())
    }

    #[test]
    fn flags_are_passed_over_accepted_or_refused() {
        assert_eq!(
            judge(&[("compaction-style", "0"), ("memtable-bloom-size-ratio", "0.0")]),
            Ok(vec![])
        );
        let notes = judge(&[("cache-numshardbits", "6"), ("verify-checksum", "true")]).unwrap();
        assert_eq!(
            notes,
            [
                "--cache_numshardbits does nothing here: the cache divides itself, and is of one kind"
            ]
        );
        let refused =
            judge(&[("compaction-style", "1"), ("perf-level", "2"), ("merge-operator", "put")]);
        assert_eq!(
            refused.unwrap_err(),
            "--compaction_style=1 cannot be done: there is leveled compaction only\n       \
             --merge_operator=put cannot be done: there are no merge operators"
        );
    }
}

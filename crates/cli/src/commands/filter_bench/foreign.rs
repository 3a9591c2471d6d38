//! Flags of RocksDB's filter_bench that this program has not: what becomes of each (see
//! [`crate::foreign`]).

use crate::foreign::{Any, Group, Only, Tables, group};

/// Flags of filter_bench.
#[derive(Debug)]
pub(crate) enum FilterBench {}

impl Tables for FilterBench {
    const SWITCHES: &[Group] = &[
        group(
            &["use-full-block-reader"],
            Only(&["false"]),
            "a filter is asked directly, there is no reader of blocks before it",
        ),
        group(
            &["use-plain-table-bloom"],
            Only(&["false"]),
            "there is one table format; its filters are those of --impl",
        ),
        group(&["new-builder"], Any, "each filter always has a builder of its own"),
        group(
            &["optimize-filters-for-memory"],
            Any,
            "filters have exactly the bits asked for, without slack of the allocator",
        ),
        group(
            &["detect-filter-construct-corruption"],
            Only(&["false"]),
            "a builder does not check itself; all keys are asked for when the filters are built",
        ),
        group(
            &["charge-filter-construction"],
            Only(&["false"]),
            "there is no cache here to charge; bytes per key while building are always measured",
        ),
        group(
            &["strict-capacity-limit"],
            Only(&["false"]),
            "there is no cache here whose capacity could be a limit",
        ),
    ];
    const VALUES: &[Group] = &[group(
        &["block-cache-capacity-MB", "block-cache-capacity-mb"],
        Any,
        "filters lie in memory, and not in a cache",
    )];
}

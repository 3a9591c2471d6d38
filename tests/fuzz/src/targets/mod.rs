//! The targets: the meaning of an input to each, and its invariants.

mod blocks;
mod files;
mod filters;
mod operations;
mod sidecars;
mod store;
mod tables;
mod words;

/// A fuzz target.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Takes any bytes, and panics if an invariant is violated.
    pub(crate) run: fn(&[u8]),
    /// Initial inputs: short, real, one of each kind.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

pub(crate) const ALL: &[Target] = &[
    Target { name: "codec", run: words::codec, seeds: words::codec_seeds },
    Target { name: "filter_spec", run: words::specs, seeds: words::spec_seeds },
    Target { name: "filter", run: filters::filter, seeds: filters::filter_seeds },
    Target { name: "range_filter", run: filters::ranges, seeds: filters::range_seeds },
    Target { name: "filter_directory", run: tables::directory, seeds: tables::directory_seeds },
    Target { name: "data_block", run: tables::data_block, seeds: tables::data_block_seeds },
    Target { name: "index", run: tables::index, seeds: tables::index_seeds },
    Target { name: "properties", run: tables::properties, seeds: tables::properties_seeds },
    Target { name: "table", run: tables::table, seeds: tables::table_seeds },
    Target { name: "sidecar", run: sidecars::sidecar, seeds: sidecars::sidecar_seeds },
    Target { name: "log", run: files::log, seeds: files::log_seeds },
    Target { name: "recovery", run: files::recovery, seeds: files::recovery_seeds },
    Target { name: "manifest_edit", run: files::manifest_edit, seeds: files::edit_seeds },
    Target { name: "manifest", run: files::manifest, seeds: files::manifest_seeds },
    Target { name: "dump", run: files::dump, seeds: files::dump_seeds },
    Target { name: "trace", run: files::trace, seeds: files::trace_seeds },
    Target { name: "backup_manifest", run: files::backup_manifest, seeds: files::backup_seeds },
    Target { name: "store", run: store::store, seeds: store::seeds },
    Target { name: "operations", run: operations::operations, seeds: operations::seeds },
    Target { name: "block_round_trip", run: blocks::round_trip, seeds: blocks::seeds },
];

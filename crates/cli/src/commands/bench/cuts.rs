//! How a bench cuts its filters and where it holds them, in this program's own flags and in
//! db_bench's.
//!
//! `--partition_index_and_filters` and `--cache_index_and_filter_blocks` speak of indexes too. The
//! indexes here stay whole and in memory, which a note says.

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use trommel::{FilterResidency, FilterShape, Options};
use trommel_harness::units::{self, parse_bytes};

use super::args::switches;
use crate::failure::Failure;
use crate::shared_args::size;

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct CutArgs {
    /// How filters are cut: whole, partitioned (by key range) or per-block [default: whole]
    #[arg(long, value_name = "SHAPE")]
    filter_shape: Option<FilterShape>,
    /// About how many bytes a piece of a cut filter has
    #[arg(long, value_name = "SIZE", default_value = "32K", value_parser = size)]
    #[arg(alias = "metadata-block-size")]
    filter_piece_bytes: usize,
    /// Where filters are held: pinned (with their table) or cached (in the block cache, if they
    /// fit there) [default: pinned]
    #[arg(long, value_name = "PLACE", value_enum, hide_possible_values = true)]
    filter_residency: Option<Residency>,
    /// Bytes of filters that are pinned at most; others are cached [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pinned_filter_bytes: Option<u64>,
    #[command(flatten)]
    switches: CutSwitches,
}

switches! {
    /// The same as db_bench has it.
    #[command(next_help_heading = "Store")]
    CutSwitches {
        /// Cut filters by key range, as --filter-shape=partitioned; indexes stay whole
        partition_index_and_filters,
        /// Hold filters in the block cache, as --filter-residency=cached; indexes stay in memory
        cache_index_and_filter_blocks,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Residency {
    Pinned,
    Cached,
}

/// What the flags come to.
#[derive(Debug)]
pub(crate) struct Cuts {
    shape: FilterShape,
    piece_bytes: usize,
    residency: Residency,
    pinned_bytes: Option<u64>,
}

impl CutArgs {
    /// What the flags come to, and what to tell the user of them.
    pub(crate) fn resolve(&self) -> Result<(Cuts, Vec<&'static str>), Failure> {
        let mut notes = Vec::new();
        let (mut shape, mut residency) = (self.filter_shape, self.filter_residency);
        if self.switches.partition_index_and_filters {
            let wanted = *shape.get_or_insert(FilterShape::Partitioned);
            if wanted != FilterShape::Partitioned {
                return Err(contradiction("--partition_index_and_filters", "--filter-shape"));
            }
            notes.push("--partition_index_and_filters cuts filters only: indexes stay as they are");
        }
        if self.switches.cache_index_and_filter_blocks {
            if *residency.get_or_insert(Residency::Cached) != Residency::Cached {
                return Err(contradiction("--cache_index_and_filter_blocks", "--filter-residency"));
            }
            notes.push(
                "--cache_index_and_filter_blocks puts filters only into the cache: indexes of open \
                 tables stay in memory",
            );
        }
        let cuts = Cuts {
            shape: shape.unwrap_or_default(),
            piece_bytes: self.filter_piece_bytes,
            residency: residency.unwrap_or(Residency::Pinned),
            pinned_bytes: self.pinned_filter_bytes,
        };
        Ok((cuts, notes))
    }
}

fn contradiction(switch: &str, flag: &str) -> Failure {
    Failure::Usage(format!("{switch} and {flag} say different things: leave one of them out"))
}

impl Cuts {
    /// The options of the store, with these.
    pub(crate) fn apply(&self, options: Options) -> Options {
        options
            .filter_shape(self.shape)
            .filter_piece_bytes(self.piece_bytes)
            .filter_residency(match self.residency {
                Residency::Pinned => FilterResidency::Pinned,
                Residency::Cached => FilterResidency::Cached,
            })
            .pinned_filter_bytes(self.pinned_bytes)
    }

    /// For people, behind the filters: what is not as it is by default.
    pub(crate) fn line(&self) -> String {
        let mut line = String::new();
        let pieces = units::bytes(self.piece_bytes as u64);
        match self.shape {
            FilterShape::Whole => {}
            FilterShape::Partitioned => line += &format!("; partitioned, pieces of {pieces}"),
            FilterShape::PerBlock => line += &format!("; one per block, pieces of {pieces}"),
        }
        match (self.residency, self.pinned_bytes) {
            (Residency::Cached, _) => line += "; in the block cache",
            (Residency::Pinned, Some(most)) => {
                line += &format!("; pinned up to {}", units::bytes(most));
            }
            (Residency::Pinned, None) => {}
        }
        line
    }

    /// Every setting, for programs.
    pub(crate) fn settings(&self) -> [(&'static str, Value); 4] {
        let residency = match self.residency {
            Residency::Pinned => "pinned",
            Residency::Cached => "cached",
        };
        [
            ("filter_shape", json!(self.shape.to_string())),
            ("filter_piece_bytes", json!(self.piece_bytes)),
            ("filter_residency", json!(residency)),
            ("pinned_filter_bytes", json!(self.pinned_bytes)),
        ]
    }
}

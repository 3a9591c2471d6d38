//! The partitioning and the residency of a bench's filters, in this program's own flags and in
//! db_bench's.
//!
//! `--partition_index_and_filters` and `--cache_index_and_filter_blocks` also cover indexes.
//! Indexes here always stay whole and in memory, which a note says. Of db_bench's pinning flags,
//! only those that pin the filters of all levels have an effect here; and, as there, none has if
//! filters are not in the cache to begin with.

use clap::Args;
use clap::builder::BoolishValueParser;
use serde_json::{Value, json};
use trommel::{FilterResidency, FilterShape, Options};
use trommel_harness::units::{self, parse_bytes};

use super::args::switches;
use crate::commands::base::{number, setting};
use crate::failure::Failure;
use crate::shared_args::{one_of, size};

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct PartitionArgs {
    /// How filters are cut: whole or partitioned (by key range) [default: whole]
    #[arg(long, value_name = "SHAPE")]
    filter_shape: Option<FilterShape>,
    /// About how many bytes a piece of a cut filter has [default: 32K]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    #[arg(alias = "metadata-block-size")]
    filter_piece_bytes: Option<usize>,
    /// Where filters are held: pinned (with their table), cached (in the block cache, if they
    /// fit there) or cached-below-level-0 (those of level 0 pinned) [default: pinned]
    #[arg(long, value_name = "PLACE", hide_possible_values = true)]
    #[arg(value_parser = one_of::<FilterResidency>(["pinned", "cached", "cached-below-level-0"]))]
    filter_residency: Option<FilterResidency>,
    /// Bytes of filters that are pinned at most; others are cached [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pinned_filter_bytes: Option<u64>,
    #[command(flatten)]
    switches: PartitionSwitches,
    #[command(flatten)]
    pins: PinSwitches,
}

switches! {
    /// The same as db_bench has it.
    #[command(next_help_heading = "Store")]
    PartitionSwitches {
        /// Cut filters by key range, as --filter-shape=partitioned; indexes stay whole
        partition_index_and_filters,
        /// Hold filters in the block cache, as --filter-residency=cached; indexes stay in memory
        cache_index_and_filter_blocks,
    }
}

switches! {
    /// What db_bench pins of what it caches.
    #[command(next_help_heading = "Store")]
    PinSwitches {
        /// Filters that are not cut
        #[arg(hide = true)]
        unpartitioned_pinning,
        /// Pieces of filters that are
        #[arg(hide = true)]
        partition_pinning,
        /// Filters of level 0
        #[arg(hide = true)]
        pin_l0_filter_and_index_blocks_in_cache,
        /// What says where the pieces of a cut filter lie
        #[arg(hide = true)]
        top_level_index_pinning,
        /// The same, as it was called
        #[arg(hide = true)]
        pin_top_level_index_and_filter,
    }
}

/// The resolved flags.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// None if the store's value applies.
    shape: Option<FilterShape>,
    piece_bytes: Option<usize>,
    residency: FilterResidency,
    pinned_bytes: Option<u64>,
}

impl PartitionArgs {
    /// Resolves the flags; also returns notes for the user.
    pub(crate) fn resolve(&self) -> Result<(Partitions, Vec<String>), Failure> {
        let mut notes = Vec::new();
        let mut shape = self.filter_shape;
        if self.switches.partition_index_and_filters {
            let wanted = *shape.get_or_insert(FilterShape::Partitioned);
            if wanted != FilterShape::Partitioned {
                return Err(contradiction("--partition_index_and_filters", "--filter-shape"));
            }
            notes.push(
                "--partition_index_and_filters cuts filters only: indexes stay as they are".into(),
            );
        }
        let cut = shape.unwrap_or_default();
        let mut wanted = self.filter_residency;
        if self.switches.cache_index_and_filter_blocks {
            let pin = self.pins.of_all_levels(cut);
            let meant = match pin {
                Some(_) => FilterResidency::Pinned,
                None if self.pins.pin_l0_filter_and_index_blocks_in_cache => {
                    FilterResidency::CachedBelowLevel0
                }
                None => FilterResidency::Cached,
            };
            if *wanted.get_or_insert(meant) != meant {
                let switch = pin.unwrap_or("--cache_index_and_filter_blocks");
                return Err(contradiction(switch, "--filter-residency"));
            }
            notes.push(match pin {
                Some(pin) => format!(
                    "{pin} has filters pinned with their tables, outside the cache, as \
                     --filter-residency=pinned"
                ),
                None => {
                    "--cache_index_and_filter_blocks puts filters only into the cache: indexes \
                         of open tables stay in memory"
                        .into()
                }
            });
        }
        let residency = wanted.unwrap_or(FilterResidency::Pinned);
        notes.extend(self.pins.notes(cut, residency));
        let piece_bytes = self.filter_piece_bytes;
        let pinned_bytes = self.pinned_filter_bytes;
        Ok((Partitions { shape, piece_bytes, residency, pinned_bytes }, notes))
    }
}

const UNPARTITIONED: &str = "--unpartitioned_pinning";
const PARTITION: &str = "--partition_pinning";
const LEVEL_0: &str = "--pin_l0_filter_and_index_blocks_in_cache";

impl PinSwitches {
    /// The flag that is given and pins filters of this shape on all levels, if any.
    fn of_all_levels(&self, shape: FilterShape) -> Option<&'static str> {
        match shape {
            FilterShape::Whole => self.unpartitioned_pinning.then_some(UNPARTITIONED),
            _ => self.partition_pinning.then_some(PARTITION),
        }
    }

    /// The reasons why given flags have no additional effect.
    fn notes(&self, shape: FilterShape, residency: FilterResidency) -> Vec<String> {
        let is_whole = shape == FilterShape::Whole;
        let of_others = if is_whole { "filters are not cut" } else { "filters are cut" };
        let tops = "the index of a cut filter's pieces is held where the pieces are";
        let level_0 = "--filter-residency has filters of level 0 in the cache";
        let given = [
            (UNPARTITIONED, self.unpartitioned_pinning && !is_whole, of_others),
            (PARTITION, self.partition_pinning && is_whole, of_others),
            (LEVEL_0, self.pin_l0_filter_and_index_blocks_in_cache, level_0),
            ("--top_level_index_pinning", self.top_level_index_pinning, tops),
            ("--pin_top_level_index_and_filter", self.pin_top_level_index_and_filter, tops),
        ];
        let given = given.into_iter().filter(|(_, is_given, _)| *is_given);
        let why = |otherwise| match residency {
            FilterResidency::Pinned => "all filters are pinned with their tables",
            _ => otherwise,
        };
        let is_done = residency == FilterResidency::CachedBelowLevel0;
        let given = given.filter(|(flag, ..)| !is_done || *flag != LEVEL_0);
        given.map(|(flag, _, other)| format!("{flag} does nothing here: {}", why(other))).collect()
    }
}

fn contradiction(switch: &str, flag: &str) -> Failure {
    Failure::Usage(format!("{switch} and {flag} say different things: leave one of them out"))
}

impl Partitions {
    /// Applies the flags to the store's options.
    pub(crate) fn apply(&self, options: Options) -> Options {
        options.filtering(|mut f| {
            if let Some(shape) = self.shape {
                f = f.filter_shape(shape);
            }
            if let Some(bytes) = self.piece_bytes {
                f = f.filter_piece_bytes(bytes);
            }
            f.filter_residency(self.residency).pinned_filter_bytes(self.pinned_bytes)
        })
    }

    /// The settings that differ from the defaults, for display after the filters.
    pub(crate) fn line(&self, options: &Options) -> String {
        let mut line = String::new();
        let pieces = units::bytes(number(options, "filter_piece_bytes"));
        if setting(options, "filter_shape").as_deref() == Some("partitioned") {
            line += &format!("; partitioned, pieces of {pieces}");
        }
        match (self.residency, self.pinned_bytes) {
            (FilterResidency::Cached, _) => line += "; in the block cache",
            (FilterResidency::CachedBelowLevel0, _) => {
                line += "; in the block cache, of level 0 pinned";
            }
            (FilterResidency::Pinned, Some(most)) => {
                line += &format!("; pinned up to {}", units::bytes(most));
            }
            _ => {}
        }
        line
    }

    /// Every setting, for programs.
    pub(crate) fn settings(&self, options: &Options) -> [(&'static str, Value); 4] {
        [
            ("filter_shape", json!(setting(options, "filter_shape"))),
            ("filter_piece_bytes", json!(number(options, "filter_piece_bytes"))),
            ("filter_residency", json!(self.residency.to_string())),
            ("pinned_filter_bytes", json!(self.pinned_bytes)),
        ]
    }
}

//! Measurements that need a store of their own, each set up for one question.
//!
//! 1. A [`Study`] defines its contenders, their [`Settings`], the steps of a trial, the figures of
//!    its records, and the targets.
//! 2. Each contender is a trial in a process of its own, as in the main measurement; its records
//!    carry the setting [`STUDY`], which keeps them apart.
//! 3. One file per study.
//!
//! Called by the run (for the contenders), the trial (for the steps) and the sheets (for the
//! presentation).

use std::fmt;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trommel_harness::StoreError;
use trommel_harness::units::parse_count;

use crate::figures::{Figure, Results};
use crate::settings::Settings;
use crate::trial::Trial;
use crate::verdict::Verdict;

mod beyond;
mod many;
mod open;
mod recovery;
mod sync;
pub(crate) mod tails;
mod writers;
mod ycsb;

/// The setting of a record that names its study.
pub(crate) const STUDY: &str = "study";

/// One question about the stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Study {
    Sync,
    Writers,
    Open,
    Recovery,
    MultiGet,
    Ycsb,
    Tails,
    Beyond,
}

/// The sizes of the studies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Args)]
pub(crate) struct Sizes {
    /// Seconds of synced writes, for each number of threads
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    pub(crate) sync_seconds: f64,

    /// Writes by several threads, for each number of threads
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub(crate) writers_writes: u64,

    /// Tables of the store to open
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) open_tables: u64,

    /// MiB of keys and values in the log to recover
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) recovery_mib: u64,

    /// Keys of the store for multi-gets
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub(crate) many_keys: u64,

    /// Cold reads of it, of each kind; warm ones are 25 times as many
    #[arg(long, value_name = "N", default_value = "16K", value_parser = parse_count)]
    pub(crate) many_reads: u64,

    /// Records of YCSB's workloads
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub(crate) ycsb_records: u64,

    /// Operations of each workload
    #[arg(long, value_name = "N", default_value = "500K", value_parser = parse_count)]
    pub(crate) ycsb_operations: u64,

    /// Keys of the store that is overwritten at a steady rate
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_count)]
    pub(crate) tails_keys: u64,

    /// Duration of that, in seconds
    #[arg(long, value_name = "N", default_value_t = 15.0)]
    pub(crate) tails_seconds: f64,

    /// Its writes per second; by default, 80% of rocksdb-best's peak in the same round, or if that
    /// is not measured, of each store's own
    #[arg(long, value_name = "N")]
    pub(crate) tails_rate: Option<f64>,

    /// Keys of the store that is larger than its cache
    #[arg(long, value_name = "N", default_value = "4M", value_parser = parse_count)]
    pub(crate) beyond_keys: u64,

    /// Reads of its present keys; of absent ones, 40 times as many
    #[arg(long, value_name = "N", default_value = "50K", value_parser = parse_count)]
    pub(crate) beyond_reads: u64,
}

impl Sizes {
    /// The sizes for `--quick`.
    pub(crate) fn quick() -> Self {
        Self {
            sync_seconds: 0.1,
            writers_writes: 50_000,
            open_tables: 10,
            recovery_mib: 4,
            many_keys: 50_000,
            many_reads: 1000,
            ycsb_records: 20_000,
            ycsb_operations: 10_000,
            tails_keys: 50_000,
            tails_seconds: 0.5,
            tails_rate: None,
            beyond_keys: 50_000,
            beyond_reads: 1000,
        }
    }

    /// All sizes by their names on the command line.
    pub(crate) fn named(&self) -> Vec<(&'static str, Value)> {
        let named = [
            ("sync-seconds", self.sync_seconds.into()),
            ("writers-writes", self.writers_writes.into()),
            ("open-tables", self.open_tables.into()),
            ("recovery-mib", self.recovery_mib.into()),
            ("many-keys", self.many_keys.into()),
            ("many-reads", self.many_reads.into()),
            ("ycsb-records", self.ycsb_records.into()),
            ("ycsb-operations", self.ycsb_operations.into()),
            ("tails-keys", self.tails_keys.into()),
            ("tails-seconds", self.tails_seconds.into()),
            ("beyond-keys", self.beyond_keys.into()),
            ("beyond-reads", self.beyond_reads.into()),
        ];
        let rate = self.tails_rate.map(|rate| ("tails-rate", rate.into()));
        named.into_iter().chain(rate).collect()
    }
}

/// Everything about a study except its settings.
pub(crate) struct Sheet {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The heading.
    pub(crate) title: &'static str,
    /// A description for readers of the figures.
    pub(crate) about: &'static str,
    /// Names of the contenders.
    pub(crate) stores: &'static [&'static str],
    /// The names of its sizes, from [`Sizes::named`].
    pub(crate) sizes: &'static [&'static str],
    /// Headings of tables, and their figures.
    pub(crate) tables: &'static [(&'static str, &'static [Figure])],
    /// The headings of tables of times, in which stores compete.
    pub(crate) raced: &'static [&'static str],
    /// The targets with the measured figures.
    pub(crate) verdicts: fn(&Results, u64) -> Vec<Verdict>,
    /// Why a rival is ahead of Trommel in times, where one is; empty if unknown.
    pub(crate) ahead: &'static str,
    /// What could not be made equal.
    pub(crate) unequal: &'static [&'static str],
}

impl Study {
    /// All, in the order in which they run.
    pub(crate) const ALL: [Self; 8] = [
        Self::Sync,
        Self::Writers,
        Self::Open,
        Self::Recovery,
        Self::MultiGet,
        Self::Ycsb,
        Self::Tails,
        Self::Beyond,
    ];

    pub(crate) fn sheet(self) -> &'static Sheet {
        match self {
            Self::Sync => &sync::SHEET,
            Self::Writers => &writers::SHEET,
            Self::Open => &open::SHEET,
            Self::Recovery => &recovery::SHEET,
            Self::MultiGet => &many::SHEET,
            Self::Ycsb => &ycsb::SHEET,
            Self::Tails => &tails::SHEET,
            Self::Beyond => &beyond::SHEET,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.sheet().name
    }

    /// The conditions that all its stores share.
    pub(crate) fn settings(self, sizes: &Sizes) -> Settings {
        match self {
            Self::Sync => sync::settings(sizes),
            Self::Writers => writers::settings(sizes),
            Self::Open => open::settings(sizes),
            Self::Recovery => recovery::settings(sizes),
            Self::MultiGet => many::settings(sizes),
            Self::Ycsb => ycsb::settings(sizes),
            Self::Tails => tails::settings(sizes),
            Self::Beyond => beyond::settings(sizes),
        }
    }

    /// Runs the steps of `trial`.
    pub(crate) fn run(self, trial: &Trial<'_>) -> Result<(), StoreError> {
        match self {
            Self::Sync => sync::run(trial),
            Self::Writers => writers::run(trial),
            Self::Open => open::run(trial),
            Self::Recovery => recovery::run(trial),
            Self::MultiGet => many::run(trial),
            Self::Ycsb => ycsb::run(trial),
            Self::Tails => tails::run(trial),
            Self::Beyond => beyond::run(trial),
        }
    }
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Study {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|study| study.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no study \"{text}\"; studies are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::Contender;

    #[test]
    fn contenders_of_studies_exist_and_every_size_is_named() {
        let sizes = Sizes { tails_rate: Some(1.0), ..Sizes::quick() };
        let sizes: Vec<_> = sizes.named().into_iter().map(|(name, _)| name).collect();
        for study in Study::ALL {
            assert_eq!(study.name().parse(), Ok(study));
            for name in study.sheet().stores {
                assert!(Contender::named(name).is_some(), "{study}: {name}");
            }
            for name in study.sheet().sizes {
                assert!(sizes.contains(name), "{study}: {name}");
            }
            for heading in study.sheet().raced {
                let is_there = study.sheet().tables.iter().any(|(other, _)| other == heading);
                assert!(is_there, "{study}: {heading}");
            }
        }
        assert!("none".parse::<Study>().unwrap_err().contains("studies are sync"));
    }
}

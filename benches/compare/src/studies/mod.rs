//! Measurements that need a store of their own, each set up for one question.
//!
//! 1. A [`Study`] defines its contenders, their [`Settings`], the steps of a trial, and the figures
//!    of its records.
//! 2. Each contender is a trial in a process of its own, as in the main measurement; its records
//!    have the setting [`SETTING`], which keeps them apart.
//! 3. One file per study.
//!
//! Called by the run (for the contenders), the trial (for the steps) and the report.

use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trommel_harness::StoreError;
use trommel_harness::units::parse_count;

use crate::figures::Figure;
use crate::settings::Settings;
use crate::trial::Trial;

mod deletes;
mod loads;
mod many;
mod open;
mod recovery;
mod shapes;
mod sync;
pub(crate) mod tails;
mod transactions;
mod turns;
mod writers;
mod ycsb;

/// The setting of a record that names its study.
pub(crate) const SETTING: &str = "study";

/// One question about the stores.
#[derive(Debug)]
pub(crate) struct Study {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The heading.
    pub(crate) title: &'static str,
    /// A description for readers of the figures.
    pub(crate) about: &'static str,
    /// Names of the contenders.
    pub(crate) stores: &'static [&'static str],
    /// The flags of its sizes, without dashes before them.
    pub(crate) sizes: &'static [&'static str],
    /// Headings of tables, and their figures.
    pub(crate) tables: &'static [(&'static str, &'static [Figure])],
    /// The headings of tables of times, in which the fastest stores are compared.
    pub(crate) raced: &'static [&'static str],
    /// What could not be made equal.
    pub(crate) unequal: &'static [&'static str],
    /// The conditions that all its stores share.
    pub(crate) settings: fn(&Sizes) -> Settings,
    /// The steps of a trial.
    pub(crate) run: fn(&Trial<'_>) -> Result<(), StoreError>,
}

/// All studies, in the order in which they run.
pub(crate) static ALL: [&Study; 12] = [
    &sync::STUDY,
    &writers::STUDY,
    &open::STUDY,
    &recovery::STUDY,
    &many::STUDY,
    &ycsb::STUDY,
    &tails::STUDY,
    &deletes::STUDY,
    &transactions::STUDY,
    &turns::STUDY,
    &loads::STUDY,
    &shapes::STUDY,
];

impl FromStr for &'static Study {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ALL.into_iter().find(|study| study.name == text).ok_or_else(|| {
            let names = ALL.map(|study| study.name).join(", ");
            format!("there is no study \"{text}\"; studies are {names}")
        })
    }
}

/// The sizes of the studies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Args)]
#[serde(rename_all = "kebab-case")]
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

    /// Most steps of the queue
    #[arg(long, value_name = "N", default_value = "10M", value_parser = parse_count)]
    pub(crate) deletes_steps: u64,

    /// Seconds after which the queue ends in any case
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    pub(crate) deletes_seconds: f64,

    /// Keys of the stores from which they are deleted
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_count)]
    pub(crate) deletes_keys: u64,

    /// Seconds of transactions, for each number of threads
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    pub(crate) transactions_seconds: f64,

    /// Keys of the store that is written and scanned in turns, and turns of each part
    #[arg(long, value_name = "N", default_value = "200K", value_parser = parse_count)]
    pub(crate) turns_keys: u64,

    /// Entries that are loaded into a store
    #[arg(long, value_name = "N", default_value = "5M", value_parser = parse_count)]
    pub(crate) loads_keys: u64,

    /// Entries of the stores with keys of other shapes
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub(crate) shapes_keys: u64,

    /// MiB of large values
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) shapes_mib: u64,
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
            deletes_steps: 2000,
            deletes_seconds: 2.0,
            deletes_keys: 20_000,
            transactions_seconds: 0.1,
            turns_keys: 5_000,
            loads_keys: 20_000,
            shapes_keys: 20_000,
            shapes_mib: 8,
        }
    }

    /// The sizes of a study, by their flags.
    pub(crate) fn of(&self, study: &Study) -> Map<String, Value> {
        let Ok(Value::Object(mut sizes)) = serde_json::to_value(self) else { return Map::new() };
        sizes.retain(|name, value| study.sizes.contains(&name.as_str()) && !value.is_null());
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::Contender;

    #[test]
    fn contenders_of_studies_exist_and_every_size_is_named() {
        let sizes = Sizes { tails_rate: Some(1.0), ..Sizes::quick() };
        for study in ALL {
            let named: &Study = study.name.parse().unwrap();
            assert_eq!(named.title, study.title);
            for name in study.stores {
                assert!(Contender::named(name).is_some(), "{}: {name}", study.name);
            }
            assert_eq!(sizes.of(study).len(), study.sizes.len(), "{}", study.name);
            assert!(study.raced.iter().all(|it| study.tables.iter().any(|(name, _)| name == it)));
        }
        assert!("none".parse::<&Study>().err().unwrap().contains("studies are sync"));
    }
}

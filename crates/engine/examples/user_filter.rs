//! A custom filter: for keys that are numbers in long runs, the list of runs is a filter that takes
//! almost no space and has no false positives.
//!
//! `cargo run --release --example user_filter` prints:
//!
//! ```text
//! level tables       keys   filter  wanted  stored        KiB      probes   negatives     false       true   measured          95% interval   expected
//!    L0      1        500   paired   12.00   13.70        0.8         500           0         0        500          -                     -          -
//!    L1      1      42000     user       -    0.18        0.9       59200       17700         0      41500          0         0 - 0.0002170          0
//! filters take 1.8 KiB; a missing key is expected to waste 6.893e-5 reads
//! user filters: policy "runs of order numbers, v1", 0 failures
//!
//! without the policy the same lookups read 17700 blocks more, since a filter
//! it was made by the policy "runs of order numbers, v1", which this program does not have
//! ```
//!
//! The policy chooses for each table before it is written. Tables written by compactions get the
//! runs; those of level 0, which are soon compacted away, get the filter of `Options::filters`. A
//! table with a filter of the policy records the policy's name; without the policy, the table can
//! still be read, only slower.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use trommel::{
    Db, FilterChoice, FilterContext, FilterReason, Options, UserFilter, UserFilterBuilder,
    UserFilterPolicy,
};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("orders");
    let db = Db::open(&path, options().filtering(|f| f.user_filters(Arc::new(Runs))))?;
    // Of each thousand order numbers, seven hundred are taken.
    for number in (0..60_000).filter(|number| number % 1000 < 700) {
        db.put(key(number), "three of those, and gift wrapping")?;
    }
    db.compact_all()?;
    for number in 0..500 {
        db.put(key(number), "changed: four of those")?;
    }
    db.flush()?;
    db.reset_stats();
    for number in 0..60_000 {
        assert_eq!(db.contains_key(key(number))?, number % 1000 < 700);
    }
    println!("{}", db.filter_report());
    db.close()?;

    let (blocks, why) = reads_without(&path)?;
    println!();
    println!("without the policy the same lookups read {blocks} blocks more, since a filter");
    println!("{why}");
    Ok(())
}

/// Data blocks read by lookups of numbers that are not taken, in a store opened without the policy,
/// and the reason given for its filters.
fn reads_without(path: &Path) -> Result<(u64, String), Box<dyn Error>> {
    let db = Db::open(path, options())?;
    for number in (0..60_000).filter(|number| number % 1000 >= 700) {
        assert!(!db.contains_key(key(number))?);
    }
    let stats = db.stats();
    let why = stats.filters.unusable.first().map(|(_, why)| why.clone());
    db.close()?;
    Ok((stats.lookups.block_reads + stats.lookups.cache_hits, why.unwrap_or_default()))
}

fn options() -> Options {
    Options::default()
        .filters("paired:12".parse().expect("a policy that is written as policies are"))
        .background_threads(0) // so that all runs end in the same tree
}

fn key(number: u64) -> String {
    format!("order{number:08}")
}

/// The number of a key made by `key`, or `None`.
fn number(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok()?.strip_prefix("order")?.parse().ok()
}

/// The policy.
#[derive(Debug)]
struct Runs;

impl UserFilterPolicy for Runs {
    fn name(&self) -> &str {
        "runs of order numbers, v1"
    }

    fn choose(&self, context: &FilterContext) -> FilterChoice {
        match context.reason {
            FilterReason::Compaction => FilterChoice::User(Box::new(RunsBuilder::default())),
            _ => FilterChoice::Spec(context.configured),
        }
    }

    fn open(&self, bytes: &[u8]) -> Result<Box<dyn UserFilter>, String> {
        // The bytes are as written, but perhaps by another version of this program.
        let (numbers, rest) = bytes.as_chunks::<8>();
        let (runs, odd) = numbers.as_chunks::<2>();
        if !rest.is_empty() || !odd.is_empty() {
            return Err(format!("{} bytes are not a list of runs", bytes.len()));
        }
        let runs = runs.iter().map(|run| run.map(u64::from_le_bytes)).collect();
        Ok(Box::new(RunsFilter { runs }))
    }
}

/// The first and the last number of each run.
#[derive(Debug, Default)]
struct RunsBuilder {
    runs: Vec<[u64; 2]>,
}

impl UserFilterBuilder for RunsBuilder {
    fn add(&mut self, key: &[u8], _hash: u64) {
        let Some(number) = number(key) else { return };
        match self.runs.last_mut() {
            Some([_, last]) if *last + 1 == number => *last = number,
            _ => self.runs.push([number; 2]),
        }
    }

    fn finish(self: Box<Self>) -> Vec<u8> {
        self.runs.as_flattened().iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn memory_bytes(&self) -> usize {
        2 * size_of_val(&*self.runs)
    }
}

#[derive(Debug)]
struct RunsFilter {
    runs: Vec<[u64; 2]>,
}

impl UserFilter for RunsFilter {
    fn may_contain(&self, key: &[u8], _hash: u64) -> bool {
        // Keys that are not order numbers were not recorded.
        let Some(number) = number(key) else { return true };
        let behind = self.runs.partition_point(|[first, _]| *first <= number);
        self.runs[..behind].last().is_some_and(|[_, last]| number <= *last)
    }

    fn expected_fpr(&self) -> f64 {
        0.0
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.runs)
    }
}

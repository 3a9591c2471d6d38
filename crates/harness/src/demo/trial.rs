//! The demo's trial of one filter policy.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use trommel::{Compression, FilterPolicy, FilterReport, Options, wilson};

use super::DemoPlan;
use crate::control::{Control, Unit};
use crate::engine_store::{EngineOpener, EngineStore};
use crate::error::Error;
use crate::measure::{Load, WorkloadOptions, measure};
use crate::measured::Measured;
use crate::store::{Level, Lookups, Store};
use crate::units;
use crate::workload::Workload;

/// The result of one filter policy.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) policy: String,
    pub(super) fill: Measured,
    pub(super) present: LookupPhase,
    pub(super) missing: LookupPhase,
    /// The filters' counters over the missing lookups alone.
    pub(super) report: FilterReport,
}

/// The lookups of one kind.
#[derive(Debug)]
pub(super) struct LookupPhase {
    pub(super) measured: Measured,
    pub(super) lookups: Lookups,
}

impl LookupPhase {
    /// Data blocks searched per lookup.
    pub(super) fn blocks(&self) -> f64 {
        self.blocks_from_files() + self.lookups.cache_hits as f64 / self.operations()
    }

    /// Data blocks read from files per lookup.
    pub(super) fn blocks_from_files(&self) -> f64 {
        self.lookups.block_reads as f64 / self.operations()
    }

    fn operations(&self) -> f64 {
        self.measured.operations.max(1) as f64
    }
}

impl Trial {
    /// Bytes of all filters.
    pub(super) fn filter_bytes(&self) -> u64 {
        self.report.levels.iter().map(|level| level.filter_bytes).sum()
    }

    /// Bits per key of all filters, over the keys of all tables.
    pub(super) fn bits_per_key(&self) -> f64 {
        let keys: u64 = self.report.levels.iter().map(|level| level.keys).sum();
        self.filter_bytes() as f64 * 8.0 / keys.max(1) as f64
    }

    /// False positives of all missing lookups.
    pub(super) fn false_positives(&self) -> u64 {
        self.report.levels.iter().map(|level| level.counts.false_positives).sum()
    }

    /// False positives per missing lookup.
    pub(super) fn measured_rate(&self) -> f64 {
        self.false_positives() as f64 / self.missing.operations()
    }

    /// The 95% confidence interval of the rate: Wilson's, over the probes of absent keys, as in the
    /// report of each level.
    pub(super) fn interval(&self) -> (f64, f64) {
        let levels = &self.report.levels;
        let probes: u64 =
            levels.iter().map(|level| level.counts.negatives + level.counts.false_positives).sum();
        let (low, high) = wilson(self.false_positives(), probes);
        let for_lookup = probes as f64 / self.missing.operations();
        (low * for_lookup, high * for_lookup)
    }

    /// The inverse of the false-positive rate per filter query, rounded.
    pub(super) fn one_in(&self) -> Option<u64> {
        let one_in = self.probes() * self.missing.operations() / self.false_positives() as f64;
        one_in.is_finite().then_some(one_in.round() as u64)
    }

    /// Expected false positives per missing lookup, by the theory of the filters queried.
    pub(super) fn expected_rate(&self) -> f64 {
        let expected: f64 = self
            .report
            .levels
            .iter()
            .filter_map(|level| {
                let queries = level.counts.negatives + level.counts.false_positives;
                level.rates.expected.map(|rate| rate * queries as f64)
            })
            .sum();
        expected / self.missing.operations()
    }

    /// Filters queried per missing lookup.
    pub(super) fn probes(&self) -> f64 {
        let probes: u64 = self.report.levels.iter().map(|level| level.counts.probes).sum();
        probes as f64 / self.missing.operations()
    }
}

/// Fills a store in `dir` under `policy`, and looks up keys in it.
pub(super) fn run(
    plan: &DemoPlan,
    policy: &FilterPolicy,
    dir: &Path,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<Trial, Error> {
    let tree = plan.tree;
    let options = Options::default()
        .filters(policy.clone())
        .compression(Compression::None)
        .writes(|w| {
            w.write_buffer_bytes(usize::try_from(tree.write_buffer_bytes).unwrap_or(usize::MAX))
        })
        .compaction(|c| c.base_level_bytes(tree.base_level_bytes).table_bytes(tree.table_bytes))
        .reads(|r| r.cache_bytes(tree.cache_bytes).read_mode(tree.read_mode))
        // The writer thread flushes and compacts, so that the trees of all trials are alike.
        .background_threads(0);
    let store = Arc::new(EngineOpener::new(dir, options, Vec::new()).open_engine(true)?);
    let result = Steps { plan, policy, store: &store, control, out }.all();
    let closed = control.close(store);
    let trial = result?;
    closed?;
    Ok(trial)
}

/// A trial in progress.
struct Steps<'a> {
    plan: &'a DemoPlan,
    policy: &'a FilterPolicy,
    store: &'a Arc<EngineStore>,
    control: Control<'a>,
    out: &'a mut dyn Write,
}

impl Steps<'_> {
    fn all(&mut self) -> Result<Trial, Error> {
        let plan = self.plan;
        let fill = self.operations(Workload::FillRandom, plan.writes, 1)?;
        self.settle()?;
        let present = self.lookups(Workload::ReadRandom, plan.reads)?;
        let missing = self.lookups(Workload::ReadMissing, plan.missing)?;
        let report = self.store.db().filter_report();
        writeln!(self.out, "{}", report.to_string().trim_end())?;
        self.out.flush()?;
        Ok(Trial { policy: self.policy.to_string(), fill, present, missing, report })
    }

    /// Waits for compaction to finish, and reports the tree.
    fn settle(&mut self) -> Result<(), Error> {
        let (done, time) = self.control.call(self.store, "settle", Store::settle)?;
        done.ok_or(Error::Interrupted)?;
        let levels = self.store.levels();
        writeln!(self.out, "settled in {}: {}", units::duration(time), describe(&levels))?;
        Ok(self.out.flush()?)
    }

    fn lookups(&mut self, workload: Workload, operations: u64) -> Result<LookupPhase, Error> {
        self.store.reset_stats();
        let measured = self.operations(workload, operations, self.plan.threads)?;
        Ok(LookupPhase { measured, lookups: self.store.lookups() })
    }

    fn operations(
        &mut self,
        workload: Workload,
        operations: u64,
        threads: usize,
    ) -> Result<Measured, Error> {
        let load = Load {
            threads,
            operations: operations.div_ceil(threads as u64),
            seed: self.plan.seed,
            stream: workload as u64,
            options: WorkloadOptions { tail_bytes: 8, ..WorkloadOptions::default() },
            ..Load::new(&self.plan.keys, &self.plan.values)
        };
        self.control.progress.begin(workload.name(), operations, Unit::Operations);
        let measured = measure(&**self.store, workload, &load, self.control);
        self.control.progress.end();
        let measured = measured?;
        writeln!(self.out, "{}", measured.line(workload.name()))?;
        self.out.flush()?;
        if measured.interrupted {
            return Err(Error::Interrupted);
        }
        Ok(measured)
    }
}

fn describe(levels: &[Level]) -> String {
    let texts: Vec<String> = levels
        .iter()
        .filter(|level| level.files > 0)
        .map(|level| {
            let tables = if level.files == 1 { "table" } else { "tables" };
            format!("L{} {} {tables} {}", level.level, level.files, units::bytes(level.bytes))
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_described_by_its_levels() {
        let level = |level, files, bytes| Level { level, files, bytes };
        assert_eq!(
            describe(&[level(0, 1, 3 << 20), level(1, 0, 0), level(2, 9, 70 << 20)]),
            "L0 1 table 3 MiB, L2 9 tables 70 MiB"
        );
    }
}

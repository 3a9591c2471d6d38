//! The planner by transcripts, and all of compaction by random simulation.

mod between;
mod share;
mod simulator;
mod slices;
mod steps;
mod tiny;
mod transcripts;
mod unseen;
mod write_cost;

use std::sync::Arc;

use crate::version::{FilterMeta, TableFile, TableMeta, Version};

use super::plan::Plan;

/// Whether this is a run of the project's CI, which takes the time for more.
fn is_ci() -> bool {
    std::env::var("TROMMEL_LANES").is_ok_and(|size| size == "ci")
}

/// A table of which only these properties matter.
fn table(number: u64, smallest: &[u8], largest: &[u8], file_bytes: u64) -> TableMeta {
    TableMeta {
        number,
        table_id: number,
        file_bytes,
        smallest: smallest.into(),
        largest: largest.into(),
        min_seqno: number,
        max_seqno: number,
        entries: 10,
        deletions: 0,
        keys: 10,
        filters: FilterMeta { bytes: 0, built_for: 0, sidecar: None },
        ranges_applied: 0,
    }
}

/// A version of tables given as (level, number, smallest, largest), level 0 newest first.
pub(super) fn tree(tables: &[(usize, u64, &str, &str)]) -> Version {
    let mut version = Version::default();
    for (level, number, smallest, largest) in tables {
        let meta = table(*number, smallest.as_bytes(), largest.as_bytes(), 10);
        version.levels[*level].push(Arc::new(TableFile::new(meta)));
    }
    version
}

/// `version` with the inputs of `plan` replaced by `outputs`; unless `is_last`, only those of its
/// output level.
fn install(version: &Version, plan: &Plan, is_last: bool, outputs: Vec<Arc<TableFile>>) -> Version {
    let mut next = version.clone();
    let replaced = || plan.replaced().iter().chain(plan.above().filter(|_| is_last));
    let is_input = |table: &Arc<TableFile>| replaced().any(|t| t.number == table.number);
    for run in &mut next.levels {
        run.retain(|table| !is_input(table));
    }
    let run = &mut next.levels[plan.output_level];
    run.extend(outputs);
    run.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    next
}

/// A small generator of well-mixed numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

//! The demo: the store's core scenario, once for each of several filter policies.
//!
//! 1. Print the plan, its directory and the disk space that it takes; fail if that much is not
//!    free.
//! 2. For each filter policy, in a store of its own: write keys drawn with replacement, wait until
//!    compaction is done, read keys drawn the same way, look up absent keys.
//! 3. Compare the filters in one table.
//!
//! Every figure comes from the run. Absent keys end in eight random bytes, so that no two are
//! alike: false positives are independent, and the confidence interval of a rate is valid.

mod report;
mod trial;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use trommel::{FilterPolicy, ReadMode};

use crate::control::Control;
use crate::error::Error;
use crate::keys::KeySpace;
use crate::scratch::ScratchDir;
use crate::units;
use crate::values::Values;

/// The plan of a demo.
#[derive(Debug, Clone)]
pub struct DemoPlan {
    /// The filters to compare, in the order of the table's columns.
    pub policies: Vec<FilterPolicy>,
    /// The keys drawn from.
    pub keys: KeySpace,
    /// The path of the file of keys, for the report; none for integers.
    pub keys_file: Option<PathBuf>,
    /// The values written.
    pub values: Values,
    /// Number of writes.
    pub writes: u64,
    /// Number of lookups of keys drawn as for the writes.
    pub reads: u64,
    /// Number of lookups of absent keys.
    pub missing: u64,
    /// Threads that look up keys; one thread writes.
    pub threads: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// The parent of the stores' directory.
    pub parent: PathBuf,
    /// The shape of the stores.
    pub tree: Tree,
}

/// Approximate bytes of an entry besides its key and value.
const ENTRY_BYTES: f64 = 16.0;
/// Ratio of data to write buffer: large enough for several levels.
const DATA_PER_WRITE_BUFFER: f64 = 32.0;
const WRITE_BUFFER_BYTES_MIN: u64 = 64 << 10;
/// Largest write buffer of a store.
const WRITE_BUFFER_BYTES_MAX: u64 = 4 << 30;

/// The shape of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Bytes of a memtable.
    pub write_buffer_bytes: u64,
    /// Bytes of the smallest level after level 0.
    pub base_level_bytes: u64,
    /// Bytes of a table.
    pub table_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// How blocks are read.
    pub read_mode: ReadMode,
}

impl Tree {
    /// A tree small enough that the data makes several levels and a lookup meets several filters:
    /// the write buffer is the power of two nearest to 1/32 of the data, and the rest is in
    /// proportion. 4 MiB for a million entries of 116 bytes, and never more than 4 GiB.
    pub fn for_data(keys: &KeySpace, values: &Values, writes: u64) -> Self {
        let buffer = (data_bytes(keys, values, writes) / DATA_PER_WRITE_BUFFER).max(1.0);
        let power = buffer.log2().round().min(40.0) as u32;
        let write_buffer_bytes = (1 << power).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX);
        Self {
            write_buffer_bytes,
            base_level_bytes: 4 * write_buffer_bytes,
            table_bytes: 2 * write_buffer_bytes,
            cache_bytes: 2 * write_buffer_bytes,
            read_mode: ReadMode::Cached,
        }
    }
}

fn data_bytes(keys: &KeySpace, values: &Values, writes: u64) -> f64 {
    (keys.key_bytes() + values.value_bytes() as f64 + ENTRY_BYTES) * writes as f64
}

impl DemoPlan {
    /// Approximate upper bound of the disk space of one store: all data written, and the tables and
    /// logs that compaction has not replaced yet.
    pub fn disk_bytes(&self) -> u64 {
        let written = data_bytes(&self.keys, &self.values, self.writes) as u64;
        written.saturating_add(16 * self.tree.write_buffer_bytes)
    }
}

/// Runs the demo and writes the results to `out`. Its files are removed at the end, even after an
/// error or a stop.
///
/// # Errors
/// The first that a store or `out` reports; [`Error::Usage`] if the disk has too little free space;
/// [`Error::Interrupted`] if stopped.
pub fn demo(plan: &DemoPlan, control: Control<'_>, out: &mut dyn Write) -> Result<(), Error> {
    let start = Instant::now();
    let scratch = ScratchDir::new(&plan.parent)?;
    let free = scratch.free_bytes();
    report::introduce(plan, scratch.path(), free, out)?;
    let needs = plan.disk_bytes();
    if let Some(free) = free.filter(|free| *free < needs) {
        return Err(Error::Usage(format!(
            "{} has {} free, and up to {} may be needed: give another directory with --dir, or \
             fewer keys with --num",
            plan.parent.display(),
            units::bytes(free),
            units::bytes(needs)
        )));
    }
    let mut trials = Vec::new();
    for policy in &plan.policies {
        let nth = trials.len() + 1;
        let left = report::left(start.elapsed(), trials.len(), plan.policies.len());
        writeln!(out, "\n[{nth}/{}] {policy}{left}", plan.policies.len())?;
        out.flush()?;
        let dir = scratch.path().join(nth.to_string());
        trials.push(trial::run(plan, policy, &dir, control, out)?);
        std::fs::remove_dir_all(&dir).map_err(|error| Error::io(&dir, "removing", error))?;
    }
    report::compare(plan, &trials, out)?;
    let place = scratch.path().display().to_string();
    scratch.remove()?;
    let took = units::duration(start.elapsed());
    writeln!(out, "\nDone in {took}; {place} is removed.")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Silent, Stop};

    fn plan(parent: &ScratchDir) -> DemoPlan {
        let keys = KeySpace::integers(3000, 16).unwrap();
        let values = Values::new(100, 0.5, 42);
        DemoPlan {
            policies: ["paired:10", "none"].map(|text| text.parse().unwrap()).to_vec(),
            tree: Tree::for_data(&keys, &values, 3000),
            keys,
            keys_file: None,
            values,
            writes: 3000,
            reads: 1000,
            missing: 20_000,
            threads: 2,
            seed: 42,
            parent: parent.path().to_path_buf(),
        }
    }

    #[test]
    fn the_tree_grows_with_its_data() {
        let keys = KeySpace::integers(1 << 40, 16).unwrap();
        let values = Values::new(100, 0.5, 42);
        let buffer = |writes| Tree::for_data(&keys, &values, writes).write_buffer_bytes;
        assert_eq!(buffer(1), 64 << 10);
        assert_eq!(buffer(100_000), 512 << 10);
        assert_eq!(buffer(1_000_000), 4 << 20);
        // It used to exceed the maximum of a store.
        for writes in [1_500_000_000, u64::MAX] {
            assert_eq!(buffer(writes), 4 << 30);
        }
    }

    #[test]
    fn it_ends_in_a_table_and_leaves_nothing() {
        let parent = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let mut out = Vec::new();
        let control = Control { stop: &Stop::new(), progress: &Silent };
        demo(&plan(&parent), control, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "write 3,000 values of 100 bytes",
            "look up 20,000 absent keys",
            &format!("{}/trommel-", parent.path().display()),
            "[1/2] paired:10",
            "[2/2] none",
            "\nreadmissing  : ",
            "(0 of 20000 found)",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let table = text.lines().filter(|line| line.starts_with('|')).collect::<Vec<_>>();
        assert!(table[0].contains("paired:10") && table[0].contains("none"), "{text}");
        assert!(table.len() > 10, "{text}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_stop_and_a_full_disk_leave_nothing_either() {
        let parent = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let stop = Stop::new();
        stop.set();
        let control = Control { stop: &stop, progress: &Silent };
        let mut out = Vec::new();
        let result = demo(&plan(&parent), control, &mut out);
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        assert!(String::from_utf8(out).unwrap().contains("(interrupted)"));
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);

        let mut large = plan(&parent);
        large.writes = u64::MAX;
        let control = Control { stop: &Stop::new(), progress: &Silent };
        let result = demo(&large, control, &mut Vec::new());
        assert!(matches!(&result, Err(Error::Usage(what)) if what.contains("--dir")), "{result:?}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}

//! The shape of a hypothetical tree.
//!
//! # Assumptions
//! 1. Every key is written once, in random order, and nothing is deleted: each key is in one table.
//!    Obsolete versions that are not yet compacted away, and tombstones, come on top.
//! 2. An entry takes `key_bytes + value_bytes + overhead_bytes` in a table, times `compressed`. In
//!    a memtable nothing is compressed, and an entry takes [`MEMTABLE_OVERHEAD`] bytes more than
//!    key and value.
//! 3. There are [`TreeShape::l0_runs`] runs in level 0, each of one full memtable; the memtables
//!    themselves are empty.
//! 4. Levels are sized as in the engine: the deepest has no bound. If a level would have to hold
//!    more than `base_level_bytes`, or twice that if it is not the deepest, another is added above
//!    it, whose target is the level's size divided by the ratio and at least `base_level_bytes`.
//!    The topmost level holds the growth of the tree since that level was added, at most its
//!    target; those below it are full; the deepest has the rest.
//! 5. Each run covers all keys, and its tables share them evenly. Tables of the deepest level have
//!    `table_bytes`, those above eight tenths of it: they end where tables of the next level end.

use trommel::tuning::{BASE_LEVEL_GROWTH, MEMTABLE_OVERHEAD, Run, Table, Tree, TuningError};

/// Levels of a tree below level 0.
const LEVELS: usize = 6;
/// The most bytes of any field.
const MOST_BYTES: f64 = (1_u64 << 50) as f64;
/// The fraction of `table_bytes` that tables above the deepest level have.
const UPPER_TABLES: f64 = 0.8;

/// The parameters of a tree's shape. The default is a store of a million keys of 16 bytes with
/// values of 100, with the engine's own sizes.
///
/// ```
/// use trommel_lab::simulate::TreeShape;
/// let tree = TreeShape { keys: 1_000_000_000, value_bytes: 256, ..TreeShape::default() }.tree()?;
/// assert_eq!(tree.keys(), 1_000_000_000);
/// let levels: Vec<usize> = tree.runs().iter().map(|run| run.level).collect();
/// assert_eq!(levels, [0, 0, 1, 2, 3, 4]);
/// # Ok::<(), trommel::tuning::TuningError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TreeShape {
    /// Distinct keys: 0 to 2^50.
    pub keys: u64,
    /// Bytes of a key: 0 to 2^50.
    pub key_bytes: u64,
    /// Bytes of a value: 0 to 2^50.
    pub value_bytes: u64,
    /// Bytes that an entry takes in a table in addition to both, before compression: 0 to 2^50.
    pub overhead_bytes: u64,
    /// Compressed bytes per uncompressed byte; above 0, and at most 1.
    pub compressed: f64,
    /// Bytes of a memtable: 1 to 2^50.
    pub write_buffer_bytes: u64,
    /// Bytes at which a table is closed: 1 to 2^50.
    pub table_bytes: u64,
    /// Bytes that the topmost level below 0 may hold: 1 to 2^50.
    pub base_level_bytes: u64,
    /// The ratio of a level's size to the size of the one above: 2 to 1000.
    pub level_ratio: u64,
    /// Runs in level 0: 0 to 1000.
    pub l0_runs: u64,
}

impl Default for TreeShape {
    fn default() -> Self {
        Self {
            keys: 1_000_000,
            key_bytes: 16,
            value_bytes: 100,
            overhead_bytes: 8,
            compressed: 1.0,
            write_buffer_bytes: 64 << 20,
            table_bytes: 64 << 20,
            base_level_bytes: 256 << 20,
            level_ratio: 10,
            l0_runs: 2,
        }
    }
}

impl TreeShape {
    /// The tree of this shape.
    ///
    /// # Errors
    /// A number is out of range: see each field.
    pub fn tree(&self) -> Result<Tree, TuningError> {
        let entry = self.checked_entry_bytes()?;
        let in_memory = self.key_bytes + self.value_bytes + MEMTABLE_OVERHEAD;
        let buffered = (self.write_buffer_bytes / in_memory).max(1);
        let mut left = self.keys;
        let mut runs = Vec::new();
        for _ in 0..self.l0_runs {
            let keys = buffered.min(left);
            left -= keys;
            if keys > 0 {
                runs.push(even_run(0, keys, entry, 1));
            }
        }
        let levels = self.levels(left as f64 * entry);
        let deepest = levels.len();
        for (above, bytes) in levels.into_iter().enumerate() {
            let level = above + 1;
            let is_last = level == deepest;
            let keys = if is_last { left } else { ((bytes / entry) as u64).min(left) };
            left -= keys;
            let part = if is_last { 1.0 } else { UPPER_TABLES };
            let tables = (keys as f64 * entry / (self.table_bytes as f64 * part)).ceil() as u64;
            if keys > 0 {
                runs.push(even_run(level, keys, entry, tables.clamp(1, keys)));
            }
        }
        Tree::new(runs)
    }

    /// Bytes of an entry in a table, if all fields are in range.
    fn checked_entry_bytes(&self) -> Result<f64, TuningError> {
        let bytes = "1 to 2^50";
        for (what, value) in [
            ("the bytes of a memtable", self.write_buffer_bytes),
            ("the bytes of a table", self.table_bytes),
            ("the bytes of the base level", self.base_level_bytes),
        ] {
            within(what, value as f64, (1.0, MOST_BYTES), bytes)?;
        }
        for (what, value) in [
            ("the bytes of a key", self.key_bytes),
            ("the bytes of a value", self.value_bytes),
            ("the bytes of overhead of an entry", self.overhead_bytes),
        ] {
            within(what, value as f64, (0.0, MOST_BYTES), "0 to 2^50")?;
        }
        within("the number of keys", self.keys as f64, (0.0, MOST_BYTES), "0 to 2^50")?;
        within("the ratio of two levels", self.level_ratio as f64, (2.0, 1000.0), "2 to 1000")?;
        within("the number of runs in level 0", self.l0_runs as f64, (0.0, 1000.0), "0 to 1000")?;
        let least = f64::MIN_POSITIVE;
        within("the compressed fraction", self.compressed, (least, 1.0), "above 0, and at most 1")?;
        let entry = (self.key_bytes + self.value_bytes + self.overhead_bytes) as f64;
        Ok((entry * self.compressed).max(1.0))
    }

    /// Bytes of each level below 0, the topmost first, if they have `bytes` in all.
    fn levels(&self, bytes: f64) -> Vec<f64> {
        let (base, ratio) = (self.base_level_bytes as f64, self.level_ratio as f64);
        let mut upper = Vec::new();
        let mut part = bytes;
        // The tree's bytes when the topmost level was opened.
        let mut opened_at = base;
        let mut most = base;
        while part > most && upper.len() + 1 < LEVELS {
            opened_at = most * ratio.powi(upper.len() as i32);
            most = base * BASE_LEVEL_GROWTH as f64;
            part /= ratio;
            upper.push(part.max(base));
        }
        if let Some(top) = upper.last_mut() {
            *top = top.min(bytes - opened_at);
        }
        upper.reverse();
        let rest = bytes - upper.iter().sum::<f64>();
        upper.push(rest.max(0.0));
        upper
    }
}

/// An error unless `value` is a number from `least` to `most`.
fn within(
    what: &'static str,
    value: f64,
    (least, most): (f64, f64),
    bounds: &'static str,
) -> Result<(), TuningError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(TuningError::OutOfRange { what, value, bounds })
}

/// A run of `tables` tables, as equal as whole keys allow.
fn even_run(level: usize, keys: u64, entry_bytes: f64, tables: u64) -> Run {
    let larger = keys % tables;
    let table = |keys: u64, alike| Table {
        keys,
        bytes: (keys as f64 * entry_bytes) as u64,
        reach: 1.0 / tables as f64,
        alike,
    };
    let even = [table(keys / tables + 1, larger), table(keys / tables, tables - larger)];
    Run { level, tables: even.into_iter().filter(|table| table.alike > 0).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels of a tree of `keys` entries of 100 bytes, with their MiB.
    fn levels(keys: u64) -> Vec<(usize, u64)> {
        let shape = TreeShape { keys, value_bytes: 76, l0_runs: 0, ..TreeShape::default() };
        let tree = shape.tree().unwrap();
        assert_eq!(tree.keys(), keys, "no key is lost");
        let mib = |keys: u64| (keys as f64 * 100.0 / f64::from(1 << 20)).round() as u64;
        tree.runs().iter().map(|run| (run.level, mib(run.keys()))).collect()
    }

    /// The number of keys whose entries of 100 bytes make `mib` MiB.
    fn mib(mib: u64) -> u64 {
        (mib << 20) / 100
    }

    #[test]
    fn levels_open_as_the_data_grows() {
        assert_eq!(levels(mib(200)), [(1, 200)], "one level holds all");
        assert_eq!(levels(mib(300)), [(1, 44), (2, 256)], "the upper one has just begun");
        assert_eq!(levels(mib(1500)), [(1, 256), (2, 1244)], "no less than the base level's bytes");
        assert_eq!(levels(mib(5000)), [(1, 500), (2, 4500)], "it may be twice that");
        // Above 5,120 MiB a third is opened; the levels below it are full.
        assert_eq!(levels(mib(5200)), [(1, 80), (2, 520), (3, 4600)]);
        assert_eq!(levels(mib(20_000)), [(1, 256), (2, 2000), (3, 17_744)]);
    }

    #[test]
    fn the_deepest_tree_has_seven_levels() {
        let shape = TreeShape { keys: 1 << 45, ..TreeShape::default() };
        let tree = shape.tree().unwrap();
        assert_eq!(tree.runs().last().unwrap().level, 6);
        assert_eq!(tree.keys(), shape.keys);
    }

    #[test]
    fn runs_cover_all_keys() {
        let tree = TreeShape { keys: 123_456_789, ..TreeShape::default() }.tree().unwrap();
        for run in tree.runs() {
            let reach: f64 = run.tables.iter().map(|t| t.reach * t.alike as f64).sum();
            assert!((reach - 1.0).abs() < 1e-9);
        }
        let last = tree.runs().last().unwrap();
        let bytes = last.tables[0].bytes;
        assert!((0.9..=1.0).contains(&(bytes as f64 / (64 << 20) as f64)), "{bytes}");
    }

    #[test]
    fn few_keys_make_a_small_tree_and_nonsense_is_refused() {
        let tree = |keys| TreeShape { keys, ..TreeShape::default() }.tree().unwrap();
        assert!(tree(0).runs().is_empty());
        assert_eq!(tree(1).runs().len(), 1);
        for shape in [
            TreeShape { compressed: 0.0, ..TreeShape::default() },
            TreeShape { compressed: f64::NAN, ..TreeShape::default() },
            TreeShape { level_ratio: 1, ..TreeShape::default() },
            TreeShape { table_bytes: 0, ..TreeShape::default() },
            TreeShape { keys: u64::MAX, ..TreeShape::default() },
            TreeShape { value_bytes: u64::MAX, ..TreeShape::default() },
        ] {
            assert!(shape.tree().unwrap_err().to_string().contains("give"), "{shape:?}");
        }
    }
}

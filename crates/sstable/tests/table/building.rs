//! The reported memory of filters under construction is an upper bound.

use std::io;
use std::path::Path;

use trommel_base::EntryKind;
use trommel_filter::{FilterSpec, RangeSpec};
use trommel_sstable::{Compression, FilterPlan, FilterShape, TableBuilder, TableOptions};
use trommel_vfs::WriteFile;

use crate::allocator::most_held;
use crate::common::options;
use crate::filter_shapes::SHAPES;

/// A file that discards its bytes.
#[derive(Debug)]
struct Nowhere(u64);

impl WriteFile for Nowhere {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.0
    }
}

/// The highest memory that the builder reports for its filters, and the peak memory of the builder.
fn built(keys: &str, shape: FilterShape, partition_bytes: usize, count: u64) -> (u64, u64) {
    let keys: FilterSpec = keys.parse().unwrap();
    // The tables of the rate theory live as long as the process and belong to no filter.
    keys.expected_fpr(count);
    let filters = FilterPlan { keys, shape, partition_bytes, ..FilterPlan::default() };
    built_by(TableOptions { filters, ..options(4096, Compression::None, "none") }, count)
}

/// As `built`, with these options.
fn built_by(options: TableOptions, count: u64) -> (u64, u64) {
    most_held(|| {
        let mut builder = TableBuilder::new(Box::new(Nowhere(0)), Path::new("1.sst"), options);
        let mut said = 0;
        for key in 0..count {
            builder.add(&key.swap_bytes().to_le_bytes(), 0, EntryKind::Put, b"").unwrap();
            if key % 64 == 0 {
                said = said.max(builder.filter_memory_bytes());
            }
        }
        said = said.max(builder.filter_memory_bytes());
        builder.finish_filters().unwrap();
        said
    })
}

/// Sealing a block in the vector that its filter came in made the vector double in size.
#[test]
fn filters_under_construction_stay_within_reported_memory() {
    for shape in SHAPES {
        for count in [30_000, 200_000] {
            let (_, without) = built("none", shape, 0, count);
            for spec in ["blocked:10", "paired:64", "standard:40", "ribbon:30"] {
                for partition_bytes in [4 << 10, 32 << 10, 2 << 20] {
                    let (said, most) = built(spec, shape, partition_bytes, count);
                    let taken = most.saturating_sub(without);
                    let context = format!("{spec}, {shape:?} of {partition_bytes}, {count} keys");
                    println!("{context}: said {said}, took {taken}");
                    // The partition index is not counted.
                    let pieces = if shape == FilterShape::Whole { 0 } else { 32 << 10 };
                    let room = said + pieces;
                    assert!(taken <= room, "{context}: said {said}, took {taken}");
                }
            }
        }
    }
}

/// A range filter's builder held the keys of the whole table until its end.
#[test]
fn a_range_filter_under_construction_holds_the_keys_of_one_leaf() {
    let count = 400_000;
    let options = |ranges: &str, index_leaf_bytes| {
        let filters = FilterPlan { ranges: ranges.parse().unwrap(), ..FilterPlan::default() };
        TableOptions { filters, index_leaf_bytes, ..options(4096, Compression::None, "none") }
    };
    for leaf_bytes in [256, 4 << 10, 16 << 20] {
        let (_, without) = built_by(options("none", leaf_bytes), count);
        for spec in ["infix:3", "infix:6", "infix:20"] {
            let (said, most) = built_by(options(spec, leaf_bytes), count);
            let taken = most.saturating_sub(without);
            let context = format!("{spec}, leaves of {leaf_bytes}: said {said}, took {taken}");
            println!("{context}");
            assert!(taken <= said, "{context}");
            // A small leaf has some ten thousand keys.
            let finished = spec.parse::<RangeSpec>().unwrap().expected_bytes(count);
            assert!(leaf_bytes > 256 || said < finished + count * 4, "{context}");
        }
    }
}

//! Filters partitioned by key range: their rates are those of theory on every
//! level, they have no false negatives, and pinned bytes stay within the limit.

use std::sync::Arc;

use trommel::{Db, FilterResidency, FilterShape, Options};
use trommel_sim::MemoryVfs;

use crate::report::{ENOUGH, Shape, key, measure, three_levels};

/// Relative variance of the rate of a filter of one key at these bits; see [`crate::report`].
const SCATTER: f64 = 0.035 * 0.035 * 1_000.0;
const SHAPE: Shape = Shape { deep_keys: 12_000, run_keys: 1_000 };
const WRITTEN: u64 = SHAPE.deep_keys + SHAPE.run_keys * 3;

fn cut(shape: FilterShape) -> Options {
    let policy = "L0=blocked:6,L1=paired:5,last=standard:7".parse().unwrap();
    Options::default()
        .filters(policy)
        .filtering(|f| f.filter_shape(shape).filter_partition_bytes(256))
}

#[test]
fn cut_filters_meet_their_theory_and_deny_no_key() {
    let shape = FilterShape::Partitioned;
    for seed in [40, 41] {
        let db = three_levels(seed, &SHAPE, cut(shape));
        let levels = measure(&db, seed);
        let report = db.filter_report();
        assert_eq!(levels.len(), 3, "{report}");
        for level in levels {
            assert!(level.expected >= ENOUGH, "{report}");
            let sigmas = level.deviation(SCATTER);
            assert!(sigmas.abs() < 4.0, "{shape}: {sigmas} standard deviations: {report}");
        }
        for number in 0..WRITTEN {
            assert!(db.get(key(seed, number)).unwrap().is_some(), "{shape}: {number} is denied");
        }
        let keys: Vec<_> = (0..WRITTEN).map(|number| key(seed, number)).collect();
        for keys in keys.chunks(97) {
            assert!(db.multi_get(keys).unwrap().iter().all(Option::is_some), "{shape}");
        }
    }
}

#[test]
fn no_more_is_pinned_than_allowed_however_many_tables_are_probed() {
    const MOST: u64 = 2_000;
    for shape in [FilterShape::Whole, FilterShape::Partitioned] {
        let db =
            three_levels(7, &SHAPE, cut(shape).filtering(|f| f.pinned_filter_bytes(Some(MOST))));
        // For filters that are not pinned.
        db.set_options(|options| options.reads(|r| r.cache_bytes(1 << 20))).unwrap();
        let mut most = 0;
        for number in (0..WRITTEN).step_by(7) {
            db.get(key(7, number)).unwrap();
            let memory = db.stats().memory;
            assert_eq!(memory.pinned_filter_limit, Some(MOST));
            assert!(memory.filters <= MOST, "{shape}: {memory:?}");
            most = most.max(memory.filters);
        }
        let stats = db.stats();
        let tables: u64 = stats.levels.iter().map(|level| level.tables).sum();
        assert!(tables > 20 && stats.memory.cached_filters > 0, "{shape}: {stats}");
        assert!(most > MOST / 4, "{shape}: hardly anything was pinned: {stats}");
        let wanted: u64 = stats.levels.iter().map(|level| level.filter_bytes).sum();
        assert!(wanted > 3 * MOST, "{shape}: the limit was not put to the test: {stats}");
        db.set_options(|options| {
            options.filtering(|f| f.filter_residency(FilterResidency::Cached))
        })
        .unwrap();
        assert_eq!(db.stats().memory.pinned_filter_limit, Some(0), "{shape}");
    }
}

#[test]
fn filters_of_level_0_are_pinned_beside_cached_ones() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .compaction(|c| c.auto_compaction(false))
        .filters("paired:16".parse().unwrap())
        .filtering(|f| f.filter_residency(FilterResidency::PinnedLevel0))
        .reads(|r| r.cache_bytes(8 << 20));
    let db = Db::open("/store", options).unwrap();
    for number in 0..20_000_u32 {
        db.put(format!("{number:08}"), "value").unwrap();
    }
    db.compact_all().unwrap();
    for number in 0..2_000_u32 {
        db.put(format!("{:08}", number * 10), "newer").unwrap();
    }
    db.flush().unwrap();
    for number in 0..20_000_u32 {
        assert!(db.get(format!("{number:08}")).unwrap().is_some());
    }
    let (stats, memory) = (db.stats(), db.stats().memory);
    let [level_0, below] = [0, 1].map(|at| stats.levels[at].filter_bytes);
    assert_eq!((stats.levels[0].level, stats.levels[1].level), (0, 1), "{stats}");
    let about = |held: u64, wanted: u64| held > wanted / 2 && held < wanted * 2;
    assert!(about(memory.filters, level_0), "{level_0} bytes in level 0: {memory:?}");
    assert!(about(memory.cached_filters, below), "{below} bytes below: {memory:?}");
    db.set_options(|options| options.filtering(|f| f.filter_residency(FilterResidency::Cached)))
        .unwrap();
    db.compact_all().unwrap();
    db.get("00000001").unwrap();
    assert_eq!(db.stats().memory.filters, 0);
}

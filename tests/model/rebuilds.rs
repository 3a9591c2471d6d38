//! Filter rebuilds: the checks of every sequence, and stores with filters that no spec makes.

use std::sync::Arc;

use trommel::{Db, FilterShape, Options, Prefix, RebuildOptions};
use trommel_sim::MemoryVfs;

use crate::iterators::{Check, ok};

/// A rebuild does what its plan announces, and then nothing is left to do. With a budget it may do
/// less, because the store itself shrinks filters meanwhile.
pub(crate) fn rebuild_filters(db: &Db) -> Check {
    let options = RebuildOptions::default();
    let plan = || ok("filter_rebuild_plan", db.filter_rebuild_plan(&options));
    // So that nothing else changes the tables meanwhile.
    ok("wait_idle", db.wait_idle())?;
    let said = plan()?;
    let done = ok("rebuild_filters", db.rebuild_filters(&options))?;
    let (rest, skipped) = (plan()?, done.skipped.len());
    let tables = done.rebuilt as usize + done.dropped as usize + skipped;
    if db.stats().memory.filter_budget.is_some() {
        return if tables <= said.tables.len() {
            Ok(())
        } else {
            Err(format!("a rebuild was to do {said:?}, and did {done:?}"))
        };
    }
    let as_said = tables == said.tables.len() && (skipped > 0 || done.keys == said.keys);
    if as_said && rest.tables.len() == skipped {
        return Ok(());
    }
    Err(format!("a rebuild was to do {said:?}, did {done:?}, and leaves {rest:?}"))
}

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    Options::default()
        .vfs(Arc::<MemoryVfs>::clone(vfs))
        .background_threads(0)
        .reads(|r| r.block_bytes(256))
        .compaction(|c| c.table_bytes(8 << 10))
        .filtering(|f| f.filter_partition_bytes(256))
        .filters("paired:12".parse().unwrap())
}

fn fill(db: &Db) {
    for user in 0..300 {
        for number in 0..4 {
            db.put(format!("{user:04}/{number}"), [7; 40]).unwrap();
        }
    }
    db.compact_all().unwrap();
}

/// Looks up and scans present and absent keys; returns the number of tables that scans skipped.
fn check(db: &Db) -> u64 {
    db.reset_stats();
    for user in 0..600 {
        let there = usize::from(user % 2 == 0) * 4;
        let prefix = format!("{:04}/", user / 2) + if there == 0 { "x" } else { "" };
        assert_eq!(db.prefix(&prefix).count(), there, "{prefix}");
        for number in 0..6 {
            let found = db.get(format!("{:04}/{number}", user / 2)).unwrap();
            assert_eq!(found.is_some(), number < 4);
        }
    }
    db.stats().prefixes.useful
}

/// Filters of prefixes are added by a rebuild, and removed by one; shapes change too.
#[test]
fn prefixes_and_shapes_are_rebuilt() {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open("/store", options(&vfs)).unwrap();
    fill(&db);
    let all = RebuildOptions::default();
    assert_eq!(check(&db), 0);
    for shape in [FilterShape::Whole, FilterShape::Partitioned] {
        let by = Prefix::custom("six", |key| (key.len() >= 6).then_some(6));
        db.set_options(|options| options.filtering(|f| f.prefix_extractor(by).filter_shape(shape)))
            .unwrap();
        let plan = db.filter_rebuild_plan(&all).unwrap();
        assert!(plan.tables.iter().all(|table| table.to.contains("of custom:six")), "{plan:?}");
        rebuild_filters(&db).unwrap();
        assert!(check(&db) > 250, "{shape:?}: scans of prefixes that are missing");
        let verified = db.verify().unwrap();
        assert_eq!(verified.sidecars, verified.tables);
    }
    db.set_options(|options| {
        options.filtering(|f| f.prefix_extractor(None).filter_shape(FilterShape::Whole))
    })
    .unwrap();
    rebuild_filters(&db).unwrap();
    assert_eq!(db.verify().unwrap().sidecars, 0, "their own are what is wanted");
    assert_eq!(check(&db), 0);
}

/// A closure that violates its contract has its filter left out, as in new tables; the others are
/// built.
#[test]
fn an_extractor_that_breaks_its_word_costs_its_own_filter() {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open("/store", options(&vfs)).unwrap();
    fill(&db);
    let by = Prefix::custom("panics", |key| {
        assert!(!key.starts_with(b"0100"), "it cannot do that");
        Some(2)
    });
    let filters = "blocked:9".parse().unwrap();
    db.set_options(|options| options.filtering(|f| f.prefix_extractor(by)).filters(filters))
        .unwrap();
    db.rebuild_filters(&RebuildOptions::default()).unwrap();
    assert_eq!(db.stats().prefixes.breach, Some("it panicked"));
    check(&db);
    let report = db.filter_report();
    assert!(report.levels.iter().all(|row| row.kind.name() == "blocked"), "{report}");
    db.verify().unwrap();
}

/// If the ceiling leaves too little memory to build a filter, the table keeps its filter.
#[test]
fn a_filter_that_the_ceiling_leaves_no_room_to_build_is_skipped() {
    let vfs = Arc::new(MemoryVfs::new());
    let options =
        options(&vfs).filters("blocked:4".parse().unwrap()).compaction(|c| c.table_bytes(64 << 20));
    let db = Db::open("/store", options.clone()).unwrap();
    for number in 0..200_000 {
        db.put(format!("{number:06}"), b"").unwrap();
    }
    db.compact_all().unwrap();
    db.close().unwrap();
    let options = options.memory_limit(2 << 20).writes(|w| w.write_buffer_bytes(64 << 10));
    let db = Db::open("/store", options.filters("ribbon:20".parse().unwrap())).unwrap();
    let report = db.rebuild_filters(&RebuildOptions::default()).unwrap();
    assert_eq!((report.rebuilt, report.skipped.len()), (0, 1), "{report:?}");
    assert!(report.skipped[0].1.contains("memory_limit"), "{report:?}");
    assert_eq!(db.stats().memory.construction, 0);
    assert!(db.contains_key("000007").unwrap());
    assert_eq!(db.verify().unwrap().sidecars, 0);
}

//! Filter reports on filters that differ from the requested kind, or are not of whole keys.

use std::sync::Arc;

use trommel::inspect::Table;
use trommel::{Db, FilterKind, FilterShape, Options, Prefix};
use trommel_sim::MemoryVfs;

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    Options::default()
        .vfs(Arc::<MemoryVfs>::clone(vfs))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(64 << 20))
        .filters("ribbon:10".parse().unwrap())
}

/// Keys with hashes in the lowest quarter, so that all are in one shard of a ribbon of several, for
/// an adversary who has read the seed from a file of the store.
fn chosen_keys(db: &Db, vfs: &MemoryVfs, count: usize) -> Vec<[u8; 8]> {
    db.put("first", "").unwrap();
    db.flush().unwrap();
    let (name, _) = db.table_ids().remove(0);
    let seed = Table::open(vfs, &db.dir().join(name)).unwrap().info().unwrap().properties.hash_seed;
    db.delete("first").unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(db.table_ids(), []);
    let keys = (0_u64..).map(u64::to_le_bytes);
    keys.filter(|key| seed.hash(key) >> 62 == 0).take(count).collect()
}

/// A flush of such keys used to take seconds for 400,000 of them, and not to end for others; no
/// report mentioned them.
#[test]
fn a_filter_that_no_ribbon_could_be_made_of_is_counted_and_says_its_kind() {
    for shape in [FilterShape::Whole, FilterShape::Partitioned] {
        // The last partition has the keys of a single shard, and a ribbon.
        let is_whole = shape == FilterShape::Whole;
        let vfs = Arc::new(MemoryVfs::new());
        let options =
            || options(&vfs).filtering(|f| f.filter_shape(shape).filter_partition_bytes(32 << 10));
        let db = Db::open("/store", options()).unwrap();
        let keys = chosen_keys(&db, &vfs, 40_000);
        for key in &keys {
            db.put(key, b"").unwrap();
        }
        db.flush().unwrap();
        assert_eq!(db.stats().filters.fallbacks, 1, "{shape:?}");
        assert!(db.stats().to_string().contains("built as standard ones"));
        assert!(keys.iter().all(|key| db.contains_key(key).unwrap()));
        let report = db.filter_report();
        // A partitioned filter records its requested kind in its directory, and its actual rate.
        let kind = if is_whole { FilterKind::Standard } else { FilterKind::Ribbon };
        let row = report.levels.iter().find(|row| row.tables > 0).unwrap();
        assert_eq!(row.kind, kind, "{report}");
        assert_eq!(report.fallbacks, u64::from(is_whole), "{report}");
        assert_eq!(report.to_string().contains("fallbacks: 1"), is_whole, "{report}");
        assert_eq!(db.verify().unwrap().keys, 40_000);
        db.close().unwrap();
        // The report covers existing tables, whichever process built them.
        let db = Db::open("/store", options()).unwrap();
        assert_eq!(db.filter_report().fallbacks, u64::from(is_whole));
        assert_eq!(db.stats().filters.fallbacks, 0);
    }
}

#[test]
fn a_ribbon_of_random_keys_is_no_fallback() {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open("/store", options(&vfs)).unwrap();
    for key in 0_u64..40_000 {
        db.put(key.to_le_bytes(), b"").unwrap();
    }
    db.flush().unwrap();
    let report = db.filter_report();
    assert_eq!((db.stats().filters.fallbacks, report.fallbacks), (0, 0));
    assert_eq!(report.levels[0].kind, FilterKind::Ribbon);
    assert!(!report.to_string().contains("fallback"), "{report}");
}

/// The row of 2,000 prefixes used to show 10,000 keys.
#[test]
fn a_row_of_prefixes_counts_prefixes_and_says_so() {
    for whole_keys in [true, false] {
        let vfs = Arc::new(MemoryVfs::new());
        let options = options(&vfs).filters("paired:10".parse().unwrap()).filtering(|f| {
            f.prefix_extractor(Some(Prefix::fixed(8))).whole_key_filters(whole_keys)
        });
        let db = Db::open("/store", options).unwrap();
        for number in 0..10_000 {
            db.put(format!("{:08}/{}", number / 5, number % 5), b"").unwrap();
        }
        db.flush().unwrap();
        for number in 0..1000 {
            assert_eq!(db.get(format!("{number:08}/x")).unwrap(), None);
        }
        let report = db.filter_report();
        let row = &report.levels[0];
        let (keys, prefix_tables) = if whole_keys { (10_000, 0) } else { (2_000, 1) };
        assert_eq!((row.keys, row.prefix_tables), (keys, prefix_tables), "{report}");
        let text = report.to_string();
        let lookups = text.lines().nth(1).unwrap();
        assert_eq!(lookups.ends_with("keys are prefixes"), !whole_keys, "{text}");
        // The stored bits are per key of the filter.
        let stored = row.filter_bytes as f64 * 8.0 / row.keys as f64;
        assert!((stored / row.bits_stored - 1.0).abs() < 0.1, "{stored} {}", row.bits_stored);
        assert_eq!(report.prefixes[0].keys, 2_000);
        assert_eq!(report.prefixes[0].prefix_tables, 1);
    }
}

/// "A lookup is expected to waste 1.000e0 reads, a MiB more would save 2.01e1": the price of the
/// next byte, times a million.
#[test]
fn a_mib_more_saves_no_more_than_is_wasted() {
    for budget in ["budget=10", "budget=1KiB", "budget=10KiB", "budget=64MiB", "budget=8/key"] {
        // A budget that no table can have may be rejected.
        let Ok(filters) = budget.parse() else { continue };
        let vfs = Arc::new(MemoryVfs::new());
        let db = Db::open("/store", options(&vfs).filters(filters)).unwrap();
        for key in 0_u64..10_000 {
            db.put(key.to_le_bytes(), b"").unwrap();
        }
        db.flush().unwrap();
        let text = db.filter_report().to_string();
        let report = db.filter_report().budget.unwrap();
        let (saved, wasted) = (report.value.saved_by_a_mib, report.value.planned_wasted_reads);
        assert!((0.0..=wasted).contains(&saved), "{text}");
        // With a MiB more the one table has the best possible filter.
        assert!(wasted - saved < 5e-9, "{text}");
        assert!(!text.contains("e0"), "{text}");
    }
}

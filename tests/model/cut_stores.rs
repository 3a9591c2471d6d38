//! Stores with filters of keys and of prefixes, both partitioned:
//! every kind of read finds what is present, also with lost partitions, and the counters are equal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel::inspect::{BlockKind, Table};
use trommel::vfs::Vfs;
use trommel::{Db, FilterReport, FilterShape, Options, Prefix, Slice};
use trommel_sim::MemoryVfs;

use crate::rng::Rng;

const SHAPES: [FilterShape; 2] = [FilterShape::Whole, FilterShape::Partitioned];
/// Number of possible users; about two in three have events.
const USERS: usize = 300;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn event(user: usize, number: usize) -> Vec<u8> {
    format!("{user:04}/{number:02}").into_bytes()
}

struct Store {
    vfs: Arc<MemoryVfs>,
    options: Options,
    model: Model,
}

impl Store {
    /// A deep tree and four runs above it. Users have one to thirty events, so that prefixes
    /// straddle blocks, partitions and tables.
    fn new(shape: FilterShape, whole_keys: bool, extractor: &str) -> Self {
        let vfs = Arc::new(MemoryVfs::new());
        let options = Options::default()
            .vfs(Arc::<MemoryVfs>::clone(&vfs))
            .background_threads(0)
            .compaction(|c| c.auto_compaction(false))
            .reads(|r| r.block_bytes(256))
            .compaction(|c| c.table_bytes(16 << 10))
            .filters("blocked:9".parse().unwrap())
            .filtering(|f| {
                f.prefix_extractor(extractor.parse::<Prefix>().unwrap())
                    // So many bits that a partition holds some thirty prefixes, and each table has
                    // several.
                    .prefix_filters(Some("blocked:64".parse().unwrap()))
                    .whole_key_filters(whole_keys)
                    .filter_shape(shape)
                    .filter_partition_bytes(256)
            });
        let db = Db::open("/store", options.clone()).unwrap();
        let (mut model, mut rng) = (Model::new(), Rng::new(8));
        for run in 0..5 {
            for user in (0..USERS).filter(|user| user % 3 != 1) {
                for number in 0..1 + rng.below(30) {
                    if run > 0 && !rng.once_in(10) {
                        continue;
                    }
                    let (key, value) = (event(user, number), rng.u64().to_le_bytes().to_vec());
                    db.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            // Users without a slash have no prefix.
            let key = format!("{:04}", run * 50).into_bytes();
            db.put(&key, b"plain").unwrap();
            model.insert(key, b"plain".to_vec());
            db.flush().unwrap();
            if run == 0 {
                db.compact_all().unwrap();
            }
        }
        db.close().unwrap();
        Self { vfs, options, model }
    }

    fn open(&self) -> Db {
        Db::open("/store", self.options.clone()).unwrap()
    }

    fn tables(&self) -> Vec<PathBuf> {
        let files = self.vfs.list(Path::new("/store")).unwrap();
        let mut tables: Vec<PathBuf> =
            files.iter().map(|file| Path::new("/store").join(&file.name)).collect();
        tables.retain(|path| path.extension().is_some_and(|extension| extension == "sst"));
        tables.sort();
        tables
    }

    /// Corrupts every third partition, and the top index of every third table.
    fn lose_partitions(&self) {
        let mut partitions = 0;
        for (nth, path) in self.tables().iter().enumerate() {
            let mut bytes = self.vfs.read(path, u64::MAX).unwrap();
            for block in Table::open(&*self.vfs, path).unwrap().layout().unwrap() {
                partitions += usize::from(block.kind == BlockKind::Filter);
                let is_lost = match block.kind {
                    BlockKind::Filter => partitions % 3 == 0,
                    BlockKind::FilterTop => nth % 3 == 0,
                    _ => false,
                };
                if is_lost {
                    bytes[(block.offset + block.bytes / 2) as usize] ^= 1;
                }
            }
            self.vfs.remove(path).unwrap();
            self.vfs.create(path).unwrap().append(&bytes).unwrap();
        }
        assert!(partitions >= 6, "{partitions}");
    }

    /// All keys, and as many absent ones, shuffled.
    fn keys(&self) -> Vec<Vec<u8>> {
        let absent = |user| (0..31).step_by(3).map(move |number| event(user, number));
        let mut keys: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        keys.extend(self.model.keys().map(|key| [&**key, b"x"].concat()));
        keys.extend((0..USERS + 2).flat_map(absent));
        let mut rng = Rng::new(9);
        for at in 1..keys.len() {
            keys.swap(at, rng.below(at + 1));
        }
        keys
    }
}

/// The answers of the filters of each level and kind, and the expected number of false positives.
fn counts(report: &FilterReport) -> Vec<(usize, &'static str, [u64; 3], f64)> {
    let rows = report.levels.iter().filter(|row| row.counts.probes > 0);
    rows.map(|row| {
        let said = [row.counts.negatives, row.counts.false_positives, row.counts.true_positives];
        let absent = (row.counts.negatives + row.counts.false_positives) as f64;
        (row.level, row.kind.name(), said, row.rates.expected.unwrap_or(0.0) * absent)
    })
    .collect()
}

#[test]
fn many_keys_at_once_are_counted_as_one_by_one_whatever_is_lost() {
    for (shape, whole_keys) in SHAPES.into_iter().flat_map(|shape| [(shape, true), (shape, false)])
    {
        let store = Store::new(shape, whole_keys, "until:/");
        for is_damaged in [false, true] {
            if is_damaged {
                store.lose_partitions();
            }
            let (db, keys) = (store.open(), store.keys());
            let context = format!("{shape}, whole keys {whole_keys}, damaged {is_damaged}");
            for key in &keys {
                let found = db.get(key).unwrap();
                assert_eq!(found.as_deref(), store.model.get(key).map(Vec::as_slice), "{context}");
            }
            let alone = db.filter_report();
            db.reset_stats();
            for keys in keys.chunks(89) {
                let found = db.multi_get(keys).unwrap();
                for (key, found) in keys.iter().zip(found) {
                    let there = store.model.get(key).map(Vec::as_slice);
                    assert_eq!(found.as_deref(), there, "{context}");
                }
            }
            let together = db.filter_report();
            let (alone_counts, counts) = (counts(&alone), counts(&together));
            assert_eq!(alone_counts.len(), counts.len(), "{context}\n{alone}\n{together}");
            for (one, other) in alone_counts.iter().zip(&counts) {
                let same = (one.0, one.1, one.2) == (other.0, other.1, other.2);
                assert!(same, "{context}\n{alone}\n{together}");
                assert!((one.3 / other.3 - 1.0).abs() < 1e-9, "{context}: {one:?} {other:?}");
            }
            let unfiltered = counts.iter().any(|row| row.1 == "none");
            assert!(!is_damaged || unfiltered, "{context}\n{together}");
        }
    }
}

/// Every user's events forward and backward, in ranges and with cursors that change direction.
fn check_scans(db: &Db, model: &Model, context: &str) {
    for user in 0..USERS + 2 {
        let prefix = format!("{user:04}/").into_bytes();
        let there: Vec<&[u8]> =
            model.keys().filter(|key| key.starts_with(&prefix)).map(Vec::as_slice).collect();
        let keys = |entry: trommel::Result<(Slice, Slice)>| entry.unwrap().0;
        let forward: Vec<Slice> = db.prefix(&prefix).map(keys).collect();
        assert!(forward.iter().map(|key| &**key).eq(there.iter().copied()), "{context}: {user}");
        let backward: Vec<Slice> = db.prefix(&prefix).rev().map(keys).collect();
        assert!(backward.iter().rev().eq(&forward), "{context}: {user}");
        // A part of the prefix: from the middle on, and up to the middle.
        let middle = event(user, 15);
        let later = there.iter().filter(|key| ***key >= *middle).count();
        let upper = db.range(middle.clone()..event(user, 99)).count();
        let lower = db.range(prefix.clone()..middle.clone()).rev().count();
        assert_eq!((upper, lower), (later, there.len() - later), "{context}: {user}");
        let mut cursor = db.prefix_cursor(&prefix).unwrap();
        cursor.seek_to_last().unwrap();
        assert_eq!(cursor.key(), there.last().copied(), "{context}: {user}");
        cursor.seek(&middle).unwrap();
        assert_eq!(cursor.key(), there.get(there.len() - later).copied(), "{context}: {user}");
        if cursor.valid() {
            cursor.prev().unwrap();
            let before = (there.len() - later).checked_sub(1).map(|at| there[at]);
            assert_eq!(cursor.key(), before, "{context}: {user}");
        }
        cursor.seek_for_prev(&middle).unwrap();
        let before = there.iter().rfind(|key| ***key <= *middle).copied();
        assert_eq!(cursor.key(), before, "{context}: {user}");
    }
}

/// Two sums over the filters of prefixes of level 0: negatives and false positives, true positives.
/// The boundaries of deeper tables depend on the bytes of their filters.
fn said_of_prefixes(db: &Db) -> [u64; 2] {
    let report = db.filter_report();
    let rows = report.prefixes.iter().filter(|row| row.level == 0);
    rows.fold([0; 2], |[absent, present], row| {
        [
            absent + row.counts.negatives + row.counts.false_positives,
            present + row.counts.true_positives,
        ]
    })
}

#[test]
fn scans_within_a_prefix_are_whole_in_every_shape_and_place_and_whatever_is_lost() {
    // If the last digit of two users separates two blocks, a prefix of four bytes is the separator,
    // and a search for it arrives one partition too early.
    for (whole_keys, extractor) in [(true, "until:/"), (true, "fixed:4"), (false, "fixed:4")] {
        let mut alike = Vec::new();
        for shape in SHAPES {
            let store = Store::new(shape, whole_keys, extractor);
            for (pinned, cache) in [(None, 0), (Some(0), 8 << 20), (Some(2_000), 8 << 20)] {
                let limits = |options: Options| {
                    options
                        .filtering(|f| f.pinned_filter_bytes(pinned))
                        .reads(|r| r.cache_bytes(cache))
                };
                let db = Db::open("/store", limits(store.options.clone())).unwrap();
                let context = format!("{shape}, {extractor}, {pinned:?} pinned");
                check_scans(&db, &store.model, &context);
                let stats = db.stats();
                assert!(stats.prefixes.useful * 3 > stats.prefixes.checked, "{context}: {stats}");
                assert_eq!(stats.prefixes.unused, 0, "{context}");
                db.verify().unwrap();
                alike.push((said_of_prefixes(&db), context));
            }
            store.lose_partitions();
            let db = store.open();
            let context = format!("{shape}, {extractor}, damaged");
            check_scans(&db, &store.model, &context);
            let useful = db.stats().prefixes.useful;
            assert!(useful > 0, "{context}: the partitions that are left are queried");
            assert!(!db.stats().filters.unusable.is_empty(), "{context}");
            assert!(db.verify().is_err(), "{context}");
        }
        // Whether a table holds a prefix depends on the table, not on the shape of its filter.
        for (said, context) in &alike[1..] {
            assert_eq!(*said, alike[0].0, "{context}, {}", alike[0].1);
        }
    }
}

#[test]
fn tables_that_compaction_removes_give_back_cache_and_pinned_bytes() {
    for shape in SHAPES {
        let store = Store::new(shape, true, "until:/");
        for pinned in [None, Some(0)] {
            let options = store
                .options
                .clone()
                .filtering(|f| f.pinned_filter_bytes(pinned))
                .reads(|r| r.cache_bytes(32 << 20));
            let db = Db::open("/store", options).unwrap();
            let keys: Vec<&Vec<u8>> = store.model.keys().step_by(7).collect();
            assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
            assert_eq!(db.get("0000/00x").unwrap(), None);
            let memory = db.stats().memory;
            assert!(memory.block_cache > 0, "{shape}: {memory:?}");
            let filters = memory.filters + memory.cached_filters;
            assert!(filters > 0 && (memory.filters > 0) == pinned.is_none(), "{memory:?}");
            // A version of some key in each table's range, so that none is moved without a rewrite.
            db.put(event(0, 0), b"").unwrap();
            db.put(event(USERS, 0), b"").unwrap();
            db.compact_all().unwrap();
            let memory = db.stats().memory;
            let left = (memory.block_cache, memory.filters, memory.cached_filters);
            assert_eq!(left, (0, 0, 0), "{shape}, {pinned:?} pinned");
        }
    }
}

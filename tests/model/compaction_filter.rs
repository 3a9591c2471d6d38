//! Compaction filters: what they are called for, what they leave, and what snapshots see.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trommel::{
    CompactionContext, CompactionFilter, Db, Error, FilterDecision, Options, Snapshot, WriteBatch,
};
use trommel_sim::{MemoryVfs, WallClock};

/// Removes values that begin with `r`, replaces those that begin with `u` by `U` and the rest, and
/// panics at those that begin with `p`.
#[derive(Debug, Default)]
struct ByValue {
    calls: AtomicU64,
    /// The keys it was called for.
    keys: Mutex<Vec<Vec<u8>>>,
}

impl CompactionFilter for ByValue {
    fn name(&self) -> &str {
        "by value"
    }

    fn filter(&self, _: &CompactionContext, key: &[u8], value: &[u8]) -> FilterDecision {
        self.calls.fetch_add(1, SeqCst);
        self.keys.lock().unwrap().push(key.to_vec());
        match value.first() {
            Some(b'r') => FilterDecision::Remove,
            Some(b'u') => FilterDecision::Replace([b"U", &value[1..]].concat()),
            Some(b'p') => panic!("this filter panics"),
            _ => FilterDecision::Keep,
        }
    }
}

fn options(disk: &Arc<MemoryVfs>, filter: &Arc<ByValue>) -> Options {
    let filter = Arc::<ByValue>::clone(filter);
    Options::default()
        .vfs(Arc::<MemoryVfs>::clone(disk))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(16 << 10))
        .compaction(|c| c.table_bytes(4 << 10).base_level_bytes(16 << 10).compaction_filter(filter))
}

fn open() -> (Db, Arc<ByValue>) {
    let filter = Arc::default();
    (Db::open("db", options(&Arc::default(), &filter)).unwrap(), filter)
}

fn value(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn entries_are_kept_removed_and_replaced() {
    let (db, filter) = open();
    for key in ["k", "r", "u", "p"] {
        db.put(key, format!("{key}1")).unwrap();
    }
    db.delete("gone").unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(value(&db, "k").as_deref(), Some("k1"));
    assert_eq!(value(&db, "r"), None);
    assert_eq!(value(&db, "u").as_deref(), Some("U1"));
    assert_eq!(value(&db, "p").as_deref(), Some("p1"));
    assert_eq!(db.iter().count(), 3);
    assert!(!filter.keys.lock().unwrap().contains(&b"gone".to_vec()));
    let stats = db.stats().background.compactions;
    let counts = (stats.filter_removed, stats.filter_replaced);
    assert_eq!(counts, (1, 1));
    assert!(stats.filter_failures >= 1, "the panic is counted");
    assert_eq!(db.verify_all().unwrap().damage.len(), 0);
}

/// What is older than a removed version does not come back, wherever it is.
#[test]
fn removed_versions_hide_older_ones() {
    let (db, _filter) = open();
    db.put("a", "k old").unwrap();
    db.compact_range(..).unwrap();
    // Newer than a snapshot that needs the old version.
    let snapshot = db.snapshot();
    db.put("a", "r new").unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(value(&db, "a"), None);
    assert_eq!(snapshot.get("a").unwrap().as_deref(), Some(&b"k old"[..]));
    drop(snapshot);
    db.compact_range(..).unwrap();
    assert_eq!((value(&db, "a"), db.iter().count()), (None, 0));
}

/// What a snapshot sees is not passed to the filter, until the snapshot is gone.
#[test]
fn snapshots_keep_what_they_see() {
    let (db, filter) = open();
    db.put("a", "r").unwrap();
    let snapshot = db.snapshot();
    db.compact_range(..).unwrap();
    assert_eq!(filter.calls.load(SeqCst), 0);
    assert_eq!(value(&db, "a").as_deref(), Some("r"));
    assert_eq!(snapshot.iter().count(), 1);
    drop(snapshot);
    db.compact_range(..).unwrap();
    assert_eq!(value(&db, "a"), None);
}

/// Takes a snapshot from within the filter: after the compaction has listed those to keep.
#[derive(Debug, Default)]
struct TakesSnapshots {
    db: Mutex<Option<Db>>,
    taken: Mutex<Vec<Snapshot>>,
}

impl CompactionFilter for TakesSnapshots {
    fn name(&self) -> &str {
        "takes snapshots"
    }

    fn filter(&self, _: &CompactionContext, _: &[u8], value: &[u8]) -> FilterDecision {
        if let Some(db) = &*self.db.lock().unwrap() {
            self.taken.lock().unwrap().push(db.snapshot());
        }
        if value == b"r" { FilterDecision::Remove } else { FilterDecision::Replace(b"U".to_vec()) }
    }
}

#[test]
fn snapshots_taken_meanwhile_keep_what_they_see() {
    let filter = Arc::new(TakesSnapshots::default());
    let own = Arc::<TakesSnapshots>::clone(&filter);
    let options = Options::default().vfs(Arc::new(MemoryVfs::new())).background_threads(0);
    let db = Db::open("db", options.compaction(|c| c.compaction_filter(own))).unwrap();
    for nth in 0..100 {
        db.put(format!("k{nth:03}"), "r").unwrap();
    }
    db.put("z", "u").unwrap();
    *filter.db.lock().unwrap() = Some(db.clone());
    db.compact_range(..).unwrap();
    drop(filter.db.lock().unwrap().take());
    // The first scan learns that nothing is left of the first hundred.
    assert_eq!((db.iter().count(), db.iter().rev().count()), (1, 1));
    let taken = std::mem::take(&mut *filter.taken.lock().unwrap());
    assert!(taken.len() > 100);
    for snapshot in &taken {
        assert_eq!((snapshot.iter().count(), snapshot.iter().rev().count()), (101, 101));
        assert_eq!(snapshot.get("k007").unwrap().as_deref(), Some(&b"r"[..]));
        assert!(snapshot.contains_key("k099").unwrap());
        assert_eq!(snapshot.multi_get(&["z"]).unwrap()[0].as_deref(), Some(&b"u"[..]));
        let again = snapshot.clone();
        assert_eq!(again.prefix("k").count(), 100);
    }
    assert_eq!(value(&db, "z").as_deref(), Some("U"));
}

/// Deleted ranges and expiry come first.
#[test]
fn what_is_deleted_or_has_expired_is_not_filtered() {
    let (clock, filter) = (WallClock::default(), Arc::default());
    let options = options(&Arc::default(), &filter);
    let options = options.vfs(clock.over(Arc::new(MemoryVfs::new())));
    let db = Db::open("db", options.writes(|w| w.ttl(Duration::from_secs(10)))).unwrap();
    db.put("a", "k").unwrap();
    clock.advance(Duration::from_secs(6));
    db.put("b", "k").unwrap();
    db.put("c", "k").unwrap();
    db.delete_range("b".."c").unwrap();
    clock.advance(Duration::from_secs(6));
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(*filter.keys.lock().unwrap(), [b"c"]);
}

#[test]
fn the_filter_stays_while_the_store_is_open() {
    let (disk, filter) = (Arc::default(), Arc::default());
    let db = Db::open("db", options(&disk, &filter)).unwrap();
    let other = Arc::<ByValue>::default();
    let change = db.set_options(|o| o.compaction(|c| c.compaction_filter(other)));
    assert!(matches!(change, Err(Error::InvalidOption { .. })), "{change:?}");
    db.set_options(|o| o.compaction(|c| c.l0_trigger(8))).unwrap();
    db.close().unwrap();
    let latest = Options::default().vfs(disk).load_latest("db").unwrap();
    let ignored: Vec<_> = latest.ignored.iter().map(|one| (&*one.name, &*one.value)).collect();
    assert_eq!(ignored, [("compaction_filter", "\"by value\"")]);
}

/// Random writes, snapshots, compactions and reopening against a model: an entry is as it was
/// written, or as the filter leaves it, and then stays so; a snapshot never changes.
#[test]
fn filtered_stores_match_a_model() {
    for seed in 0..40 {
        let (mut rng, disk) = (fastrand::Rng::with_seed(seed), Arc::default());
        let filter = Arc::default();
        let mut db = Db::open("db", options(&disk, &filter)).unwrap();
        let mut now: BTreeMap<String, String> = BTreeMap::new();
        let mut snapshots: Vec<(Snapshot, Vec<(String, String)>)> = Vec::new();
        for _ in 0..150 {
            match rng.u8(..12) {
                0 => db.flush().unwrap(),
                1 => db.compact_range(..).unwrap(),
                2 => {
                    let snapshot = db.snapshot();
                    let seen = contents(snapshot.iter());
                    snapshots.push((snapshot, seen));
                }
                3 if !snapshots.is_empty() => {
                    drop(snapshots.swap_remove(rng.usize(..snapshots.len())));
                }
                4 => {
                    snapshots.clear();
                    db.clone().close().unwrap();
                    db = Db::open("db", options(&disk, &filter)).unwrap();
                }
                _ => {
                    let mut batch = WriteBatch::new();
                    for _ in 0..rng.usize(1..10) {
                        let key = format!("k{:02}", rng.u8(..50));
                        if rng.u8(..5) == 0 {
                            batch.delete(&key);
                            now.remove(&key);
                        } else {
                            let value =
                                format!("{}{}", rng.choice(["k", "r", "u"]).unwrap(), rng.u32(..));
                            batch.put(&key, &value);
                            now.insert(key, value);
                        }
                    }
                    db.write(batch).unwrap();
                }
            }
            for (snapshot, seen) in &snapshots {
                assert_eq!(contents(snapshot.iter()), *seen, "seed {seed}");
            }
            let found: BTreeMap<String, String> = contents(db.iter()).into_iter().collect();
            for (key, value) in std::mem::take(&mut now) {
                match found.get(&key) {
                    None => assert!(value.starts_with('r'), "seed {seed}: {key} is gone"),
                    Some(left) => {
                        let filtered = value.replace('u', "U");
                        assert!(*left == value || *left == filtered, "seed {seed}: {key}");
                        now.insert(key, left.clone());
                    }
                }
            }
            assert_eq!(found, now, "seed {seed}");
        }
    }
}

fn contents(
    entries: impl Iterator<Item = trommel::Result<(trommel::Slice, trommel::Slice)>>,
) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    entries.map(Result::unwrap).map(|(key, value)| (text(&key), text(&value))).collect()
}

//! Entries that expire, by a clock that the tests move: every way to read, what survives closing
//! and crashes, copies, and random operations against a model in which each version has a time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trommel::{Compression, Db, Options, RepairOptions, Slice, Snapshot, WriteBatch};
use trommel_sim::{Policy, SimDisk, WallClock};

const TTL: Duration = Duration::from_secs(100);
/// Entries of [`TTL`] are gone this long after their write.
const GONE: Duration = Duration::from_secs(101);

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The longest time that entries outlast `ttl`.
fn resolution(ttl: Duration) -> Duration {
    (ttl / 256).max(secs(1))
}

/// A directory, and its clock.
#[derive(Clone, Default)]
struct Place {
    disk: Arc<SimDisk>,
    clock: WallClock,
}

impl Place {
    fn options(&self, ttl: impl Into<Option<Duration>>) -> Options {
        Options::default()
            .vfs(self.clock.over(Arc::<SimDisk>::clone(&self.disk)))
            .background_threads(0)
            .compression(Compression::None)
            .writes(|w| w.write_buffer_bytes(64 << 10).ttl(ttl))
            .compaction(|c| c.table_bytes(16 << 10).base_level_bytes(64 << 10))
    }

    /// The process that has opened `db` is killed.
    fn kill(&mut self, db: Db) {
        self.disk = Arc::new(self.disk.crash(Policy::EVERYTHING, 0).disk());
        drop(db);
    }

    fn open(&self, ttl: impl Into<Option<Duration>>) -> Db {
        Db::open("db", self.options(ttl)).unwrap()
    }
}

fn keys(entries: impl Iterator<Item = trommel::Result<(Slice, Slice)>>) -> Vec<String> {
    entries.map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
}

/// Checks by every way to read that these are the keys, each with itself as its value.
fn check(db: &Db, expected: &[&str]) {
    check_one(&db.snapshot(), expected);
    assert_eq!(keys(db.iter()), expected);
    for key in ["a", "b", "c", "d"] {
        let want = expected.contains(&key).then_some(key.as_bytes());
        assert_eq!(db.get(key).unwrap().as_deref(), want, "{key}");
        assert_eq!(db.contains_key(key).unwrap(), want.is_some(), "{key}");
    }
}

fn check_one(snapshot: &Snapshot, expected: &[&str]) {
    assert_eq!(keys(snapshot.iter()), expected);
    let mut back = keys(snapshot.iter().rev());
    back.reverse();
    assert_eq!(back, expected);
    assert_eq!(
        keys(snapshot.range("b"..)),
        &expected[expected.partition_point(|key| *key < "b")..]
    );
    let mut visited = Vec::new();
    let mut cursor = snapshot.cursor().unwrap();
    cursor.seek_to_last().unwrap();
    cursor
        .visit_back(|key, _| {
            visited.push(key.to_vec());
            true
        })
        .unwrap();
    visited.reverse();
    assert_eq!(visited, expected.iter().map(|key| key.as_bytes()).collect::<Vec<_>>());
    let all = ["a", "b", "c", "d"];
    let found = snapshot.multi_get(&all).unwrap();
    for (key, found) in all.iter().zip(found) {
        let want = expected.contains(key);
        assert_eq!(found.is_some(), want, "{key}");
        assert_eq!(snapshot.get(key).unwrap().is_some(), want, "{key}");
        assert_eq!(snapshot.contains_key(key).unwrap(), want, "{key}");
        assert_eq!(keys(snapshot.prefix(key)).len(), usize::from(want), "{key}");
    }
}

/// What each of three writes leaves, as time goes on: never early, and gone a second later at most.
#[test]
fn every_way_to_read_heeds_expiry() {
    for flushed in [false, true] {
        let place = Place::default();
        let db = place.open(TTL);
        db.put("a", "a").unwrap();
        db.put("d", "old").unwrap();
        place.clock.advance(secs(50));
        db.put("b", "b").unwrap();
        let old = db.snapshot();
        place.clock.advance(secs(20));
        db.put("c", "c").unwrap();
        db.put("d", "d").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        check(&db, &["a", "b", "c", "d"]);
        place.clock.advance(secs(29));
        check(&db, &["a", "b", "c", "d"]);
        assert_eq!(old.get("d").unwrap().as_deref(), Some(&b"old"[..]));
        let open = (db.iter(), db.iter());
        place.clock.advance(secs(2));
        check(&db, &["b", "c", "d"]);
        check_one(&old, &["b"]);
        assert_eq!(keys(open.0), ["a", "b", "c", "d"], "as of its creation");
        assert_eq!(keys(open.1.rev()), ["d", "c", "b", "a"], "as of its creation");
        place.clock.advance(secs(50));
        check(&db, &["c", "d"]);
        check_one(&old, &[]);
        place.clock.advance(secs(20));
        check(&db, &[]);
        db.put("a", "a").unwrap();
        check(&db, &["a"]);
        place.clock.advance(GONE);
        check(&db, &[]);
    }
}

#[test]
fn conditional_writes_heed_expiry() {
    let place = Place::default();
    let db = place.open(TTL);
    assert!(db.insert_if_absent("a", "1").unwrap());
    assert!(!db.insert_if_absent("a", "2").unwrap());
    place.clock.advance(GONE);
    assert!(!db.compare_and_set("a", Some(b"1"), Some(b"3")).unwrap());
    assert!(db.insert_if_absent("a", "a").unwrap());
    place.clock.advance(GONE);
    assert!(db.compare_and_set("a", None, Some(b"a")).unwrap());
    check(&db, &["a"]);
}

/// What the logs and the manifest state of the age of entries, after closing and after a crash, and
/// whether or not the clock has jumped backward in between.
#[test]
fn age_survives_closing_and_crashes() {
    for (flushed, closed, jumps) in (0..8).map(|case| (case & 1 > 0, case & 2 > 0, case & 4 > 0)) {
        let mut place = Place::default();
        let db = place.open(TTL);
        db.put("a", "a").unwrap();
        place.clock.advance(secs(60));
        db.put("b", "b").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        place.clock.advance(secs(41));
        check(&db, &["b"]);
        if closed {
            db.close().unwrap();
        } else {
            place.kill(db);
        }
        if jumps {
            place.clock.turn_back(secs(41));
            let db = place.open(TTL);
            assert!(db.get("b").unwrap().is_some());
            assert_eq!(db.get("a").unwrap().is_some(), !closed, "recorded at the close");
            place.clock.advance(secs(41));
            check(&db, &["b"]);
            continue;
        }
        let db = place.open(TTL);
        check(&db, &["b"]);
        place.clock.advance(secs(58));
        check(&db, &["b"]);
        place.clock.advance(secs(2));
        check(&db, &[]);
    }
}

/// A sequence number that expired, and whose write was then lost, is given to no other write.
#[test]
fn lost_writes_expire_nothing_written_later() {
    let mut place = Place::default();
    let without_log = |place: &Place, ttl| place.options(ttl).writes(|w| w.log(false));
    let db = Db::open("db", without_log(&place, Some(TTL))).unwrap();
    db.put("a", "a").unwrap();
    db.flush().unwrap();
    for _ in 0..10 {
        db.put("b", "b").unwrap();
    }
    place.clock.advance(GONE);
    check(&db, &[]);
    // The table goes, and the horizon is recorded. What the memtable holds is lost.
    db.wait_idle().unwrap();
    place.kill(db);
    for ttl in [Some(TTL), None] {
        let db = Db::open("db", without_log(&place, ttl)).unwrap();
        db.put("c", "c").unwrap();
        check(&db, &["c"]);
        db.close().unwrap();
    }
}

/// Without an option nothing expires, and what was written meanwhile is new when there is one.
#[test]
fn the_option_may_come_and_go() {
    let mut place = Place::default();
    let db = place.open(None);
    db.put("a", "a").unwrap();
    place.clock.advance(secs(1000));
    db.set_options(|o| o.writes(|w| w.ttl(TTL))).unwrap();
    check(&db, &["a"]);
    place.clock.advance(secs(99));
    db.put("b", "b").unwrap();
    check(&db, &["a", "b"]);
    place.clock.advance(secs(2));
    check(&db, &["b"]);
    db.set_options(|o| o.writes(|w| w.ttl(None))).unwrap();
    db.put("c", "c").unwrap();
    place.clock.advance(secs(1000));
    check(&db, &["b", "c"]);
    db.close().unwrap();
    let db = place.open(None);
    check(&db, &["b", "c"]);
    db.put("d", "d").unwrap();
    place.kill(db);
    let db = place.open(TTL);
    place.clock.advance(secs(99));
    check(&db, &["b", "c", "d"]);
    db.set_options(|o| o.writes(|w| w.ttl(secs(50)))).unwrap();
    check(&db, &[]);
    db.set_options(|o| o.writes(|w| w.ttl(secs(5000)))).unwrap();
    check(&db, &[]);
}

/// A read-only store lets entries expire, and writes nothing.
#[test]
fn read_only_stores_heed_expiry() {
    let mut place = Place::default();
    let db = place.open(TTL);
    db.put("a", "a").unwrap();
    place.kill(db);
    let reader = Db::open("db", place.options(TTL).opening(|o| o.read_only(true))).unwrap();
    check(&reader, &["a"]);
    place.clock.advance(GONE);
    check(&reader, &[]);
    drop(reader);
    let other = Place { clock: WallClock::default(), ..place };
    let reader = Db::open("db", other.options(None).opening(|o| o.read_only(true))).unwrap();
    check(&reader, &["a"]);
    reader.set_options(|o| o.writes(|w| w.ttl(TTL))).unwrap();
    check(&reader, &["a"]);
    other.clock.advance(GONE);
    check(&reader, &[]);
}

#[test]
fn checkpoints_and_repaired_stores_hold_nothing_expired() {
    let mut place = Place::default();
    let db = place.open(TTL);
    db.put("a", "a").unwrap();
    db.flush().unwrap();
    place.clock.advance(secs(60));
    db.put("b", "b").unwrap();
    db.checkpoint("copy").unwrap();
    place.clock.advance(secs(41));
    let copy = Db::open("copy", place.options(TTL)).unwrap();
    check(&copy, &["b"]);
    place.clock.advance(secs(60));
    check(&copy, &[]);
    place.clock.turn_back(secs(60));
    db.put("c", "c").unwrap();
    place.kill(db);
    let (from, to) = (Path::new("db"), Path::new("repaired"));
    Db::repair(from, to, place.options(TTL), RepairOptions::default()).unwrap();
    check(&Db::open(to, place.options(TTL)).unwrap(), &["b", "c"]);
}

/// Random writes and readers against a model in which each key has a time.
#[test]
fn expiry_matches_a_model() {
    for seed in 0..24 {
        let mut pair = Pair::new(seed);
        for _ in 0..200 {
            pair.step();
        }
    }
}

type Versions = BTreeMap<String, (String, u64)>;

struct Pair {
    place: Place,
    ttl: Duration,
    db: Db,
    now: Versions,
    snapshots: Vec<(Snapshot, Versions)>,
    rng: fastrand::Rng,
    values: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let (place, mut rng) = (Place::default(), fastrand::Rng::with_seed(seed));
        let ttl = secs(rng.u64(2..40));
        let db = place.open(ttl);
        Self { place, ttl, db, now: BTreeMap::new(), snapshots: Vec::new(), rng, values: 0 }
    }

    fn key(&mut self) -> String {
        format!("k{:02}", self.rng.u8(..40))
    }

    fn step(&mut self) {
        match self.rng.u8(..20) {
            0 => self.db.flush().unwrap(),
            1 => self.db.compact_range(..).unwrap(),
            2 => self.db.wait_idle().unwrap(),
            3 => self.snapshots.push((self.db.snapshot(), self.now.clone())),
            4 if !self.snapshots.is_empty() => {
                let nth = self.rng.usize(..self.snapshots.len());
                drop(self.snapshots.swap_remove(nth));
            }
            5 => self.reopen(),
            6..=9 => self.place.clock.advance(Duration::from_millis(self.rng.u64(..9000))),
            10 => {
                let (a, b) = (self.key(), self.key());
                self.db.delete_range(&a..&b).unwrap();
                self.now.retain(|key, _| *key < a || *key >= b);
            }
            _ => self.write(),
        }
        let now = (self.db.snapshot(), self.now.clone());
        for (snapshot, model) in self.snapshots.iter().chain([&now]) {
            self.check(snapshot, model);
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        if self.rng.bool() {
            self.db.clone().close().unwrap();
        } else {
            self.db.flush().unwrap();
            self.place.kill(self.db.clone());
        }
        self.place.clock.advance(Duration::from_millis(self.rng.u64(..3000)));
        self.db = self.place.open(self.ttl);
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.rng.usize(1..8) {
            let key = self.key();
            if self.rng.u8(..4) == 0 {
                batch.delete(&key);
                self.now.remove(&key);
                continue;
            }
            self.values += 1;
            let value = self.values.to_string();
            batch.put(&key, &value);
            self.now.insert(key, (value, self.place.clock.millis()));
        }
        self.db.write(batch).unwrap();
    }

    fn check(&self, snapshot: &Snapshot, model: &Versions) {
        let (now, ttl) = (self.place.clock.millis(), self.ttl.as_millis() as u64);
        let step = resolution(self.ttl).as_millis() as u64;
        let found: Vec<(String, String)> = snapshot
            .iter()
            .map(|entry| {
                let (key, value) = entry.unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                (text(&key), text(&value))
            })
            .collect();
        let mut back = keys(snapshot.iter().rev());
        back.reverse();
        assert_eq!(back, found.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
        for (key, (value, written)) in model {
            let is_there = found.iter().any(|entry| entry == &(key.clone(), value.clone()));
            assert_eq!(snapshot.get(key).unwrap().is_some(), is_there);
            let age = now - written;
            assert!(is_there || age >= ttl, "{key} expired after {age} of {ttl} ms");
            assert!(!is_there || age < ttl + step, "{key} is there after {age} of {ttl} ms");
        }
        assert!(found.iter().all(|(key, _)| model.contains_key(key)), "{found:?}");
    }
}

/// A later scan learns that nothing is alive where much has expired. An iterator that is older sees
/// all of it nevertheless.
#[test]
fn open_iterators_use_no_gap_that_a_later_scan_has_learned() {
    let place = Place::default();
    let db = place.open(TTL);
    for nth in 0..300 {
        db.put(format!("k{nth:03}"), "").unwrap();
    }
    place.clock.advance(secs(50));
    db.put("z", "").unwrap();
    // In one table with what expires: a scan steps through it, and learns.
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let open = (db.iter(), db.iter());
    place.clock.advance(secs(51));
    assert_eq!(
        (keys(db.iter()), keys(db.iter().rev())),
        (vec!["z".to_owned()], vec!["z".to_owned()])
    );
    assert_eq!((keys(open.0).len(), keys(open.1.rev()).len()), (301, 301));
    assert_eq!(keys(db.iter()), ["z"]);
}

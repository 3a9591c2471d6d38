//! Expiry by a clock that the tests move.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trommel_base::Decoder;
use trommel_sim::{Policy, SimDisk, WallClock};
use trommel_vfs::Vfs;

use super::{TimeMarks, resolution};
use crate::log::read_whole;
use crate::{
    CompactionContext, CompactionFilter, Compression, Db, Error, FilterDecision, MergeOperator,
    Options, RepairOptions,
};

const TTL: Duration = Duration::from_secs(100);
/// Entries of [`TTL`] are gone this long after their write.
const GONE: Duration = Duration::from_secs(101);

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
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

    /// The newest file whose name has this part, and its contents.
    fn file(&self, part: &str) -> (PathBuf, Vec<u8>) {
        let names = self.disk.list(Path::new("db")).unwrap().into_iter();
        let names = names.map(|entry| entry.name.to_string_lossy().into_owned());
        let name = names.filter(|name| name.contains(part)).max().unwrap();
        let path = Path::new("db").join(name);
        let bytes = read_whole(&*self.disk, &path).unwrap();
        (path, bytes)
    }

    /// Changes the byte at `offset` of that file.
    fn damage(&self, part: &str, offset: usize) {
        let (path, mut bytes) = self.file(part);
        bytes[offset] ^= 0x55;
        self.disk.remove(&path).unwrap();
        let mut file = self.disk.create(&path).unwrap();
        file.append(&bytes).and_then(|()| file.sync()).unwrap();
    }

    /// The keys that a repair finds.
    fn repaired(&self) -> Vec<String> {
        let how = RepairOptions::default();
        Db::repair("db", "repaired", self.options(TTL), how).unwrap();
        keys(&Db::open("repaired", self.options(TTL)).unwrap())
    }
}

fn keys(db: &Db) -> Vec<String> {
    db.iter().map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
}

/// A filter that keeps everything, and lists the keys that it is called for.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Vec<u8>>>);

impl CompactionFilter for Seen {
    fn name(&self) -> &'static str {
        "seen"
    }

    fn filter(&self, _: &CompactionContext, key: &[u8], _: &[u8]) -> FilterDecision {
        self.0.lock().unwrap().push(key.to_vec());
        FilterDecision::Keep
    }
}

#[test]
fn bad_options_are_refused_with_their_bounds() {
    for bad in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
        let refused = Db::open("db", Place::default().options(bad)).unwrap_err();
        assert!(matches!(refused, Error::InvalidOption { .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("it must be 1s to 3153600000s") && text.contains("none"), "{text}");
    }
    let text = Options::default().set("ttl", "1.5s").unwrap().settings();
    assert!(text.contains(&("ttl", "1.5s".to_owned())));
}

fn tables(db: &Db) -> usize {
    db.engine().version().tables().count()
}

fn fill(db: &Db, from: u32, count: u32) {
    for nth in from..from + count {
        db.put(format!("k{nth:06}"), [7; 100]).unwrap();
    }
}

/// Whole tables are removed unread, even under a snapshot; a table of which half has expired is
/// worth a rewrite.
#[test]
fn space_comes_back() {
    let place = Place::default();
    let db = place.open(TTL);
    fill(&db, 0, 2000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let snapshot = db.snapshot();
    place.clock.advance(secs(60));
    fill(&db, 10_000, 2000);
    db.compact_range(..).unwrap();
    assert!(tables(&db) > 20);
    let read = db.stats().background.compactions.bytes_read;
    place.clock.advance(secs(41));
    db.wait_idle().unwrap();
    assert_eq!((snapshot.iter().count(), db.iter().count()), (0, 2000));
    assert!(tables(&db) < 20, "{} tables are left", tables(&db));
    assert_eq!(db.stats().background.compactions.bytes_read, read, "they were read");
    drop(snapshot);
    // Old and new in the same tables.
    for nth in (10_000..12_000).step_by(4) {
        db.put(format!("k{nth:06}"), [8; 100]).unwrap();
    }
    db.compact_range(..).unwrap();
    place.clock.advance(secs(60));
    assert_eq!(db.iter().count(), 500);
    let before: u64 = db.engine().version().tables().map(|(_, table)| table.file_bytes).sum();
    db.wait_idle().unwrap();
    let after: u64 = db.engine().version().tables().map(|(_, table)| table.file_bytes).sum();
    assert!(after < before / 2, "{after} of {before} bytes are left");
    assert_eq!((db.iter().count(), db.iter().rev().count()), (500, 500));
    place.clock.advance(GONE);
    db.wait_idle().unwrap();
    assert_eq!(tables(&db), 0);
    let marks = &db.engine().version().time_marks;
    assert!(marks.horizon() > 0 && marks.is_on());
}

/// Expiry is not a write. But a write that followed the begin of a transaction, and has expired
/// without a trace, conflicts with everything that the transaction has read; while the memtables
/// still exist, only with its own key.
#[test]
fn transactions_meet_writes_that_have_expired() {
    for flushed in [false, true] {
        let place = Place::default();
        let db = place.open(TTL);
        db.put("a", "1").unwrap();
        let begin = |read: fn(&crate::Transaction)| {
            let transaction = db.begin();
            read(&transaction);
            transaction.put("own", "1").unwrap();
            transaction
        };
        let (first, expired) = (begin(|tx| _ = tx.get("a").unwrap()), begin(|tx| _ = tx.get("a")));
        let others = [
            begin(|tx| assert!(!tx.contains_key("b").unwrap())),
            begin(|tx| assert_eq!(tx.range("b".."c").count(), 0)),
        ];
        place.clock.advance(secs(60));
        db.put("b", "1").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        place.clock.advance(secs(45));
        assert!(!db.contains_key("a").unwrap() && db.contains_key("b").unwrap());
        first.commit().unwrap();
        place.clock.advance(GONE);
        db.put("z", "1").unwrap();
        if flushed {
            db.compact_range(..).unwrap();
            db.wait_idle().unwrap();
            assert!(db.engine().version().tables().all(|(_, table)| *table.smallest >= b"o"[..]));
        }
        assert_eq!(expired.commit().is_ok(), !flushed, "flushed {flushed}");
        for other in others {
            let outcome = other.commit();
            assert!(matches!(outcome, Err(Error::Conflict(_))), "flushed {flushed}: {outcome:?}");
        }
    }
}

/// An expired tombstone is removed together with the entries that it hides, and a clock that jumps
/// backward brings neither back.
#[test]
fn deleted_keys_stay_deleted() {
    let mut place = Place::default();
    let db = place.open(TTL);
    db.put("a", "a").unwrap();
    db.put("z", "z").unwrap();
    db.compact_range(..).unwrap();
    db.delete("a").unwrap();
    db.flush().unwrap();
    place.clock.advance(GONE);
    db.wait_idle().unwrap();
    place.kill(db);
    place.clock.turn_back(secs(150));
    for ttl in [Some(TTL), None] {
        let db = place.open(ttl);
        assert_eq!(db.iter().count(), 0);
        db.close().unwrap();
    }
}

/// The number of marks is bounded, whatever the clock and the option do.
#[test]
fn marks_are_few_and_steps_are_kept() {
    let place = Place::default();
    let ttl = secs(5120);
    assert_eq!((resolution(ttl), resolution(TTL)), (secs(20), secs(1)));
    let db = place.open(ttl);
    let mut rng = fastrand::Rng::with_seed(3);
    for nth in 0..20_000_u32 {
        db.put(nth.to_le_bytes(), "").unwrap();
        place.clock.advance(Duration::from_millis(rng.u64(0..3000)));
        if nth % 100 == 0 {
            db.flush().unwrap();
            let marks = (*db.engine().version().time_marks).clone();
            let mut bytes = Vec::new();
            marks.encode(&mut bytes);
            assert!(bytes.len() < 2 << 10, "{} bytes of marks", bytes.len());
            assert_eq!(TimeMarks::decode(&mut Decoder::new(&bytes)), Some(marks));
        }
    }
}

/// The marks of a corrupt manifest are older than later writes.
#[test]
fn a_repair_without_the_end_of_the_manifest_keeps_what_has_not_expired() {
    let mut place = Place::default();
    let db = place.open(TTL);
    db.put("a", "a").unwrap();
    db.flush().unwrap();
    let end = place.file("MANIFEST").1.len();
    place.clock.advance(secs(60));
    db.put("b", "b").unwrap();
    db.flush().unwrap();
    db.put("c", "c").unwrap();
    place.clock.advance(secs(41));
    place.kill(db);
    place.damage("MANIFEST", end + 20);
    assert_eq!(place.repaired(), ["b", "c"]);
}

/// A `ttl` that is set later applies to snapshots that keep their view.
#[test]
fn entries_begin_to_expire_under_a_snapshot() {
    let place = Place::default();
    let options =
        place.options(None).compaction(|c| c.compaction_filter(Arc::new(Seen::default())));
    let db = Db::open("db", options).unwrap();
    db.put("a", "a").unwrap();
    let snapshot = db.snapshot();
    let assert_seen = |is_seen: bool| {
        assert_eq!(snapshot.get("a").unwrap().is_some(), is_seen);
        assert_eq!(snapshot.multi_get(&["a"]).unwrap()[0].is_some(), is_seen);
        assert_eq!(snapshot.iter().count(), usize::from(is_seen));
    };
    db.set_options(|o| o.writes(|w| w.ttl(TTL))).unwrap();
    assert_seen(true);
    place.clock.advance(GONE);
    assert_seen(false);
    db.set_options(|o| o.writes(|w| w.ttl(None))).unwrap();
    assert_seen(false);
}

/// Expired entries are not passed to the filter, even if their expiry is not recorded yet.
#[test]
fn what_has_just_expired_is_not_filtered() {
    let (place, seen) = (Place::default(), Arc::new(Seen::default()));
    let filter = Arc::<Seen>::clone(&seen);
    let options = place.options(TTL).compaction(|c| c.compaction_filter(filter));
    let db = Db::open("db", options).unwrap();
    db.put("a", "a").unwrap();
    place.clock.advance(secs(60));
    for key in ["b", "c", "d", "e"] {
        db.put(key, key).unwrap();
    }
    // To the last level, where the next compaction rewrites it without another version edit first.
    db.compact_range(..).unwrap();
    seen.0.lock().unwrap().clear();
    place.clock.advance(secs(41));
    db.compact_range(..).unwrap();
    assert_eq!(*seen.0.lock().unwrap(), [b"b", b"c", b"d", b"e"]);
}

/// A read that has moved the horizon does not keep a background thread from recording it.
#[test]
fn space_comes_back_while_reads_go_on() {
    let place = Place::default();
    let db = Db::open("db", place.options(TTL).background_threads(1)).unwrap();
    fill(&db, 0, 2000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    place.clock.advance(secs(60));
    db.put("z", "z").unwrap();
    place.clock.advance(secs(41));
    assert_eq!(keys(&db), ["z"]);
    assert_eq!(db.engine().snapshots.expiry.time_to(&[(0, 2000)].into()), Some(Duration::ZERO));
    // The thread now looks for work.
    db.set_options(|options| options).unwrap();
    let begun = Instant::now();
    while tables(&db) > 0 {
        assert!(begun.elapsed() < secs(60), "{} tables are left", tables(&db));
        assert_eq!(keys(&db), ["z"]);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(db.engine().version().half_expires_at().is_empty(), "there is no more to record");
}

/// A longer `ttl` does not bring back expired entries, even if no read has noticed that they
/// expired.
#[test]
fn a_longer_ttl_brings_nothing_back() {
    for longer in [Some(10 * TTL), None] {
        let place = Place::default();
        let db = place.open(TTL);
        db.put("a", "a").unwrap();
        place.clock.advance(secs(60));
        db.put("b", "b").unwrap();
        place.clock.advance(secs(41));
        db.set_options(|o| o.writes(|w| w.ttl(longer))).unwrap();
        assert_eq!(keys(&db), ["b"]);
    }
}

/// Even if it is less than half of a table.
#[test]
fn a_checkpoint_records_what_has_expired() {
    let place = Place::default();
    let db = place.open(TTL);
    db.put("a", "a").unwrap();
    place.clock.advance(secs(60));
    for key in ["b", "c", "d", "e"] {
        db.put(key, key).unwrap();
    }
    db.flush().unwrap();
    place.clock.advance(secs(41));
    db.checkpoint("copy").unwrap();
    let copy = Db::open("copy", place.options(None)).unwrap();
    assert_eq!(keys(&copy), ["b", "c", "d", "e"]);
}

/// Adds up operands of one byte. A sum of zero leaves no value.
#[derive(Debug)]
struct Sum;

impl MergeOperator for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, String> {
        let all = existing.into_iter().chain(operands.iter().copied()).flatten();
        let sum = all.fold(0_u8, |sum, part| sum.wrapping_add(*part));
        Ok((sum != 0).then(|| vec![sum]))
    }
}

/// A key whose operands leave no value may have one once the first of them have expired, so no gap
/// that a scan has found, or whose end it has searched for, may include it.
#[test]
fn no_gap_holds_a_key_that_has_a_value_later() {
    for (forward, flushed) in [(true, false), (true, true), (false, false), (false, true)] {
        let place = Place::default();
        let options = place.options(TTL).writes(|w| w.merge_operator(Arc::new(Sum)));
        let db = Db::open("db", options).unwrap();
        db.merge("k500", [1]).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        place.clock.advance(secs(50));
        db.merge("k500", [255]).unwrap();
        for key in (0..1000).filter(|key| *key != 500) {
            db.delete(format!("k{key:03}")).unwrap();
        }
        let found = match forward {
            true => db.range("k600"..).next(),
            false => db.range(.."k400").next_back(),
        };
        assert!(found.is_none() && db.iter().next().is_none());
        place.clock.advance(secs(51));
        assert_eq!(db.get("k500").unwrap().as_deref(), Some(&[255][..]));
        assert_eq!(db.iter().count(), 1, "forward: {forward}, flushed: {flushed}");
        assert_eq!(db.iter().rev().count(), 1, "forward: {forward}, flushed: {flushed}");
    }
}

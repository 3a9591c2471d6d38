//! Expiry by a clock that the tests move.

use std::sync::Arc;
use std::time::Duration;

use trommel_base::Decoder;
use trommel_sim::{Policy, SimDisk, WallClock};

use super::{TimeMarks, resolution};
use crate::{Compression, Db, Error, Options};

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

/// Whole tables go unread, under a snapshot too; half of a table is worth a rewrite.
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

/// Expiry is no write. But a write after a transaction began, which has expired and left no trace,
/// is a conflict with all that it has read; as long as the memtables are there, with its key only.
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

/// A tombstone that has expired goes with what it hides, and a clock that jumps backward brings
/// neither back.
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

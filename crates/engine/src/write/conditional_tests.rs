//! Conditional writes, alone and in groups.

use std::borrow::Cow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use trommel_sim::{MemoryVfs, WallClock};

use crate::batch::{Batch, Condition, OpKind};
use crate::bounds::Bounds;
use crate::view::Since;
use crate::write_queue::{Wanted, WriteTerms};
use crate::{
    CompactionContext, CompactionFilter, Conflict, Db, Error, Expected, FilterDecision, Options,
    Result, SeqNo, WriteBatch, WriteOptions,
};

fn memory() -> Db {
    let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
    Db::open("db", options).unwrap()
}

/// Lets `writes` queue in this order while the store is held, and returns their outcomes and the
/// number of groups that were logged.
fn queued(db: &Db, writes: &[WriteBatch], options: WriteOptions) -> (Vec<Result<SeqNo>>, u64) {
    let before = db.stats().writes.commits;
    let engine = db.engine();
    let outcomes = thread::scope(|scope| {
        let mut writers = Vec::new();
        engine
            .exclusively(|_| {
                for (behind, batch) in writes.iter().enumerate() {
                    writers.push(scope.spawn(move || db.write_with(batch, options)));
                    let end = Instant::now() + Duration::from_secs(60);
                    while engine.writes.queue.waiting() <= behind {
                        assert!(Instant::now() < end, "a writer did not come");
                        thread::sleep(Duration::from_micros(100));
                    }
                }
                Ok(())
            })
            .unwrap();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    (outcomes, db.stats().writes.commits - before)
}

fn batch(build: impl FnOnce(&mut WriteBatch)) -> WriteBatch {
    let mut batch = WriteBatch::new();
    build(&mut batch);
    batch
}

fn met(outcome: &Result<SeqNo>) -> Option<(&[u8], Expected)> {
    match outcome {
        Ok(_) => None,
        Err(Error::Conflict(Conflict { key, expected, .. })) => Some((key, *expected)),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_condition_sees_the_earlier_writes_of_its_group() {
    for options in [WriteOptions::os(), WriteOptions::sync()] {
        let db = memory();
        db.put("old", "1").unwrap();
        let insert = |value| batch(|b| _ = b.expect_absent("key").put("key", value));
        let replace = |value| batch(|b| _ = b.expect_value("old", "1").put("old", value));
        let writes = [
            // Regression: its empty record was logged with the number of the next batch.
            batch(|b| _ = b.expect_absent("key")),
            insert("1"),
            insert("2"),
            replace("2"),
            replace("3"),
            batch(|b| _ = b.put("old", "1")),
            replace("4"),
            batch(|b| _ = b.delete_range("k".."z")),
            batch(|b| _ = b.expect_absent("key").put("key", "5").put("a", "5")),
            replace("6"),
            batch(|b| _ = b.delete("key")),
            batch(|b| _ = b.expect_absent("key")),
        ];
        let (outcomes, groups) = queued(&db, &writes, options);
        let met: Vec<_> = outcomes.iter().map(met).collect();
        let (absent, value) = ((&b"key"[..], Expected::Absent), (&b"old"[..], Expected::Value));
        let expected = [
            None,
            None,
            Some(absent),
            None,
            Some(value),
            None,
            None,
            None,
            None,
            Some(value),
            None,
            None,
        ];
        assert_eq!(met, expected);
        assert_eq!(groups, 1);
        let ends = [&outcomes[0], &outcomes[11]].map(|outcome| outcome.as_ref().unwrap());
        assert_eq!(ends, [&1, &9], "an empty batch returns the number of what is before it");
        assert_eq!(db.snapshot().seqno(), 9, "refused writes take no sequence number");
        assert_eq!(db.iter().count(), 1);
    }
}

/// Large batches are inserted by their members in parallel; refused ones are notified nevertheless.
#[test]
fn members_that_insert_for_themselves_are_checked_too() {
    let db = memory();
    let large = |thread: u8| {
        batch(|b| {
            b.expect_absent("who");
            (0..100).for_each(|n| _ = b.put(format!("{thread}/{n:03}"), [thread]));
            b.put("who", [thread]);
        })
    };
    let plain = batch(|b| (0..100).for_each(|n| _ = b.put(format!("plain/{n:03}"), "")));
    let (outcomes, groups) =
        queued(&db, &[plain, large(1), large(2), large(3)], WriteOptions::os());
    let met: Vec<_> = outcomes.iter().map(met).collect();
    let refused = Some((&b"who"[..], Expected::Absent));
    assert_eq!((met, groups), (vec![None, None, refused, refused], 1));
    assert_eq!(db.get("who").unwrap().unwrap(), [1][..]);
    assert_eq!(db.iter().count(), 201);
}

#[test]
fn all_conditions_are_on_the_state_before_the_batch() {
    let db = memory();
    let moved = batch(|b| {
        b.put("a", "1").expect_absent("a").delete("a").put("b", "1");
    });
    db.write(&moved).unwrap();
    db.write(&moved).unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), b"1");
    let check = batch(|b| _ = b.expect_value("b", "1").expect_absent("a"));
    let before = db.stats().writes;
    assert_eq!(db.write(&check).unwrap(), db.snapshot().seqno());
    assert_eq!(db.stats().writes.log_bytes, before.log_bytes);
    db.write_with(&check, WriteOptions::sync()).unwrap();
    assert_eq!(db.stats().writes.log_syncs, before.log_syncs + 1, "earlier writes are durable");
    db.delete("b").unwrap();
    assert_eq!(
        met(&db.write_with(&check, WriteOptions::sync())),
        Some((&b"b"[..], Expected::Value))
    );
    let long = batch(|b| _ = b.expect_absent([7; 70_000]).put("c", "1"));
    db.write(long).unwrap();
    let mut joined = batch(|b| _ = b.put("c", "2"));
    joined.append(&batch(|b| _ = b.expect_value("c", "2")));
    assert_eq!(met(&db.write(&joined)), Some((&b"c"[..], Expected::Value)));
    joined.clear();
    db.write(joined.put("c", "3")).unwrap();
}

/// Commits with conditions that were found to hold at `since`.
fn commit(db: &Db, condition: Condition, since: &Since) -> Result<SeqNo> {
    let terms = WriteTerms { conditions: Cow::Owned(vec![condition]), since: since.clone() };
    let batch = Batch::one(OpKind::Put, b"0", b"").unwrap();
    db.engine().commit(Wanted { batch: Some(batch), sync: false, terms: Some(Box::new(terms)) })
}

/// The leader finds writes made since the writer has checked its conditions, in the active
/// memtable, in a frozen one, and in tables.
#[test]
fn a_leader_finds_every_later_write() {
    type Change = fn(&Db);
    let changes: [Change; 3] = [
        |db| _ = db.put("key", "2").unwrap(),
        |db| _ = db.delete("key").unwrap(),
        |db| _ = db.delete_range("ka".."l").unwrap(),
    ];
    let freeze = |db: &Db| db.engine().exclusively(|leader| db.engine().rotate(leader)).unwrap();
    let places: [Change; 3] = [|_| (), freeze, |db| db.flush().unwrap()];
    for (change, place) in changes.iter().flat_map(|change| places.map(|place| (change, place))) {
        let db = memory();
        for key in ["a", "key", "z"] {
            db.put(key, "1").unwrap();
        }
        db.flush().unwrap();
        // As a transaction, whose changes leave a trace in the tables.
        let snapshot = db.snapshot();
        let since = db.engine().since_now();
        change(&db);
        db.put("other", "").unwrap();
        place(&db);
        let bounds = |from: &str, to: &str| Condition::UnchangedRange(Bounds::of(from..to));
        let conflicts = [
            Condition::of(b"key", Some(b"1")),
            Condition::Unchanged(b"key".to_vec()),
            bounds("a", "kez"),
            Condition::UnchangedRange(Bounds::of(.."kez")),
            Condition::UnchangedRange(Bounds::of("b"..)),
        ];
        let before = db.stats().writes;
        for condition in conflicts {
            let outcome = commit(&db, condition.clone(), &since);
            assert!(matches!(outcome, Err(Error::Conflict(_))), "{condition:?}: {outcome:?}");
        }
        assert_eq!(db.stats().writes.log_bytes, before.log_bytes, "a refused write was logged");
        let held = [
            Condition::of(b"a", Some(b"1")),
            Condition::of(b"none", None),
            Condition::Unchanged(b"a".to_vec()),
            bounds("a", "k"),
            bounds("p", "z"),
            bounds("z", "a"),
        ];
        for condition in held {
            commit(&db, condition, &since).unwrap();
        }
        drop(snapshot);
    }
}

/// The memtable of that moment was flushed, so the newest version of a key in memory is a range
/// tombstone, although the key was written again after it.
#[test]
fn a_leader_finds_what_was_written_after_a_deleted_range() {
    let db = memory();
    db.put("key", "1").unwrap();
    db.flush().unwrap();
    // The key's value stays, and so does the tombstone.
    let _snapshot = db.snapshot();
    let since = db.engine().since_now();
    db.delete_range("k".."l").unwrap();
    db.put("key", "2").unwrap();
    db.flush().unwrap();
    let absent = commit(&db, Condition::of(b"key", None), &since);
    assert_eq!(met(&absent), Some((&b"key"[..], Expected::Absent)));
    commit(&db, Condition::of(b"key", Some(b"2")), &since).unwrap();
}

/// The value expires between the read of the writer and the check of the leader.
#[test]
fn a_leader_finds_values_that_have_expired() {
    let clock = WallClock::default();
    let options =
        Options::default().background_threads(0).vfs(clock.over(Arc::new(MemoryVfs::new())));
    let db = Db::open("db", options.writes(|w| w.ttl(Duration::from_secs(100)))).unwrap();
    db.put("old", "1").unwrap();
    clock.advance(Duration::from_secs(60));
    db.put("new", "1").unwrap();
    for is_written in [false, true] {
        if is_written {
            db.put("old", "1").unwrap();
        }
        let since = db.engine().since_now();
        if is_written {
            db.put("other", "").unwrap();
        }
        clock.advance(Duration::from_secs(if is_written { 110 } else { 50 }));
        let expected = Some((&b"old"[..], Expected::Value));
        assert_eq!(met(&commit(&db, Condition::of(b"old", Some(b"1")), &since)), expected);
        commit(&db, Condition::of(b"old", None), &since).unwrap();
        let is_left = commit(&db, Condition::of(b"new", Some(b"1")), &since);
        assert_eq!(is_left.is_ok(), !is_written, "{is_left:?}");
    }
}

/// Removes or replaces values that have ended.
#[derive(Debug)]
struct Ended(FilterDecision);

impl CompactionFilter for Ended {
    fn name(&self) -> &str {
        "ended"
    }

    fn filter(&self, _: &CompactionContext, _: &[u8], value: &[u8]) -> FilterDecision {
        if value == b"ended" { self.0.clone() } else { FilterDecision::Keep }
    }
}

#[test]
fn a_leader_finds_values_that_a_filter_has_changed() {
    for decision in [FilterDecision::Remove, FilterDecision::Replace(b"other".to_vec())] {
        let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
        let filter = Arc::new(Ended(decision));
        let options = options.compaction(|c| c.compaction_filter(filter));
        let db = Db::open("db", options).unwrap();
        db.put("key", "ended").unwrap();
        db.put("kept", "1").unwrap();
        db.flush().unwrap();
        let since = db.engine().since_now();
        db.compact_range(..).unwrap();
        let outcome = commit(&db, Condition::of(b"key", Some(b"ended")), &since);
        assert_eq!(met(&outcome), Some((&b"key"[..], Expected::Value)));
        commit(&db, Condition::of(b"kept", Some(b"1")), &since).unwrap();
    }
}

//! Every read sees one point in time: whole batches, never back in time, and the reader's own
//! writes at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trommel::{Db, DbCursor, Range, RebuildOptions, Slice, Snapshot, WriteBatch};
use trommel_tests::settings::rounds;

use super::{in_time, memory, number, tiny, value};
use crate::rng::Rng;

const WRITERS: usize = 3;
/// Number of accounts of one writer.
const ACCOUNTS: usize = 120;
const BALANCE: u64 = 1_000;

fn account(writer: usize, account: usize) -> String {
    // Accounts of different writers alternate in key order.
    format!("account/{account:04}/{writer}")
}

pub(super) fn entries(
    range: impl Iterator<Item = trommel::Result<(Slice, Slice)>>,
) -> Vec<(Slice, Slice)> {
    range.map(|entry| entry.expect("a scan reads on")).collect()
}

/// All entries of a cursor, read from its end.
pub(super) fn by_cursor(mut cursor: DbCursor) -> Vec<(Slice, Slice)> {
    let mut found = Vec::new();
    cursor.seek_to_last().unwrap();
    while let Some(key) = cursor.key() {
        found.push((Slice::from(key), cursor.value().unwrap()));
        cursor.prev().unwrap();
    }
    found.reverse();
    found
}

/// Moves money between the accounts of one writer, at least two in a batch: some batches so small
/// that a leader inserts them for its group, some so large that each writer inserts its own.
fn transfer(db: &Db, writer: usize, rounds: usize) {
    let rng = &mut Rng::new(writer as u64);
    let mut balances = [BALANCE; ACCOUNTS];
    for round in 0..rounds {
        let mut batch = WriteBatch::new();
        for _ in 0..rng.within(1, 12) {
            let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
            let amount = rng.below(balances[from] as usize + 1) as u64;
            balances[from] -= amount;
            balances[to] += amount;
            batch.put(account(writer, from), value(balances[from]));
            batch.put(account(writer, to), value(balances[to]));
        }
        db.write(batch).unwrap();
        if round % 50 == 0 {
            for (at, balance) in balances.iter().enumerate() {
                let found = db.get(account(writer, at)).unwrap().expect("an account stays");
                assert_eq!(number(&found), *balance, "one's own writes are seen at once");
            }
        }
    }
}

fn check_sum(what: &str, found: &[(Slice, Slice)]) {
    assert_eq!(found.len(), WRITERS * ACCOUNTS, "{what}: accounts");
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "{what}: the order of keys");
    let sum: u64 = found.iter().map(|(_, balance)| number(balance)).sum();
    assert_eq!(sum, (WRITERS * ACCOUNTS) as u64 * BALANCE, "{what}: half a batch was seen");
}

/// Reads all accounts in every possible way; each read is of one point in time.
fn audit(db: &Db, done: &AtomicBool) -> u64 {
    let keys: Vec<String> =
        (0..ACCOUNTS).flat_map(|at| (0..WRITERS).map(move |writer| account(writer, at))).collect();
    let by_keys = |values: Vec<Option<Slice>>| -> Vec<(Slice, Slice)> {
        let key = |key: &String| Slice::from(key.as_bytes());
        keys.iter().map(key).zip(values.into_iter().map(|value| value.expect("it stays"))).collect()
    };
    let mut old: Option<(Snapshot, Vec<(Slice, Slice)>)> = None;
    let mut looks = 0;
    while !done.load(Ordering::Relaxed) {
        check_sum("iter", &entries(db.iter()));
        let mut backward = entries(db.prefix("account/").rev());
        backward.reverse();
        check_sum("prefix backward", &backward);
        check_sum("multi_get", &by_keys(db.multi_get(&keys).unwrap()));
        check_sum("cursor", &by_cursor(db.cursor().unwrap()));
        let snapshot = db.snapshot();
        let seen = entries(snapshot.iter());
        check_sum("snapshot", &seen);
        assert_eq!(by_keys(snapshot.multi_get(&keys).unwrap()), seen, "a snapshot's multi_get");
        assert_eq!(by_cursor(snapshot.cursor().unwrap()), seen, "a snapshot's cursor");
        for (key, balance) in seen.iter().step_by(7) {
            assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(balance), "a snapshot's get");
        }
        if let Some((snapshot, seen)) = &old {
            assert_eq!(&entries(snapshot.iter()), seen, "an old snapshot changes");
        }
        if looks % 3 == 0 {
            old = Some((snapshot, seen));
        }
        looks += 1;
    }
    looks
}

/// Some maintenance during reads and writes, or a change of options for it.
pub(super) fn upkeep(db: &Db, rng: &mut Rng) {
    match rng.below(9) {
        0 => db.flush().unwrap(),
        1 => db.compact_range(account(0, 10)..account(2, rng.below(ACCOUNTS))).unwrap(),
        2 => db.compact_all().unwrap(),
        3 => {
            db.pause_compaction().unwrap();
            db.flush().unwrap();
            db.resume_compaction();
        }
        4 => drop(db.verify().unwrap()),
        5 => {
            let filters = *rng.pick(&["none", "paired:10", "blocked:6", "standard:4"]);
            db.set_filters(filters.parse().unwrap()).unwrap();
        }
        6 => {
            let bytes = rng.within(6, 20) << 10;
            db.set_options(|options| options.writes(|w| w.write_buffer_bytes(bytes))).unwrap();
        }
        7 => drop(db.rebuild_filters(&RebuildOptions::default()).unwrap()),
        _ => drop((db.stats().to_string(), db.filter_report().to_string())),
    }
}

/// Keeps all kinds of background work going.
fn maintain(db: &Db, done: &AtomicBool) {
    let rng = &mut Rng::new(99);
    while !done.load(Ordering::Relaxed) {
        upkeep(db, rng);
    }
}

fn batches_are_seen_whole(background_threads: usize) {
    let db = Db::open("/bank", tiny(memory()).background_threads(background_threads)).unwrap();
    for writer in 0..WRITERS {
        let mut batch = WriteBatch::new();
        for at in 0..ACCOUNTS {
            batch.put(account(writer, at), value(BALANCE));
        }
        db.write(batch).unwrap();
    }
    let done = AtomicBool::new(false);
    let rounds = rounds(6_000) as usize;
    std::thread::scope(|scope| {
        let auditors = [scope.spawn(|| audit(&db, &done)), scope.spawn(|| audit(&db, &done))];
        scope.spawn(|| maintain(&db, &done));
        let db = &db;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || transfer(db, writer, rounds))).collect();
        for writer in writers {
            let _ = writer.join().map_err(|_| done.store(true, Ordering::Relaxed));
        }
        done.store(true, Ordering::Relaxed);
        let looks: u64 = auditors.into_iter().map(|auditor| auditor.join().unwrap()).sum();
        println!("{} batches, {looks} audits", WRITERS * rounds);
        assert!(looks >= 10, "the auditors hardly looked");
    });
    let stats = db.stats();
    assert!(
        stats.background.flushes.count > 20 && stats.background.compactions.count > 20,
        "too quiet: {stats}"
    );
    check_sum("at the end", &entries(db.iter()));
    db.close().unwrap();
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    in_time(|| batches_are_seen_whole(2));
}

#[test]
fn a_batch_is_seen_whole_where_writers_do_all_the_work() {
    in_time(|| batches_are_seen_whole(0));
}

const COUNTERS: usize = 64;

/// What all threads know of the counters: a value is recorded here once its write has returned.
type Acknowledged = [AtomicU64; COUNTERS];

fn count(db: &Db, acknowledged: &Acknowledged, mine: std::ops::Range<usize>, rounds: u64) {
    for round in 1..=rounds {
        for at in mine.clone() {
            db.put(format!("counter/{at:03}"), value(round)).unwrap();
            acknowledged[at].store(round, Ordering::Release);
        }
    }
}

/// Reads counters in every way; none may be older than what was acknowledged before the read began,
/// or than what this thread has seen before.
fn watch(db: &Db, acknowledged: &Acknowledged, done: &AtomicBool, seed: u64) -> u64 {
    let rng = &mut Rng::new(seed);
    let keys: Vec<String> = (0..COUNTERS).map(|at| format!("counter/{at:03}")).collect();
    let mut seen = [0; COUNTERS];
    let mut reads = 0;
    while !done.load(Ordering::Relaxed) {
        let known: Vec<u64> =
            acknowledged.iter().map(|count| count.load(Ordering::Acquire)).collect();
        let mut note = |what: &str, at: usize, found: Option<&[u8]>| {
            let found = found.map_or(0, number);
            assert!(found >= known[at], "{what} {at}: {found}, but {} was written", known[at]);
            assert!(found >= seen[at], "{what} {at}: {found} after {}", seen[at]);
            seen[at] = found;
        };
        let scan = |range: Range| -> Vec<(usize, Slice)> {
            let place = |key: &[u8]| std::str::from_utf8(&key[8..]).unwrap().parse().unwrap();
            entries(range).into_iter().map(|(key, value)| (place(&key), value)).collect()
        };
        match rng.below(4) {
            0 | 1 => {
                let at = rng.below(COUNTERS);
                note("get", at, db.get(&keys[at]).unwrap().as_deref());
            }
            2 => {
                for (at, value) in db.multi_get(&keys).unwrap().iter().enumerate() {
                    note("multi_get", at, value.as_deref());
                }
            }
            _ => {
                let range = if rng.once_in(2) { db.iter() } else { db.snapshot().iter() };
                for (at, value) in scan(range) {
                    note("scan", at, Some(&value));
                }
            }
        }
        reads += 1;
    }
    reads
}

#[test]
fn no_reader_goes_back_in_time() {
    in_time(|| {
        let db = Db::open("/counters", tiny(memory())).unwrap();
        let acknowledged: Acknowledged = std::array::from_fn(|_| AtomicU64::new(0));
        let done = AtomicBool::new(false);
        let rounds = rounds(1_200);
        std::thread::scope(|scope| {
            let (db, acknowledged, done) = (&db, &acknowledged, &done);
            let watchers: Vec<_> = (0..3)
                .map(|seed| scope.spawn(move || watch(db, acknowledged, done, seed)))
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    db.compact_all().unwrap();
                }
            });
            let writers: Vec<_> = [0..16, 16..40, 40..COUNTERS]
                .map(|mine| scope.spawn(move || count(db, acknowledged, mine, rounds)))
                .into_iter()
                .collect();
            for writer in writers {
                let _ = writer.join().map_err(|_| done.store(true, Ordering::Relaxed));
            }
            done.store(true, Ordering::Relaxed);
            let reads: u64 = watchers.into_iter().map(|watcher| watcher.join().unwrap()).sum();
            println!("{reads} reads of {} writes", rounds * COUNTERS as u64);
        });
        db.close().unwrap();
    });
}

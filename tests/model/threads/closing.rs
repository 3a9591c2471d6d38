//! Closing a store that others use: they get the right result or `Error::Closed`, nothing hangs,
//! nothing panics, and acknowledged writes are present at the next open.

use std::sync::Arc;
use std::time::Duration;

use trommel::{Db, Error, Result};
use trommel_tests::settings::{first_seed, rounds};

use super::{in_time, memory, number, seeded, tiny, value};
use crate::rng::Rng;

/// Repeats `act` until the store is closed; returns the number of successful calls.
fn until_closed(mut act: impl FnMut(u64) -> Result<()>) -> u64 {
    for round in 0.. {
        match act(round) {
            Ok(()) => {}
            Err(Error::Closed) => return round,
            Err(other) => panic!("after {round} rounds: {other}"),
        }
    }
    unreachable!("rounds do not run out")
}

/// One of the activities of a thread while the store is closed.
fn busy(db: &Db, what: usize) -> u64 {
    let rng = &mut Rng::new(what as u64);
    match what {
        0..=2 => until_closed(|round| db.put(format!("{what}/{round:06}"), value(round)).map(drop)),
        3 => until_closed(|round| match db.get(format!("0/{:06}", round / 2))? {
            Some(found) if number(&found) != round / 2 => panic!("{} for {round}", number(&found)),
            _ => Ok(()),
        }),
        4 => until_closed(|_| {
            let mut last = None;
            for entry in db.iter() {
                let key = entry?.0;
                assert!(last.replace(key.clone()) < Some(key), "the order of keys");
            }
            Ok(())
        }),
        5 => until_closed(|_| db.compact_all()),
        6 => until_closed(|_| db.flush()),
        7 => until_closed(|_| db.wait_idle()),
        8 => until_closed(|round| db.insert_if_absent("k", value(round)).map(|_| ())),
        9 => until_closed(|_| {
            let snapshot = db.snapshot();
            snapshot.multi_get(&["0/000001", "1/000001", "k"]).map(|_| ())
        }),
        10 => until_closed(|_| db.verify().map(|_| ())),
        11 => until_closed(|_| db.sync()),
        12 => until_closed(|_| {
            db.pause_compaction()?;
            db.resume_compaction();
            db.get("k").map(|_| ())
        }),
        _ => until_closed(|round| {
            db.checkpoint(format!("/copy-{what}-{round}"))?;
            std::thread::sleep(Duration::from_micros(rng.below(500) as u64));
            Ok(())
        }),
    }
}

const ROLES: usize = 14;

fn close_under_load(seed: u64) {
    let rng = &mut Rng::new(seed);
    let vfs = memory();
    let options =
        tiny(Arc::clone(&vfs)).background_threads(rng.below(3)).writes(|w| w.log(!rng.once_in(4)));
    let db = Db::open("/closing", options).unwrap();
    // Two writers always, and some of the rest.
    let roles: Vec<usize> = (0..ROLES).filter(|role| *role < 2 || rng.once_in(3)).collect();
    let rounds: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = roles
            .iter()
            .map(|role| {
                let db = db.clone();
                scope.spawn(move || busy(&db, *role))
            })
            .collect();
        std::thread::sleep(Duration::from_micros(rng.below(30_000) as u64));
        // Two may close at once; each returns when it is done.
        let second = rng.once_in(3).then(|| db.clone());
        scope.spawn(move || second.map(|second| second.close().unwrap()));
        db.close().unwrap_or_else(|error| panic!("close: {error}"));
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let db = Db::open("/closing", tiny(vfs)).unwrap();
    assert!(db.recovery_report().dropped.is_empty(), "{:?}", db.recovery_report());
    for (role, rounds) in roles.iter().zip(&rounds).filter(|(role, _)| **role <= 2) {
        for round in 0..*rounds {
            let found = db.get(format!("{role}/{round:06}")).unwrap();
            let found = found.unwrap_or_else(|| panic!("{role}/{round} was acknowledged"));
            assert_eq!(number(&found), round);
        }
        // The one write that was rejected is absent too.
        assert_eq!(db.get(format!("{role}/{rounds:06}")).unwrap(), None, "it was refused");
    }
    db.verify().unwrap();
    db.close().unwrap();
}

#[test]
fn closing_under_load_loses_nothing_and_hangs_nobody() {
    for seed in first_seed()..first_seed() + rounds(120) {
        seeded(seed, move || close_under_load(seed));
    }
}

#[test]
fn iterators_and_snapshots_outlive_their_handle() {
    in_time(|| {
        let vfs = memory();
        let db = Db::open("/outlived", tiny(Arc::clone(&vfs))).unwrap();
        for key in 0..2_000 {
            db.put(format!("{key:05}"), value(key)).unwrap();
        }
        let untouched = db.iter();
        let mut begun = db.range("00500".."01500");
        let first = begun.next().unwrap().unwrap();
        let last = begun.next_back().unwrap().unwrap();
        assert_eq!((&*first.0, &*last.0), (&b"00500"[..], &b"01499"[..]));
        let mut cursor = db.cursor().unwrap();
        cursor.seek("01000").unwrap();
        let snapshot = db.snapshot();
        for key in 0..2_000 {
            db.delete(format!("{key:05}")).unwrap();
        }
        db.compact_all().unwrap();
        drop(db);
        // Moved to other threads, all of them continue to work.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert_eq!(untouched.rev().map(|entry| number(&entry.unwrap().1)).min(), Some(0));
            });
            scope.spawn(move || {
                assert_eq!(
                    begun.map(Result::unwrap).map(|entry| number(&entry.1)).max(),
                    Some(1_498)
                );
            });
            scope.spawn(move || {
                for key in 1_001..1_400_u64 {
                    cursor.next().unwrap();
                    assert_eq!(number(&cursor.value().unwrap()), key);
                }
                cursor.seek_for_prev("00007x").unwrap();
                assert_eq!(number(&cursor.value().unwrap()), 7);
            });
        });
        assert_eq!(number(&snapshot.get("00001").unwrap().unwrap()), 1);
        assert_eq!(snapshot.iter().count(), 2_000);
        // The store is free for another owner once the last of these is dropped.
        let second = Db::open("/outlived", tiny(Arc::clone(&vfs)));
        assert!(matches!(second, Err(Error::Locked { .. })), "a snapshot keeps it open");
        drop(snapshot);
        let db = Db::open("/outlived", tiny(vfs)).unwrap();
        assert_eq!(db.iter().count(), 0);
    });
}

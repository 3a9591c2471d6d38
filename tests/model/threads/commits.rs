//! Writers that compete for one key, and writers that share a sync.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

use trommel::vfs::Vfs;
use trommel::{Db, WriteBatch, WriteOptions};
use trommel_sim::SimDisk;
use trommel_tests::settings::rounds;

use super::{in_time, memory, number, tiny, value};
use crate::rng::Rng;

#[test]
fn a_key_is_inserted_by_exactly_one_of_many() {
    in_time(|| {
        let db = Db::open("/winners", tiny(memory())).unwrap();
        let keys = 60 * rounds(250);
        let start = Barrier::new(6);
        let won: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let (db, start) = (&db, &start);
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    scope.spawn(move || {
                        start.wait();
                        let insert =
                            |key: &u64| db.insert_if_absent(format!("{key:06}"), value(thread));
                        // Each begins every block of keys at another position, so that all win some
                        // and collide at some.
                        let order = |at: u64| at / 60 * 60 + (at + thread * 10) % 60;
                        (0..keys).map(order).filter(|key| insert(key).unwrap()).collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut winners = BTreeMap::new();
        for (thread, keys) in won.iter().enumerate() {
            for key in keys {
                let second = winners.insert(*key, thread as u64);
                assert_eq!(second, None, "key {key} was inserted twice");
            }
        }
        assert_eq!(winners.len() as u64, keys, "every key has a winner");
        for (key, thread) in &winners {
            let found = db.get(format!("{key:06}")).unwrap().unwrap();
            assert_eq!(number(&found), *thread, "key {key} holds its winner's value");
        }
        println!("keys won: {:?}", won.iter().map(Vec::len).collect::<Vec<_>>());
        db.close().unwrap();
    });
}

#[test]
fn no_increment_is_lost() {
    in_time(|| {
        let db = Db::open("/increments", tiny(memory())).unwrap();
        let (threads, rounds) = (4, rounds(500));
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..rounds {
                        // Other writes come between reading and setting.
                        db.put(format!("beside/{thread}/{round}"), value(round)).unwrap();
                        loop {
                            let current = db.get("counter").unwrap();
                            let next = value(current.as_deref().map_or(0, number) + 1);
                            let set =
                                db.compare_and_set("counter", current.as_deref(), Some(&next));
                            if set.unwrap() {
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(number(&db.get("counter").unwrap().unwrap()), threads * rounds);
        db.close().unwrap();
    });
}

/// Writers that sync all their writes; all return, and everything is present afterwards.
fn synced_writers(vfs: &Arc<dyn Vfs>) {
    let db = Db::open("/synced", tiny(Arc::clone(vfs))).unwrap();
    let (threads, rounds) = (8, 300);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let db = &db;
            scope.spawn(move || {
                let rng = &mut Rng::new(thread);
                for round in 0..rounds {
                    let mut batch = WriteBatch::new();
                    batch.put(format!("{thread}/{round:04}"), value(round));
                    batch.put(format!("{thread}/newest"), value(round));
                    let options =
                        if rng.once_in(4) { WriteOptions::os() } else { WriteOptions::sync() };
                    db.write_with(batch, options).unwrap();
                }
            });
        }
    });
    let stats = db.stats();
    println!(
        "{} writers' batches, {} groups, {} syncs",
        threads * rounds,
        stats.writes.commits,
        stats.writes.log_syncs
    );
    assert!(
        stats.writes.commits <= threads * rounds
            && stats.writes.log_syncs <= stats.writes.commits + 1
    );
    db.close().unwrap();
    let db = Db::open("/synced", tiny(Arc::clone(vfs))).unwrap();
    assert_eq!(db.iter().map(Result::unwrap).count() as u64, threads * (rounds + 1));
    for thread in 0..threads {
        assert_eq!(number(&db.get(format!("{thread}/newest")).unwrap().unwrap()), rounds - 1);
    }
}

#[test]
fn writers_that_share_a_sync_all_come_back() {
    in_time(|| {
        synced_writers(&memory());
        let disk: Arc<dyn Vfs> = Arc::new(SimDisk::new());
        synced_writers(&disk);
    });
}

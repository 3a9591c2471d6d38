//! Group commit: writers that lead, follow, sync or do not.

use std::sync::{Arc, Mutex};

use shuttle::thread::spawn;
use trommel::{Db, WriteBatch, WriteOptions};
use trommel_sim::SimDisk;

use crate::lane::lane;
use crate::store::{after_power_cut, number, open, options};

const WRITERS: u64 = 3;
const ROUNDS: u64 = 2;

/// Every batch sets both halves of a writer's pair to its round. The first ones are so small that a
/// leader inserts them for its group, the others so large that each writer inserts its own.
fn write(db: &Db, writer: u64, round: u64, options: WriteOptions) {
    let mut batch = WriteBatch::new();
    if round > 1 {
        batch.put("more", round.to_le_bytes());
    }
    batch.put(format!("a{writer}"), round.to_le_bytes());
    batch.put(format!("b{writer}"), round.to_le_bytes());
    db.write_with(batch, options).unwrap();
}

/// The rounds in both halves, which must agree.
fn pairs(db: &Db) -> Vec<u64> {
    let snapshot = db.snapshot();
    let found = |half: char, writer: u64| number(snapshot.get(format!("{half}{writer}")).unwrap());
    let pair = |writer| {
        let both = [found('a', writer), found('b', writer)];
        assert_eq!(both[0], both[1], "half a batch of writer {writer}");
        both[0]
    };
    (0..WRITERS).map(pair).collect()
}

/// Batches become visible whole and in order, acknowledged ones at once; a batch acknowledged with
/// a sync is durable by then, whichever writer led.
fn group_commit() {
    let disk = SimDisk::new();
    let db = open(options(&disk).background_threads(0).writes(|w| w.write_buffer_bytes(1 << 20)));
    let durable = Arc::new(Mutex::new(vec![0; WRITERS as usize]));
    let writers = (0..WRITERS).map(|writer| {
        let (db, durable) = (db.clone(), Arc::clone(&durable));
        spawn(move || {
            for round in 1..=ROUNDS {
                let syncs = (writer + round) % 2 == 0;
                write(
                    &db,
                    writer,
                    round,
                    if syncs { WriteOptions::sync() } else { WriteOptions::os() },
                );
                if syncs {
                    durable.lock().unwrap()[writer as usize] = round;
                }
                assert_eq!(pairs(&db)[writer as usize], round, "acknowledged and not visible");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let seen = pairs(&db);
    // No other thread runs between these two.
    let promised = durable.lock().unwrap().clone();
    let left = after_power_cut(&disk);
    let kept = pairs(&left);
    assert!(
        kept.iter().zip(&promised).all(|(kept, promised)| kept >= promised),
        "{kept:?} of {promised:?}"
    );
    let later = pairs(&db);
    assert!(seen.iter().zip(&later).all(|(seen, later)| seen <= later), "time went back");
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(pairs(&db), [ROUNDS; WRITERS as usize]);
    db.close().unwrap();
    assert_eq!(pairs(&after_power_cut(&disk)), [ROUNDS; WRITERS as usize]);
}

#[test]
fn commits_in_groups() {
    lane("commits_in_groups", 20_000, group_commit);
}

//! Regression: rewrites of tables with entries that expire never ended.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use trommel_sim::{SimDisk, WallClock};

use crate::{Compression, Db, KeyspaceOptions, Merge, Options};

const PATIENCE: Duration = Duration::from_secs(60);

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn options(clock: &WallClock) -> Options {
    Options::default()
        .vfs(clock.over(Arc::new(SimDisk::new())))
        .background_threads(0)
        .compression(Compression::None)
}

/// Waits until the store has nothing to do. Without threads of its own, it works in the call.
fn rest(db: &Db) {
    let (done, ended) = channel();
    let waiting = db.clone();
    std::thread::spawn(move || {
        waiting.compact_all().unwrap();
        waiting.wait_idle().unwrap();
        let _ = done.send(());
    });
    ended.recv_timeout(PATIENCE).expect("rewrites end");
}

/// A table also has the catalog's entries, which never expire: most of its sequence numbers have
/// expired, but none of its entries.
#[test]
fn a_table_that_only_seems_expired_is_rewritten_once() {
    let clock = WallClock::default();
    let db = Db::open("db", options(&clock).writes(|w| w.ttl(secs(100)))).unwrap();
    db.keyspace("other", KeyspaceOptions::new()).unwrap();
    for key in 0..1000 {
        db.put(format!("{key:04}"), "old").unwrap();
    }
    clock.advance(secs(102));
    for key in 0..200 {
        db.put(format!("{key:04}"), "new".repeat(100)).unwrap();
    }
    rest(&db);
    assert_eq!(db.iter().count(), 200);
    let tables = || db.engine().version().tables().map(|(_, table)| table.number).max();
    let before = tables();
    db.wait_idle().unwrap();
    assert_eq!(tables(), before);
    let entries = || db.engine().version().tables().map(|(_, table)| table.entries).sum::<u64>();
    let of_catalog = entries() - 200;
    // Entries that expire later are removed nevertheless.
    clock.advance(secs(102));
    db.put("next", "").unwrap();
    rest(&db);
    assert_eq!(entries(), of_catalog + 1);
}

/// Tables of keyspaces with different options stay apart and small, and operands of different times
/// stay apart, too.
#[test]
fn small_tables_of_operands_are_left_alone() {
    let clock = WallClock::default();
    let counting = |options: Options| options.writes(|w| w.merge_operator(Merge::counter()));
    let db = Db::open("db", counting(options(&clock))).unwrap();
    let keyspaces: Vec<_> = (1..=4)
        .map(|nth| {
            let lasting = KeyspaceOptions::new().ttl(secs(10_000 * nth));
            db.keyspace(nth.to_string(), lasting).unwrap()
        })
        .collect();
    for _ in 0..3 {
        for keyspace in &keyspaces {
            keyspace.merge("count", 1_u64.to_le_bytes()).unwrap();
        }
        clock.advance(secs(400));
        db.flush().unwrap();
    }
    rest(&db);
    for keyspace in &keyspaces {
        assert_eq!(keyspace.get("count").unwrap().unwrap(), 3_u64.to_le_bytes());
    }
}

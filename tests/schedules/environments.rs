//! Stores that share an environment: its threads serve them in turn, end when there is nothing to
//! do, and are started again when there is.

use shuttle::thread::spawn;
use trommel::{Db, Environment};
use trommel_sim::SimDisk;

use crate::lane::lane;
use crate::store::{open, options};

fn write_and_flush(db: &Db, rounds: u8) {
    for round in 0..rounds {
        db.put([round], [round; 100]).unwrap();
        db.flush().unwrap();
        assert_eq!(db.get([round]).unwrap().as_deref(), Some(&[round; 100][..]));
    }
}

/// One store is written, flushed and closed while the other is too.
fn two_stores(threads: usize) {
    let builder = Environment::builder().threads(threads).cache_bytes(64 << 10);
    let environment = builder.memory_limit(1 << 20).build().unwrap();
    let disks = [SimDisk::new(), SimDisk::new()];
    let [one, other] = disks.each_ref().map(|disk| open(options(disk).environment(&environment)));
    let writer = spawn(move || {
        write_and_flush(&one, 2);
        one.close().unwrap();
    });
    write_and_flush(&other, 2);
    other.wait_idle().unwrap();
    writer.join().unwrap();
    other.close().unwrap();
    assert_eq!(environment.stats().stores, 0);
}

#[test]
fn serves_two_stores_by_one_thread() {
    lane("serves_two_stores_by_one_thread", 2_000, || two_stores(1));
}

#[test]
fn serves_two_stores_by_two_threads() {
    lane("serves_two_stores_by_two_threads", 2_000, || two_stores(2));
}

//! Measures conditional writes and transactions against plain writes, alternating.
//!
//! ```text
//! cargo run --release -p trommel-tests --example transactions -- DIR [ROUNDS] [PART]
//! ```
//!
//! 1. `synced`: synced `insert_if_absent` of new keys, and synced puts, by 1, 4 and 16 threads.
//! 2. `cold`: the latency of puts while two threads read from the device: by gets, or by
//!    conditional writes that are refused, or that write.
//! 3. `transactions`: those that read two keys and write both, by 1, 2 and 4 threads: of keys of
//!    their own, and all of the same two; against batches of two puts.
//!
//! Each round runs every case once, so that a disturbance hits all; the median of the rounds is
//! printed. PART is one of these; all by default.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trommel::{Db, Options, ReadMode, WriteBatch, WriteOptions};

/// How long each case runs in a round.
const CASE: Duration = Duration::from_millis(500);
/// Entries of the store whose reads go to the device.
const STORED: u64 = 400_000;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A key that was not used before; its order is random.
fn fresh() -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Operations per second of this number of threads.
fn per_second(threads: usize, operation: impl Fn(usize) + Sync) -> f64 {
    let (start, done) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (operation, done) = (&operation, &done);
            scope.spawn(move || {
                let mut count = 0;
                while start.elapsed() < CASE {
                    operation(thread);
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    done.into_inner() as f64 / start.elapsed().as_secs_f64()
}

/// The 99th percentile of the latency of a put in microseconds, while two threads run `load`.
fn put_p99(db: &Db, load: impl Fn(u64) + Sync) -> f64 {
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (load, is_over) = (&load, &is_over);
            scope.spawn(move || {
                let mut number = thread;
                while !is_over.load(Ordering::Relaxed) {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    load((number >> 33) % STORED);
                }
            });
        }
        while start.elapsed() < CASE {
            let key = fresh();
            let begun = Instant::now();
            db.put(key, [7; 100]).unwrap();
            times.push(begun.elapsed());
            // At a rate that leaves the others room.
            std::thread::sleep(Duration::from_micros(50));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    times.sort_unstable();
    times[times.len() * 99 / 100].as_secs_f64() * 1e6
}

fn stored(number: u64) -> String {
    format!("stored/{number:08}")
}

/// One row for each case, with the results of all rounds.
#[derive(Default)]
struct Table {
    rows: Vec<(String, Vec<f64>)>,
}

impl Table {
    fn add(&mut self, case: String, result: f64) {
        match self.rows.iter_mut().find(|(name, _)| *name == case) {
            Some((_, results)) => results.push(result),
            None => self.rows.push((case, vec![result])),
        }
    }

    fn print(&mut self) {
        println!("| case | median | least | most |\n|---|---:|---:|---:|");
        for (case, results) in &mut self.rows {
            results.sort_unstable_by(f64::total_cmp);
            let (least, most) = (results[0], results[results.len() - 1]);
            println!("| {case} | {:.0} | {least:.0} | {most:.0} |", results[results.len() / 2]);
        }
    }
}

fn synced(db: &Db, table: &mut Table) {
    for threads in [1, 4, 16] {
        let puts = per_second(threads, |_| {
            db.put_with(fresh(), [7; 100], WriteOptions::sync()).unwrap();
        });
        table.add(format!("synced puts a second, {threads} threads"), puts);
        let inserts = per_second(threads, |_| {
            assert!(db.insert_if_absent_with(fresh(), [7; 100], WriteOptions::sync()).unwrap());
        });
        table.add(format!("synced insert_if_absent a second, {threads} threads"), inserts);
    }
}

fn cold(db: &Db, table: &mut Table) {
    let gets = put_p99(db, |number| assert!(db.get(stored(number)).unwrap().is_some()));
    table.add("p99 of a put in us, during cold gets".into(), gets);
    let refused = put_p99(db, |number| assert!(!db.insert_if_absent(stored(number), "").unwrap()));
    table.add("p99 of a put in us, during cold insert_if_absent".into(), refused);
    let set = put_p99(db, |number| {
        let key = stored(number);
        let value = [(number % 251) as u8; 200];
        db.compare_and_set(key, Some(&value), Some(&value)).unwrap();
    });
    table.add("p99 of a put in us, during cold compare_and_set".into(), set);
}

fn transactions(db: &Db, table: &mut Table) {
    for threads in [1, 2, 4] {
        let batches = per_second(threads, |thread| {
            let mut batch = WriteBatch::new();
            batch.put(format!("{thread}/a"), [7; 8]).put(format!("{thread}/b"), [7; 8]);
            db.write(&batch).unwrap();
        });
        table.add(format!("batches of two puts a second, {threads} threads"), batches);
        for (what, is_shared) in [("own keys", false), ("the same two keys", true)] {
            let done = per_second(threads, |thread| {
                let prefix = if is_shared { 0 } else { thread };
                db.transaction(|tx| {
                    for key in ["a", "b"] {
                        let key = format!("{prefix}/{key}");
                        let before = tx.get(&key)?.map_or(0, |value| value[0]);
                        tx.put(&key, [before.wrapping_add(1); 8])?;
                    }
                    Ok(())
                })
                .unwrap();
            });
            table.add(format!("transactions a second, {what}, {threads} threads"), done);
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("a directory for the stores");
    let rounds = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let part = arguments.next();
    let is_wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let plain = Db::open(Path::new(&dir).join("plain"), Options::default()).unwrap();
    let direct = Options::default().reads(|r| r.read_mode(ReadMode::Direct).cache_bytes(1 << 20));
    let direct = Db::open(Path::new(&dir).join("direct"), direct).unwrap();
    for number in 0..STORED {
        direct.put(stored(number), [(number % 251) as u8; 200]).unwrap();
    }
    direct.flush().unwrap();
    direct.wait_idle().unwrap();
    let mut table = Table::default();
    for _ in 0..rounds {
        if is_wanted("synced") {
            synced(&plain, &mut table);
        }
        if is_wanted("cold") {
            cold(&direct, &mut table);
        }
        if is_wanted("transactions") {
            transactions(&plain, &mut table);
        }
    }
    table.print();
}

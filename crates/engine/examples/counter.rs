//! Counts with several threads: by merges, which read nothing, and by transactions, if each thread
//! needs the number that it has drawn.
//!
//! `cargo run --example counter` prints:
//!
//! ```text
//! 4 threads counted 1000 visits
//! one batch counted 9 more
//! 4 threads drew the tickets 1 to 1000
//! a transaction by hand: Conflict, then ticket 1002
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;

use trommel::{Db, Error, Merge, Options, Result, Transaction, WriteBatch};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
    let db = Db::open(dir.path(), options)?;

    in_threads(&db, |db| db.merge("visits", 1_u64.to_le_bytes()).map(drop))?;
    println!("4 threads counted {} visits", number(db.get("visits")?));

    // A merge is an operation of a batch like any other.
    let mut batch = WriteBatch::new();
    for part in [2_u64, 3, 4] {
        batch.merge("batch", part.to_le_bytes());
    }
    db.write(&batch)?;
    println!("one batch counted {} more", number(db.get("batch")?));

    in_threads(&db, |db| db.transaction(draw).map(drop))?;
    println!("4 threads drew the tickets 1 to {}", number(db.get("ticket")?));

    // What `Db::transaction` does, by hand.
    let late = db.begin();
    draw(&late)?;
    db.transaction(draw)?;
    let Err(Error::Conflict(_)) = late.commit() else { return Err("nothing was lost".into()) };
    let again = db.begin();
    let ticket = draw(&again)?;
    again.commit()?;
    println!("a transaction by hand: Conflict, then ticket {ticket}");
    Ok(db.close()?)
}

/// Calls `count` 250 times in each of four threads.
fn in_threads(
    db: &Db,
    count: fn(&Db) -> Result<()>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            thread::spawn(move || (0..250).try_for_each(|_| count(&db)))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(())
}

/// The next ticket: the transaction reads the last number and writes the next.
fn draw(tx: &Transaction) -> Result<u64> {
    let next = number(tx.get("ticket")?) + 1;
    tx.put("ticket", next.to_le_bytes())?;
    Ok(next)
}

fn number(value: Option<trommel::Slice>) -> u64 {
    value.and_then(|value| (*value).try_into().ok()).map_or(0, u64::from_le_bytes)
}

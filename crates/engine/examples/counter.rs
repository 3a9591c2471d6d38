//! Counts with several threads: a transaction reads the counter and writes the next number.
//!
//! `cargo run --example counter` prints:
//!
//! ```text
//! 4 threads counted to 1000
//! a transaction by hand: Conflict, then 1002
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;

use trommel::{Db, Error, Options, Result, Transaction};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            thread::spawn(move || (0..250).try_for_each(|_| db.transaction(add_one).map(|_| ())))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    println!("4 threads counted to {}", db.transaction(number)?);

    // What `Db::transaction` does, by hand.
    let late = db.begin();
    add_one(&late)?;
    db.transaction(add_one)?;
    let Err(Error::Conflict(_)) = late.commit() else { return Err("nothing was lost".into()) };
    let again = db.begin();
    let number = add_one(&again)?;
    again.commit()?;
    println!("a transaction by hand: Conflict, then {number}");
    Ok(db.close()?)
}

fn add_one(tx: &Transaction) -> Result<u64> {
    let next = number(tx)? + 1;
    tx.put("counter", next.to_le_bytes())?;
    Ok(next)
}

fn number(tx: &Transaction) -> Result<u64> {
    let value = tx.get("counter")?;
    Ok(value.and_then(|value| (*value).try_into().ok()).map_or(0, u64::from_le_bytes))
}

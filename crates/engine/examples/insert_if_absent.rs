//! Two ways to write only if no other writer did: a name is assigned once, and several threads
//! increment one counter.
//!
//! `cargo run --example insert_if_absent` prints:
//!
//! ```text
//! ada gets the name: true
//! another ada gets it: false
//! 4 threads counted to 1000
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::thread;

use trommel::{Db, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;

    // Checks and writes in one step: only one caller gets `true`. If the key is new, which is the
    // common case, filters answer and no table is read.
    println!("ada gets the name: {}", db.insert_if_absent("name:ada", "user 1")?);
    println!("another ada gets it: {}", db.insert_if_absent("name:ada", "user 2")?);

    // Clones of a handle share the store.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            thread::spawn(move || (0..250).try_for_each(|_| add_one(&db, "counter")))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    println!("4 threads counted to {}", number(db.get("counter")?.as_deref()));
    Ok(db.close()?)
}

/// Reads, computes, and writes if nothing changed meanwhile; otherwise retries.
fn add_one(db: &Db, key: &str) -> trommel::Result<()> {
    loop {
        let old = db.get(key)?;
        let new = number(old.as_deref()) + 1;
        if db.compare_and_set(key, old.as_deref(), Some(&new.to_le_bytes()))? {
            return Ok(());
        }
    }
}

/// The number in a value, 0 if there is none.
fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes)
}

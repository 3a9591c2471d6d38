//! Opens a store, writes, reads, scans, and closes it.
//!
//! `cargo run --example basic` prints:
//!
//! ```text
//! red is ff0000
//! there is no mauve
//! blue = 0000ff
//! red = cc0000
//! after opening again: 2 colours
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use trommel::{Db, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?; // a program has a directory of its own here
    let db = Db::open(dir.path(), Options::default())?;

    db.put("red", "ff0000")?;
    db.put("green", "00ff00")?;
    db.put("blue", "0000ff")?;

    // Keys and values are bytes; a value that was read shares the store's memory.
    if let Some(value) = db.get("red")? {
        println!("red is {}", value.escape_ascii());
    }
    if db.get("mauve")?.is_none() {
        println!("there is no mauve");
    }

    db.put("red", "cc0000")?; // replaces
    db.delete("green")?;

    // Entries are yielded in the order of their keys, compared byte by byte.
    for entry in db.iter() {
        let (key, value) = entry?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }

    // Dropping the handle closes the store too, but cannot report errors.
    db.close()?;

    let db = Db::open(dir.path(), Options::default())?;
    println!("after opening again: {} colours", db.iter().count());
    Ok(db.close()?)
}

//! Reads the store as of one moment while it keeps changing.
//!
//! `cargo run --example snapshot` prints:
//!
//! ```text
//! in the snapshot: 10 in stock, of 2 kinds
//! in the store:    7 in stock, of 3 kinds
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use trommel::{Db, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    db.put("stock:apples", "6")?;
    db.put("stock:pears", "4")?;

    // A snapshot costs one number in a list. Compactions keep what it sees until it is dropped, so
    // hold it only as long as needed.
    let before = db.snapshot();

    db.put("stock:apples", "1")?;
    db.put("stock:figs", "2")?;

    // A range also sees one moment: the one at which it was made.
    let (sum, kinds) = in_stock(before.prefix("stock:"))?;
    println!("in the snapshot: {sum} in stock, of {kinds} kinds");
    let (sum, kinds) = in_stock(db.prefix("stock:"))?;
    println!("in the store:    {sum} in stock, of {kinds} kinds");

    drop(before);
    Ok(db.close()?)
}

fn in_stock(range: trommel::Range) -> Result<(u64, usize), Box<dyn Error>> {
    let (mut sum, mut kinds) = (0, 0);
    for entry in range {
        let (_, value) = entry?;
        sum += std::str::from_utf8(&value)?.parse::<u64>()?;
        kinds += 1;
    }
    Ok((sum, kinds))
}

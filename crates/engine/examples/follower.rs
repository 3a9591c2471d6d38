//! Reads a store without its lock while its owner continues to write.
//!
//! The owner is usually another process; here it is another handle of this one.
//!
//! `cargo run --example follower` prints:
//!
//! ```text
//! opened:    3 orders
//! not yet:   3 orders
//! caught up: 4 orders, the last for "Barbara"
//! snapshot:  3 orders, though the owner has removed their tables
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use trommel::{Db, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let owner = Db::open(dir.path(), Options::default())?;
    for (number, name) in ["Ada", "Grace", "Edsger"].iter().enumerate() {
        owner.put(format!("order:{number}"), name)?;
    }

    // A follower takes no lock and writes nothing. Any number of followers may read one store.
    let follower = Db::open_follower(dir.path(), Options::default())?;
    println!("opened:    {} orders", follower.prefix("order:").count());

    let before = follower.snapshot();
    let written = owner.put("order:3", "Barbara")?;
    println!("not yet:   {} orders", follower.prefix("order:").count());

    // Reads then see all writes that were acknowledged before the call.
    assert!(follower.catch_up()? >= written);
    let (_, last) = follower.prefix("order:").next_back().ok_or("there is an order")??;
    let count = follower.prefix("order:").count();
    println!("caught up: {count} orders, the last for \"{}\"", last.escape_ascii());

    // The data that a follower sees stays readable when the owner removes the files.
    owner.delete_range("order:"..)?;
    owner.compact_all()?;
    follower.catch_up()?;
    let count = before.prefix("order:").count();
    println!("snapshot:  {count} orders, though the owner has removed their tables");

    drop((before, follower));
    Ok(owner.close()?)
}

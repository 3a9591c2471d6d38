//! Moves money between accounts: several writes, all or nothing.
//!
//! `cargo run --example batch` prints:
//!
//! ```text
//! ada 70, grace 80, one transfer noted
//! a batch with a key of 70000 bytes changes nothing: ada 70
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use trommel::{Db, ErrorKind, Options, WriteBatch, WriteOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    db.put("account:ada", "100")?;
    db.put("account:grace", "50")?;

    // Readers see all of a batch or nothing of it, and so does an open after a crash. With `sync`,
    // the batch and everything before it are on the device when the call returns.
    let mut transfer = WriteBatch::new();
    transfer
        .put("account:ada", "70")
        .put("account:grace", "80")
        .put("transfer:0001", "ada to grace: 30");
    db.write_with(transfer, WriteOptions::sync())?;

    let [ada, grace] = [balance(&db, "ada")?, balance(&db, "grace")?];
    let noted = db.prefix("transfer:").count();
    assert_eq!(noted, 1);
    println!("ada {ada}, grace {grace}, one transfer noted");

    // An error in one operation fails the whole batch: nothing of it is written.
    let mut wrong = WriteBatch::new();
    wrong.put("account:ada", "0").put(vec![b'x'; 70_000], "a key that is too long");
    if let Err(error) = db.write(wrong) {
        assert_eq!(error.kind(), ErrorKind::Usage);
        let ada = balance(&db, "ada")?;
        println!("a batch with a key of 70000 bytes changes nothing: ada {ada}");
    }
    Ok(db.close()?)
}

fn balance(db: &Db, name: &str) -> Result<u64, Box<dyn Error>> {
    let value = db.get(format!("account:{name}"))?.ok_or("no such account")?;
    Ok(std::str::from_utf8(&value)?.parse()?)
}

//! Writes sorted entries to files without a store, as several machines could, and loads all of them
//! into one store, atomically.
//!
//! `cargo run --example ingest` prints:
//!
//! ```text
//! wrote:    2 files, 2000 readings
//! ingested: 2000 readings, on level 6
//! replaced: "new" at 0007
//! refused:  a file with one flipped bit, and nothing has changed
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs;

use trommel::{Db, Options, TableWriter};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let files = [dir.path().join("part-1.table"), dir.path().join("part-2.table")];
    // Files can be written anywhere, and in parallel: they do not depend on the store that will
    // ingest them.
    let mut written = 0;
    for (file, from) in files.iter().zip([0, 1_000]) {
        let mut writer = TableWriter::create(file, &Options::default())?;
        for number in from..from + 1_000 {
            writer.put(format!("{number:04}"), "old")?;
        }
        written += writer.finish()?.entries;
    }
    println!("wrote:    {} files, {written} readings", files.len());

    let db = Db::open(dir.path().join("data"), Options::default())?;
    let report = db.ingest(&files)?;
    println!("ingested: {} readings, on level {}", report.entries, report.level);

    let update = dir.path().join("update.table");
    let mut writer = TableWriter::create(&update, &Options::default())?;
    writer.put("0007", "new")?;
    writer.finish()?;
    db.ingest([&update])?;
    let value = db.get("0007")?.ok_or("it is there")?;
    println!("replaced: \"{}\" at 0007", value.escape_ascii());

    let mut bytes = fs::read(&files[0])?;
    bytes[100] ^= 1;
    fs::write(&files[0], bytes)?;
    assert!(matches!(db.ingest(&files), Err(trommel::Error::Corruption(_))));
    assert_eq!(db.get("0007")?.ok_or("it is there")?, b"new");
    println!("refused:  a file with one flipped bit, and nothing has changed");
    Ok(db.close()?)
}

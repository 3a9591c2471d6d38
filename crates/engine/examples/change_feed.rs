//! A consumer of a change feed that keeps an index up to date, is killed, and continues where it
//! was.
//!
//! The index is a store of its own. Each batch of changes is applied to it in one batch, together
//! with the sequence number of the changes, so that each is applied exactly once, whatever happens.
//!
//! `cargo run --example change_feed` prints:
//!
//! ```text
//! indexed up to 3: Ada 36, Grace 85
//! killed after one of two batches
//! indexed up to 5: Grace 86
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use trommel::{BatchOp, ChangedBatch, Db, Options, WriteBatch};

/// Where the index keeps the sequence number up to which it has the changes.
const POSITION: &str = "position";

/// Applies a batch of changes, and records its sequence number with them.
fn apply(index: &Db, batch: &ChangedBatch) -> trommel::Result<()> {
    let mut update = WriteBatch::new();
    for changed in batch.iter() {
        match changed.op {
            BatchOp::Put { key, value } => _ = update.put([b"name:", key].concat(), value),
            BatchOp::Delete { key } => _ = update.delete([b"name:", key].concat()),
            other => println!("not indexed: {other:?}"),
        }
    }
    update.put(POSITION, batch.seqno().to_le_bytes());
    index.write(&update).map(drop)
}

fn position(index: &Db) -> Result<u64, Box<dyn Error>> {
    let stored = index.get(POSITION)?;
    Ok(stored.map(|bytes| bytes[..].try_into()).transpose()?.map_or(0, u64::from_le_bytes))
}

/// Prints the contents of the index.
fn show(index: &Db) -> Result<(), Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in index.prefix("name:") {
        let (key, value) = entry?;
        names.push(format!("{} {}", key[5..].escape_ascii(), value.escape_ascii()));
    }
    println!("indexed up to {}: {}", position(index)?, names.join(", "));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (dir, index_dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    // The store keeps the last GiB of its logs for feeds.
    let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
    let db = Db::open(dir.path(), options.clone())?;
    let index = Db::open(index_dir.path(), Options::default())?;
    db.put("Ada", "36")?;
    let mut batch = WriteBatch::new();
    batch.put("Grace", "85").delete("Edsger");
    db.write(&batch)?;

    let mut changes = db.changes_since(position(&index)?)?;
    while changes.wait(Duration::from_millis(10))? {
        for batch in &mut changes {
            apply(&index, &batch?)?;
        }
    }
    show(&index)?;

    // The consumer is killed after the first of two batches; the store is opened again.
    db.put("Grace", "86")?;
    db.delete("Ada")?;
    let next = changes.next().ok_or("there are two")??;
    apply(&index, &next)?;
    drop((changes, index));
    db.close()?;
    println!("killed after one of two batches");

    let db = Db::open(dir.path(), options)?;
    let index = Db::open(index_dir.path(), Options::default())?;
    for batch in db.changes_since(position(&index)?)? {
        apply(&index, &batch?)?;
    }
    show(&index)?;
    Ok(db.close()?)
}

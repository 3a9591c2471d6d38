//! Transactions and conditional writes that meet, in groups and across flushes.

use shuttle::thread::spawn;
use trommel::{Db, Result, Transaction, WriteBatch, WriteOptions};
use trommel_sim::SimDisk;

use crate::lane::lane;
use crate::store::{after_power_cut, number, open, options};

const WRITERS: u64 = 3;

fn add_one(tx: &Transaction) -> Result<()> {
    let before = number(tx.get("counter")?);
    tx.put("counter", (before + 1).to_le_bytes())
}

/// Each writer
/// 1. is on duty if it finds nobody on duty: by a range that is empty or not;
/// 2. takes a name and a number, if both are free, by a batch with conditions;
/// 3. adds one to a counter.
fn writer(db: &Db, writer: u64) {
    let options = if writer == 0 { WriteOptions::sync() } else { WriteOptions::os() };
    db.transaction_with(options, |tx| {
        if tx.prefix("on duty/").next().is_none() {
            tx.put(format!("on duty/{writer}"), "")?;
        }
        Ok(())
    })
    .unwrap();
    let mut batch = WriteBatch::new();
    batch.expect_absent("name").expect_absent("number");
    batch.put("name", writer.to_le_bytes()).put("number", writer.to_le_bytes());
    let taken = db.write_with(batch, options).is_ok();
    let owner = |key: &str| number(db.get(key).unwrap());
    assert_eq!(owner("name"), owner("number"), "half of a batch");
    assert_eq!(taken, owner("name") == writer, "taken by another, or not at all");
    db.transaction_with(options, add_one).unwrap();
}

fn transactions() {
    let disk = SimDisk::new();
    let db = open(options(&disk));
    let writers: Vec<_> = (0..WRITERS)
        .map(|nth| {
            let db = db.clone();
            spawn(move || writer(&db, nth))
        })
        .collect();
    let left = after_power_cut(&disk);
    assert!(left.prefix("on duty/").count() <= 1, "a phantom");
    assert_eq!(left.get("name").unwrap(), left.get("number").unwrap());
    drop(left);
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(db.prefix("on duty/").count(), 1, "a phantom");
    assert_eq!(number(db.get("counter").unwrap()), WRITERS, "a lost update");
    db.close().unwrap();
}

#[test]
fn transactions_are_serializable() {
    lane("transactions_are_serializable", 4000, transactions);
}

//! Memtables that are written out in the middle of a merge, as no other worker is free.

use std::sync::Arc;

use trommel_vfs::{Failure, Fault, OpKind, SimDisk};

use super::super::job::edit;
use super::super::share::SharedMerge;
use super::Rng;
use super::share::{Content, assert_holds, next_merge, open, write};
use crate::{Db, Error, Result};

/// A store whose only worker comes to this merge while a memtable is frozen.
fn with_frozen(disk: &SimDisk, content: &mut Content) -> (Db, Arc<SharedMerge>) {
    let db = open(disk);
    write(&db, &mut Rng(17), content);
    let merge = next_merge(db.engine()).unwrap();
    db.put("key0007", "newest").unwrap();
    content.insert(b"key0007".to_vec(), b"newest".to_vec());
    let engine = db.engine();
    engine.exclusively(|leader| engine.rotate(leader)).unwrap();
    assert_eq!(frozen(&db), 1);
    (db, merge)
}

fn frozen(db: &Db) -> usize {
    db.engine().view.load().frozen.len()
}

/// Merges and installs; the numbers of the tables that were written.
fn run(db: &Db, merge: &Arc<SharedMerge>) -> Result<Vec<u64>> {
    let engine = db.engine();
    let mut outputs = engine.outputs(merge);
    let tables = engine.merge_with_helpers(merge, &mut outputs)?.tables;
    let numbers = tables.iter().map(|table| table.number).collect();
    engine.install(edit(&merge.plan, tables), None, None)?;
    outputs.keep();
    Ok(numbers)
}

#[test]
fn a_memtable_does_not_wait_for_the_end_of_a_merge() {
    let (disk, mut content) = (SimDisk::new(), Content::new());
    let (db, merge) = with_frozen(&disk, &mut content);
    let before = db.engine().version();
    let merged = run(&db, &merge).unwrap();
    assert_eq!(frozen(&db), 0);
    let version = db.engine().version();
    let is_new = |number: u64| before.tables().all(|(_, table)| table.number != number);
    let flushed = version.levels[0].iter().find(|table| is_new(table.number)).unwrap();
    assert!(merged.iter().any(|number| *number > flushed.number), "{merged:?}");
    assert_holds(&db, &content);
    db.verify().unwrap();
    drop(db);
    assert_holds(&open(&disk), &content);
}

/// The merge is none the worse for it, and the memtable is tried again.
#[test]
fn a_flush_that_fails_there_is_tried_again() {
    let (disk, mut content) = (SimDisk::new(), Content::new());
    let (db, merge) = with_frozen(&disk, &mut content);
    // The first table is the merge's own.
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Create).named(".sst").after(1));
    run(&db, &merge).unwrap();
    assert_eq!((disk.faults_fired(), frozen(&db)), (1, 1));
    assert_holds(&db, &content);
    db.flush().unwrap();
    assert_eq!(frozen(&db), 0);
    assert_holds(&db, &content);
}

/// Where writing fails for good there, the store takes no more. What was merged is as good as ever.
#[test]
fn a_flush_that_poisons_there_harms_no_merge() {
    let (disk, mut content) = (SimDisk::new(), Content::new());
    let (db, merge) = with_frozen(&disk, &mut content);
    disk.inject(Fault::new(Failure::Io).on(OpKind::Create).named(".sst").after(1));
    run(&db, &merge).unwrap();
    assert_eq!((disk.faults_fired(), frozen(&db)), (1, 1));
    assert!(matches!(db.put("key", "value"), Err(Error::Poisoned { .. })));
    assert_holds(&db, &content);
    drop(db);
    assert_holds(&open(&disk), &content);
}

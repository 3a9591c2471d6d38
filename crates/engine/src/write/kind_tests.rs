//! The kind of memtable is chosen for each memtable when it begins.

use std::sync::Arc;

use trommel_sim::MemoryVfs;

use crate::MemtableKind::{self, Hash, SkipList};
use crate::{Db, Options};

/// The options of an opening on `vfs` with memtables of this kind.
fn options(vfs: &MemoryVfs, kind: MemtableKind) -> Options {
    let options = Options::default().vfs(Arc::new(vfs.clone())).background_threads(0);
    options.writes(|w| w.memtable(kind))
}

/// The kinds of all memtables, newest first.
fn kinds(db: &Db) -> Vec<MemtableKind> {
    db.engine().view.load().memtables().map(|logged| logged.memtable.kind()).collect()
}

fn freeze(db: &Db) {
    db.engine().exclusively(|leader| db.engine().rotate(leader)).unwrap();
}

#[test]
fn a_memtable_is_of_the_kind_that_is_set_when_it_begins() {
    let vfs = MemoryVfs::new();
    let db = Db::open("db", options(&vfs, SkipList)).unwrap();
    assert_eq!(kinds(&db), [SkipList]);
    db.put("a", "1").unwrap();
    db.set_options(|o| o.writes(|w| w.memtable(Hash))).unwrap();
    assert_eq!(kinds(&db), [SkipList], "the one that is written to stays");
    freeze(&db);
    db.put("b", "2").unwrap();
    assert_eq!(kinds(&db), [Hash, SkipList]);
    db.set_options(|o| o.writes(|w| w.memtable(SkipList))).unwrap();
    freeze(&db);
    assert_eq!(kinds(&db), [SkipList, Hash, SkipList]);
    let latest = options(&vfs, Hash).load_latest("db").unwrap();
    assert!(latest.options.settings().contains(&("memtable", "skiplist".to_owned())));
}

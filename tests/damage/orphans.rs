//! Orphaned files are removed when a store is opened, except if the open dropped bytes, because
//! then they may be the only copy of the data (rocksdb 4990 removed tables that a lost edit of the
//! manifest had named).

use std::path::Path;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Compression, Db, Options};
use trommel_sim::MemoryVfs;

use crate::stores::{DIR, Ending, build, image_of, vfs_of};

const ORPHAN: &str = "000999.sst";

fn open(vfs: &MemoryVfs) -> Db {
    let options = Options::default().vfs(Arc::new(vfs.clone())).background_threads(0);
    Db::open(DIR, options).expect("a tear is no damage")
}

fn has_orphan(vfs: &dyn Vfs) -> bool {
    image_of(vfs, Path::new(DIR)).contains_key(ORPHAN)
}

#[test]
fn orphans_stay_where_bytes_were_dropped_and_go_later() {
    let store = build("none", Compression::None, Ending::Torn);
    let mut image = store.image.clone();
    image.insert(ORPHAN.to_owned(), b"an orphan".to_vec());
    let vfs = vfs_of(&image);
    let db = open(&vfs);
    assert!(!db.recovery_report().dropped.is_empty(), "the last record was torn");
    assert!(has_orphan(&vfs), "it was removed although a record was torn");
    db.close().expect("closing");
    let db = open(&vfs);
    assert!(db.recovery_report().dropped.is_empty(), "{:?}", db.recovery_report());
    assert!(!has_orphan(&vfs), "a whole store keeps what nothing names");
    drop(db);
}

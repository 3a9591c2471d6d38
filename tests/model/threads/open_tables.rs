//! Far more tables than may be open at once.

use std::path::Path;
use std::sync::Arc;

use trommel::vfs::DiskVfs;
use trommel::{Compression, Db, ReadMode, Verify};
use trommel_tests::scratch::scratch;

use super::{in_time, number, tiny, value};
use crate::rng::Rng;

const KEYS: u64 = 12_000;

fn key(number: u64) -> String {
    format!("{:06}", number * 7)
}

/// Number of files in `dir` that this process has open or mapped.
fn held_tables(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").expect("the process knows its files");
    let paths = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(dir) && path.extension() == Some("sst".as_ref())).count()
}

fn read_all(db: &Db, seed: u64) {
    let rng = &mut Rng::new(seed);
    for _ in 0..6_000 {
        let at = rng.below(KEYS as usize * 2) as u64;
        let found = db.get(key(at)).unwrap();
        assert_eq!(found.as_deref().map(number), (at < KEYS).then_some(at));
    }
    let keys: Vec<String> = (0..KEYS).step_by(9).map(key).collect();
    assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
    let (forward, backward) = (db.iter(), db.iter().rev());
    assert!(forward.map(|entry| number(&entry.unwrap().1)).eq(0..KEYS));
    assert!(backward.map(|entry| number(&entry.unwrap().1)).eq((0..KEYS).rev()));
}

fn many_tables(read_mode: ReadMode) {
    let dir = scratch();
    let options = || {
        tiny(Arc::new(DiskVfs))
            .reads(|r| r.read_mode(read_mode).max_open_files(16))
            .compression(Compression::None)
            .compaction(|c| c.table_bytes(2 << 10))
            .writes(|w| w.write_buffer_bytes(256 << 10))
    };
    let path = dir.path().join("store");
    let db = Db::open(&path, options()).unwrap();
    for number in 0..KEYS {
        db.put(key(number * 7919 % KEYS), value(number * 7919 % KEYS)).unwrap();
    }
    db.compact_all().unwrap();
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 100, "{tables} tables are not many");
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let db = &db;
            scope.spawn(move || read_all(db, seed));
        }
    });
    let open = db.stats().open_tables;
    assert!(open <= 16, "{open} tables are open");
    if cfg!(target_os = "linux") {
        let held = held_tables(&path);
        assert!(held <= 16, "{held} files are held open");
    }
    println!("{read_mode:?}: {tables} tables, {open} open");
    db.verify().unwrap();
    db.close().unwrap();
    let db = Db::open_read_only(&path, options()).unwrap();
    read_all(&db, 9);
    assert!(db.stats().open_tables <= 16);
}

#[test]
fn a_few_open_files_do_for_many_tables() {
    in_time(|| {
        for read_mode in [ReadMode::Cached, ReadMode::Mapped(Verify::EachUse), ReadMode::Direct] {
            many_tables(read_mode);
        }
    });
}

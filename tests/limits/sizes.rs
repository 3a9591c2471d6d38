//! Files at their maximum size (`RLIMIT_FSIZE`, with the signal ignored: writes fail with `EFBIG`),
//! and exhausted address space (`RLIMIT_AS`).

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trommel::{Compression, Db, Durability, Error, Options, ReadMode, Verify};

use crate::stage::counted;
use crate::store::{Known, key, refusal, tiny, tried};

/// Sets the maximum size of files.
fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
}

/// Writes under the limit until an error; then without the limit.
fn files(dir: &Path, options: Options, most_bytes: u64) {
    let store = dir.join("store");
    let db = Db::open(&store, options.clone()).unwrap();
    let mut known = Known::default();
    limit_files(Some(most_bytes));
    known.fill(&db, 5_000);
    known.check(&db);
    tried(&db.flush());
    tried(&db.compact_all());
    tried(&db.checkpoint(dir.join("copy")));
    known.check(&db);
    limit_files(None);
    drop(db);
    known.check_again(&store, options);
}

/// A store that is opened under the limit: its log is flushed to a table that is too large.
fn to_open(dir: &Path) {
    let store = dir.join("store");
    let options = tiny().writes(|w| w.write_buffer_bytes(1 << 20));
    let mut known = Known::default();
    let db = Db::open(&store, options.clone()).unwrap();
    assert!(known.fill(&db, 600).is_none());
    // As after a kill: a copy of the files as they are.
    let copy = dir.join("killed");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&store).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    drop(db);
    limit_files(Some(64 << 10));
    refusal(&Db::open(&copy, options.clone()).map(|_| ()).expect_err("a table of 600 KB"));
    let db = Db::open_read_only(&copy, options.clone()).unwrap();
    known.check(&db);
    drop(db);
    limit_files(None);
    known.check_again(&copy, options);
}

/// Bytes of the process's address space in use.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    kib.unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Bytes of the tables that the process has mapped.
fn mapped_tables() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bytes = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
    };
    maps.lines().filter(|line| line.ends_with(".sst")).filter_map(bytes).sum()
}

/// Bytes of all tables in `store`.
fn table_bytes(store: &Path) -> u64 {
    let entries = std::fs::read_dir(store).unwrap().map(Result::unwrap);
    let tables = entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "sst"));
    tables.map(|entry| entry.metadata().unwrap().len()).sum()
}

/// Flushes and compactions without address space for their tables: the files are read instead of
/// mapped, or the writer gets an error.
fn maps_in_the_background(dir: &Path) {
    let store = dir.join("store");
    let options = tiny()
        .reads(|r| r.read_mode(ReadMode::Mapped(Verify::EachUse)))
        .writes(|w| w.stall_timeout(Some(Duration::from_secs(1))));
    let mut known = Known::default();
    let db = Db::open(&store, options.clone()).unwrap();
    assert!(known.fill(&db, 10_000).is_none());
    db.wait_idle().unwrap();
    let before = db.stats();
    let maximum = getrlimit(Resource::As).maximum;
    let current = Some(address_space() + (2 << 20));
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
    while let Some(refused) = known.fill(&db, 20_000) {
        assert!(matches!(refused, Error::Stalled { .. }), "{refused}");
    }
    let waited = tried(&db.wait_idle());
    setrlimit(Resource::As, Rlimit { current: None, maximum }).unwrap();
    let after = db.stats();
    assert!(
        after.background.flushes.count > before.background.flushes.count
            && after.background.compactions.count > before.background.compactions.count
    );
    assert!(waited || after.background.error.is_some_and(|error| error.is_current()));
    let (mapped, files) = (mapped_tables(), table_bytes(&store));
    assert!(mapped < files, "all {files} bytes of the tables were mapped");
    counted("maps_not_made", 1);
    known.check(&db);
    db.close().unwrap();
    known.check_again(&store, options);
}

/// Maps more tables than the address space permits: reads use another way, or return an error.
fn maps(dir: &Path, threads: usize) {
    let store = dir.join("store");
    let options = Options::default()
        .compression(Compression::None)
        .writes(|w| w.write_buffer_bytes(1 << 20))
        .compaction(|c| c.table_bytes(4 << 20))
        .reads(|r| r.cache_bytes(1 << 20))
        .background_threads(threads);
    let mut known = Known::default();
    let db = Db::open(&store, options.clone()).unwrap();
    assert!(known.fill(&db, 60_000).is_none());
    db.compact_all().unwrap();
    db.close().unwrap();
    let mapped = options.clone().reads(|r| r.read_mode(ReadMode::Mapped(Verify::EachUse)));
    let db = Db::open(&store, mapped).unwrap();
    let maximum = getrlimit(Resource::As).maximum;
    let current = Some(address_space() + (24 << 20));
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
    let mut refused = 0;
    for number in (0..known.written).step_by(7) {
        refused += u64::from(!tried(&db.get(key(number))));
    }
    setrlimit(Resource::As, Rlimit { current: None, maximum }).unwrap();
    counted("maps.refused", refused);
    let (mapped, files) = (mapped_tables(), table_bytes(&store));
    assert!(mapped < files, "all {files} bytes of the tables were mapped");
    counted("maps_not_made", 1);
    known.check(&db);
    drop(db);
    known.check_again(&store, options);
}

scenarios! {
    address_space_is_short_in_the_background in Directory: maps_in_the_background;
    no_log_may_grow in Directory: |dir| {
        files(dir, tiny().writes(|w| w.write_buffer_bytes(1 << 20)), 200 << 10);
    };
    no_log_may_grow_and_writes_sync in Directory: |dir| {
        files(dir, tiny().writes(|w| w.write_buffer_bytes(1 << 20)).durability(Durability::Sync), 100 << 10);
    };
    no_table_may_grow in Directory: |dir| {
        files(dir, tiny().compaction(|c| c.table_bytes(1 << 20)).background_threads(0), 90 << 10);
    };
    no_table_may_grow_and_threads_write_them in Directory: |dir| {
        files(dir, tiny().compaction(|c| c.table_bytes(1 << 20)).writes(|w| w.write_buffer_bytes(160 << 10)), 150 << 10);
    };
    no_file_may_grow_at_opening in Directory: to_open;
    no_address_space_is_left_to_map in Directory: |dir| maps(dir, 2);
    no_address_space_is_left_and_no_thread in Directory: |dir| maps(dir, 0);
}

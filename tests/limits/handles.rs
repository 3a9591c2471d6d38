//! No file handles left: the scenario lowers its own `RLIMIT_NOFILE`, or uses up all handles.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trommel::{BackgroundJob, Db, Error, ErrorKind, Options, ReadMode, Verify};

use crate::store::{Known, key, refusal, tiny, tried, value};

/// Sets the limit of the scenario's handles; it can be raised again.
fn limit(handles: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(handles), maximum }).unwrap();
}

/// Uses up all remaining handles, except for `few`.
fn take_all(few: usize) -> Vec<File> {
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - few);
    taken
}

/// A store of many small tables, hardly any of them open.
fn grown(dir: &Path, options: &Options) -> (Db, Known) {
    let db = Db::open(dir, options.clone().compaction(|c| c.table_bytes(32 << 10))).unwrap();
    let mut known = Known::default();
    assert!(known.fill(&db, 3_000).is_none());
    db.wait_idle().unwrap();
    db.close().unwrap();
    (Db::open(dir, options.clone()).unwrap(), known)
}

/// Opens a store with an increasing number of handles: each attempt opens it or returns an error,
/// and loses nothing.
fn to_open(dir: &Path) {
    let store = dir.join("store");
    let (db, mut known) = grown(&store, &tiny());
    drop(db);
    let mut opened = 0;
    for handles in 3..40 {
        limit(handles);
        match Db::open(&store, tiny()) {
            Err(error) => refusal(&error),
            Ok(db) => {
                tried(&db.get(key(7)));
                tried(&db.flush());
                opened += 1;
            }
        }
    }
    assert!(opened > 0, "it never opened");
    limit(1024);
    known.check_again(&store, tiny());
}

/// Uses the store without a handle left, then with handles again.
fn live(dir: &Path, options: &Options, few: usize) {
    limit(200);
    let store = dir.join("store");
    let (db, mut known) = grown(&store, options);
    let taken = take_all(few);
    for number in (0..known.written).step_by(13) {
        match db.get(key(number)) {
            Ok(found) => assert!(found.as_deref() == Some(&value(number)[..]), "entry {number}"),
            Err(error) => refusal(&error),
        }
    }
    for entry in db.iter() {
        if !tried(&entry) {
            break;
        }
    }
    tried(&db.verify());
    tried(&db.checkpoint(dir.join("copy")));
    // With or without errors, and again with handles: the only requirement is that nothing is lost.
    for _ in 0..20 {
        if known.fill(&db, known.written + 10).is_some() {
            break;
        }
    }
    if options.settings().contains(&("background_threads", "0".into())) {
        tried(&db.flush());
        tried(&db.compact_all());
    }
    // This needs at least one handle.
    if let Err(error) = Db::open(dir.join("another"), tiny()) {
        refusal(&error);
    }
    drop(taken);
    known.check(&db);
    drop(db);
    known.check_again(&store, tiny());
}

fn to_compact(dir: &Path) {
    limit(200);
    let store = dir.join("store");
    let (db, mut known) = grown(&store, &tiny());
    let taken = take_all(0);
    let compacting = db.clone();
    let thread = std::thread::spawn(move || compacting.compact_all());
    std::thread::sleep(Duration::from_millis(200));
    if let Err(error) = Db::open(dir.join("another"), tiny()) {
        refusal(&error);
    }
    drop(taken);
    // It has waited for handles, or returns an error about them; nothing else.
    tried(&thread.join().unwrap());
    known.check(&db);
    drop(db);
    known.check_again(&store, tiny());
}

/// With six handles left memtables are flushed, but level 0 cannot be compacted: the store reports
/// it, and a stalled writer gets an error instead of waiting for handles that may never come.
fn few(dir: &Path) {
    limit(200);
    let store = dir.join("store");
    let options = tiny()
        .compaction(|c| c.table_bytes(32 << 10))
        .writes(|w| w.stall_timeout(Some(Duration::from_secs(1))));
    let (db, mut known) = grown(&store, &options);
    let taken = take_all(6);
    let before = db.stats();
    // A compaction may hold the last handles when a writer needs one for the next log: that writer
    // gets an error too, and may try again.
    let source = loop {
        assert!(known.written < 100_000, "nothing was short");
        let Some(refused) = known.fill(&db, known.written + 100) else { continue };
        assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
        assert!(refused.to_string().contains("ulimit -n"), "{refused}");
        if let Error::Stalled { source, .. } = refused {
            break source;
        }
    };
    assert!(source.to_string().contains("ulimit -n"), "{source}");
    let after = db.stats();
    assert!(
        after.background.flushes.count >= before.background.flushes.count + 8,
        "{} flushes with six handles",
        after.background.flushes.count
    );
    let last = after.background.error.expect("a compaction has failed");
    assert!(last.is_current() && last.job == BackgroundJob::Compaction, "{last}");
    println!("\n{}", db.stats());
    drop(taken);
    while let Some(refused) = known.fill(&db, known.written + 1_000) {
        assert!(matches!(refused, Error::Stalled { .. }), "{refused}");
        std::thread::sleep(Duration::from_millis(50));
    }
    db.wait_idle().unwrap();
    known.check(&db);
    drop(db);
    known.check_again(&store, tiny());
}

scenarios! {
    six_handles_are_left in Directory: few;
    a_few_handles_open_a_store_or_not in Directory: to_open;
    no_handle_is_left in Directory: |dir| live(dir, &tiny(), 0);
    no_handle_is_left_and_no_thread in Directory: |dir| live(dir, &tiny().background_threads(0), 0);
    no_handle_is_left_to_read_directly in Directory: |dir| {
        live(dir, &tiny().reads(|r| r.read_mode(ReadMode::Direct)), 0);
    };
    no_handle_is_left_to_map in Directory: |dir| live(dir, &tiny().reads(|r| r.read_mode(ReadMode::Mapped(Verify::EachUse))), 0);
    one_handle_is_left in Directory: |dir| live(dir, &tiny().background_threads(0), 1);
    no_handle_is_left_to_compact in Directory: to_compact;
}

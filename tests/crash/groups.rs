//! Writers in one commit group: a writer that requests durability has it once acknowledged, and
//! before any reader can see the write, whether or not the group's leader requested it too.
//!
//! 1. Some threads write without syncing, others sync each write, all at once.
//! 2. In between, the acknowledged and the visible writes of the synced writers are recorded, and
//!    then an image of the disk is made that holds only what was synced.
//! 3. The image is opened: for each synced writer everything recorded is present, and its writes
//!    are a prefix.
//! 4. The same is checked within each sync of a log, before it has synced anything: so the moment
//!    at which a write is in the log and not yet durable is covered each time, not by chance.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use trommel::vfs::Vfs;
use trommel::{Db, Error, WriteOptions};
use trommel_sim::{Failure, Fault, Image, OpKind, Policy, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use crate::inspect::Verdict;
use crate::process::{Process, Watcher};
use crate::workload::{DIR, options};

const SYNCED_WRITERS: usize = 3;
const OTHER_WRITERS: usize = 3;
/// Number of images at CI size.
const IMAGES: u64 = 4000;
/// Writes of one thread before its store is replaced by a fresh one.
const WRITES: u64 = 1500;
/// Number of stores whose every sync is checked, and of the writes of each of their threads.
const STORES: u64 = 30;
const SEEN_WRITES: u64 = 60;

fn key(writer: usize, number: u64) -> String {
    format!("{writer}/{number:06}")
}

/// Opens `image`, and compares it with what was acknowledged or visible before it was made.
fn check(image: &Image, known: &[u64], seed: u64) -> Verdict<()> {
    let disk: Arc<dyn Vfs> = Arc::new(image.disk());
    let db = Db::open(DIR, options(seed, disk).background_threads(0)).expect("a legal image");
    for (writer, known) in known.iter().enumerate() {
        let found = db.prefix(format!("{writer}/")).count() as u64;
        if found < *known {
            return Err(format!(
                "seed {seed}: {known} writes of writer {writer} were acknowledged as durable, or \
                 seen, and {found} are durable; again (but other threads ran, and it may not \
                 fail again): TROMMEL_FIRST_SEED={seed} cargo test -p trommel-tests --test crash \
                 -- groups"
            ));
        }
        for number in 0..found {
            let value = db.get(key(writer, number)).expect("a healthy disk");
            if value.is_none() {
                return Err(format!("seed {seed}: write {number} of writer {writer} is a hole"));
            }
        }
    }
    Ok(())
}

/// Number of acknowledged writes of each synced writer.
type Acknowledged = [AtomicU64; SYNCED_WRITERS];

/// Number of durable writes of each synced writer, according to its acknowledgements and to a
/// reader.
fn known(db: &Db, acknowledged: &Acknowledged) -> [u64; SYNCED_WRITERS] {
    let mut known = acknowledged.each_ref().map(|count| count.load(Ordering::Acquire));
    for (writer, count) in known.iter_mut().enumerate() {
        while db.get(key(writer, *count)).expect("a healthy disk").is_some() {
            *count += 1;
        }
    }
    known
}

/// A reader that runs whenever a log is about to be synced.
#[derive(Debug)]
struct Reader {
    seed: u64,
    disk: SimDisk,
    /// The store, while it is open.
    db: Mutex<Option<Db>>,
    acknowledged: Acknowledged,
    /// Number of checks, and of syncs found to have something to do.
    looks: AtomicU64,
    /// The first error found.
    wrong: Mutex<Option<String>>,
}

impl Watcher for Reader {
    fn before_log_sync(&self) {
        let Some(db) = self.db.lock().expect("no panic").clone() else { return };
        let known = known(&db, &self.acknowledged);
        let outcome = check(&self.disk.crash(Policy::SYNCED, self.seed), &known, self.seed);
        if let Err(what) = outcome {
            self.wrong.lock().expect("no panic").get_or_insert(what);
        }
        self.looks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes to one store and checks it until enough was written or `images` were made.
fn one_store(seed: u64, images: u64) -> u64 {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let db = Db::open(DIR, options(seed, vfs).background_threads(1)).expect("a healthy disk");
    let acknowledged = Acknowledged::default();
    let done = AtomicBool::new(false);
    let mut made = 0;
    std::thread::scope(|scope| {
        for writer in 0..SYNCED_WRITERS + OTHER_WRITERS {
            let (db, done, acknowledged) = (&db, &done, acknowledged.get(writer));
            let how =
                if acknowledged.is_some() { WriteOptions::sync() } else { WriteOptions::os() };
            scope.spawn(move || {
                for number in (0..WRITES).take_while(|_| !done.load(Ordering::Relaxed)) {
                    db.put_with(key(writer, number), [0x5a; 20], how).expect("a healthy disk");
                    if let Some(acknowledged) = acknowledged {
                        acknowledged.store(number + 1, Ordering::Release);
                    }
                }
            });
        }
        let known = || known(&db, &acknowledged);
        while made < images && known().iter().any(|count| *count < WRITES) {
            let before = known();
            let outcome = check(&disk.crash(Policy::SYNCED, seed), &before, seed);
            if let Err(what) = outcome {
                done.store(true, Ordering::Relaxed);
                panic!("{what}");
            }
            made += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    made
}

#[test]
fn a_follower_that_requested_it_is_durable() {
    let mut counters = Counters::new("crash/groups");
    let wanted = rounds(IMAGES);
    for seed in first_seed().. {
        let left = wanted - counters.get("images");
        let images = one_store(seed, left.min(20));
        counters.add("images", images);
        counters.add("images.groups", images);
        if counters.get("images") >= wanted {
            break;
        }
    }
    counters.finish();
}

/// While a log is being synced for them, writes are not yet visible.
#[test]
fn no_reader_sees_a_write_before_its_sync() {
    let mut counters = Counters::new("crash/seen");
    for seed in first_seed()..first_seed() + rounds(STORES) {
        let disk = SimDisk::new();
        let reader = Arc::new(Reader {
            seed,
            disk: disk.clone(),
            db: Mutex::default(),
            acknowledged: Acknowledged::default(),
            looks: AtomicU64::new(0),
            wrong: Mutex::default(),
        });
        let process = Process::new(disk).watched_by(Arc::<Reader>::clone(&reader));
        let db = Db::open(
            DIR,
            options(seed, Arc::new(process)).writes(|w| w.log(true)).background_threads(0),
        )
        .expect("a healthy disk");
        *reader.db.lock().expect("no panic") = Some(db.clone());
        // A single writer never shares a sync; several do.
        let writers = 1 + seed as usize % SYNCED_WRITERS;
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let (db, reader) = (&db, &reader);
                scope.spawn(move || {
                    for number in 0..SEEN_WRITES {
                        let key = key(writer, number);
                        db.put_with(key, [0x5a; 20], WriteOptions::sync()).expect("healthy");
                        reader.acknowledged[writer].store(number + 1, Ordering::Release);
                    }
                });
            }
        });
        *reader.db.lock().expect("no panic") = None;
        let wrong = reader.wrong.lock().expect("no panic").take();
        assert_eq!(wrong, None);
        counters.add("syncs_looked_at", reader.looks.load(Ordering::Relaxed));
        counters.add("writes", writers as u64 * SEEN_WRITES);
    }
    // Writers may share a sync, but none of them has two writes in one.
    let fewest = rounds(STORES) * SEEN_WRITES;
    assert!(counters.get("syncs_looked_at") >= fewest, "too few syncs");
    counters.finish();
}

/// A write whose sync fails, at any call, is never visible, to any kind of read.
#[test]
fn a_write_whose_sync_failed_is_never_seen() {
    for call in 0..20 {
        for lasting in [false, true] {
            let disk = SimDisk::new();
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            let options = options(call, vfs).writes(|w| w.log(true)).background_threads(0);
            let db = Db::open(DIR, options).expect("a healthy disk");
            let fault = Fault::new(Failure::Io).on(OpKind::Sync).named(".log").after(call);
            disk.inject(if lasting { fault.lasting() } else { fault });
            let put = |number| db.put_with(key(0, number), "v", WriteOptions::sync());
            let written =
                (0..100).find_map(|number| put(number).err().map(|error| (number, error)));
            let (written, error) = written.expect("the sync of a log was to fail");
            // A full log is closed after its last write has returned: the next write gets the
            // error.
            assert!(matches!(error, Error::Io { .. } | Error::Poisoned { .. }), "{error}");
            for _ in 0..2 {
                assert_eq!(db.get(key(0, written)).expect("reading"), None, "call {call}");
                assert_eq!(db.iter().count() as u64, written, "call {call}");
                assert_eq!(db.iter().rev().count() as u64, written, "call {call}");
                let snapshot = db.snapshot();
                assert_eq!(snapshot.get(key(0, written)).expect("reading"), None, "call {call}");
                // Nor after the next write is rejected.
                assert!(matches!(put(written + 1), Err(Error::Poisoned { .. })), "call {call}");
            }
        }
    }
}

//! Writers that share a group: whoever asked for durability has it once acknowledged, whether or not
//! the group's leader asked for it too.
//!
//! 1. Some threads write and ask for nothing, others ask for each write to be synced, all at once.
//! 2. In between, what the synced writers were told is noted, and then an image of the disk is made
//!    that holds nothing but what was synced.
//! 3. The image is opened: of each synced writer everything noted is there, and its writes are a
//!    prefix.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trommel::vfs::{Image, Policy, SimDisk, Vfs};
use trommel::{Db, WriteOptions};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, scale};

use crate::workload::{DIR, options};

const SYNCED_WRITERS: usize = 3;
const OTHER_WRITERS: usize = 3;
/// Images at CI size.
const IMAGES: u64 = 4000;
/// Writes of one thread before its store is begun anew.
const WRITES: u64 = 1500;

fn key(writer: usize, number: u64) -> String {
    format!("{writer}/{number:06}")
}

/// Opens `image`, and compares it with what was acknowledged before it was made.
fn check(image: &Image, acknowledged: &[u64], seed: u64) {
    let disk: Arc<dyn Vfs> = Arc::new(image.disk());
    let db = Db::open(DIR, options(seed, disk).background_threads(0)).expect("a legal image");
    for (writer, acknowledged) in acknowledged.iter().enumerate() {
        let found = db.prefix(format!("{writer}/")).count() as u64;
        assert!(
            found >= *acknowledged,
            "seed {seed}: writer {writer} was told that {acknowledged} writes are durable, and \
             {found} are there; again: TROMMEL_FIRST_SEED={seed} cargo test -p trommel-tests --test \
             crash -- groups"
        );
        for number in 0..found {
            let value = db.get(key(writer, number)).expect("a healthy disk");
            assert!(value.is_some(), "seed {seed}: write {number} of writer {writer} is a hole");
        }
    }
}

/// One store, written to and looked at until enough was written or `images` were made.
fn one_store(seed: u64, images: u64) -> u64 {
    let disk = SimDisk::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let db = Db::open(DIR, options(seed, vfs).background_threads(1)).expect("a healthy disk");
    let acknowledged: [AtomicU64; SYNCED_WRITERS] = Default::default();
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
        let counts = || acknowledged.each_ref().map(|count| count.load(Ordering::Acquire));
        while made < images && counts().iter().any(|count| *count < WRITES) {
            let before = counts();
            check(&disk.crash(Policy::SYNCED, seed), &before, seed);
            made += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    made
}

#[test]
fn a_follower_that_asked_for_it_is_durable() {
    let mut counters = Counters::new("crash/groups");
    let wanted = IMAGES * scale();
    for seed in first_seed().. {
        let left = wanted - counters.get("images");
        counters.add("images", one_store(seed, left.min(20)));
        if counters.get("images") >= wanted {
            break;
        }
    }
    counters.finish();
}

//! A store is opened without enough space to flush its logs, so the logs are kept: a crash at any
//! moment of that, and of what follows, loses no acknowledged write, and writes that an open has
//! dropped do not reappear.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::Vfs;
use trommel::{Compression, Db, Options, WriteOptions};
use trommel_sim::{Failure, Fault, Image, OpKind, Policy, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, scale};

use crate::inspect::{Verdict, failed, scan};
use crate::oracle::State;
use crate::process::Process;
use crate::workload::DIR;
use trommel_tests::watchdog;

/// Maximum number of successive crashes.
const DEEPEST: usize = 4;

fn open(vfs: impl Vfs + 'static) -> Verdict<Db> {
    let options = Options::default()
        .vfs(Arc::new(vfs))
        .background_threads(0)
        .writes(|w| w.spare_file_bytes(0));
    let options = options.writes(|w| w.write_buffer_bytes(64 << 10)).compression(Compression::None);
    Db::open(DIR, options).map_err(failed("opening"))
}

/// Leaves no space for a table.
fn fill(disk: &SimDisk) {
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).named(".sst").lasting());
}

fn put(db: &Db, key: &str, value: &[u8], sync: bool) {
    let options = if sync { WriteOptions::sync() } else { WriteOptions::default() };
    // The writer that finds the memtable full flushes it, and gets the error.
    let first = db.put_with(key, value, options);
    first.or_else(|_| db.put_with(key, value, options)).expect("the log has room");
}

fn logs(disk: &SimDisk) -> Vec<String> {
    let listing = disk.list(Path::new(DIR)).expect("the directory is there");
    let names = listing.into_iter().map(|entry| entry.name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".log")).collect()
}

struct Crashes {
    met: HashSet<u64>,
    by_depth: [u64; DEEPEST + 1],
    torn: u64,
    rng: Rng,
}

impl Crashes {
    /// Opens the store on `image`, which holds `wanted`, without space, writes to it, flushes it
    /// with space, and crashes it at every boundary.
    fn crash(&mut self, image: &Image, wanted: &State, depth: usize) -> Verdict<()> {
        let disk = image.disk();
        fill(&disk);
        let db = open(disk.clone())?;
        same(&db, wanted)?;
        self.torn += u64::from(!db.recovery_report().dropped.is_empty());
        let old = logs(&disk);
        disk.mark(0);
        let mut after = wanted.clone();
        let key = format!("new{depth}");
        put(&db, &key, b"value", true);
        after.insert(key.into_bytes(), b"value".to_vec());
        disk.mark(1);
        if self.rng.bool() {
            disk.clear_faults();
            db.flush().map_err(failed("flushing"))?;
            if db.recovery_report().dropped.is_empty() {
                let left: Vec<_> = logs(&disk).into_iter().filter(|l| old.contains(l)).collect();
                if !left.is_empty() {
                    return Err(format!("{left:?} are still there"));
                }
            }
        }
        drop(db);
        let mut replay = disk.replay();
        loop {
            let random = Policy::ALL[self.rng.usize(..Policy::ALL.len())];
            for policy in [Policy::SYNCED, Policy::EVERYTHING, random] {
                let image = replay.image(policy, self.rng.u64(..));
                if !self.met.insert(image.hash()) {
                    continue;
                }
                self.by_depth[depth] += 1;
                let at = replay.position();
                let found = self.check(&image, replay.marks(), wanted, &after).map_err(|what| {
                    format!("{what}\n  at depth {depth}, boundary {at}, {policy}")
                })?;
                if depth < DEEPEST && self.rng.u8(..25) == 0 {
                    self.crash(&image, &found, depth + 1)?;
                }
            }
            if replay.step().is_none() {
                return Ok(());
            }
        }
    }

    /// Opens the store on `image`, with or without space, and checks its contents.
    fn check(
        &mut self,
        image: &Image,
        marks: &[u64],
        before: &State,
        after: &State,
    ) -> Verdict<State> {
        let disk = image.disk();
        if self.rng.bool() {
            fill(&disk);
        }
        let db = open(disk)?;
        db.verify().map_err(failed("verifying"))?;
        let found = scan(&db)?;
        let is_right = match marks {
            [] => found == *before,
            [0] => found == *before || found == *after,
            _ => found == *after,
        };
        if is_right { Ok(found) } else { Err(format!("it holds {} keys", found.len())) }
    }
}

fn same(db: &Db, wanted: &State) -> Verdict<()> {
    let found = scan(db)?;
    if found == *wanted { Ok(()) } else { Err(format!("it holds {} keys", found.len())) }
}

/// The store of this seed with several logs, after a crash.
fn crashed(seed: u64) -> Verdict<Image> {
    let mut rng = Rng::with_seed(seed);
    let disk = SimDisk::new();
    let db = open(disk.clone())?;
    fill(&disk);
    for number in 0..rng.usize(100..250) {
        let value: Vec<u8> = (0..rng.usize(..1500)).map(|_| rng.u8(..)).collect();
        put(&db, &format!("key{:03}", number % 170), &value, rng.u8(..20) == 0);
    }
    Ok(disk.crash(Policy::ALL[seed as usize % Policy::ALL.len()], seed))
}

#[test]
fn an_opening_that_keeps_the_logs_is_crashed_anywhere() {
    let mut counters = Counters::new("crash/an_opening_that_keeps_the_logs");
    for seed in first_seed()..first_seed() + 12 * scale() {
        watchdog::note([seed, 0, 0, 0, 0]);
        let one = || {
            let image = crashed(seed)?;
            let wanted = scan(&open(image.disk())?)?;
            let (met, rng) = (HashSet::new(), Rng::with_seed(seed));
            let mut crashes = Crashes { met, by_depth: [0; DEEPEST + 1], torn: 0, rng };
            crashes.crash(&image, &wanted, 1)?;
            Ok(crashes)
        };
        let crashes: Crashes = one().unwrap_or_else(|what: String| panic!("seed {seed}: {what}"));
        for (depth, count) in crashes.by_depth.into_iter().enumerate().skip(1) {
            counters.add(format!("images.depth{depth}"), count);
        }
        counters.add("torn", crashes.torn);
    }
    assert!(counters.get("images.depth3") > 100 && counters.get("torn") > 5);
    counters.finish();
}

/// A process is killed before its log reaches the disk. The next one keeps that log, and
/// acknowledges a later write as durable: then the log must be durable too.
#[test]
fn a_log_that_is_kept_was_made_durable() {
    for number in 0..40 {
        let disk = SimDisk::new();
        let first = Process::new(disk.clone());
        let db = open(first.clone()).expect("opening");
        let mut wanted = State::new();
        for key in 0..300 {
            let (key, value) =
                (format!("key{key:03}"), vec![number; 200 + 5 * usize::from(number)]);
            put(&db, &key, &value, false);
            wanted.insert(key.into_bytes(), value);
        }
        first.die_after(0);
        drop(db);
        fill(&disk);
        let second = Process::new(disk.clone());
        let db = open(second.clone()).expect("opening");
        same(&db, &wanted).expect("all is there");
        put(&db, "synced", b"value", true);
        wanted.insert(b"synced".to_vec(), b"value".to_vec());
        let image = disk.crash(Policy::ALL[usize::from(number) % Policy::ALL.len()], 7);
        second.die_after(0);
        drop(db);
        let db = open(image.disk()).expect("opening");
        same(&db, &wanted).expect("all is there");
    }
}

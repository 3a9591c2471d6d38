//! A crash during recovery from the last one: at any moment, and even if a third (in a soak, a
//! fourth) follows, the final state is the same.
//!
//! 1. A workload is crashed somewhere, and the store opened: that state is the expected one.
//! 2. The operations of that open are replayed, and images made at each boundary.
//! 3. Each is opened and must have the same state; some of these opens are themselves crashed at
//!    every boundary.

use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;
use trommel::{Db, Options, WriteOptions};
use trommel_sim::{Data, Entries, Failure, Fault, Image, OpKind, Policy, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{cases, first_seed, rounds, scale};

use crate::inspect::{Verdict, failed, same, scan};
use crate::oracle::{Bounds, History, digest};
use crate::process::Process;
use crate::settings::only;
use crate::workload::{DIR, Profile, Run};
use trommel_tests::watchdog;

/// Number of distinct images during recovery.
const WANTED: u64 = 30_000;
/// Number of crashes of one workload to recover from.
const CRASHES: u64 = 6;

struct Recoveries<'a> {
    profile: &'a Profile,
    met: HashSet<u64>,
    by_depth: [u64; 5],
}

#[test]
fn recovery_crashed_anywhere_ends_in_the_same_state() {
    let mut counters = Counters::new("crash/recovery_crashed_anywhere");
    for seed in first_seed().. {
        let [seed, crash] = only().unwrap_or([seed, u64::MAX]);
        for number in 0..CRASHES {
            if crash == u64::MAX || crash == number {
                watchdog::note([seed, number, 0, 0, 0]);
                let counts = one(seed, number).unwrap_or_else(|what| {
                    panic!(
                        "{what}\n  run it again: TROMMEL_CRASH_ONLY={seed},{number} cargo test -p \
                         trommel-tests --test crash recovery_crashed -- --nocapture"
                    )
                });
                for (depth, count) in counts.into_iter().enumerate().skip(2) {
                    counters.add(format!("recoveries.depth{depth}"), count);
                    counters.add("distinct", count);
                }
                counters.add("crashes", 1);
            }
        }
        if crash != u64::MAX {
            return;
        }
        if counters.get("distinct") >= cases(WANTED) {
            break;
        }
    }
    counters.finish();
}

/// Maximum number of successive crashes, including the first; one more in a soak.
fn deepest() -> usize {
    if scale() > 1 { 4 } else { 3 }
}

/// Crash number `number` of the workload of `seed`.
fn one(seed: u64, number: u64) -> Verdict<[u64; 5]> {
    let log = !seed.is_multiple_of(8);
    let profile = Profile { actions: 50, log, ..Profile::new(seed) };
    let mut run = Run::on(SimDisk::new(), History::default(), 0);
    run.all(&profile, &profile.actions())?;
    let mut rng = Rng::with_seed(seed << 8 | number);
    let mut replay = run.disk.replay();
    replay.seek(rng.usize(..=replay.ops().len()));
    let policy = Policy::ALL[rng.usize(..Policy::ALL.len())];
    let image = replay.image(policy, rng.u64(..));
    let mut bounds = Bounds::starting_with(0);
    replay.marks().iter().for_each(|&mark| bounds.pass(mark));

    let db = Db::open(DIR, profile.options(Arc::new(image.disk()))).map_err(failed("opening"))?;
    let state = scan(&db)?;
    if run.history.prefix(digest(&state), bounds.durable, bounds.issued).is_none() {
        return Err(run.history.explain(&state, bounds.durable, bounds.issued));
    }
    let mut recoveries = Recoveries { profile: &profile, met: HashSet::new(), by_depth: [0; 5] };
    recoveries.crash(&image, digest(&state), 2, &mut rng)?;
    Ok(recoveries.by_depth)
}

impl Recoveries<'_> {
    /// Opens the store on `image` and crashes it at every boundary.
    fn crash(&mut self, image: &Image, wanted: u64, depth: usize, rng: &mut Rng) -> Verdict<()> {
        let disk = image.disk();
        let options = self.profile.options(Arc::new(disk.clone()));
        drop(Db::open(DIR, options).map_err(failed("opening"))?);
        let mut replay = disk.replay();
        loop {
            let random = [(); 2].map(|()| Policy::ALL[rng.usize(2..Policy::ALL.len())]);
            for policy in [Policy::SYNCED, Policy::EVERYTHING].into_iter().chain(random) {
                let image = replay.image(policy, rng.u64(..));
                if !self.met.insert(image.hash()) {
                    continue;
                }
                let at = replay.position();
                self.by_depth[depth] += 1;
                self.check(&image, wanted).map_err(|what| {
                    format!("{what}\n  at depth {depth}, boundary {at}, {policy}")
                })?;
                if depth < deepest() && rng.u8(..40) == 0 {
                    self.crash(&image, wanted, depth + 1, rng)?;
                }
            }
            if replay.step().is_none() {
                return Ok(());
            }
        }
    }

    fn check(&self, image: &Image, wanted: u64) -> Verdict<()> {
        let options = self.profile.options(Arc::new(image.disk()));
        let db = Db::open(DIR, options).map_err(failed("opening"))?;
        same(&db, wanted)?;
        db.verify().map_err(failed("verifying"))?;
        Ok(())
    }
}

/// A process is killed while it creates the store, and another continues: its durable writes must
/// not depend on a directory entry that the first one had yet to sync.
#[test]
fn a_store_whose_creator_was_killed() {
    for calls in 0.. {
        let disk = SimDisk::new();
        let first = Process::new(disk.clone());
        first.die_after(calls);
        let profile = Profile::new(1);
        let _ = Db::open("above/db", profile.options(Arc::new(first.clone())));
        if !first.is_dead() {
            return;
        }
        let db = Db::open("above/db", profile.options(Arc::new(disk.clone()))).expect("opening");
        db.put_with("key", "value", WriteOptions::sync()).expect("writing");
        let left = disk.crash(Policy::SYNCED, 0).disk();
        let db = Db::open("above/db", profile.options(Arc::new(left))).expect("opening");
        let found = db.get("key").expect("reading");
        assert_eq!(found.as_deref(), Some(&b"value"[..]), "killed after {calls} calls");
    }
}

/// The time of the disk's failure.
#[derive(Debug, Clone, Copy)]
enum When {
    /// While a closed store is opened.
    Opening,
    /// While a store is opened in which a write has failed.
    OpeningAgain,
    /// While a memtable is flushed.
    Flushing,
}

/// The disk fails at one call of an open or a flush, an open succeeds, and the power fails during
/// or after it: what the first left behind, or undid, is not corruption.
#[test]
fn a_failure_and_an_open_that_is_crashed() {
    let kinds = [OpKind::Create, OpKind::Append, OpKind::Sync, OpKind::SyncDir, OpKind::Rename];
    let mut failed = 0;
    for (kind, call) in kinds.into_iter().flat_map(|kind| (0..5).map(move |call| (kind, call))) {
        for when in [When::Opening, When::OpeningAgain, When::Flushing] {
            failed +=
                u64::from(fail_and_crash(&Fault::new(Failure::Io).on(kind).after(call), when));
        }
    }
    assert!(failed > 40, "{failed} faults were met");
}

/// Whether `fault` occurred.
fn fail_and_crash(fault: &Fault, when: When) -> bool {
    let disk = SimDisk::new();
    let open = |disk: &SimDisk| {
        Db::open(DIR, Options::default().vfs(Arc::new(disk.clone())).background_threads(0))
    };
    let db = open(&disk).expect("opening");
    db.put_with("key", "value", WriteOptions::sync()).expect("writing");
    if matches!(when, When::OpeningAgain) {
        disk.inject(Fault::new(Failure::Io).on(OpKind::Append).named(".log"));
        db.put("other", "value").expect_err("the disk fails");
    }
    let mut start = disk.replay().ops().len();
    let is_met = if matches!(when, When::Flushing) {
        disk.inject(fault.clone());
        let is_met = db.flush().is_err();
        drop(db);
        is_met
    } else {
        drop(db);
        start = disk.replay().ops().len();
        disk.inject(fault.clone());
        open(&disk).is_err()
    };
    disk.clear_faults();
    drop(open(&disk).expect("the disk is sound again"));
    let mut replay = disk.replay();
    for at in start..=replay.ops().len() {
        replay.seek(at);
        for (data, seed) in
            [Data::All, Data::Synced].into_iter().flat_map(|d| (0..rounds(6)).map(move |s| (d, s)))
        {
            let image = replay.image(Policy::new(Entries::Random, data), seed);
            let found = open(&image.disk()).and_then(|db| db.get("key"));
            let is_there = matches!(&found, Ok(Some(value)) if *value == *b"value");
            assert!(is_there, "{fault:?} {when:?}, cut at {at} with {data:?} {seed}: {found:?}");
        }
    }
    is_met
}

//! A lying disk: the syncs of one file, or one sync of the store's directory, do nothing and report
//! success, and then the power fails.
//!
//! No store can keep what such a disk loses. But it must not return wrong answers: its state is
//! that after some prefix of the batches, or it returns `Corruption`. It reports the loss, except
//! in the one case that nobody can detect, when a log ends cleanly, early. Even then no write is
//! missing that was acknowledged before that log existed. While the lie does not matter, before it
//! and after the file is removed or the directory is synced again, nothing at all is missing or
//! corrupt.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use trommel::{Db, Error};
use trommel_sim::{Fault, Op, OpKind, Policy, Replay, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use crate::boundaries::policy;
use crate::faults::file_kind;
use crate::inspect::Verdict;
use crate::oracle::{Bounds, History, digest};
use crate::settings::only;
use crate::workload::{DIR, Profile, Run};
use trommel_tests::watchdog;

/// Number of images of lying disks.
const WANTED: u64 = 8000;

/// The subject of a lie.
#[derive(Debug)]
enum Lie {
    /// All syncs of the file of this name.
    File(String),
    /// Sync number `.0`, from 0, of the store's directory.
    Directory(u64),
}

fn is_sync_of_directory(op: &&Op) -> bool {
    op.kind() == OpKind::SyncDir && op.path().ends_with(DIR)
}

impl Lie {
    /// All possible lies in a healthy run.
    fn all(healthy: &Replay) -> Vec<Self> {
        let ops = healthy.ops();
        let created = ops.iter().filter(|op| op.kind() == OpKind::Create);
        let names = created.map(Op::path).filter(|path| path.starts_with(DIR));
        let mut names: Vec<String> =
            names.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        names.dedup();
        let directories = 0..ops.iter().filter(is_sync_of_directory).count() as u64;
        names.into_iter().map(Self::File).chain(directories.map(Self::Directory)).collect()
    }

    fn fault(&self) -> Fault {
        match self {
            Self::File(name) => Fault::lying_sync().named(name).lasting(),
            Self::Directory(number) => {
                let name = Path::new(DIR).file_name().unwrap_or_default().to_string_lossy();
                Fault::lying_sync().named(&name).after(*number)
            }
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::File(name) => file_kind(name.as_ref()),
            Self::Directory(_) => "directory",
        }
    }

    /// The range of operations in which the lie may lose data.
    fn matters(&self, ops: &[Op]) -> Range<usize> {
        let nth = |number: usize, wanted: &dyn Fn(&&Op) -> bool| {
            let found = ops.iter().enumerate().filter(|(_, op)| wanted(op)).nth(number);
            found.map_or(ops.len(), |(at, _)| at)
        };
        match self {
            Self::File(name) => {
                let of = |kind| nth(0, &|op: &&Op| op.kind() == kind && op.path().ends_with(name));
                of(OpKind::Create)..of(OpKind::Remove)
            }
            Self::Directory(number) => {
                let number = *number as usize;
                nth(number, &is_sync_of_directory)..nth(number + 1, &is_sync_of_directory)
            }
        }
    }
}

/// The workload of a seed on a lying disk.
fn run(profile: &Profile, lie: Option<&Lie>) -> Verdict<Run> {
    let mut run = Run::on(SimDisk::new(), History::default(), 0);
    lie.into_iter().for_each(|lie| run.disk.inject(lie.fault()));
    run.all(profile, &profile.actions())?;
    Ok(run)
}

fn bounds_at(replay: &mut Replay, at: usize) -> Bounds {
    replay.seek(at);
    let mut bounds = Bounds::default();
    replay.marks().iter().for_each(|&mark| bounds.pass(mark));
    bounds
}

/// Checks that the state after this power failure is legal, or reported as corrupt.
fn one(
    profile: &Profile,
    run: &Run,
    lie: &Lie,
    [at, number, seed]: [u64; 3],
    counters: &mut Counters,
) -> Verdict<()> {
    let mut replay = run.disk.replay();
    let matters = lie.matters(replay.ops());
    let before = bounds_at(&mut run.disk.replay(), matters.start);
    // Batches missing from an older log may be durable in a table that only the directory refers
    // to.
    let safe = match lie {
        Lie::File(_) => before.written,
        Lie::Directory(_) => before.durable,
    };
    let bounds = bounds_at(&mut replay, at as usize);
    let matters = matters.start < at as usize && at as usize <= matters.end;
    let image = replay.image(policy(number as usize), seed);
    counters.add("images", 1);
    counters.add("images.P10", 1);
    let damaged = |what: &str, counters: &mut Counters| {
        counters.add(what, 1);
        if matters { Ok(()) } else { Err(format!("{what}, and the lie did not matter")) }
    };
    let db = match Db::open(DIR, profile.options(Arc::new(image.disk()))) {
        Ok(db) => db,
        Err(Error::Corruption(_)) => return damaged("found_damaged_when_opened", counters),
        Err(error) => return Err(format!("a disk that lied is reported as: {error}")),
    };
    let mut state = crate::oracle::State::new();
    for entry in db.iter() {
        match entry {
            Ok((key, value)) => state.insert(key.to_vec(), value.to_vec()),
            Err(Error::Corruption(_)) => return damaged("found_damaged_when_read", counters),
            Err(error) => return Err(format!("a disk that lied is reported as: {error}")),
        };
    }
    let history = &run.history;
    let Some(count) = history.prefix(digest(&state), 0, bounds.issued) else {
        return Err(history.explain(&state, 0, bounds.issued));
    };
    if count >= bounds.durable {
        counters.add("nothing_missing", 1);
    } else if !matters {
        return Err(format!("{count} of {} durable batches: no lie excuses it", bounds.durable));
    } else if !db.recovery_report().dropped.is_empty() {
        counters.add("loss_reported", 1);
    } else if !matches!(lie.kind(), "log" | "directory") {
        return Err(format!("{count} of {} durable batches, and not a word", bounds.durable));
    } else if count < safe {
        return Err(format!("{count} batches, but {safe} were there before the lie"));
    } else {
        counters.add("loss_that_nobody_can_see", 1);
    }
    Ok(())
}

#[test]
fn a_disk_that_lies_about_one_file() {
    let mut counters = Counters::new("crash/a_disk_that_lies_about_one_file");
    let chosen = only::<5>();
    for seed in chosen.map_or(first_seed(), |[seed, ..]| seed).. {
        // A lagging thread leaves several logs whose memtables are not in tables yet.
        let lags = seed % 2 == 1;
        let threads = usize::from(lags);
        let profile = Profile { actions: 40, threads, stepped: lags, ..Profile::new(seed) };
        let healthy = run(&profile, None).expect("a healthy disk").disk.replay();
        let lies = Lie::all(&healthy);
        let mut rng = Rng::with_seed(seed);
        for _ in 0..8 {
            let liar = chosen.map_or(rng.u64(..lies.len() as u64), |[_, liar, ..]| liar);
            let lie = &lies[liar as usize];
            let run = run(&profile, Some(lie)).expect("a disk that seems healthy");
            let replay = run.disk.replay();
            let (ops, matters) = (replay.ops().len() as u64, lie.matters(replay.ops()));
            for _ in 0..40 {
                // Half of the power failures happen where the lie may lose data.
                let at = match rng.bool() {
                    true => rng.u64(..=ops),
                    false => rng.u64(matters.start as u64..=matters.end as u64),
                };
                let drawn = [at, rng.u64(..Policy::ALL.len() as u64), rng.u64(..)];
                let case = chosen.map_or(drawn, |[.., at, number, seed]| [at, number, seed]);
                watchdog::note([seed, liar, case[0], case[1], case[2]]);
                counters.add(format!("lies.{}", lie.kind()), 1);
                one(&profile, &run, lie, case, &mut counters).unwrap_or_else(|what| {
                    let [at, number, drawn] = case;
                    panic!(
                        "{what}\n  a disk that lied about {lie:?}\n  run it again: \
                         TROMMEL_CRASH_ONLY={seed},{liar},{at},{number},{drawn} cargo test -p \
                         trommel-tests --test crash a_disk_that_lies -- --nocapture"
                    )
                });
                if chosen.is_some() {
                    return;
                }
            }
        }
        if counters.get("images") >= rounds(WANTED) {
            break;
        }
    }
    for seen in ["found_damaged_when_opened", "loss_reported", "nothing_missing"] {
        assert!(counters.get(seen) > 0, "{seen}: never");
    }
    counters.finish();
}

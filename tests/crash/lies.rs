//! A disk that lies: the syncs of one file do nothing and report success, and then the power goes.
//!
//! No store can keep what such a disk takes. But it must not answer wrongly: what it shows is the
//! state after some prefix of the batches, or an error that says `Corruption`; and it says what is
//! missing, but for the one case in which nobody can tell, when a log ends cleanly, early.

use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::{Fault, Op, OpKind, Policy, SimDisk};
use trommel::{Db, Error};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, scale};

use crate::faults::file_kind;
use crate::inspect::Verdict;
use crate::oracle::{Bounds, History, digest};
use crate::settings::only;
use crate::walk::policy;
use crate::watchdog;
use crate::workload::{DIR, Profile, Run};

/// Images of disks that have lied.
const WANTED: u64 = 8000;

/// The workload of a seed on a disk that lies about the file of this name.
fn run(profile: &Profile, liar: Option<&str>) -> Verdict<Run> {
    let mut run = Run::on(SimDisk::new(), History::default(), 0);
    if let Some(name) = liar {
        run.disk.inject(Fault::lying_sync().named(name).lasting());
    }
    run.all(profile, &profile.actions())?;
    Ok(run)
}

/// Whether what is left after this power cut is right, or is said to be damaged.
fn one(
    profile: &Profile,
    run: &Run,
    liar: &str,
    [at, number, seed]: [u64; 3],
    counters: &mut Counters,
) -> Verdict<()> {
    let mut replay = run.disk.replay();
    replay.seek(at as usize);
    let mut bounds = Bounds::default();
    replay.marks().iter().for_each(|&mark| bounds.pass(mark));
    let image = replay.image(policy(number as usize), seed);
    counters.add("images", 1);
    let db = match Db::open(DIR, profile.options(Arc::new(image.disk()))) {
        Ok(db) => db,
        Err(Error::Corruption(_)) => {
            counters.add("found_damaged_when_opened", 1);
            return Ok(());
        }
        Err(error) => return Err(format!("a disk that lied is reported as: {error}")),
    };
    let mut state = crate::oracle::State::new();
    for entry in db.iter() {
        match entry {
            Ok((key, value)) => state.insert(key.to_vec(), value.to_vec()),
            Err(Error::Corruption(_)) => {
                counters.add("found_damaged_when_read", 1);
                return Ok(());
            }
            Err(error) => return Err(format!("a disk that lied is reported as: {error}")),
        };
    }
    let history = &run.history;
    let Some(count) = history.prefix(digest(&state), 0, bounds.issued) else {
        return Err(history.explain(&state, 0, bounds.issued));
    };
    if count >= bounds.durable {
        counters.add("nothing_missing", 1);
    } else if !db.recovery_report().dropped.is_empty() {
        counters.add("loss_reported", 1);
    } else if file_kind(liar.as_ref()) == "log" {
        counters.add("loss_that_nobody_can_see", 1);
    } else {
        return Err(format!("{count} of {} durable batches, and not a word", bounds.durable));
    }
    Ok(())
}

#[test]
fn a_disk_that_lies_about_one_file() {
    let mut counters = Counters::new("crash/a_disk_that_lies_about_one_file");
    let chosen = only::<5>();
    for seed in chosen.map_or(first_seed(), |[seed, ..]| seed).. {
        let profile = Profile { actions: 40, ..Profile::new(seed) };
        let healthy = run(&profile, None).expect("a healthy disk").disk.replay();
        let created = healthy.ops().iter().filter(|op| op.kind() == OpKind::Create);
        let names = created.map(Op::path).filter(|path| path.starts_with(DIR));
        let mut names: Vec<String> =
            names.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        names.dedup();
        let mut rng = Rng::with_seed(seed);
        for _ in 0..8 {
            let liar = chosen.map_or(rng.u64(..names.len() as u64), |[_, liar, ..]| liar);
            let name = &names[liar as usize];
            let run = run(&profile, Some(name)).expect("a disk that seems healthy");
            let ops = run.disk.replay().ops().len() as u64;
            for _ in 0..40 {
                let at = rng.u64(..=ops);
                let drawn = [at, rng.u64(..Policy::ALL.len() as u64), rng.u64(..)];
                let case = chosen.map_or(drawn, |[.., at, number, seed]| [at, number, seed]);
                watchdog::note([seed, liar, case[0], case[1], case[2]]);
                counters.add(format!("lies.{}", file_kind(name.as_ref())), 1);
                one(&profile, &run, name, case, &mut counters).unwrap_or_else(|what| {
                    let [at, number, drawn] = case;
                    panic!(
                        "{what}\n  a disk that lied about {name}\n  run it again: \
                         TROMMEL_CRASH_ONLY={seed},{liar},{at},{number},{drawn} cargo test -p \
                         trommel-tests --test crash a_disk_that_lies -- --nocapture"
                    )
                });
                if chosen.is_some() {
                    return;
                }
            }
        }
        if counters.get("images") >= WANTED * scale() {
            break;
        }
    }
    for seen in ["found_damaged_when_opened", "loss_reported", "nothing_missing"] {
        assert!(counters.get(seen) > 0, "{seen}: never");
    }
    counters.finish();
}

//! What a power cut may leave, at every boundary between two operations of a workload: each image
//! is opened and compared with the oracle.
//!
//! 1. A seeded workload runs on a simulated disk, in one to three lives with a crash between them.
//! 2. The operation log is replayed. At each boundary images are made: with nothing but what was
//!    synced, with everything, and under some of the other policies with seeds of their own; where
//!    few decisions are open, under all.
//! 3. Each image not met before is opened; its state must be that after some prefix of the
//!    batches, at or past the last acknowledged sync. Where everything is kept, a process was
//!    killed: all acknowledged batches must be there.
//! 4. Images that were met before are only compared with the bounds of the new boundary.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use trommel::vfs::{Image, Op, OpKind, Policy, Replay, SimDisk, Vfs};
use trommel::{Db, Options};

use crate::inspect::{Inspection, inspect_checkpoints};
use crate::oracle::{Bounds, History};
use crate::settings::{first_seed, only, scale};
use crate::watchdog;
use crate::workload::{DIR, Profile, Run};

/// Up to so many open decisions, all images at a boundary are made.
const EXHAUSTIVE_DECISIONS: usize = 8;
/// At one boundary in so many.
const EXHAUSTIVE_EVERY: u64 = 16;

/// How a lane's workloads look.
struct Lane {
    name: &'static str,
    /// Distinct images to be met.
    wanted: u64,
    /// The profile of one life of a workload.
    profile: fn(seed: u64, life: u64) -> Profile,
    lives: u64,
}

#[derive(Debug, Default)]
struct Counts {
    workloads: u64,
    boundaries: u64,
    images: u64,
    distinct: u64,
    batches: usize,
}

impl Lane {
    fn run(&self) {
        let start = Instant::now();
        let mut counts = Counts::default();
        if let Some([seed, ..]) = only::<5>() {
            self.workload(seed, &mut counts);
            return;
        }
        for seed in first_seed().. {
            self.workload(seed, &mut counts);
            if counts.distinct >= self.wanted * scale() {
                break;
            }
        }
        println!("{}: {counts:?} in {:.1} s", self.name, start.elapsed().as_secs_f64());
    }

    /// All lives of one workload.
    fn workload(&self, seed: u64, counts: &mut Counts) {
        counts.workloads += 1;
        let mut rng = Rng::with_seed(seed);
        let mut run = Run::on(SimDisk::new(), History::default(), 0);
        for life in 0..1 + seed % self.lives {
            let profile = (self.profile)(seed, life);
            let inherited = run.history.len();
            let outcome = run.all(&profile, &profile.actions());
            outcome.unwrap_or_else(|e| panic!("{} seed {seed} life {life}: {e}", self.name));
            counts.batches += run.history.len() - inherited;
            no_number_twice(&run.disk);
            let mut walk = Walk {
                lane: self,
                seed,
                life,
                profile: &profile,
                history: &run.history,
                bounds: Bounds::starting_with(inherited),
                met: HashMap::new(),
            };
            walk.all(&run.disk, counts);
            run = crash(&run, &profile, life + 1, &mut rng);
        }
    }
}

/// No file's number is used again while anything may remember it, through kills and reopens.
fn no_number_twice(disk: &SimDisk) {
    let replay = disk.replay();
    let created = replay.ops().iter().filter(|op| op.kind() == OpKind::Create);
    let mut numbers = HashSet::new();
    for path in created.map(Op::path).filter(|path| path.starts_with(DIR)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number: String = name.chars().filter(char::is_ascii_digit).collect();
        assert!(number.is_empty() || numbers.insert(number), "{name}: its number was used before");
    }
}

/// The life after `run`: on what some crash left of it.
fn crash(run: &Run, profile: &Profile, life: u64, rng: &mut Rng) -> Run {
    let mut replay = run.disk.replay();
    replay.seek(rng.usize(..=replay.ops().len()));
    let image = replay.image(Policy::ALL[rng.usize(..Policy::ALL.len())], rng.u64(..));
    let db = Db::open(DIR, profile.options(Arc::new(image.disk())));
    let state = crate::inspect::scan(&db.expect("this image was opened before")).expect("as above");
    let mut history = run.history.clone();
    let digest = crate::oracle::digest(&state);
    let count = history.prefix(digest, 0, history.len()).expect("this image was legal before");
    history.truncate(count);
    Run::on(image.disk(), history, life)
}

/// One life of a workload, walked from boundary to boundary.
struct Walk<'a> {
    lane: &'a Lane,
    seed: u64,
    life: u64,
    profile: &'a Profile,
    history: &'a History,
    bounds: Bounds,
    /// The digest of the state found on each image, by the image's hash.
    met: HashMap<u64, u64>,
}

impl Walk<'_> {
    fn all(&mut self, disk: &SimDisk, counts: &mut Counts) {
        let mut replay = disk.replay();
        let mut marks = 0;
        loop {
            for &mark in &replay.marks()[marks..] {
                self.bounds.pass(mark);
            }
            marks = replay.marks().len();
            counts.boundaries += 1;
            self.boundary(&replay, counts);
            if replay.step().is_none() {
                return;
            }
        }
    }

    fn boundary(&mut self, replay: &Replay, counts: &mut Counts) {
        let at = replay.position() as u64;
        if let Some([_, life, boundary, policy, seed]) = only() {
            if [life, boundary] == [self.life, at] {
                self.policy(replay, policy as usize, seed, counts);
            }
            return;
        }
        let mut rng = Rng::with_seed(self.seed << 40 ^ self.life << 32 ^ at);
        self.policy(replay, 0, 0, counts);
        self.policy(replay, 1, 0, counts);
        for _ in 0..2 {
            self.policy(replay, rng.usize(2..Policy::ALL.len()), rng.u64(..), counts);
        }
        if rng.u64(..EXHAUSTIVE_EVERY) != 0 {
            return;
        }
        let all = replay.images_exhaustive(EXHAUSTIVE_DECISIONS).unwrap_or_default();
        for (number, image) in all.iter().enumerate() {
            self.image(image, Policy::RANDOM, counts).unwrap_or_else(|what| {
                self.fail(replay, &format!("image {number} of all {}: {what}", all.len()), None)
            });
        }
    }

    fn policy(&mut self, replay: &Replay, number: usize, seed: u64, counts: &mut Counts) {
        watchdog::note([self.seed, self.life, replay.position() as u64, number as u64, seed]);
        let policy = Policy::ALL[number];
        let image = replay.image(policy, seed);
        self.image(&image, policy, counts)
            .unwrap_or_else(|what| self.fail(replay, &what, Some((number, seed))));
    }

    fn image(&mut self, image: &Image, policy: Policy, counts: &mut Counts) -> Result<(), String> {
        counts.images += 1;
        let Bounds { durable, written, issued, ref checkpoints } = self.bounds;
        let low = if policy == Policy::EVERYTHING { written } else { durable };
        let done = checkpoints.iter().filter(|checkpoint| checkpoint.done).count() as u64;
        let name = image.hash().wrapping_add(done);
        if let Some(&found) = self.met.get(&name) {
            return match self.history.prefix(found, low, issued) {
                Some(_) => Ok(()),
                None => Err(format!("an image met before is not within {low}..={issued}")),
            };
        }
        counts.distinct += 1;
        let rng = Rng::with_seed(name);
        let mut inspection = Inspection { history: self.history, low, high: issued, rng };
        // Starting threads costs more than all the rest.
        let threads = if name.is_multiple_of(16) { self.profile.threads } else { 0 };
        let options = |vfs: Arc<dyn Vfs>| -> Options {
            self.profile.options(vfs).background_threads(threads)
        };
        let found = inspection.inspect(image, options)?;
        if counts.distinct.is_multiple_of(4) {
            inspect_checkpoints(image, self.history, &self.bounds, options)?;
        }
        self.met.insert(name, found);
        Ok(())
    }

    fn fail(&self, replay: &Replay, what: &str, image: Option<(usize, u64)>) -> ! {
        let at = replay.position();
        let first = at.saturating_sub(12);
        for (number, op) in replay.ops()[first..at].iter().enumerate() {
            println!("    {} {op}", first + number);
        }
        let (policy, seed) = image.unwrap_or((14, 0));
        panic!(
            "{what}\n  at boundary {at}, {}, bounds {:?}\n  run it again: TROMMEL_CRASH_ONLY={},{},\
             {at},{policy},{seed} cargo test -p trommel-tests --test crash {} -- --nocapture",
            Policy::ALL[policy],
            self.bounds,
            self.seed,
            self.life,
            self.lane.name,
        );
    }
}

/// The call that makes a flush or a compaction necessary runs it: every run is the same.
#[test]
fn one_thread() {
    let profile = |seed: u64, life: u64| Profile { life, actions: 60, ..Profile::new(seed) };
    Lane { name: "one_thread", wanted: 60_000, profile, lives: 3 }.run();
}

/// Flushes and compactions run beside the writer.
#[test]
fn two_threads() {
    let profile =
        |seed: u64, life: u64| Profile { life, actions: 80, threads: 2, ..Profile::new(seed) };
    Lane { name: "two_threads", wanted: 15_000, profile, lives: 3 }.run();
}

/// A store that keeps a log in some of its lives and none in others.
#[test]
fn with_and_without_a_log() {
    let profile = |seed: u64, life: u64| {
        let log = (seed + life).is_multiple_of(2);
        Profile { life, actions: 60, log, ..Profile::new(seed) }
    };
    Lane { name: "with_and_without_a_log", wanted: 15_000, profile, lives: 4 }.run();
}

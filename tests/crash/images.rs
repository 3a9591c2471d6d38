//! The possible results of a power failure, at every boundary between two operations of a workload:
//! each image is opened and compared with the oracle.
//!
//! 1. A seeded workload runs on a simulated disk, in one to three lives with a crash between them.
//! 2. The operation log is replayed ([`boundaries`](crate::boundaries)). At each boundary images
//!    are made: with only what was synced, with everything, and under two of the other policies,
//!    which alternate, with seeds of their own; at one boundary in four also with stale bytes; and
//!    if at most six decisions are open (sometimes more), all possible images.
//! 3. Each new image is opened; its state must be that after some prefix of the batches, at or
//!    after the last acknowledged sync. If everything is kept, as for a killed process, all
//!    acknowledged batches must be present.
//! 4. Images seen before are only compared with the bounds of the new boundary.
//! 5. A failure is minimised to the necessary actions of the workload and losses of the power
//!    failure, and printed as one line that reproduces it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;
use trommel::Db;
use trommel_sim::{Image, Op, OpKind, Policy, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{cases, first_seed, stride};

use crate::boundaries::{
    Boundaries, Case, EXHAUSTIVE, Failed, Flaw, Look, assert_exhaustive, make, policy,
};
use crate::inspect::{failed, scan};
use crate::minimise::minimise;
use crate::oracle::{History, Operation, digest};
use crate::settings::{only, only_these, places};
use crate::workload::{Action, DIR, Profile, Run};

/// Maximum number of reruns of a failing life to find its necessary actions.
const TRIES: usize = 150;

/// The workloads of a lane.
struct Lane {
    name: &'static str,
    /// Number of distinct images to cover.
    wanted: u64,
    /// The profile of one life of a workload.
    profile: fn(seed: u64, life: u64) -> Profile,
    lives: u64,
    /// Images are made at one in this many boundaries.
    every: u64,
}

/// One life of a workload: its initial state, and its actions.
struct Life<'a> {
    lane: &'a Lane,
    seed: u64,
    number: u64,
    profile: Profile,
    start: Image,
    inherited: History,
    flaw: Option<Flaw>,
    /// The images seen in any life of the lane.
    seen: &'a RefCell<HashSet<u64>>,
}

impl Lane {
    fn run(&self) {
        let mut counters = Counters::new(format!("crash/{}", self.name));
        let seen = RefCell::default();
        if let Some([seed, ..]) = only::<5>() {
            self.workload(seed, &seen, &mut counters);
            return;
        }
        for seed in first_seed().. {
            self.workload(seed, &seen, &mut counters);
            if counters.get("distinct") >= cases(self.wanted) {
                break;
            }
        }
        assert_exhaustive(&counters);
        counters.finish();
    }

    /// Runs all lives of one workload.
    fn workload(&self, seed: u64, seen: &RefCell<HashSet<u64>>, counters: &mut Counters) {
        counters.add("workloads", 1);
        let mut rng = Rng::with_seed(seed);
        let start = SimDisk::new().crash(Policy::EVERYTHING, 0);
        let (mut start, mut inherited) = (start, History::default());
        for number in 0..1 + seed % self.lives {
            let profile = (self.profile)(seed, number);
            let life =
                Life { lane: self, seed, number, profile, start, inherited, flaw: None, seen };
            let mut actions = life.profile.actions();
            if only::<5>().is_some_and(|[_, only, ..]| only == number) {
                actions = only_these(1, &actions);
            }
            let run = life.all(&actions, counters).unwrap_or_else(|failed| {
                life.fail(&actions, failed);
            });
            (start, inherited) = crash(&run, &life.profile, &mut rng)
                .unwrap_or_else(|failed| life.fail(&actions, failed));
        }
    }
}

impl Life<'_> {
    /// Runs all actions, and checks every boundary.
    fn all(&self, actions: &[Action], counters: &mut Counters) -> Result<Run, Box<Failed>> {
        let mut run = Run::on(self.start.disk(), self.inherited.clone(), self.number);
        run.all(&self.profile, actions).map_err(Failed::before_any_crash)?;
        counters.add("lives", 1);
        counters.add("batches", (run.history.len() - self.inherited.len()) as u64);
        count_files(&run.disk, counters);
        let mut boundaries =
            Boundaries::new(&self.profile, &run.history, self.inherited.len(), self.seen);
        boundaries.seed = self.seed << 40 ^ self.number << 32;
        boundaries.every = self.lane.every;
        boundaries.look = self.look();
        boundaries.flaw = self.flaw;
        boundaries.note = [self.seed, self.number];
        boundaries.all(&run.disk, counters)?;
        Ok(run)
    }

    /// Where to make images: at all boundaries, or where a printed line says.
    fn look(&self) -> Look {
        match only::<5>() {
            None => Look::Everywhere,
            Some([_, life, ..]) if life != self.number => Look::Nowhere,
            Some([.., boundary, policy, seed]) => {
                Look::At(Case { boundary, policy: policy as usize, seed }, places(2))
            }
        }
    }

    /// The indices of the actions necessary for the failure, and the failure that they cause.
    fn cut_down(&self, actions: &[Action], failed: Box<Failed>) -> (Vec<usize>, Box<Failed>) {
        let mut last = failed;
        if self.is_left_to_chance() {
            return ((0..actions.len()).collect(), last);
        }
        let places = minimise(actions.len(), TRIES, |kept| {
            let kept: Vec<_> = kept.iter().map(|&place| actions[place].clone()).collect();
            let outcome = self.all(&kept, &mut Counters::new("cutting down"));
            outcome.map_err(|failed| last = failed).is_err()
        });
        (places, last)
    }

    /// Free-running threads make another run each time.
    fn is_left_to_chance(&self) -> bool {
        self.profile.threads > 0 && !self.profile.stepped
    }

    /// Minimises the failure and reports it.
    fn fail(&self, actions: &[Action], failed: Box<Failed>) -> ! {
        let (places, last) = self.cut_down(actions, failed);
        let join =
            |places: &[usize]| places.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
        for &place in &places {
            println!("    action {place}: {}", actions[place].short());
        }
        panic!(
            "{}\n  run it again: TROMMEL_CRASH_ONLY={},{},{},{},{}:{}{} cargo test -p \
             trommel-tests --test crash {} -- --nocapture{}",
            last.text,
            self.seed,
            self.number,
            last.case.boundary,
            last.case.policy,
            last.case.seed,
            join(&places),
            last.losses.as_ref().map_or(String::new(), |losses| format!(":{}", join(losses))),
            self.lane.name,
            if self.is_left_to_chance() {
                " (other threads ran: it may not fail again)"
            } else {
                ""
            },
        );
    }
}

/// No file number is reused while anything may remember it, through kills and reopens.
fn count_files(disk: &SimDisk, counters: &mut Counters) {
    let replay = disk.replay();
    let created = replay.ops().iter().filter(|op| op.kind() == OpKind::Create);
    let mut numbers = HashSet::new();
    for path in created.map(Op::path).filter(|path| path.starts_with(DIR)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number: String = name.chars().filter(char::is_ascii_digit).collect();
        assert!(number.is_empty() || numbers.insert(number), "{name}: its number was used before");
        let kind = name.trim_matches(|c: char| !c.is_ascii_alphabetic()).to_ascii_lowercase();
        counters.add(format!("files.{}", kind.replace('.', "_")), 1);
    }
}

/// The result of a crash of `run`, and the history.
fn crash(run: &Run, profile: &Profile, rng: &mut Rng) -> Result<(Image, History), Box<Failed>> {
    let mut replay = run.disk.replay();
    replay.seek(rng.usize(..=replay.ops().len()));
    let number = rng.usize(..Policy::ALL.len());
    let case = Case { boundary: replay.position() as u64, policy: number, seed: rng.u64(..) };
    let image = replay.image(policy(number), case.seed);
    let mut history = run.history.clone();
    let open = || {
        let db = Db::open(DIR, profile.options(Arc::new(image.disk())));
        let state = scan(&db.map_err(failed("opening"))?)?;
        let count = history.prefix(digest(&state), 0, history.len());
        count.ok_or_else(|| history.explain(&state, 0, history.len()))
    };
    let count = open().map_err(|what| {
        let text = format!("{what}\n  where the next life begins, {}", policy(number));
        Box::new(Failed { text, case, losses: None })
    })?;
    history.truncate(count);
    Ok((image, history))
}

/// The call that makes a flush or a compaction necessary runs it, so every run is the same.
#[test]
fn one_thread() {
    let profile = |seed: u64, life: u64| Profile { life, actions: 60, ..Profile::new(seed) };
    Lane { name: "one_thread", wanted: 140_000, profile, lives: 3, every: 1 }.run();
}

/// Flushes and compactions run in parallel with the writer.
#[test]
fn two_threads() {
    let profile =
        |seed: u64, life: u64| Profile { life, actions: 80, threads: 2, ..Profile::new(seed) };
    Lane { name: "two_threads", wanted: 25_000, profile, lives: 3, every: 1 }.run();
}

/// A background thread flushes and compacts, and lags behind the writer depending on the seed.
#[test]
fn a_thread_that_lags() {
    Lane { name: "a_thread_that_lags", wanted: 25_000, profile: lagging, lives: 3, every: 1 }.run();
}

fn lagging(seed: u64, life: u64) -> Profile {
    Profile { life, actions: 60, threads: 1, stepped: true, ..Profile::new(seed) }
}

/// A failure's printed line reproduces it, so the same seed must make the same run. Only if a
/// process dies while two threads call its disk is the last call undetermined.
#[test]
fn the_same_seed_makes_the_same_run() {
    let lagging = (0..24).map(|seed| lagging(seed, 0));
    for profile in [Profile { actions: 80, ..Profile::new(7) }].into_iter().chain(lagging) {
        let mut actions = profile.actions();
        if profile.threads > 0 {
            actions.retain(|action| !matches!(action, Action::Die { .. }));
        }
        let [first, second] = [(); 2].map(|()| {
            let mut run = Run::on(SimDisk::new(), History::default(), 0);
            run.all(&profile, &actions).expect("a healthy disk");
            let replay = run.disk.replay();
            // The thread that drops a table last, and with it the time at which its file is
            // removed, is undetermined.
            let ops = replay.ops().iter().filter(|op| op.kind() != OpKind::Remove);
            let ops: Vec<String> = ops.map(ToString::to_string).collect();
            assert!(ops.len() > 100, "{}", ops.len());
            ops
        });
        for (number, (first, second)) in first.iter().zip(&second).enumerate() {
            assert_eq!(first, second, "operation {number}, {profile:?}");
        }
        assert_eq!(first.len(), second.len(), "{profile:?}");
    }
}

/// Tests the minimiser: in a life of many actions, and a power failure with many losses, it finds
/// the few that cause a failure; here a simulated one.
#[test]
fn a_failure_is_cut_down() {
    let flaw: Flaw = |state| match state.get(&b"key001"[..]) {
        Some(_) if !state.contains_key(&b"key000"[..]) => Err("this is wrong".to_owned()),
        _ => Ok(()),
    };
    let put = |key: &str| Operation::Put(key.as_bytes().to_vec(), vec![b'v'; 90]);
    let write = |batch: Vec<_>| Action::Write { batch, sync: false };
    let mut actions: Vec<_> = (2..40).map(|at| write(vec![put(&format!("key{at:03}"))])).collect();
    actions.insert(20, write(vec![put("key001")]));
    actions.insert(30, write(vec![put("key000")]));
    actions.insert(25, Action::Flush);
    let lane =
        Lane { name: "a_failure_is_cut_down", wanted: 0, profile: lagging, lives: 1, every: 1 };
    let seen = RefCell::default();
    let life = Life {
        lane: &lane,
        seed: 3,
        number: 0,
        profile: Profile::new(3),
        start: SimDisk::new().crash(Policy::EVERYTHING, 0),
        inherited: History::default(),
        flaw: Some(flaw),
        seen: &seen,
    };
    let failed = life.all(&actions, &mut Counters::new("x")).expect_err("it is wrong");
    let (places, failed) = life.cut_down(&actions, failed);
    assert_eq!(places, [20], "one write makes the state that is said to be wrong");
    assert!(failed.text.contains("this is wrong"), "{}", failed.text);
    assert_eq!(failed.losses, Some(Vec::new()), "nothing need be lost for that: {}", failed.text);
    // The key that would make the state valid is written at once, so that only a loss makes it
    // invalid.
    actions.truncate(20);
    actions.push(write(vec![put("key000")]));
    actions.push(write(vec![put("key001")]));
    let flaw: Flaw = |state| match state.get(&b"key000"[..]) {
        Some(_) if !state.contains_key(&b"key001"[..]) => Err("this is wrong".to_owned()),
        _ => Ok(()),
    };
    let life = Life { flaw: Some(flaw), ..life };
    let failed = life.all(&actions, &mut Counters::new("x")).expect_err("it is wrong");
    let (places, _) = life.cut_down(&actions, failed);
    assert_eq!(places, [20]);
}

/// The numbers that a failure prints lead to the same state on another run's disk, which has other
/// salts: for each kind of image, and for one among all images of a boundary.
#[test]
fn the_numbers_of_a_failure_make_its_image_again() {
    let flaw: Flaw = |state| Err(format!("{:016x}", digest(state)));
    let profile = Profile { actions: 60, ..Profile::new(7) };
    let runs = [(); 2].map(|()| {
        let mut run = Run::on(SimDisk::new(), History::default(), 0);
        run.all(&profile, &profile.actions()).expect("a healthy disk");
        run
    });
    let look = |run: &Run, case: Case| {
        let seen = RefCell::default();
        let mut boundaries = Boundaries::new(&profile, &run.history, 0, &seen);
        (boundaries.flaw, boundaries.look) = (Some(flaw), Look::At(case, None));
        let outcome = boundaries.all(&run.disk, &mut Counters::new("again"));
        let failed = outcome.expect_err("everything is said to be wrong");
        assert_eq!(failed.case, case);
        failed.text.lines().next().unwrap_or_default().to_owned()
    };
    let mut replay = runs[0].disk.replay();
    let mut unlike_what_was_synced = 0;
    for boundary in (30..replay.ops().len()).step_by(23) {
        replay.seek(boundary);
        let boundary = boundary as u64;
        let synced = look(&runs[0], Case { boundary, policy: 0, seed: 0 });
        for number in (0..Policy::ALL.len()).chain([EXHAUSTIVE]) {
            let case = Case { boundary, policy: number, seed: 1 };
            if make(&replay, case, None).is_none() {
                continue;
            }
            let [first, second] = [&runs[0], &runs[1]].map(|run| look(run, case));
            assert_eq!(first, second, "{case:?}");
            unlike_what_was_synced += u64::from(number == EXHAUSTIVE && first != synced);
        }
    }
    assert!(unlike_what_was_synced > 0, "the first image of all would have done");
}

/// A store that has a log in some of its lives and none in others.
#[test]
fn with_and_without_a_log() {
    let profile = |seed: u64, life: u64| {
        let log = (seed + life).is_multiple_of(2);
        Profile { life, actions: 60, log, ..Profile::new(seed) }
    };
    Lane { name: "with_and_without_a_log", wanted: 40_000, profile, lives: 4, every: 1 }.run();
}

/// Keys are so long that the manifest is full after some tables, and a new one replaces it while
/// the store is open.
#[test]
fn new_manifests() {
    let profile =
        |seed: u64, life: u64| Profile { life, actions: 60, long_keys: true, ..Profile::new(seed) };
    // A workload has thousands of boundaries, and images with long keys are slow to check.
    let every = 10 * stride() as u64;
    Lane { name: "new_manifests", wanted: 1_500, profile, lives: 2, every }.run();
}

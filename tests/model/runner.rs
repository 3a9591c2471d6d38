//! Runs sequences: from a seed, with a time limit, and minimised if they fail.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use trommel_tests::counters::Counters;
use trommel_tests::settings::first_seed;

use crate::config::Home;
use crate::iterators::Check;
use crate::rng::Rng;
use crate::world::Work;

/// One or several stores, with an oracle, and the operations on them.
pub(crate) trait Play: Sized {
    /// A kind of operation. Each step draws its details from a seed of its own, so that leaving out
    /// some steps does not change the others.
    type Kind: Copy + Debug + Send + 'static;
    /// The module of the lane, which has a test `replay`.
    const NAME: &'static str;
    /// Number of steps in one sequence.
    const OPERATIONS: usize;
    /// Number of sequences, of ten, that must compact and reopen the store many times.
    const EVENTFUL: u64;

    /// The weights of the kinds, in one of several moods.
    fn weights(rng: &mut Rng) -> Vec<(Self::Kind, usize)>;
    /// A new store, determined by the seed.
    fn begin(seed: u64, home: Home) -> Check<Self>;
    /// Runs one step and compares its result.
    fn apply(&mut self, kind: Self::Kind, seed: u64) -> Check;
    /// The final comparisons.
    fn finish(self) -> Check<Work>;
}

/// Time limit of a sequence, exceeded only by a hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time limit for minimising a failing sequence.
const SHRINK_TIME: Duration = Duration::from_secs(40);

/// One operation, its index in the whole sequence, and the seed of its details.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<K> {
    place: usize,
    kind: K,
    seed: u64,
}

fn steps<P: Play>(seed: u64) -> Vec<Step<P::Kind>> {
    let rng = &mut Rng::new(seed ^ 0x5eed);
    let weights = P::weights(rng);
    let total = weights.iter().map(|(_, weight)| weight).sum();
    let kind = |rng: &mut Rng| {
        let mut at = rng.below(total);
        let found = weights.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        found.expect("the number is below the sum of the weights").0
    };
    (0..P::OPERATIONS).map(|place| Step { place, kind: kind(rng), seed: rng.u64() }).collect()
}

/// Runs `steps` on a new store. A panic of the engine is an error like any other.
fn play<P: Play>(seed: u64, home: Home, steps: &[Step<P::Kind>], trace: bool) -> Check<Work> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut world = P::begin(seed, home)?;
        for step in steps {
            if trace {
                println!("{:>6} {:?} {:#x}", step.place, step.kind, step.seed);
            }
            world
                .apply(step.kind, step.seed)
                .map_err(|fault| format!("step {} ({:?}): {fault}", step.place, step.kind))?;
        }
        world.finish()
    }));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(format!("panicked: {text}"))
    })
}

/// [`play`] in a thread of its own, which is abandoned if it hangs.
fn play_in_time<P: Play>(
    seed: u64,
    home: Home,
    steps: Vec<Step<P::Kind>>,
    patience: Duration,
) -> Check<Work> {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(play::<P>(seed, home, &steps, false));
    });
    match outcome.recv_timeout(patience) {
        Ok(outcome) => {
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => {
            Err(format!("still running after {patience:?}: it hangs"))
        }
        Err(RecvTimeoutError::Disconnected) => Err("the thread died".into()),
    }
}

/// Leaves out ever smaller parts while the rest still fails, until a play hangs.
fn shrink<P: Play>(seed: u64, home: Home, mut steps: Vec<Step<P::Kind>>) -> Vec<Step<P::Kind>> {
    let start = Instant::now();
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            if start.elapsed() > SHRINK_TIME {
                return steps;
            }
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            match play_in_time::<P>(seed, home, fewer.clone(), SHRINK_TIME) {
                Err(fault) if fault.contains("hangs") => return steps,
                Err(_) => steps = fewer,
                Ok(_) => at += chunk,
            }
        }
        chunk /= 2;
    }
    steps
}

fn replay_line<P: Play>(seed: u64, home: Home, steps: &[Step<P::Kind>]) -> String {
    let places: Vec<String> = steps.iter().map(|step| step.place.to_string()).collect();
    let only = if steps.len() < P::OPERATIONS && steps.len() <= 400 {
        format!("TROMMEL_STEPS={} ", places.join(","))
    } else {
        String::new()
    };
    format!(
        "TROMMEL_SEED={seed} TROMMEL_HOME={} {only}cargo test -p trommel-tests --test model -- \
         {}::replay --nocapture",
        home.name(),
        P::NAME
    )
}

/// Runs the sequence of `seed`; if it fails, panics with the command to rerun it.
pub(crate) fn run<P: Play>(seed: u64, home: Home) -> Work {
    let all = steps::<P>(seed);
    let fault = match play_in_time::<P>(seed, home, all.clone(), PATIENCE) {
        Ok(work) => return work,
        Err(fault) => fault,
    };
    println!("{fault}\nplay it again with:\n{}", replay_line::<P>(seed, home, &all));
    if !fault.contains("hangs") {
        let fewer = shrink::<P>(seed, home, all);
        let again =
            play::<P>(seed, home, &fewer, false).err().unwrap_or("it no longer fails".into());
        println!("{} steps: {again}\n{}", fewer.len(), replay_line::<P>(seed, home, &fewer));
    }
    panic!("the sequence of seed {seed} failed: {fault}");
}

/// Runs `sequences` sequences from the first seed on, each `share` with seeds of its own, and
/// counts them. Of ten, at least [`Play::EVENTFUL`] reopen their store three times and compact five
/// times.
pub(crate) fn run_all<P: Play>(lane: &str, share: u64, home: Home, sequences: u64) -> Work {
    let mut counters = Counters::new(format!("model/{}/{lane}", P::NAME));
    let (mut all, mut eventful) = (Work::default(), 0);
    for number in first_seed()..first_seed() + sequences {
        let work = run::<P>(share << 32 | number, home);
        eventful += u64::from(work.reopens >= 3 && work.compactions + work.moves >= 5);
        all.add(&work);
    }
    assert!(
        eventful * 10 >= sequences * P::EVENTFUL,
        "{eventful} of {sequences} are eventful: {all:?}"
    );
    counters.add("sequences", sequences);
    counters.add("sequences.eventful", eventful);
    all.count(&mut counters);
    counters.finish();
    all
}

/// Runs the sequence that the environment names, and prints every step.
pub(crate) fn replay<P: Play>() {
    let Ok(seed) = std::env::var("TROMMEL_SEED") else { return };
    let seed = seed.parse().expect("TROMMEL_SEED is a whole number");
    let name = std::env::var("TROMMEL_HOME").unwrap_or_default();
    let home = Home::named(&name).expect("TROMMEL_HOME is one that a failing test has printed");
    let mut steps = steps::<P>(seed);
    if let Ok(places) = std::env::var("TROMMEL_STEPS") {
        let places: Vec<usize> =
            places.split(',').map(|place| place.parse().expect("places are numbers")).collect();
        steps.retain(|step| places.contains(&step.place));
    }
    match play::<P>(seed, home, &steps, true) {
        Ok(work) => println!("{work:?}"),
        Err(fault) => panic!("{fault}"),
    }
}

//! Playing sequences: from a seed, with a limit on time, and cut down to what fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::config::Home;
use crate::rng::Rng;
use crate::walks::Check;
use crate::world::{Kind, Work, World};

/// Operations of one sequence.
pub(crate) const OPERATIONS: usize = 4000;
/// Longer than this no sequence takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time spent on making a failing sequence shorter.
const SHRINK_TIME: Duration = Duration::from_secs(40);

/// One operation, its place in the whole sequence, and the seed of its details.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    place: usize,
    kind: Kind,
    seed: u64,
}

/// How often each kind comes, in one of several moods.
fn weights(mood: usize) -> Vec<(Kind, usize)> {
    let (write, read, walk, care) = [(8, 4, 4, 1), (12, 2, 1, 1), (4, 9, 4, 1), (6, 4, 3, 4)][mood];
    use Kind::*;
    vec![
        (Put, 50 * write),
        (Delete, 14 * write),
        (Batch, 10 * write),
        (InsertIfAbsent, 6 * write),
        (CompareAndSet, 6 * write),
        (Get, 60 * read),
        (ContainsKey, 10 * read),
        (MultiGet, 12 * read),
        (WalkRange, 14 * walk),
        (WalkCursor, 10 * walk),
        (HoldRange, 3 * walk),
        (HoldCursor, 3 * walk),
        (WalkHeld, 12 * walk),
        (LetGo, 3 * walk),
        (TakeSnapshot, 6 * walk),
        (DropSnapshot, 5 * walk),
        (CompareAll, 2 * walk),
        (Flush, 4 * care),
        (Sync, care),
        (CompactRange, 4 * care),
        (WaitIdle, 4 * care),
        (SetOptions, 2 * care),
        (SetFilters, 2 * care),
        (Pause, 2 * care),
        (Resume, 3 * care),
        (Checkpoint, care),
        (Verify, 2 * care),
        (Stats, 4 * care),
        (BadInput, care),
        (ApproximateBytes, 2 * care),
        (Reopen, 4 * care),
    ]
}

fn steps(seed: u64) -> Vec<Step> {
    let rng = &mut Rng::new(seed ^ 0x5eed);
    let weights = weights(rng.below(4));
    let total = weights.iter().map(|(_, weight)| weight).sum();
    let kind = |rng: &mut Rng| {
        let mut at = rng.below(total);
        for (kind, weight) in &weights {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        Kind::Get
    };
    (0..OPERATIONS).map(|place| Step { place, kind: kind(rng), seed: rng.u64() }).collect()
}

/// Plays `steps` on a new store. What the engine panics with is an error like others.
fn play(seed: u64, home: Home, steps: &[Step], trace: bool) -> Check<Work> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, home)?;
        for step in steps {
            if trace {
                println!("{:>6} {:?} {:#x}", step.place, step.kind, step.seed);
            }
            world
                .apply(step.kind, step.seed)
                .map_err(|fault| format!("step {} ({:?}): {fault}", step.place, step.kind))?;
        }
        world.finish()?;
        Ok(world.work)
    }));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(format!("panicked: {text}"))
    })
}

/// [`play`] in a thread of its own, which is given up when it hangs.
fn play_in_time(seed: u64, home: Home, steps: Vec<Step>) -> Check<Work> {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(play(seed, home, &steps, false));
    });
    match outcome.recv_timeout(PATIENCE) {
        Ok(outcome) => {
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => {
            Err(format!("still running after {PATIENCE:?}: it hangs"))
        }
        Err(RecvTimeoutError::Disconnected) => Err("the thread died".into()),
    }
}

/// Leaves out ever smaller parts while what is left still fails.
fn shrink(seed: u64, home: Home, mut steps: Vec<Step>) -> Vec<Step> {
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
            match play(seed, home, &fewer, false) {
                Err(_) => steps = fewer,
                Ok(_) => at += chunk,
            }
        }
        chunk /= 2;
    }
    steps
}

fn replay_line(seed: u64, home: Home, steps: &[Step]) -> String {
    let places: Vec<String> = steps.iter().map(|step| step.place.to_string()).collect();
    let only = if steps.len() < OPERATIONS && steps.len() <= 400 {
        format!("TROMMEL_STEPS={} ", places.join(","))
    } else {
        String::new()
    };
    format!(
        "TROMMEL_SEED={seed} TROMMEL_HOME={} {only}cargo test -p trommel-tests --test model -- \
         sequences::replay --nocapture",
        home.name()
    )
}

/// Plays the sequence of `seed`; panics with the way to play it again where it fails.
pub(crate) fn run(seed: u64, home: Home) -> Work {
    let all = steps(seed);
    let fault = match play_in_time(seed, home, all.clone()) {
        Ok(work) => return work,
        Err(fault) => fault,
    };
    println!("{fault}\nplay it again with:\n{}", replay_line(seed, home, &all));
    if !fault.contains("hangs") {
        let fewer = shrink(seed, home, all);
        let again = play(seed, home, &fewer, false).err().unwrap_or("it no longer fails".into());
        println!("{} steps: {again}\n{}", fewer.len(), replay_line(seed, home, &fewer));
    }
    panic!("the sequence of seed {seed} failed: {fault}");
}

/// Plays what the environment asks for, printing every step.
pub(crate) fn replay() {
    let Ok(seed) = std::env::var("TROMMEL_SEED") else { return };
    let seed = seed.parse().expect("TROMMEL_SEED is a whole number");
    let name = std::env::var("TROMMEL_HOME").unwrap_or_default();
    let home = Home::named(&name).expect("TROMMEL_HOME is one that a failing test has printed");
    let mut steps = steps(seed);
    if let Ok(places) = std::env::var("TROMMEL_STEPS") {
        let places: Vec<usize> =
            places.split(',').map(|place| place.parse().expect("places are numbers")).collect();
        steps.retain(|step| places.contains(&step.place));
    }
    match play(seed, home, &steps, true) {
        Ok(work) => println!("{work:?}"),
        Err(fault) => panic!("{fault}"),
    }
}

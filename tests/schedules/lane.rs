//! A lane: one scenario, under many schedules.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, scale};

use crate::scheduler::Seeded;

/// More steps than any scenario takes: a longer run is an endless loop.
const MOST_STEPS: usize = 200_000;
/// Bytes of a thread's stack.
const STACK: usize = 512 << 10;

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    config
}

/// Runs `scenario` under schedules `first` to `first + count`, with the current one in `running`.
pub(crate) fn run(first: u64, count: u64, running: &Arc<AtomicU64>, scenario: fn()) -> usize {
    let scheduler = Seeded::new(first, count, Arc::clone(running));
    Runner::new(scheduler, config()).run(scenario)
}

/// Runs `scenario` under `count` schedules, scaled in a soak, or under the one that
/// `TROMMEL_SCHEDULE` names. A failing schedule prints the line that reruns it.
#[allow(clippy::print_stderr, reason = "the line that replays a failure")]
pub(crate) fn lane(name: &str, count: u64, scenario: fn()) {
    let one = std::env::var("TROMMEL_SCHEDULE").ok();
    let one = one.map(|text| text.parse().expect("TROMMEL_SCHEDULE is a schedule's number"));
    let (first, count) = one.map_or((first_seed(), count * scale()), |seed| (seed, 1));
    let mut counters = Counters::new(format!("schedules/{name}"));
    let running = Arc::new(AtomicU64::new(first));
    match catch_unwind(AssertUnwindSafe(|| run(first, count, &running, scenario))) {
        Ok(schedules) => counters.add("schedules", schedules as u64),
        Err(panic) => {
            let seed = running.load(Relaxed);
            eprintln!("replay: TROMMEL_SCHEDULE={seed} tests/schedules/run.sh {name}");
            resume_unwind(panic);
        }
    }
    counters.finish();
}

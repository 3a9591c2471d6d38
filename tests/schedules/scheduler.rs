//! Chooses the next thread to run, as a function of one number.
//!
//! 1. Half of the schedules choose at random at every step, some with a bias for the running
//!    thread: long runs of one thread are rare otherwise.
//! 2. The other half follow *probabilistic concurrency testing* (Burckhardt and others, ASPLOS
//!    2010): threads have random priorities, the highest runnable one runs, and at a few random
//!    steps the running one gets the lowest priority. A bug that needs only d such changes is found
//!    with a probability that does not vanish with the length of the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fastrand::Rng;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Runs schedules one after another, and records the current one.
#[derive(Debug)]
pub(crate) struct Seeded {
    next: u64,
    end: u64,
    running: Arc<AtomicU64>,
    rng: Rng,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// At `stay` of 16 steps the choice stays the same.
    Random {
        stay: u8,
    },
    Priorities(Priorities),
}

#[derive(Debug, Default)]
struct Priorities {
    /// The priority of each task; the highest runs.
    of: Vec<i64>,
    /// Steps at which the running task gets the lowest priority, and the number of steps so far.
    falls: Vec<u64>,
    step: u64,
    lowest: i64,
}

impl Priorities {
    fn new(rng: &mut Rng) -> Self {
        // The length of a run is unknown in advance, and most bugs are close to some event.
        let length = 1 << rng.u64(5..=11);
        let falls = (0..rng.u64(1..=5)).map(|_| rng.u64(0..length)).collect();
        Self { falls, ..Self::default() }
    }

    fn choose(&mut self, runnable: &[&Task], current: Option<TaskId>, rng: &mut Rng) -> TaskId {
        let known = runnable.iter().map(|task| usize::from(task.id())).max().unwrap_or(0);
        while self.of.len() <= known {
            self.of.push(rng.i64(1..1 << 40));
        }
        // Steps without a choice do not count.
        if runnable.len() > 1 {
            if self.falls.contains(&self.step) {
                self.fall(current);
            }
            self.step += 1;
        }
        let highest = runnable.iter().max_by_key(|task| self.of[usize::from(task.id())]);
        highest.expect("somebody can run").id()
    }

    fn fall(&mut self, task: Option<TaskId>) {
        let Some(task) = task else { return };
        self.lowest -= 1;
        self.of[usize::from(task)] = self.lowest;
    }
}

impl Seeded {
    /// Schedules `first` to `first + count`; each is stored in `running` before it begins.
    pub(crate) fn new(first: u64, count: u64, running: Arc<AtomicU64>) -> Self {
        let way = Way::Random { stay: 0 };
        Self { next: first, end: first.saturating_add(count), running, rng: Rng::with_seed(0), way }
    }
}

impl Scheduler for Seeded {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.next == self.end {
            return None;
        }
        let seed = self.next;
        self.next += 1;
        self.running.store(seed, Relaxed);
        self.rng = Rng::with_seed(seed);
        self.way = match self.rng.u8(0..4) {
            0 => Way::Random { stay: 0 },
            1 => Way::Random { stay: [8, 12, 14, 15][self.rng.usize(0..4)] },
            _ => Way::Priorities(Priorities::new(&mut self.rng)),
        };
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let rng = &mut self.rng;
        match &mut self.way {
            Way::Random { stay } => {
                let stays = !is_yielding && rng.u8(0..16) < *stay;
                let same = runnable.iter().map(|task| task.id()).find(|id| Some(*id) == current);
                let chosen = || runnable[rng.usize(0..runnable.len())].id();
                Some(same.filter(|_| stays).unwrap_or_else(chosen))
            }
            Way::Priorities(priorities) => {
                if is_yielding {
                    priorities.fall(current);
                }
                Some(priorities.choose(runnable, current, rng))
            }
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.u64(..)
    }
}

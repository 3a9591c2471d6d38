//! The running compactions, and the tables whose filters are being rebuilt: what the planner must
//! avoid.
//!
//! Invariants, checked whenever a job starts:
//! 1. No table is an input of two running jobs, nor an input of one while another job that
//!    installed it is still running.
//! 2. No two running plans write overlapping key ranges into one level.

use std::collections::HashSet;

use super::key_range::KeyBounds;
use super::plan::Plan;

/// The id of a running plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobId(u64);

/// What an installed edit means for the running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobStep {
    /// It continues, and no other job may take the tables that the edit adds.
    GoesOn(JobId),
    /// It has ended.
    Ends(JobId),
}

/// The plans being run.
#[derive(Debug, Default)]
pub(crate) struct InProgress {
    jobs: Vec<RunningJob>,
    /// File numbers of the tables that all jobs hold: their inputs, and the tables that they have
    /// installed.
    busy: HashSet<u64>,
    next_id: u64,
}

#[derive(Debug)]
struct RunningJob {
    id: JobId,
    /// File numbers of its inputs, and of the tables it has installed.
    tables: Vec<u64>,
    /// The level and range of its outputs, for a compaction.
    output: Option<(usize, KeyBounds)>,
    /// Whether it only moves a table.
    is_move: bool,
}

impl InProgress {
    /// Marks `plan` as running. `None`, and nothing changes, if it conflicts with a running plan:
    /// it was made from an older state and must be made again.
    pub(crate) fn start(&mut self, plan: &Plan) -> Option<JobId> {
        let shared = plan.tables().any(|table| self.is_busy(table.number));
        if shared || self.writes_into(plan.output_level, &plan.range) {
            return None;
        }
        let inputs = plan.tables().map(|table| table.number).collect();
        let output = Some((plan.output_level, plan.range.clone()));
        Some(self.add(inputs, output, plan.trivial_move))
    }

    /// Marks the table with this file number as having its filters rebuilt; `None` if a job holds
    /// it.
    pub(crate) fn start_rebuild(&mut self, number: u64) -> Option<JobId> {
        (!self.is_busy(number)).then(|| self.add(vec![number], None, false))
    }

    fn add(
        &mut self,
        tables: Vec<u64>,
        output: Option<(usize, KeyBounds)>,
        is_move: bool,
    ) -> JobId {
        let id = JobId(self.next_id);
        self.next_id += 1;
        self.busy.extend(&tables);
        self.jobs.push(RunningJob { id, tables, output, is_move });
        id
    }

    /// Keeps other jobs away from tables that a job has installed while it continues.
    pub(crate) fn keep(&mut self, id: JobId, numbers: impl Iterator<Item = u64>) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            let before = job.tables.len();
            job.tables.extend(numbers);
            self.busy.extend(&job.tables[before..]);
        }
    }

    /// Forgets a plan, installed or abandoned. Called in the critical section that installs its
    /// outputs, so that no planner sees one without the other.
    pub(crate) fn finish(&mut self, id: JobId) {
        if let Some(at) = self.jobs.iter().position(|job| job.id == id) {
            for number in self.jobs.swap_remove(at).tables {
                self.busy.remove(&number);
            }
        }
    }

    /// Whether no compaction runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.outputs().next().is_none()
    }

    /// Number of running compactions.
    pub(crate) fn compactions(&self) -> usize {
        self.outputs().count()
    }

    /// Number of running compactions and filter rebuilds.
    pub(crate) fn working(&self) -> usize {
        self.jobs.iter().filter(|job| !job.is_move).count()
    }

    /// The levels and ranges that running compactions write to.
    fn outputs(&self) -> impl Iterator<Item = &(usize, KeyBounds)> {
        self.jobs.iter().filter_map(|job| job.output.as_ref())
    }

    /// Whether a running job holds the table with this file number.
    pub(crate) fn is_busy(&self, number: u64) -> bool {
        self.busy.contains(&number)
    }

    /// Whether a running plan writes tables into `level` that may overlap `range`.
    pub(crate) fn writes_into(&self, level: usize, range: &KeyBounds) -> bool {
        self.writes_between(level, &range.smallest, &range.largest)
    }

    /// As `writes_into`, for the keys from `smallest` to `largest`, both included.
    pub(crate) fn writes_between(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        let meets = |(into, other): &(usize, KeyBounds)| {
            *into == level && *smallest <= *other.largest && *other.smallest <= *largest
        };
        self.outputs().any(meets)
    }

    /// Whether a running plan writes tables into `level`.
    pub(crate) fn fills(&self, level: usize) -> bool {
        self.outputs().any(|(into, _)| *into == level)
    }

    /// The ranges of all running plans.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &KeyBounds> {
        self.outputs().map(|(_, range)| range)
    }
}

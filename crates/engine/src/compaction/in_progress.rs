//! Which merges are running, and of which tables the filters are being rebuilt: what the planner
//! must keep away from.
//!
//! Invariants, checked whenever a job starts:
//! 1. No table is an input of two running jobs, nor of one while another goes on that has written
//!    it.
//! 2. No two running plans write overlapping key ranges into one level.

use std::collections::HashSet;
use trommel_base::planted::{Bug, planted};

use super::key_range::KeyRange;
use super::plan::Plan;

/// Names one running plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobId(u64);

/// What it means for a running job that an edit is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobStep {
    /// It goes on, and nobody else may take what the edit adds.
    GoesOn(JobId),
    /// It has ended.
    Ends(JobId),
}

/// The plans being run.
#[derive(Debug, Default)]
pub(crate) struct InProgress {
    jobs: Vec<Job>,
    /// File numbers of what all jobs have: their inputs, and what they have put in force.
    busy: HashSet<u64>,
    next_id: u64,
}

#[derive(Debug)]
struct Job {
    id: JobId,
    /// File numbers of its inputs, and of what it has put in force.
    tables: Vec<u64>,
    /// Where a merge writes tables.
    output: Option<(usize, KeyRange)>,
    /// Whether it only moves a table.
    is_move: bool,
}

impl InProgress {
    /// Marks `plan` as running. `None`, and nothing changes, if it collides with a running plan:
    /// it was made from an older state and must be made anew.
    pub(crate) fn start(&mut self, plan: &Plan) -> Option<JobId> {
        let shared = plan.tables().any(|table| self.is_busy(table.number));
        if shared || self.writes_into(plan.output_level, &plan.range) {
            return None;
        }
        let inputs = plan.tables().map(|table| table.number).collect();
        let output = Some((plan.output_level, plan.range.clone()));
        Some(self.add(inputs, output, plan.trivial_move))
    }

    /// Marks the table with this file number as one whose filters are rebuilt; `None` if a job has
    /// it.
    pub(crate) fn start_rebuild(&mut self, number: u64) -> Option<JobId> {
        (!self.is_busy(number)).then(|| self.add(vec![number], None, false))
    }

    fn add(&mut self, tables: Vec<u64>, output: Option<(usize, KeyRange)>, is_move: bool) -> JobId {
        let id = JobId(self.next_id);
        self.next_id += 1;
        self.busy.extend(&tables);
        self.jobs.push(Job { id, tables, output, is_move });
        id
    }

    /// Keeps everyone away from what a job, which goes on, has put in force.
    pub(crate) fn keep(&mut self, id: JobId, numbers: impl Iterator<Item = u64>) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            let before = job.tables.len();
            job.tables.extend(numbers);
            self.busy.extend(&job.tables[before..]);
        }
    }

    /// Forgets a plan, whether it was installed or given up. Called in the same critical section
    /// that installs its outputs, so that no planner sees one without the other.
    pub(crate) fn finish(&mut self, id: JobId) {
        if let Some(at) = self.jobs.iter().position(|job| job.id == id) {
            for number in self.jobs.swap_remove(at).tables {
                self.busy.remove(&number);
            }
        }
    }

    /// Whether no merge runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.outputs().next().is_none()
    }

    /// How many merges and rebuilds of filters run.
    pub(crate) fn working(&self) -> usize {
        self.jobs.iter().filter(|job| !job.is_move).count()
    }

    /// Where merges write tables.
    fn outputs(&self) -> impl Iterator<Item = &(usize, KeyRange)> {
        self.jobs.iter().filter_map(|job| job.output.as_ref())
    }

    /// Whether a running job has the table with this file number.
    pub(crate) fn is_busy(&self, number: u64) -> bool {
        self.busy.contains(&number) && !planted(Bug::SameTablesTwice)
    }

    /// Whether a running plan will put tables into `level` that may meet `range`.
    pub(crate) fn writes_into(&self, level: usize, range: &KeyRange) -> bool {
        self.writes_between(level, &range.smallest, &range.largest)
    }

    /// The same of the keys from `smallest` to `largest`, both included.
    pub(crate) fn writes_between(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        let meets = |(into, other): &(usize, KeyRange)| {
            *into == level && *smallest <= *other.largest && *other.smallest <= *largest
        };
        self.outputs().any(meets) && !planted(Bug::SameTablesTwice)
    }

    /// Whether a running plan will put tables into `level`.
    pub(crate) fn fills(&self, level: usize) -> bool {
        self.outputs().any(|(into, _)| *into == level)
    }

    /// The ranges of all running plans.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &KeyRange> {
        self.outputs().map(|(_, range)| range)
    }
}

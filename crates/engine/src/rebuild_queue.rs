//! Requests for rebuilds, and the next table of one.
//!
//! A request is over when no table of it waits and none is being rebuilt. Tables that are busy
//! wait; those that have left the store meanwhile, or are to have smaller filters and have got
//! others since, are counted and passed over.
//!
//! One request is the store's own: *fit-budget*, which nobody waits for but `wait_idle`. It is
//! there as long as more filters are built than the budget allows, and its tables are chosen anew
//! with each version ([`budget`](crate::budget)). A table that fails waits again, as a compaction
//! does: a read that fails may succeed the next time. Only after [`MOST_UNREAD`] failures in a row
//! it is given up.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use trommel_filter::FilterSpec;

use crate::compaction::in_progress::{InProgress, JobId};
use crate::error::{Error, Result};
use crate::version::{TableFile, Version};

/// The ticket of the store's own request; callers' come after it.
const OF_BUDGET: u64 = 0;

/// Failures in a row after which a table that cannot be read is given up.
const MOST_UNREAD: u32 = 4;

/// What a rebuild of filters did: [`Db::rebuild_filters`](crate::Db::rebuild_filters), or the
/// store's own `fit-budget`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilterRebuildReport {
    /// Tables that got a sidecar.
    pub rebuilt: u64,
    /// Tables that gave theirs up, as their own filters are what is wanted.
    pub dropped: u64,
    /// Tables that needed nothing any more when their turn came: merged away, or in order.
    pub needless: u64,
    /// Distinct keys that were read.
    pub keys: u64,
    /// Bytes of tables that were read.
    pub bytes_read: u64,
    /// Bytes of sidecars that were written.
    pub bytes_written: u64,
    /// Tables that keep what they had, by file number, and why: their filters would take more
    /// memory while they are built than the ceiling allows, or the user's policy failed.
    pub skipped: Vec<(u64, String)>,
    /// Tables' turns that ended in an error. In the store's own rebuild, `fit-budget`, such a table
    /// waits and has another turn.
    pub failed: u64,
    /// Tables that have no other turn, by file number, and why. Those of `fit-budget` go without
    /// filters: they could not be read four times in a row, or are damaged, or no smaller filters
    /// can be built of them. Those of other rebuilds keep what they had.
    pub given_up: Vec<(u64, String)>,
}

/// What a table's filters are rebuilt for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aim {
    /// To be what the policy in force would build.
    Policy,
    /// To be less: of whole keys `spec`.
    Budget {
        spec: FilterSpec,
        /// The sidecar of the filters that are too large. Once the table has another, this is done.
        sidecar: Option<u64>,
    },
}

impl Aim {
    /// Whether `table` has got other filters since they were found to be too large.
    fn is_past(self, table: &TableFile) -> bool {
        matches!(self, Self::Budget { sidecar, .. } if sidecar != table.filter_sidecar)
    }
}

/// A table whose turn comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Waiting {
    /// Its file number.
    pub(crate) table: u64,
    pub(crate) aim: Aim,
}

/// A request. Default: the store's own, of no table yet.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    ticket: u64,
    waiting: VecDeque<Waiting>,
    /// How often these have been chosen anew.
    fillings: u64,
    /// Tables that are being rebuilt.
    running: u64,
    /// Failures in a row of tables that wait again.
    unread: HashMap<u64, u32>,
    report: FilterRebuildReport,
    /// The first thing that went wrong.
    failure: Option<Error>,
}

/// One table's turn.
#[derive(Debug)]
pub(crate) struct RebuildJob {
    pub(crate) ticket: u64,
    pub(crate) id: JobId,
    pub(crate) table: Arc<TableFile>,
    /// The physical level in which it lies, and stays while the job runs.
    pub(crate) level: usize,
    pub(crate) aim: Aim,
    /// The choice of tables that this is one of.
    filling: u64,
    /// How often in a row the table could not be read.
    unread: u32,
}

/// Whether a read failed, of which nobody knows that it would fail again.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Io { .. }) && !error.is_shortage()
}

impl RebuildJob {
    /// Whether no caller asked for it.
    pub(crate) fn is_of_budget(&self) -> bool {
        self.ticket == OF_BUDGET
    }

    /// Whether the table is not tried again if it cannot be read now either.
    pub(crate) fn is_last_try(&self) -> bool {
        self.unread + 1 >= MOST_UNREAD
    }
}

impl Rebuild {
    pub(crate) fn new(ticket: u64, tables: impl IntoIterator<Item = u64>) -> Self {
        let waiting = tables.into_iter().map(|table| Waiting { table, aim: Aim::Policy });
        Self { ticket, waiting: waiting.collect(), ..Self::default() }
    }

    /// Has these wait, and no others. What was done before is forgotten where all of it was.
    pub(crate) fn refill(&mut self, waiting: Vec<Waiting>) {
        if self.is_over() {
            (self.report, self.unread) = Default::default();
        }
        self.waiting = waiting.into();
        self.fillings += 1;
    }

    /// Those that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        self.waiting.iter().copied().collect()
    }

    /// Whether this is the request with that number.
    pub(crate) fn is(&self, ticket: u64) -> bool {
        self.ticket == ticket
    }

    /// Whether all of it is done.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running == 0
    }

    /// Tables that wait or are being rebuilt.
    pub(crate) fn tables(&self) -> u64 {
        self.waiting.len() as u64 + self.running
    }

    /// What was done so far.
    pub(crate) fn report(&self) -> &FilterRebuildReport {
        &self.report
    }

    /// What was done, or what went wrong.
    pub(crate) fn outcome(self) -> Result<FilterRebuildReport> {
        self.failure.map_or(Ok(self.report), Err)
    }

    /// Notes the end of a table's turn. After a `failure` that the other tables would meet as well,
    /// they are given up.
    pub(crate) fn ended(
        &mut self,
        table: u64,
        count: impl FnOnce(&mut FilterRebuildReport),
        failure: Option<Error>,
    ) {
        self.running -= 1;
        count(&mut self.report);
        let Some(error) = failure else { return };
        self.report.failed += 1;
        self.report.given_up.push((table, error.to_string()));
        if error.is_shortage() || matches!(error, Error::Closed | Error::Poisoned { .. }) {
            self.waiting.clear();
        }
        self.failure.get_or_insert(error);
    }

    /// Notes the end of the turn of a table of the store's own request; one with a `failure` waits
    /// again, unless tables were chosen anew meanwhile, it among them or not.
    pub(crate) fn tried(
        &mut self,
        job: &RebuildJob,
        count: impl FnOnce(&mut FilterRebuildReport),
        failure: Option<&Error>,
    ) {
        self.running -= 1;
        count(&mut self.report);
        let number = job.table.number;
        let Some(error) = failure else {
            self.unread.remove(&number);
            return;
        };
        self.report.failed += 1;
        if may_pass(error) {
            *self.unread.entry(number).or_default() += 1;
        }
        if job.filling == self.fillings {
            self.waiting.push_back(Waiting { table: number, aim: job.aim });
        }
    }

    /// The next table that is there and free, with its level.
    pub(crate) fn next(&mut self, busy: &mut InProgress, version: &Version) -> Option<RebuildJob> {
        let mut at = 0;
        while let Some(Waiting { table: number, aim }) = self.waiting.get(at).copied() {
            // A version is seen before tables are chosen anew by it: one that was rebuilt in it may
            // still wait here.
            let found = version.tables().find(|(_, table)| table.number == number);
            let Some((level, table)) = found.filter(|(_, table)| !aim.is_past(table)) else {
                self.waiting.remove(at);
                self.unread.remove(&number);
                self.report.needless += 1;
                continue;
            };
            if let Some(id) = busy.start_rebuild(number) {
                self.waiting.remove(at);
                self.running += 1;
                let (ticket, filling, table) = (self.ticket, self.fillings, Arc::clone(table));
                let unread = self.unread.get(&number).copied().unwrap_or(0);
                return Some(RebuildJob { ticket, id, table, level, aim, filling, unread });
            }
            at += 1;
        }
        None
    }
}

/// The next table of any request whose turn it can be, marked as busy.
pub(crate) fn next_rebuild(
    rebuilds: &mut [Rebuild],
    busy: &mut InProgress,
    version: &Version,
) -> Option<RebuildJob> {
    rebuilds.iter_mut().find_map(|rebuild| rebuild.next(busy, version))
}

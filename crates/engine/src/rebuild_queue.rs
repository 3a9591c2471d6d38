//! Requests for filter rebuilds, and the next table of one.
//!
//! A request is complete when none of its tables is waiting or being rebuilt. Busy tables wait.
//! Tables that have left the store, or have got other filters since they were found too large, are
//! counted and skipped.
//!
//! One request is the store's own: *fit-budget*, which only `wait_idle` waits for. It exists as
//! long as more filters are built than the budget allows; its tables are chosen again with each
//! version ([`budget`](crate::budget)). A table that fails waits again, as a compaction does: a
//! failed read may succeed the next time. After [`MOST_UNREAD`] failures in a row it is given up.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use trommel_filter::FilterSpec;

use crate::compaction::in_progress::{InProgress, JobId};
use crate::error::{Error, Result};
use crate::version::{TableFile, Version};

/// The ticket of the store's own request; callers' tickets are larger.
const OF_BUDGET: u64 = 0;

/// Failures in a row after which a table that cannot be read is given up.
const MOST_UNREAD: u32 = 4;

/// The outcome of a filter rebuild: [`Db::rebuild_filters`](crate::Db::rebuild_filters), or the
/// store's own `fit-budget`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilterRebuildReport {
    /// Tables that got a sidecar.
    pub rebuilt: u64,
    /// Tables whose sidecar was dropped, because their own filters are the wanted ones.
    pub dropped: u64,
    /// Tables that no longer needed a rebuild at their turn: they were compacted away, or have the
    /// wanted filters.
    pub needless: u64,
    /// Distinct keys read.
    pub keys: u64,
    /// Bytes of tables read.
    pub bytes_read: u64,
    /// Bytes of sidecars written.
    pub bytes_written: u64,
    /// Tables that keep their filters, by file number, and why: building new ones would take more
    /// memory than the memory limit allows, or the user's policy failed.
    pub skipped: Vec<(u64, String)>,
    /// Turns of tables that ended in an error. In the store's own `fit-budget`, such a table waits
    /// for another turn.
    pub failed: u64,
    /// Tables that get no further turn, by file number, and why. Those of `fit-budget` are left
    /// without filters: they could not be read four times in a row, are corrupt, or have no smaller
    /// filters. Tables of other rebuilds keep their filters.
    pub given_up: Vec<(u64, String)>,
}

/// The purpose of rebuilding a table's filters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aim {
    /// To match what the current policy would build.
    Policy,
    /// To be smaller, with `spec` for the whole-key filter.
    Budget {
        spec: FilterSpec,
        /// The sidecar of the filters that are too large. If the table has another sidecar, the
        /// rebuild is done.
        sidecar: Option<u64>,
    },
}

impl Aim {
    /// Whether `table` has got other filters since they were found too large.
    fn is_past(self, table: &TableFile) -> bool {
        matches!(self, Self::Budget { sidecar, .. } if sidecar != table.filters.sidecar)
    }
}

/// A queued table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Waiting {
    /// Its file number.
    pub(crate) table: u64,
    pub(crate) aim: Aim,
}

/// A request. Default: the store's own, without tables.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    ticket: u64,
    waiting: VecDeque<Waiting>,
    /// How often the queue was refilled.
    fillings: u64,
    /// Tables being rebuilt.
    running: u64,
    /// Failures in a row of tables that wait again.
    unread: HashMap<u64, u32>,
    report: FilterRebuildReport,
    /// The first error.
    failure: Option<Error>,
}

/// One table's turn.
#[derive(Debug)]
pub(crate) struct RebuildJob {
    pub(crate) ticket: u64,
    pub(crate) id: JobId,
    pub(crate) table: Arc<TableFile>,
    /// Its physical level, which does not change while the job is running.
    pub(crate) level: usize,
    pub(crate) aim: Aim,
    /// The refill that this table is from.
    filling: u64,
    /// Failed reads of the table in a row.
    unread: u32,
}

/// Whether a read failed in a way that may not recur.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Io { .. }) && !error.is_shortage()
}

impl RebuildJob {
    /// Whether it is part of the store's own request.
    pub(crate) fn is_of_budget(&self) -> bool {
        self.ticket == OF_BUDGET
    }

    /// Whether the table is given up if it cannot be read this time either.
    pub(crate) fn is_last_try(&self) -> bool {
        self.unread + 1 >= MOST_UNREAD
    }
}

impl Rebuild {
    pub(crate) fn new(ticket: u64, tables: impl IntoIterator<Item = u64>) -> Self {
        let waiting = tables.into_iter().map(|table| Waiting { table, aim: Aim::Policy });
        Self { ticket, waiting: waiting.collect(), ..Self::default() }
    }

    /// Replaces the queue. If the request was complete, its report starts again.
    pub(crate) fn refill(&mut self, waiting: Vec<Waiting>) {
        if self.is_over() {
            (self.report, self.unread) = Default::default();
        }
        self.waiting = waiting.into();
        self.fillings += 1;
    }

    /// The queued tables.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        self.waiting.iter().copied().collect()
    }

    /// Whether this is the request with that ticket.
    pub(crate) fn is(&self, ticket: u64) -> bool {
        self.ticket == ticket
    }

    /// Whether it is complete.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running == 0
    }

    /// Tables that are queued or being rebuilt.
    pub(crate) fn tables(&self) -> u64 {
        self.waiting.len() as u64 + self.running
    }

    /// The report so far.
    pub(crate) fn report(&self) -> &FilterRebuildReport {
        &self.report
    }

    /// The report, or the first error.
    pub(crate) fn outcome(self) -> Result<FilterRebuildReport> {
        self.failure.map_or(Ok(self.report), Err)
    }

    /// Records the end of a table's turn. If the other tables would fail with `failure` as well,
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

    /// Records the end of a table's turn in the store's own request. A table with a `failure` waits
    /// again, unless the queue was refilled meanwhile, with or without it.
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

    /// The next table that exists and is free, with its level.
    pub(crate) fn next(&mut self, busy: &mut InProgress, version: &Version) -> Option<RebuildJob> {
        let mut at = 0;
        while let Some(Waiting { table: number, aim }) = self.waiting.get(at).copied() {
            // A version becomes visible before the queue is refilled for it: a table rebuilt in it
            // may still be queued.
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

/// The next available table of any request, marked as busy.
pub(crate) fn next_rebuild(
    rebuilds: &mut [Rebuild],
    busy: &mut InProgress,
    version: &Version,
) -> Option<RebuildJob> {
    rebuilds.iter_mut().find_map(|rebuild| rebuild.next(busy, version))
}

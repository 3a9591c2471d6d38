//! Requests for rebuilds, and the next table of one.
//!
//! A request is over when no table of it waits and none is being rebuilt. Tables that are busy wait;
//! those that have left the store meanwhile are counted and passed over.

use std::collections::VecDeque;
use std::sync::Arc;

use super::FilterRebuildReport;
use crate::compaction::in_progress::{InProgress, JobId};
use crate::error::{Error, Result};
use crate::version::{TableFile, Version};

/// A request.
#[derive(Debug)]
pub(crate) struct Rebuild {
    ticket: u64,
    /// File numbers of the tables that wait.
    waiting: VecDeque<u64>,
    /// Tables that are being rebuilt.
    running: u64,
    report: FilterRebuildReport,
    /// The first thing that went wrong.
    failure: Option<Error>,
}

/// One table's turn.
#[derive(Debug)]
pub(crate) struct RebuildJob {
    pub(super) ticket: u64,
    pub(super) id: JobId,
    pub(super) table: Arc<TableFile>,
    /// The physical level in which it lies, and stays while the job runs.
    pub(super) level: usize,
}

impl Rebuild {
    pub(super) fn new(ticket: u64, waiting: VecDeque<u64>) -> Self {
        Self { ticket, waiting, running: 0, report: FilterRebuildReport::default(), failure: None }
    }

    /// Whether this is the request with that number.
    pub(super) fn is(&self, ticket: u64) -> bool {
        self.ticket == ticket
    }

    /// Whether all of it is done.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running == 0
    }

    /// Tables that wait or are being rebuilt.
    pub(super) fn tables(&self) -> u64 {
        self.waiting.len() as u64 + self.running
    }

    /// What was done, or what went wrong.
    pub(super) fn outcome(self) -> Result<FilterRebuildReport> {
        self.failure.map_or(Ok(self.report), Err)
    }

    /// Notes the end of a table's turn. After a `failure` that the other tables would meet as well,
    /// they are given up.
    pub(super) fn ended(
        &mut self,
        count: impl FnOnce(&mut FilterRebuildReport),
        failure: Option<Error>,
    ) {
        self.running -= 1;
        count(&mut self.report);
        let Some(error) = failure else { return };
        if error.is_shortage() || matches!(error, Error::Closed | Error::Poisoned { .. }) {
            self.waiting.clear();
        }
        self.failure.get_or_insert(error);
    }

    /// The next table that is there and free, with its level.
    fn next(&mut self, busy: &mut InProgress, version: &Version) -> Option<RebuildJob> {
        let mut at = 0;
        while let Some(number) = self.waiting.get(at).copied() {
            let Some((level, table)) = version.tables().find(|(_, table)| table.number == number)
            else {
                self.waiting.remove(at);
                self.report.needless += 1;
                continue;
            };
            if let Some(id) = busy.start_rebuild(number) {
                self.waiting.remove(at);
                self.running += 1;
                let (ticket, table) = (self.ticket, Arc::clone(table));
                return Some(RebuildJob { ticket, id, table, level });
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

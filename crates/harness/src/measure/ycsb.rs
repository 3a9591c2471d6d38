//! The core workloads A to F of the Yahoo! Cloud Serving Benchmark (Cooper et al., "Benchmarking
//! Cloud Serving Systems with YCSB", SoCC 2010), with the distributions of the original programs.
//!
//! 1. The key of record `n` is the integer of a bijective hash of `n`, as YCSB hashes its numbers:
//!    neighbouring records are not neighbours in the store. Keys from a file, and keys of less than
//!    8 bytes, are used in order, and then nothing can be inserted.
//! 2. A, B, C, E and F draw records from a scrambled Zipfian distribution, D draws the latest ones.
//! 3. An insert takes the next number. Other operations draw only below the first number whose
//!    insert is not complete: [`Records`] tracks it.
//! 4. An update writes the whole value: a key-value store has no fields. A read-modify-write is one
//!    operation, timed as a whole.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::worker::Worker;
use crate::distribution::{Latest, ScrambledZipfian};
use crate::error::StoreError;
use crate::measured::Kind;
use crate::store::Direction;
use crate::workload::Workload;

/// Maximum length of a scan, in entries.
const SCAN_MAX: u64 = 100;

/// The number of records, inserts included.
#[derive(Debug)]
pub struct Records {
    /// The initial number.
    initial: u64,
    /// All numbers below this are stored.
    stored: AtomicU64,
    /// The number of the next insert.
    next: AtomicU64,
    /// Completed inserts at or above `stored`; never more than there are threads.
    early: Mutex<Vec<u64>>,
}

impl Records {
    /// Records numbered from 0 to `stored` (exclusive) exist.
    pub fn new(stored: u64) -> Self {
        Self {
            initial: stored,
            stored: AtomicU64::new(stored),
            next: AtomicU64::new(stored),
            early: Mutex::default(),
        }
    }

    fn stored(&self) -> u64 {
        self.stored.load(Acquire)
    }

    fn take(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Marks the insert of `record` as complete.
    fn done(&self, record: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.push(record);
        let mut stored = self.stored.load(Relaxed);
        while let Some(at) = early.iter().position(|record| *record == stored) {
            early.swap_remove(at);
            stored += 1;
        }
        self.stored.store(stored, Release);
    }
}

/// An operation on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

/// The more frequent action, its percentage, and the other one.
fn mix_of(workload: Workload) -> Option<(Action, u64, Action)> {
    use Action::{Insert, Read, ReadModifyWrite, Scan, Update};
    match workload {
        Workload::YcsbA => Some((Read, 50, Update)),
        Workload::YcsbB => Some((Read, 95, Update)),
        Workload::YcsbC => Some((Read, 100, Read)),
        Workload::YcsbD => Some((Read, 95, Insert)),
        Workload::YcsbE => Some((Scan, 95, Insert)),
        Workload::YcsbF => Some((Read, 50, ReadModifyWrite)),
        _ => None,
    }
}

/// The distribution of records.
enum Choice {
    Zipfian(ScrambledZipfian),
    Latest(Latest),
}

impl Worker<'_> {
    pub(super) fn run_ycsb(&mut self, workload: Workload) -> Result<(), StoreError> {
        let (Some((main, percent, other)), Some(records)) = (mix_of(workload), self.load.records)
        else {
            return Ok(());
        };
        let mut choice = match workload {
            Workload::YcsbD => Choice::Latest(Latest::new(records.stored())),
            _ => Choice::Zipfian(ScrambledZipfian::new(self.records_to_come(workload, records))),
        };
        while self.next() {
            let action = if self.rng.u64(..100) < percent { main } else { other };
            if action == Action::Insert {
                self.insert(records)?;
                continue;
            }
            let stored = records.stored();
            let record = match &mut choice {
                Choice::Zipfian(zipfian) => zipfian.draw(stored, &mut self.rng),
                Choice::Latest(latest) => latest.draw(stored, &mut self.rng),
            };
            let index = self.load.keys.scattered(record);
            self.act(action, index)?;
        }
        Ok(())
    }

    /// The records stored, plus twice the expected inserts, as in YCSB. If time ends the workload
    /// their number is unknown, and the records stored count twice.
    fn records_to_come(&self, workload: Workload, records: &Records) -> u64 {
        let inserts = match mix_of(workload) {
            Some((_, percent, Action::Insert)) => {
                let all = self.load.operations.saturating_mul(self.load.threads as u64);
                all.saturating_mul(2) / 100 * (100 - percent)
            }
            _ => 0,
        };
        records.initial + inserts.min(records.initial)
    }

    fn act(&mut self, action: Action, index: u64) -> Result<(), StoreError> {
        let kind = match action {
            Action::Read => {
                self.get(index, None)?;
                Kind::Read
            }
            Action::Scan => {
                let entries = self.rng.u64(1..=SCAN_MAX);
                self.scan_from(index, None, Direction::Forward, entries)?;
                Kind::Scan
            }
            Action::ReadModifyWrite => {
                self.get(index, None)?;
                self.put(index)?;
                Kind::ReadModifyWrite
            }
            Action::Update | Action::Insert => {
                self.put(index)?;
                Kind::Update
            }
        };
        self.count(kind, 1);
        Ok(())
    }

    fn insert(&mut self, records: &Records) -> Result<(), StoreError> {
        let record = records.take();
        let index = self.load.keys.scattered(record);
        self.put(index)?;
        records.done(record);
        self.count(Kind::Insert, 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_without_a_gap_before_them_are_drawn() {
        let records = Records::new(10);
        let taken: Vec<u64> = (0..4).map(|_| records.take()).collect();
        assert_eq!(taken, [10, 11, 12, 13]);
        for (done, stored) in [(12, 10), (11, 10), (10, 13), (13, 14)] {
            records.done(done);
            assert_eq!(records.stored(), stored, "after {done}");
        }
    }
}

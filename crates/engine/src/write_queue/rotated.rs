//! The logs of memtables that were frozen, until they are durable or not needed.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::log::LogWriter;
use crate::sync::{AtomicUsize, Mutex, lock};

/// Logs that were rotated out and whose last bytes may not be durable yet, though still needed.
///
/// A sync acknowledges everything before it, so it must make these durable first. Until they are,
/// or what they hold is in tables, records of the current log say that an earlier log may still be
/// torn.
#[derive(Debug, Default)]
pub(crate) struct RotatedLogs {
    /// Each with its number, oldest first.
    logs: Mutex<Vec<(u64, LogWriter)>>,
    /// The lengths of all that are still needed, in bytes, by number.
    lengths: Mutex<BTreeMap<u64, u64>>,
    count: AtomicUsize,
}

impl RotatedLogs {
    /// Whether all earlier logs are durable, or not needed any more.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Adds the log that was in use until now.
    pub(crate) fn add(&self, number: u64, log: LogWriter) {
        lock(&self.lengths).insert(number, log.bytes());
        let mut logs = lock(&self.logs);
        logs.push((number, log));
        self.count.store(logs.len(), Ordering::Release);
    }

    /// Forgets the logs up to `last`: the manifest says durably that they are not needed. What of
    /// them has not reached the device then need never do so. The length of `last`, in bytes.
    pub(crate) fn forget(&self, last: u64) -> u64 {
        let mut logs = lock(&self.logs);
        let kept = logs.partition_point(|(number, _)| *number <= last);
        let unneeded: Vec<_> = logs.drain(..kept).collect();
        self.count.store(logs.len(), Ordering::Release);
        drop(logs);
        // Files are closed without holding anyone up.
        drop(unneeded);
        let mut lengths = lock(&self.lengths);
        let later = lengths.split_off(&(last + 1));
        std::mem::replace(&mut *lengths, later).remove(&last).unwrap_or(0)
    }

    /// Makes all of them durable, oldest first, and forgets them.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut logs = lock(&self.logs);
        for (_, log) in logs.iter_mut() {
            log.sync()?;
        }
        logs.clear();
        self.count.store(0, Ordering::Release);
        Ok(())
    }
}

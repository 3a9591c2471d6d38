//! The logs of frozen memtables, until they are durable or obsolete.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::log::LogWriter;
use crate::sync::{AtomicUsize, Mutex, lock};

/// Logs that were rotated out, are still needed, and whose last bytes may not be durable yet.
///
/// A sync acknowledges everything before it, so it must make these durable first. Until they are
/// durable or their contents are in tables, records of the current log state that an earlier log
/// may still be torn.
#[derive(Debug, Default)]
pub(crate) struct RotatedLogs {
    /// Each with its number, oldest first.
    logs: Mutex<Vec<(u64, LogWriter)>>,
    /// The lengths in bytes of all logs that are still needed, by number.
    lengths: Mutex<BTreeMap<u64, u64>>,
    count: AtomicUsize,
}

impl RotatedLogs {
    /// Whether all earlier logs are durable or obsolete.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Adds the log that was active until now.
    pub(crate) fn add(&self, number: u64, log: LogWriter) {
        lock(&self.lengths).insert(number, log.bytes());
        let mut logs = lock(&self.logs);
        logs.push((number, log));
        self.count.store(logs.len(), Ordering::Release);
    }

    /// Forgets the logs up to `last`, which are obsolete by a durable manifest: their unsynced
    /// bytes need never reach the device. Returns the length of `last` in bytes.
    pub(crate) fn forget(&self, last: u64) -> u64 {
        let mut logs = lock(&self.logs);
        let kept = logs.partition_point(|(number, _)| *number <= last);
        let unneeded: Vec<_> = logs.drain(..kept).collect();
        self.count.store(logs.len(), Ordering::Release);
        drop(logs);
        // Files are closed without holding the lock.
        drop(unneeded);
        let mut lengths = lock(&self.lengths);
        let later = lengths.split_off(&(last + 1));
        std::mem::replace(&mut *lengths, later).remove(&last).unwrap_or(0)
    }

    /// Syncs all of them, oldest first, and forgets them.
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

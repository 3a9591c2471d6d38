//! Stops a run from outside, and reports its progress.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, StoreError};
use crate::store::Store;

/// A request to stop, shared by its sender and every loop that honours it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A stop that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every run with this stop end soon.
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    /// Clears the request, for the next run.
    pub fn clear(&self) {
        self.0.store(false, Relaxed);
    }

    /// Whether it was set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Runs `task` on a thread of its own and returns its result, or none as soon as the stop is
    /// set; the task is then abandoned. For calls into a store that cannot be cancelled.
    pub fn unless_set<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            // The receiver is gone only if the stop was set, and then the result is unused.
            let _ = sender.send(task());
        });
        loop {
            match receiver.recv_timeout(Duration::from_millis(20)) {
                Ok(result) => {
                    // Wait until the task's captures are dropped too.
                    return thread.join().map(|()| result).ok();
                }
                Err(RecvTimeoutError::Timeout) if self.is_set() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match thread.join() {
                    Ok(()) => return None,
                    Err(panic) => resume_unwind(panic),
                },
            }
        }
    }
}

/// The unit of a run's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Reads, writes or scans of a store.
    Operations,
    /// Keys.
    Keys,
    /// Entries of tables or files.
    Entries,
    /// Bytes.
    Bytes,
    /// Seconds of a run that ends by time.
    Seconds,
}

/// Receives the progress of a run. Called from the run's threads, a few times a second.
pub trait Progress: Sync {
    /// A step begins: its title, and its amount of work (0: unknown).
    fn begin(&self, what: &str, all: u64, unit: Unit);

    /// `done` more units are done.
    fn advance(&self, done: u64);

    /// The step is over; its results are printed next.
    fn end(&self);

    /// Receives a remark that is not a result, but that a reader of the results should know.
    fn say(&self, _what: &str) {}
}

/// A [`Progress`] that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _what: &str, _all: u64, _unit: Unit) {}
    fn advance(&self, _done: u64) {}
    fn end(&self) {}
}

/// The stop of a run, and the receiver of its progress.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Set from outside to end the run.
    pub stop: &'a Stop,
    /// Receives the progress.
    pub progress: &'a dyn Progress,
}

impl Control<'_> {
    /// Times a call into the store that may take long. No result if a stop abandoned it.
    pub(crate) fn call<S: Store + ?Sized + 'static, T: Send + 'static>(
        self,
        store: &Arc<S>,
        what: &str,
        task: impl FnOnce(&S) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<(Option<T>, Duration), Error> {
        let store = Arc::clone(store);
        self.progress.begin(what, 0, Unit::Operations);
        let start = Instant::now();
        let result = self.stop.unless_set(move || task(&store));
        let time = start.elapsed();
        self.progress.end();
        Ok((result.transpose()?, time))
    }

    /// Closes the store. After a stop it does so in the background, because closing may take a
    /// while.
    pub(crate) fn close<S: Store + ?Sized + 'static>(self, store: Arc<S>) -> Result<(), Error> {
        self.progress.begin("closing", 0, Unit::Operations);
        let closed = self.stop.unless_set(move || store.close());
        self.progress.end();
        Ok(closed.ok_or(Error::Interrupted)??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_awaited_unless_stopped() {
        let stop = Stop::new();
        assert_eq!(stop.unless_set(|| 7), Some(7));
        let (sender, receiver) = channel::<()>();
        stop.set();
        assert_eq!(stop.unless_set(move || receiver.recv().is_ok()), None);
        drop(sender);
    }

    #[test]
    #[should_panic(expected = "the task's own words")]
    fn a_panic_in_the_task_is_passed_on() {
        Stop::new().unless_set(|| panic!("the task's own words"));
    }
}

//! A thread that runs a function at intervals, until the timer is dropped.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::env;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, lock, wait_until};

/// A hundred years: a longer period ends after it, as no clock counts much further.
const LONGEST_PERIOD: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The thread, which ends when the timer is dropped.
#[derive(Debug)]
pub(crate) struct Timer {
    end: Arc<TimerEnd>,
    thread: Option<JoinHandle<()>>,
}

/// The signal for the thread to end.
#[derive(Debug, Default)]
struct TimerEnd {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Timer {
    /// Starts a thread that calls `each` now, and then `period` after each call has returned.
    pub(crate) fn start(
        name: &str,
        period: Duration,
        mut each: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let end = Arc::new(TimerEnd::default());
        let ended = Arc::clone(&end);
        let run = move || {
            while !*lock(&ended.is_over) {
                each();
                ended.wait(period);
            }
        };
        let thread = Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl TimerEnd {
    /// Waits for `period`, unless it is over before.
    fn wait(&self, period: Duration) {
        let due = env::now() + period.min(LONGEST_PERIOD);
        let mut is_over = lock(&self.is_over);
        while !*is_over && env::now() < due {
            is_over = wait_until(&self.changed, is_over, due);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        *lock(&self.end.is_over) = true;
        self.end.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported there.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    /// A thread that has panicked has dropped its sender.
    #[test]
    fn a_period_beyond_the_clock_is_waited_for() {
        let (sender, calls) = channel();
        let timer = Timer::start("test", Duration::MAX, move || sender.send(()).unwrap()).unwrap();
        calls.recv().unwrap();
        let next = calls.recv_timeout(Duration::from_millis(200));
        assert_eq!(next, Err(RecvTimeoutError::Timeout));
        drop(timer);
    }
}

//! Wait and notify on an atomic, cheap when nothing waits.
//!
//! The notifier stores the value, executes a fence, and then checks for waiters. The waiter
//! registers, executes a fence, and then checks the value. One of the two fences comes first, so
//! one side sees the other: no waiter misses the value, and a notifier takes no lock if nothing
//! waits (Dekker's handshake).

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::env;
use crate::sync::{AtomicUsize, Condvar, Mutex, fence, lock, wait, wait_until};

/// Threads that wait for a condition.
#[derive(Debug)]
pub(crate) struct Notifier {
    waiting: AtomicUsize,
    /// Held while deciding whether to sleep.
    looking: Mutex<()>,
    changed: Condvar,
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), looking: Mutex::new(()), changed: Condvar::new() }
    }

    /// Wakes the waiters to check their condition, after it was stored.
    #[inline]
    pub(crate) fn notify(&self) {
        fence();
        // A wake-up is a system call, whether or not a thread waits.
        if self.waiting.load(Relaxed) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        // A waiter that checked before the store is asleep once it releases this.
        drop(lock(&self.looking));
        self.changed.notify_all();
    }

    /// As [`wait_until`](Self::wait_until), but no longer than until `due`, if there is one.
    /// Returns whether the wait is over.
    pub(crate) fn wait_until_due(
        &self,
        due: Option<Instant>,
        mut is_over: impl FnMut() -> bool,
    ) -> bool {
        let mut looking = lock(&self.looking);
        self.waiting.fetch_add(1, Relaxed);
        fence();
        let mut is_reached = is_over();
        while !is_reached && due.is_none_or(|due| env::now() < due) {
            looking = match due {
                Some(due) => wait_until(&self.changed, looking, due),
                None => wait(&self.changed, looking),
            };
            is_reached = is_over();
        }
        self.waiting.fetch_sub(1, Relaxed);
        is_reached
    }

    /// Waits until `is_over`, which is checked on every notification.
    pub(crate) fn wait_until(&self, mut is_over: impl FnMut() -> bool) {
        let mut looking = lock(&self.looking);
        self.waiting.fetch_add(1, Relaxed);
        fence();
        while !is_over() {
            looking = wait(&self.changed, looking);
        }
        self.waiting.fetch_sub(1, Relaxed);
    }
}

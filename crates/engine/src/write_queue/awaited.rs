//! Telling those who wait for what an atomic says, where hardly anybody ever waits.
//!
//! Whoever tells has stored the value before; a fence, then a look at whether somebody waits.
//! Whoever waits says so; a fence, then a look at the value. One of the two fences comes first, so
//! either the one is seen or the other: nobody sleeps through what it waits for, and a teller takes
//! no lock where there is nobody (Dekker's handshake).

use std::sync::atomic::Ordering::Relaxed;

use crate::sync::{AtomicUsize, Condvar, Mutex, fence, lock, wait};

/// Those who wait until something is so.
#[derive(Debug)]
pub(crate) struct Awaited {
    waiting: AtomicUsize,
    /// Held by who looks whether to sleep.
    looking: Mutex<()>,
    told: Condvar,
}

impl Awaited {
    pub(crate) fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), looking: Mutex::new(()), told: Condvar::new() }
    }

    /// Has those who wait look again, after what they look at was stored.
    #[inline]
    pub(crate) fn tell(&self) {
        fence();
        // To wake is a system call, whether or not anyone waits.
        if self.waiting.load(Relaxed) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        // Who has looked in vain sleeps by the time it lets go of this.
        drop(lock(&self.looking));
        self.told.notify_all();
    }

    /// Waits until `is_over`, which is looked at whenever somebody tells.
    pub(crate) fn wait_until(&self, mut is_over: impl FnMut() -> bool) {
        let mut looking = lock(&self.looking);
        self.waiting.fetch_add(1, Relaxed);
        fence();
        while !is_over() {
            looking = wait(&self.told, looking);
        }
        self.waiting.fetch_sub(1, Relaxed);
    }
}

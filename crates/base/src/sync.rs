//! The synchronization primitives that threads share: locks, condition variables, and the atomics
//! on which other state depends.
//!
//! In an ordinary build these are re-exports of the standard library and add no cost. Built with
//! `--cfg shuttle` they come from the crate shuttle, which schedules all threads of a test in an
//! order of its choosing and switches between them at every call. Built with `--cfg trommel_loom`
//! they come from loom, which explores every order and every value that a load may return. (A bare
//! `--cfg loom` has other effects on other crates.) docs/concurrency.md lists the state tested this
//! way.
//!
//! # Invariants
//! * Every primitive that may block, or that is held during a call into this module, comes from
//!   here. Others (a counter, a cell that is set once, a cache's inner lock) may be the standard
//!   library's: no thread is switched at them.
//! * Lock poisoning is ignored: a panic while a lock is held poisons the *store*, which reports it
//!   in its own errors.

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(trommel_loom)]
pub use loom::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize},
};
#[cfg(shuttle)]
pub use shuttle::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize},
};
#[cfg(not(any(shuttle, trommel_loom)))]
pub use std::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize},
};

/// A sequentially consistent fence. A no-op under shuttle, which assumes sequential consistency for
/// every access.
#[inline]
pub fn fence() {
    #[cfg(trommel_loom)]
    use loom::sync::atomic::fence;
    #[cfg(not(trommel_loom))]
    use std::sync::atomic::fence;
    fence(std::sync::atomic::Ordering::SeqCst);
}

/// Locks `mutex`, even if a thread panicked while holding it.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `shared` for reading, even if a thread panicked while writing.
#[inline]
pub fn read_lock<T>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `shared` for writing, even if a thread panicked while writing.
#[inline]
pub fn write_lock<T>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condition`, even if a thread panicked while holding the lock.
#[inline]
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condition` for at most `limit`. The limit is a precaution: every waiter is woken.
/// Under shuttle the limit never expires, so that a lost wake-up is found as a deadlock.
#[inline]
pub fn wait_at_most<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}

/// The same primitives for counters and caches. Shuttle does not switch threads at them, because no
/// other thread's actions depend on their values.
pub mod quiet {
    use super::PoisonError;

    #[cfg(trommel_loom)]
    pub use super::{AtomicBool, AtomicU64, Mutex, MutexGuard};
    #[cfg(not(trommel_loom))]
    pub use std::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64},
    };

    /// A counter that can be a `static`, unlike loom's.
    pub use std::sync::atomic::AtomicU64 as StaticU64;

    /// Locks `mutex`, even if a thread panicked while holding it.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The links of lock-free structures that are verified by loom models alone. Shuttle does not
/// switch threads at them: it would spend nearly all its schedules on their many steps.
pub mod linked {
    #[cfg(trommel_loom)]
    pub use loom::sync::atomic::{AtomicPtr, AtomicUsize};
    #[cfg(not(trommel_loom))]
    pub use std::sync::atomic::{AtomicPtr, AtomicUsize};

    /// A stand-in for data that one thread writes and others read without a lock. In a loom model,
    /// a read that does not happen after the construction fails. In other builds it is empty.
    #[derive(Debug)]
    pub struct Witness(#[cfg(trommel_loom)] loom::cell::UnsafeCell<()>);

    impl Witness {
        /// Called by the thread that writes the data.
        #[inline]
        #[allow(clippy::new_without_default, reason = "made in one place, by name")]
        pub fn new() -> Self {
            Self(
                #[cfg(trommel_loom)]
                loom::cell::UnsafeCell::new(()),
            )
        }

        /// Called by each thread that reads the data.
        #[inline]
        pub fn look(&self) {
            #[cfg(trommel_loom)]
            self.0.with(|_| ());
        }
    }
}

/// A point at which shuttle may switch threads: before a step that other threads can observe and
/// that uses none of the primitives above, such as a pointer swap. A no-op in other builds.
#[inline]
pub fn point() {
    #[cfg(shuttle)]
    shuttle::thread::sleep(Duration::ZERO);
}

#[cfg(trommel_loom)]
pub mod models;

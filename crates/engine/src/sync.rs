//! Locks whose poisoning we do not use: a panic while one is held poisons the *store*, which says
//! so in its own errors.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, whether or not a thread panicked while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condition`.
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

//! The one door to what threads share: locks, condition variables, and the atomics on which
//! something else depends.
//!
//! In a store that is used these are the standard library's, re-exported, and cost nothing more.
//! Built with `--cfg shuttle` they are those of the crate shuttle, which runs all threads of a test
//! in an order of its choosing and switches between them at every call of these; built with `--cfg
//! trommel_loom` they are those of loom, which tries every order, and every value that a load may
//! return. (A bare `--cfg loom` means other things to other crates.) docs/concurrency.md says what
//! is tested so.
//!
//! # Invariants
//! * What may block, or is held while something here is called, comes from here. What is neither
//!   (a count, a cell that is set once, the lock inside a cache) may be the standard library's: at
//!   it nobody is switched out.
//! * No lock's poisoning is used: a panic while one is held poisons the *store*, which says so in
//!   its own errors.

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(trommel_loom)]
pub use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize},
};
#[cfg(shuttle)]
pub use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize},
};
#[cfg(not(any(shuttle, trommel_loom)))]
pub use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize},
};

/// Keeps what comes before it, in the order that all such fences of all threads have, before what
/// comes behind it. No step under shuttle, which tries all there is with one order of memory.
#[inline]
pub fn fence() {
    #[cfg(trommel_loom)]
    use loom::sync::atomic::fence;
    #[cfg(not(trommel_loom))]
    use std::sync::atomic::fence;
    fence(std::sync::atomic::Ordering::SeqCst);
}

/// Locks `mutex`, whether or not a thread panicked while holding it.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condition`.
#[inline]
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condition`, but no longer than `limit`, as a precaution: whoever waits here is always
/// woken. Under shuttle the limit never passes, so a wake-up that is lost is found as a deadlock.
#[inline]
pub fn wait_at_most<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}

/// The same for what is only counted: no thread is switched at it under shuttle, for nothing that
/// another thread does depends on it.
pub mod quiet {
    use super::PoisonError;

    #[cfg(trommel_loom)]
    pub use super::{AtomicBool, AtomicU64, Mutex, MutexGuard};
    #[cfg(not(trommel_loom))]
    pub use std::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64},
    };

    /// A counter that can stand in a static, which loom's cannot.
    pub use std::sync::atomic::AtomicU64 as StaticU64;

    /// Locks `mutex`, whether or not a thread panicked while holding it.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The links of structures without locks that are proven by models alone: at none of their many
/// steps is a thread switched under shuttle, which would try little else.
pub mod linked {
    #[cfg(trommel_loom)]
    pub use loom::sync::atomic::{AtomicPtr, AtomicUsize};
    #[cfg(not(trommel_loom))]
    pub use std::sync::atomic::{AtomicPtr, AtomicUsize};

    /// Stands for data that one thread writes and others read without a lock. In models every look
    /// fails that does not come behind the making, by the memory model; else it is nothing.
    #[derive(Debug)]
    pub struct Witness(#[cfg(trommel_loom)] loom::cell::UnsafeCell<()>);

    impl Witness {
        /// Made by the thread that writes the data.
        #[inline]
        #[allow(clippy::new_without_default, reason = "made in one place, by name")]
        pub fn new() -> Self {
            Self(
                #[cfg(trommel_loom)]
                loom::cell::UnsafeCell::new(()),
            )
        }

        /// Called by whoever reads the data.
        #[inline]
        pub fn look(&self) {
            #[cfg(trommel_loom)]
            self.0.with(|_| ());
        }
    }
}

/// A place at which another thread may come in between: before a step that others can see and that
/// takes none of the above, such as the swap of a pointer. Nothing unless under shuttle.
#[inline]
pub fn point() {
    #[cfg(shuttle)]
    shuttle::thread::sleep(Duration::ZERO);
}

/// Models: a few threads on a piece of the real code, in every order that takes at most three
/// switches of a thread that could go on, and with every value that a load may return.
#[cfg(trommel_loom)]
pub mod models {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Instant;

    pub use loom::thread;

    /// Runs `model` in every order, and prints as a lane does how many there were.
    ///
    /// # Panics
    /// Where an order makes the model panic or its threads wait for each other for ever.
    #[allow(clippy::print_stdout, reason = "tests print what they counted")]
    pub fn check(name: &str, model: impl Fn() + Send + Sync + 'static) {
        let (start, orders) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        let counted = Arc::clone(&orders);
        builder.check(move || {
            counted.fetch_add(1, Relaxed);
            model();
        });
        let (seconds, orders) = (start.elapsed().as_secs_f64(), orders.load(Relaxed));
        println!(
            "\n{{\"lane\": \"loom/{name}\", \"seconds\": {seconds:.1}, \
             \"counters\": {{\"orders\": {orders}}}}}"
        );
    }
}

//! The only place that reads a clock or draws a random number.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The current moment of a clock that never goes back.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Puts the calling thread to sleep.
pub(crate) fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// A random word for ids and salts: the standard library's per-process random keys, mixed with a
/// counter of theirs that differs at every call. Not for secrets.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

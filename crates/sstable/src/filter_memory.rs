//! The bytes of filters in memory, pinned and cached, and their limit.
//!
//! # Algorithm
//! 1. Bytes are admitted before they are allocated, and released after they were freed: there is
//!    never more in memory than is counted.
//! 2. One word holds the bytes in use and, above them, a count of changes: of the limit, or by a
//!    release. Admission compares and swaps that word, so a decision based on an outdated limit is
//!    retried.
//! 3. A higher limit is effective at once. With a lower limit, nothing beyond it is admitted any
//!    more, but it becomes the effective limit only when usage has dropped to it. Until lookups
//!    have released the excess, the previous limit remains effective.
//!
//! # Invariants
//! * Usage never exceeds the effective limit, for any observer ([`FilterMemory::seen`]).
//! * A limit that has become effective stays so until the next one is set.
//! * Only setting the limit waits for another thread: filter blocks are released in the middle of
//!   an eviction.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use trommel_base::sync::quiet::{AtomicU64, Mutex, lock};

/// Bits of the word that count bytes: no machine has that much memory.
const HELD_BITS: u32 = 48;
const HELD: u64 = (1 << HELD_BITS) - 1;
/// One change of the limit, or one release. They are counted modulo 65,536.
const CHANGE: u64 = 1 << HELD_BITS;

/// Counts the bytes of filters in memory, and admits more up to a limit.
#[derive(Debug)]
pub struct FilterMemory {
    /// Bytes in use, and the count of changes.
    state: AtomicU64,
    /// Most bytes that admission allows.
    limit: AtomicU64,
    /// The effective limit while more than `limit` is in use.
    before: AtomicU64,
    /// Bytes in the block cache, part of those in use.
    cached: AtomicU64,
    /// Held while the limit is set.
    changing: Mutex<()>,
}

/// Usage and limit of the memory for filters, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterBytes {
    /// Bytes in use.
    pub held: u64,
    /// Of these, bytes in the block cache.
    pub cached: u64,
    /// The effective limit, never less than `held`; `u64::MAX` for none.
    pub limit: u64,
}

impl Default for FilterMemory {
    /// No bytes in use, and no limit.
    fn default() -> Self {
        Self {
            state: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            before: AtomicU64::new(u64::MAX),
            cached: AtomicU64::new(0),
            changing: Mutex::new(()),
        }
    }
}

impl FilterMemory {
    /// Whether `bytes` more are within the limit. If so, they count as in use. Writes nothing
    /// otherwise.
    pub fn admit(&self, bytes: u64) -> bool {
        let mut state = self.state.load(Acquire);
        loop {
            // A thread that loads the word of the last change sees that limit or a later one.
            let limit = self.limit.load(Acquire).min(HELD);
            if (state & HELD).checked_add(bytes).is_none_or(|sum| sum > limit) {
                return false;
            }
            match self.state.compare_exchange_weak(state, state + bytes, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Releases `bytes` that were admitted.
    pub fn give_back(&self, bytes: u64) {
        self.state.fetch_add(CHANGE.wrapping_sub(bytes), AcqRel);
    }

    /// Bytes in use.
    pub fn held(&self) -> u64 {
        self.state.load(Acquire) & HELD
    }

    /// Usage and limit at one moment.
    pub fn seen(&self) -> FilterBytes {
        loop {
            let state = self.state.load(Acquire);
            let cached = self.cached.load(Acquire);
            let limit = self.limit.load(Acquire);
            let before = self.before.load(Acquire);
            if self.state.load(Acquire) == state {
                let held = state & HELD;
                return FilterBytes { held, cached, limit: effective_limit(held, limit, before) };
            }
        }
    }

    /// Whether usage is within the limit that was set last.
    pub fn is_kept(&self) -> bool {
        // Nothing beyond the limit is admitted, so two separate loads suffice.
        self.held() <= self.limit.load(Acquire)
    }

    /// Sets the limit; `u64::MAX` for none. Bytes in use stay.
    pub fn set_limit(&self, bytes: u64) {
        let _one_at_a_time = lock(&self.changing);
        // In this order: a reader that sees the new limit exceeded finds the previous effective
        // limit.
        self.before.store(self.seen().limit, Release);
        self.limit.store(bytes, Release);
        self.state.fetch_add(CHANGE, AcqRel);
    }

    /// Charges `bytes` of a filter for the block cache, if they are within the limit.
    pub(crate) fn charge_cached(self: &Arc<Self>, bytes: u64) -> Option<CachedCharge> {
        self.admit(bytes).then(|| {
            self.cached.fetch_add(bytes, Release);
            CachedCharge { memory: Arc::clone(self), bytes }
        })
    }

    /// Bytes in the block cache.
    pub(crate) fn cached(&self) -> u64 {
        self.cached.load(Relaxed)
    }
}

/// The bytes of a filter block that the block cache holds or is about to hold; released when
/// dropped.
#[derive(Debug)]
pub(crate) struct CachedCharge {
    memory: Arc<FilterMemory>,
    bytes: u64,
}

impl CachedCharge {
    /// Bytes charged.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the charge to `bytes`. False, without a change, if they exceed the limit.
    pub(crate) fn resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes && !self.memory.admit(bytes - self.bytes) {
            return false;
        }
        if bytes > self.bytes {
            self.memory.cached.fetch_add(bytes - self.bytes, Release);
        } else {
            self.release(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// Whether usage is within the limit that was set last.
    pub(crate) fn is_within_limit(&self) -> bool {
        self.memory.is_kept()
    }

    /// Subtracts from the cached bytes first, then releases them.
    fn release(&self, bytes: u64) {
        self.memory.cached.fetch_sub(bytes, Release);
        self.memory.give_back(bytes);
    }
}

impl Drop for CachedCharge {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// The effective limit with `held` bytes in use, after `limit` replaced the effective limit
/// `before`.
fn effective_limit(held: u64, limit: u64, before: u64) -> u64 {
    if held <= limit { limit } else { before }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_and_limit(memory: &FilterMemory) -> (u64, u64) {
        let seen = memory.seen();
        (seen.held, seen.limit)
    }

    #[test]
    fn a_lower_limit_is_effective_once_usage_fits() {
        let memory = FilterMemory::default();
        assert!(memory.admit(100));
        assert_eq!(held_and_limit(&memory), (100, u64::MAX));
        memory.set_limit(120);
        assert_eq!(held_and_limit(&memory), (100, 120));
        assert!(!memory.admit(21) && memory.admit(20));
        memory.set_limit(25);
        assert_eq!(held_and_limit(&memory), (120, 120));
        assert!(!memory.admit(1), "there is room up to the limit before");
        // Another limit, before that one has become effective.
        memory.set_limit(60);
        assert_eq!(held_and_limit(&memory), (120, 120));
        memory.give_back(60);
        assert_eq!(held_and_limit(&memory), (60, 60));
        memory.set_limit(50);
        memory.set_limit(u64::MAX);
        assert_eq!(held_and_limit(&memory), (60, u64::MAX));
        assert!(memory.admit(1 << 40) && !memory.admit(u64::MAX) && !memory.admit(HELD));
    }

    #[test]
    fn changes_are_counted_apart_from_the_bytes() {
        let memory = FilterMemory::default();
        assert!(memory.admit(7));
        for limit in 0..70_000 {
            memory.set_limit(limit);
        }
        assert_eq!(held_and_limit(&memory), (7, 69_999));
        memory.give_back(7);
        assert_eq!(held_and_limit(&memory), (0, 69_999));
    }
}

#[cfg(all(test, trommel_loom))]
mod models {
    use trommel_base::sync::models::{check, thread};

    use super::*;

    fn takes(memory: &Arc<FilterMemory>, bytes: u64) -> thread::JoinHandle<bool> {
        let memory = Arc::clone(memory);
        thread::spawn(move || memory.admit(bytes))
    }

    /// Two threads request bytes while the limit is lowered. Once the lower limit is effective,
    /// nothing beyond it is admitted, even if admission had begun before.
    #[test]
    fn nothing_is_taken_by_a_limit_that_was_lowered() {
        check("nothing_is_taken_by_a_limit_that_was_lowered", || {
            let memory = Arc::new(FilterMemory::default());
            memory.set_limit(10);
            let takers = [takes(&memory, 4), takes(&memory, 4)];
            memory.set_limit(5);
            let then = memory.seen();
            let taken = takers.map(|taker| u64::from(taker.join().unwrap()) * 4);
            let last = memory.seen();
            assert_eq!(last.held, taken.iter().sum::<u64>());
            assert!(then.limit > 5 || last.held <= 5, "by the limit before: {then:?}, {last:?}");
            assert_eq!(last.limit, if last.held > 5 { 10 } else { 5 });
        });
    }

    /// An observer sees usage within the limit while bytes are released and requested again and the
    /// limit is lowered.
    #[test]
    fn no_more_is_seen_than_the_limit() {
        check("no_more_is_seen_than_the_limit", || {
            let memory = Arc::new(FilterMemory::default());
            // The limit before that one is less than the bytes used below.
            memory.set_limit(3);
            memory.set_limit(10);
            assert!(memory.admit(6));
            let taker = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    memory.give_back(6);
                    memory.admit(6)
                })
            };
            let setter = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || memory.set_limit(5))
            };
            let seen = memory.seen();
            assert!(seen.held <= seen.limit, "{seen:?}");
            setter.join().unwrap();
            let taken = taker.join().unwrap();
            let (held, limit) = if taken { (6, 10) } else { (0, 5) };
            assert_eq!(memory.seen(), FilterBytes { held, cached: 0, limit });
        });
    }
}

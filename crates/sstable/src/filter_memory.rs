//! Bytes of filters in memory, pinned and cached, and the limit on them.
//!
//! # Algorithm
//! 1. Bytes are admitted before they are allocated, and given back after they were freed: at no
//!    moment is more in memory than is counted.
//! 2. One word has the bytes that are held, and above them a count of changes: of the limit, or by
//!    bytes given back. Admission swaps that word, so a decision by a limit that has changed since
//!    is made anew.
//! 3. A limit that rises is in force at once. When it falls, nothing beyond it is admitted any
//!    more, and it is in force as soon as no more than that is held. Until the excess has left the
//!    memory, as lookups that use it end, the previous limit is in force.
//!
//! # Invariants
//! * No more is held than the limit in force, at every moment and for every observer
//!   ([`FilterMemory::seen`]).
//! * A limit that has come into force stays so until the next one is set.
//! * Nothing here waits for another thread, except setting the limit, as filter blocks are given
//!   back in the middle of an eviction.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use trommel_base::planted::{Bug, planted};
use trommel_base::sync::quiet::{AtomicU64, Mutex, lock};

/// Bits of the word that count bytes: no machine has as many.
const HELD_BITS: u32 = 48;
const HELD: u64 = (1 << HELD_BITS) - 1;
/// One change of the limit, or one return, in the word. They are counted modulo 65,536.
const CHANGE: u64 = 1 << HELD_BITS;

/// Counts the filters in memory, and admits more up to a limit.
#[derive(Debug)]
pub struct FilterMemory {
    /// Bytes that are held, and changes.
    state: AtomicU64,
    /// Most bytes that are admitted.
    limit: AtomicU64,
    /// The limit that is in force while more than `limit` is held.
    before: AtomicU64,
    /// Those in the block cache among them.
    cached: AtomicU64,
    /// Held while the limit is set.
    changing: Mutex<()>,
}

/// What is held of filters, and what may be, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterBytes {
    /// Bytes that are held.
    pub held: u64,
    /// Those in the block cache among them.
    pub cached: u64,
    /// The limit in force, never less than is held; `u64::MAX` where there is none.
    pub limit: u64,
}

impl Default for FilterMemory {
    /// Nothing held, and no limit.
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
    /// Whether `bytes` more may be held; if so they count as held from now on. Writes nothing where
    /// they may not.
    pub fn admit(&self, bytes: u64) -> bool {
        let mut state = self.state.load(Acquire);
        loop {
            // Whoever finds the word as the last change left it finds that limit, or a later one.
            let limit = self.limit.load(Acquire).min(HELD);
            let limit = if planted(Bug::FilterLimitIgnored) { HELD } else { limit };
            if (state & HELD).checked_add(bytes).is_none_or(|sum| sum > limit) {
                return false;
            }
            match self.state.compare_exchange_weak(state, state + bytes, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// `bytes` that were admitted are held no longer.
    pub fn give_back(&self, bytes: u64) {
        self.state.fetch_add(CHANGE.wrapping_sub(bytes), AcqRel);
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.state.load(Acquire) & HELD
    }

    /// What is held and what may be, at one moment.
    pub fn seen(&self) -> FilterBytes {
        loop {
            let state = self.state.load(Acquire);
            let cached = self.cached.load(Acquire);
            let limit = self.limit.load(Acquire);
            let before = self.before.load(Acquire);
            if self.state.load(Acquire) == state {
                let held = state & HELD;
                return FilterBytes { held, cached, limit: in_force(held, limit, before) };
            }
        }
    }

    /// Whether no more is held than the limit that was set last.
    pub fn is_kept(&self) -> bool {
        // Nothing beyond it is admitted: a look at one after the other is enough.
        self.held() <= self.limit.load(Acquire)
    }

    /// Sets the limit; `u64::MAX` for none. What is held already stays.
    pub fn set_limit(&self, bytes: u64) {
        let _one_at_a_time = lock(&self.changing);
        // In this order: who sees the new limit and more held than that finds what was in force.
        self.before.store(self.seen().limit, Release);
        self.limit.store(bytes, Release);
        self.state.fetch_add(CHANGE, AcqRel);
    }

    /// Charges `bytes` of a filter that the block cache will hold, if they may be held.
    pub(crate) fn charge_cached(self: &Arc<Self>, bytes: u64) -> Option<CachedCharge> {
        self.admit(bytes).then(|| {
            self.cached.fetch_add(bytes, Release);
            CachedCharge { memory: Arc::clone(self), bytes }
        })
    }

    /// Bytes that are held in the block cache.
    pub(crate) fn cached(&self) -> u64 {
        self.cached.load(Relaxed)
    }
}

/// Bytes of a filter block that the block cache holds, or is about to; returned when dropped.
#[derive(Debug)]
pub(crate) struct CachedCharge {
    memory: Arc<FilterMemory>,
    bytes: u64,
}

impl CachedCharge {
    /// Bytes that are charged.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `bytes` in all; false, and no change, if these may not be held.
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

    /// Whether no more is held than the limit that was set last.
    pub(crate) fn is_within_limit(&self) -> bool {
        self.memory.is_kept()
    }

    /// Leaves the count of cached bytes before `bytes` are given back.
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

/// The limit in force where `held` bytes are held, `limit` was set, and `before` was in force then.
fn in_force(held: u64, limit: u64, before: u64) -> u64 {
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
    fn a_limit_that_falls_is_in_force_once_it_is_kept() {
        let memory = FilterMemory::default();
        assert!(memory.admit(100));
        assert_eq!(held_and_limit(&memory), (100, u64::MAX));
        memory.set_limit(120);
        assert_eq!(held_and_limit(&memory), (100, 120));
        assert!(!memory.admit(21) && memory.admit(20));
        memory.set_limit(25);
        assert_eq!(held_and_limit(&memory), (120, 120));
        assert!(!memory.admit(1), "there is room up to the limit before");
        // Another one, before that has come into force.
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
    fn changes_are_counted_beside_the_bytes() {
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

    /// Two want room while the limit falls and what was there gives way: once the limit is set and
    /// kept, nothing beyond it comes, though it was judged before.
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

    /// Whoever looks while something leaves, something else wants its room and the limit falls sees
    /// no more held than the limit.
    #[test]
    fn no_more_is_seen_than_the_limit() {
        check("no_more_is_seen_than_the_limit", || {
            let memory = Arc::new(FilterMemory::default());
            // What was in force before that one is less than will be held.
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

//! A global allocator that counts the memory of each thread. Tests of other crates include this
//! file too.
#![allow(dead_code, reason = "each of these programs uses a part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, and the most that it held since the last reset. The counters
    /// are per thread because the test runner has threads of its own.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
    /// Allocations of this thread, and their bytes.
    static TIMES: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator that counts can be written no other way")]
// SAFETY: both functions pass their arguments unchanged to the system's allocator. A growing vector
// allocates the new memory before it frees the old, as in the trait's default `realloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.get() + layout.size() as isize;
        HELD.set(held);
        MOST.set(MOST.get().max(held));
        TIMES.set(TIMES.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as u64);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: `at` came from `alloc` above, thus from there, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that this thread has allocated and not freed.
pub(crate) fn held() -> isize {
    HELD.get()
}

/// The result of `work`, and the peak of this thread's memory meanwhile, in bytes above that
/// before.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = held();
    MOST.set(before);
    let done = work();
    (done, u64::try_from(MOST.get() - before).expect("it held at least what there was"))
}

/// The number of allocations of `work`, and their bytes in all.
pub(crate) fn taken<T>(work: impl FnOnce() -> T) -> (u64, u64) {
    let (times, bytes) = (TIMES.get(), BYTES.get());
    drop(work());
    (TIMES.get() - times, BYTES.get() - bytes)
}

//! An allocator that counts what each thread takes. Tests of other crates include this file as
//! well.
#![allow(dead_code, reason = "each of these programs uses a part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, and the most that it held since it was last asked. The test
    /// runner has threads of its own.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
    /// How often this thread took memory, and how many bytes.
    static TIMES: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator that counts can be written no other way")]
// SAFETY: both functions hand their arguments to the system's allocator as they are. A vector that
// grows takes the new memory before it gives back the old, as the trait does it unless told.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.get() + layout.size() as isize;
        HELD.set(held);
        MOST.set(MOST.get().max(held));
        TIMES.set(TIMES.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as u64);
        // SAFETY: the caller keeps the promises of `alloc`, which are the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: `at` came from `alloc` above, thus from there, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that this thread holds: taken, and not given back.
pub(crate) fn held() -> isize {
    HELD.get()
}

/// What `work` gives, and the most bytes that this thread held meanwhile beyond those before.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = held();
    MOST.set(before);
    let done = work();
    (done, u64::try_from(MOST.get() - before).expect("it held at least what there was"))
}

/// How often `work` took memory, and how many bytes in all.
pub(crate) fn taken<T>(work: impl FnOnce() -> T) -> (u64, u64) {
    let (times, bytes) = (TIMES.get(), BYTES.get());
    drop(work());
    (TIMES.get() - times, BYTES.get() - bytes)
}

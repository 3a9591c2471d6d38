//! An allocator that knows the most that was taken at once.
//!
//! It counts the bytes that were asked for, in this process as a whole; one thread measures. The
//! counting costs some nanoseconds an allocation, the same for every contestant.
//!
//! `unsafe` stands here because an allocator is an unsafe trait; both functions hand on what they
//! are given.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: both functions call the system's allocator with the arguments they were given. The
// trait's other functions are made of these two, or of `alloc_zeroed` as below.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the promises of `alloc`, which are the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from one of the functions above, thus from there, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

fn count(bytes: usize) {
    let taken = TAKEN.fetch_add(bytes, Relaxed) + bytes;
    MOST.fetch_max(taken, Relaxed);
}

/// What `make` makes, and the most bytes that were taken at once while it did, beyond those taken
/// before.
pub fn most_taken<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = TAKEN.load(Relaxed);
    MOST.store(before, Relaxed);
    let made = make();
    (made, MOST.load(Relaxed).saturating_sub(before))
}

/// Bytes of this process that lie on huge pages, where the system says.
pub fn huge_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// What the system does about huge pages: `always`, `madvise` or `never`.
pub fn huge_page_setting() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

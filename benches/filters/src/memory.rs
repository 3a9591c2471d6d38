//! An allocator that tracks peak usage.
//!
//! It counts the requested bytes in this process as a whole; one thread measures. The counting
//! costs some nanoseconds per allocation, the same for every contestant.
//!
//! `unsafe` is needed because the allocator trait is unsafe; both functions forward their
//! arguments.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: both functions call the system's allocator with their own arguments. The trait's other
// functions are made of these two, or of `alloc_zeroed` as below.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from one of the functions above, and so from the system's allocator,
        // with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

fn count(bytes: usize) {
    let taken = TAKEN.fetch_add(bytes, Relaxed) + bytes;
    MOST.fetch_max(taken, Relaxed);
}

/// The result of `make`, and the peak of the bytes allocated during it, beyond those allocated
/// before.
pub fn most_taken<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = TAKEN.load(Relaxed);
    MOST.store(before, Relaxed);
    let made = make();
    (made, MOST.load(Relaxed).saturating_sub(before))
}

/// Bytes of this process on huge pages, if known.
pub fn huge_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The system's setting of huge pages: `always`, `madvise` or `never`.
pub fn huge_page_setting() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

//! A memtable reports the memory that it holds, and frees all of it: compared with a counting
//! allocator, and with a count of maps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use crate::{ArenaPool, Memtable, MemtableKind};
use trommel_base::EntryKind;

thread_local! {
    /// Bytes allocated by this thread minus those it freed; the test runner has threads of its own.
    static TAKEN: Cell<isize> = const { Cell::new(0) };
}

/// Counts the creation of a map of this many bytes; negative for an unmapping.
pub(crate) fn count_map(bytes: isize) {
    TAKEN.set(TAKEN.get() + bytes);
}

/// Counts the heap size of each allocation by the rule of glibc's malloc: a header word and a
/// multiple of 16 bytes, at least 32.
struct Counting;

fn cost(layout: Layout) -> isize {
    (layout.size() + 8).next_multiple_of(16).max(32) as isize
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator that counts can be written no other way")]
// SAFETY: both functions pass their arguments unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + cost(layout));
        // SAFETY: the caller upholds the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.set(TAKEN.get() - cost(layout));
        // SAFETY: `at` came from `alloc` above, thus from there, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Makes the allocations that live as long as the process, before anything is counted.
fn warm_up() {
    for kind in MemtableKind::ALL {
        drop(Memtable::new(kind, &ArenaPool::new(0)));
    }
}

fn fill(memtable: &Memtable, entries: u64, key_len: usize, value_len: usize) {
    let mut key = vec![b'k'; key_len];
    let value = vec![b'v'; value_len];
    for n in 0..entries {
        let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        key[key_len - 8..].copy_from_slice(&scattered);
        memtable.insert(&key, n, EntryKind::Put, &value);
    }
}

#[test]
fn memory_bytes_matches_the_allocator() {
    warm_up();
    let shapes = [(200_000, 16, 0), (100_000, 16, 100), (100_000, 40, 256), (3_000, 16, 0)];
    let large = [(2_000, 16, 20_000), (20, 100, 3_000_000), (200, 24, 400)];
    let all = || shapes.into_iter().chain(large);
    let all = MemtableKind::ALL.into_iter().flat_map(|kind| all().map(move |shape| (kind, shape)));
    for (kind, (entries, key_len, value_len)) in all {
        let before = TAKEN.get();
        let memtable = Memtable::new(kind, &ArenaPool::new(0));
        fill(&memtable, entries, key_len, value_len);
        let really = TAKEN.get() - before;
        let said = memtable.memory_bytes();
        let ratio = said as f64 / really as f64;
        println!(
            "{kind}: {entries} x ({key_len} + {value_len}): {really} held, {said} said ({ratio:.4})"
        );
        let bound = if entries < 1_000 { 0.06 } else { 0.02 };
        assert!((ratio - 1.0).abs() < bound, "{said} bytes said, {really} held");
    }
}

/// Entries that are inserted after a scan are in a tree; nodes that a scan has copied are freed.
#[test]
fn memory_bytes_matches_the_allocator_after_a_scan() {
    warm_up();
    let before = TAKEN.get();
    let memtable = Arc::new(Memtable::new(MemtableKind::Hash, &ArenaPool::new(0)));
    drop(memtable.cursor());
    for n in 0..50_000_u64 {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        memtable.insert(&key, n, EntryKind::Put, b"");
        if n % 1_000 == 0 {
            let held = memtable.cursor();
            memtable.insert(&key, n + 50_000, EntryKind::Put, b"");
            drop(held);
        }
    }
    let (said, really) = (memtable.memory_bytes(), TAKEN.get() - before);
    let ratio = said as f64 / really as f64;
    assert!((ratio - 1.0).abs() < 0.02, "{said} bytes said, {really} held");
    drop(memtable);
    assert_eq!(TAKEN.get(), before, "bytes were not given back");
}

/// Capacity for expected entries takes memory as they arrive, in huge pages.
#[test]
fn reserved_capacity_takes_no_memory_until_it_is_used() {
    const HUGE: usize = crate::LARGEST_CHUNK;
    let filled = |expected: usize, entries| {
        let memtable = Memtable::new(MemtableKind::Hash, &ArenaPool::new(0)).expecting(expected);
        fill(&memtable, entries, 16, 0);
        memtable.memory_bytes()
    };
    for (expected, entries) in [(300_000_usize, 1), (300_000, 100_000), (300_000, 300_000)] {
        let buckets = 8 * expected.next_power_of_two();
        // An entry takes 48 bytes in chunks, and 24 of the capacity.
        let said = filled(expected, entries) - buckets;
        let least = 72 * entries as usize;
        assert!((least..least + 2 * HUGE + (8 << 10)).contains(&said), "{entries}: {said}");
    }
}

#[test]
fn a_small_memtable_is_small() {
    for kind in MemtableKind::ALL {
        let memtable = Memtable::new(kind, &ArenaPool::new(0));
        assert!(memtable.memory_bytes() < 1_280, "{kind}: {}", memtable.memory_bytes());
        fill(&memtable, 1, 16, 100);
        assert!(memtable.memory_bytes() < 6 << 10, "{kind}: {}", memtable.memory_bytes());
    }
}

#[test]
fn a_dropped_memtable_gives_everything_back() {
    warm_up();
    let before = TAKEN.get();
    for limit in [0, 1 << 20, 1 << 30] {
        let pool = ArenaPool::new(limit);
        for kind in MemtableKind::ALL.into_iter().chain(MemtableKind::ALL) {
            let memtable = Memtable::new(kind, &pool);
            fill(&memtable, 20_000, 20, 200);
            fill_large(&memtable);
            drop(memtable);
            let idle = pool.idle_bytes() as isize;
            let held = TAKEN.get() - before;
            assert!(
                idle <= limit as isize && held < idle + 4_096,
                "{held} held, {idle} in the pool"
            );
        }
    }
    assert_eq!(TAKEN.get(), before, "bytes were not given back");
}

/// Values with an allocation of their own.
fn fill_large(memtable: &Memtable) {
    for n in 0..3 {
        memtable.insert(b"large", n, EntryKind::Put, &vec![0; 1 << 20]);
    }
}

#[test]
fn a_rejected_duplicate_leaks_no_record() {
    warm_up();
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let insert_twice = |kind| {
        let memtable = Memtable::new(kind, &ArenaPool::new(0));
        memtable.insert(b"k", 1, EntryKind::Put, b"v");
        memtable.insert(b"k", 1, EntryKind::Put, b"v");
    };
    for kind in MemtableKind::ALL {
        // The first panic of a process allocates memory that later ones reuse.
        assert!(std::panic::catch_unwind(|| insert_twice(kind)).is_err());
        let before = TAKEN.get();
        assert!(std::panic::catch_unwind(|| insert_twice(kind)).is_err());
        assert_eq!(TAKEN.get(), before, "{kind}");
    }
    std::panic::set_hook(quiet);
}

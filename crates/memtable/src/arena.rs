//! The memory of entries: chunks that many threads allocate from at once, and that are freed
//! together.
//!
//! 1. An [`Arena`] has one current chunk. A writer claims its next bytes with one atomic addition.
//! 2. A thread that finds the chunk full takes the arena's lock, checks again, and replaces the
//!    chunk. Each new chunk is twice as large as the last, from 4 KiB to 2 MiB, so that a small
//!    memtable stays small.
//! 3. A claim of more than an eighth of the largest chunk gets an allocation of exactly its size.
//! 4. A dropped arena returns its chunks to the [`ArenaPool`]. The pool keeps them for the next
//!    arena as long as idle chunks and chunks in use together are within a limit. The first touch
//!    of fresh memory costs a page fault for every 4 KiB, which on a virtual machine often takes
//!    longer than the insert.
//! 5. Chunks of 256 KiB and more are anonymous maps: an allocator would keep much of the freed
//!    memory for requests that never come. The largest chunks are a huge page each, if the system
//!    supports them: the first touch then costs one page fault, and the TLB covers the whole
//!    memtable.
//!
//! # Invariants
//! * A byte range is claimed by one thread only, once in the life of an arena.
//! * Claimed bytes do not move until the arena is dropped.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memmap2::MmapMut;

use crate::prefetch::prefetch;
use trommel_base::sync::{AtomicPtr, AtomicUsize, Mutex, MutexGuard, lock};

/// Size of an arena's first chunk, in bytes.
const SMALLEST_CHUNK: usize = 4 << 10;
/// Chunk sizes: powers of two from [`SMALLEST_CHUNK`] to [`LARGEST_CHUNK`].
const CLASSES: usize = 10;
/// Size of a chunk once an arena has grown, in bytes: a huge page.
pub const LARGEST_CHUNK: usize = SMALLEST_CHUNK << (CLASSES - 1);
/// Chunks of at least this size are maps.
pub(crate) const SMALLEST_MAP: usize = 256 << 10;
/// Larger claims get a chunk of their own.
const LARGEST_SHARED: usize = LARGEST_CHUNK / 8;

/// The alignment of every claim, in bytes.
pub(crate) const CLAIM_ALIGN: usize = 16;

/// The most bytes to prefetch before they are claimed.
const MAX_PREFETCH_BYTES: usize = 512;

/// Memory for claims, or for one owner that claims none.
pub(crate) struct Chunk {
    bytes: NonNull<u8>,
    capacity: usize,
    /// Bytes claimed; more than `capacity` once a claim has failed.
    claimed: AtomicUsize,
    /// The map that begins at `bytes`; `None` if they are from the allocator.
    map: Option<Map>,
}

/// An anonymous map.
struct Map(MmapMut);

impl Map {
    /// A map of this many bytes; `None` if the system has no memory for it.
    fn new(bytes: usize) -> Option<Self> {
        let map = MmapMut::map_anon(bytes).ok()?;
        // For other sizes, a huge page would be larger than the map.
        #[cfg(target_os = "linux")]
        if bytes.is_multiple_of(LARGEST_CHUNK) {
            // A system without huge pages returns an error, which is harmless.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        #[cfg(test)]
        crate::memory_tests::count_map(bytes as isize);
        Some(Self(map))
    }
}

#[cfg(test)]
impl Drop for Map {
    fn drop(&mut self) {
        crate::memory_tests::count_map(-(self.0.len() as isize));
    }
}

// SAFETY: a chunk owns its memory, which is not tied to a thread. Shared use is either by `claim`,
// which returns every byte range once, or by a `List`, which can be shared if its items can.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// The alignment of a chunk's memory, in bytes: a cache line.
    pub(crate) const ALIGN: usize = 64;

    /// A chunk of `capacity` bytes, at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        assert!(layout.size() > 0, "a chunk holds at least a byte");
        // If a map fails, for instance because there are too many, the allocator may have memory.
        if capacity >= SMALLEST_MAP
            && let Some(chunk) = Self::mapped(capacity)
        {
            return chunk;
        }
        // SAFETY: the layout's size is not zero, as `alloc` requires.
        let bytes = unsafe { alloc(layout) };
        let bytes = NonNull::new(bytes).unwrap_or_else(|| handle_alloc_error(layout));
        Self { bytes, capacity, claimed: AtomicUsize::new(0), map: None }
    }

    /// A chunk that is a map; `None` if the system has no memory for it.
    pub(crate) fn mapped(capacity: usize) -> Option<Self> {
        let mut map = Map::new(capacity)?;
        let bytes = NonNull::new(map.0.as_mut_ptr())?;
        Some(Self { bytes, capacity, claimed: AtomicUsize::new(0), map: Some(map) })
    }

    /// The start of its memory.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes
    }

    /// Whether its memory may be huge pages, so that untouched pages take no memory.
    pub(crate) fn is_huge(&self) -> bool {
        self.map.is_some() && self.capacity.is_multiple_of(LARGEST_CHUNK)
    }

    /// Size of its memory, in bytes.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, Self::ALIGN).expect("a chunk is far smaller than memory")
    }

    /// `len` bytes, at a multiple of [`CLAIM_ALIGN`], that no other claim returns while this chunk
    /// is in its arena.
    #[inline]
    fn claim(&self, len: usize) -> Option<NonNull<u8>> {
        let len = len.next_multiple_of(CLAIM_ALIGN);
        // This cannot overflow: a thread whose claim failed replaces the chunk, or sees it
        // replaced, before it claims again. So a chunk sees few failed claims per thread, each of
        // at most `LARGEST_SHARED` bytes. An allocation for a single claim sees only that one.
        let start = self.claimed.fetch_add(len, Ordering::Relaxed);
        if start + len > self.capacity {
            return None;
        }
        // SAFETY: `start` is within the allocation of `capacity` bytes.
        let claimed = unsafe { self.bytes.add(start) };
        // The next claim has about the same length, and its memory is probably not cached.
        prefetch(claimed.addr().get() + len, len.min(MAX_PREFETCH_BYTES));
        Some(claimed)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.map.is_some() {
            return;
        }
        // SAFETY: `bytes` came from `alloc` with this very layout, and this is the only owner:
        // claimed memory of the chunk is not used after the arena (see `Arena::claim`).
        unsafe { dealloc(self.bytes.as_ptr(), Self::layout(self.capacity)) }
    }
}

/// Memory that is reused from one memtable to the next, up to a limit.
///
/// A memtable takes its chunks from the pool and returns them when it is dropped. The pool keeps
/// them while all chunks, including those in use, are within the limit, and frees others.
pub struct ArenaPool {
    free: Mutex<FreeChunks>,
    /// The secret with which memtables hash keys.
    pub(crate) hash_seed: u64,
}

struct FreeChunks {
    /// Idle chunks by size class.
    classes: [Vec<Arc<Chunk>>; CLASSES],
    /// Bytes of all idle chunks.
    bytes: usize,
    /// Bytes of chunks that arenas hold.
    lent: usize,
    /// The limit of `bytes + lent`. If `lent` alone exceeds it, `bytes` is 0.
    limit: usize,
}

impl ArenaPool {
    /// A pool that keeps idle memory while all of it, including the memory of memtables, is at most
    /// `limit` bytes; 0 keeps none.
    ///
    /// The size of one full memtable is a good limit: the pool then keeps the chunks that the next
    /// memtable, which fills up meanwhile, still needs.
    pub fn new(limit: usize) -> Arc<Self> {
        Self::with_hash_seed(limit, 0)
    }

    /// A pool whose memtables hash keys with a secret, random `seed`, so that nobody without it can
    /// choose keys that are slow to find. It affects no result, and nothing in a skip list.
    pub fn with_hash_seed(limit: usize, seed: u64) -> Arc<Self> {
        let free = FreeChunks { classes: Default::default(), bytes: 0, lent: 0, limit };
        Arc::new(Self { free: Mutex::new(free), hash_seed: seed })
    }

    /// Bytes of idle memory that the pool holds.
    pub fn idle_bytes(&self) -> usize {
        self.free().bytes
    }

    /// Changes the limit, and frees idle memory above it.
    pub fn set_limit(&self, limit: usize) {
        let mut free = self.free();
        free.limit = limit;
        free.shrink(limit);
    }

    /// Frees all idle memory.
    pub fn release(&self) {
        self.free().shrink(0);
    }

    fn free(&self) -> MutexGuard<'_, FreeChunks> {
        // No code below panics between two changes that belong together.
        lock(&self.free)
    }

    /// A chunk with nothing claimed.
    fn take(&self, class: usize) -> Arc<Chunk> {
        let mut free = self.free();
        let idle = free.classes[class].pop();
        if let Some(chunk) = &idle {
            free.bytes -= chunk.capacity;
        }
        free.lend(class_bytes(class));
        drop(free);
        if let Some(chunk) = idle {
            return chunk;
        }
        Arc::new(Chunk::new(class_bytes(class)))
    }

    /// A chunk of `capacity` bytes, outside of the size classes, with nothing claimed.
    fn take_alone(&self, capacity: usize) -> Arc<Chunk> {
        self.free().lend(capacity);
        Arc::new(Chunk::new(capacity))
    }

    /// Keeps `chunk` for another arena, if it is of a size class and within the limit.
    fn give(&self, chunk: Arc<Chunk>) {
        let class = (0..CLASSES).find(|class| class_bytes(*class) == chunk.capacity);
        let mut free = self.free();
        free.lent -= chunk.capacity;
        let Some(class) = class else { return };
        if free.bytes + free.lent + chunk.capacity <= free.limit {
            chunk.claimed.store(0, Ordering::Relaxed);
            free.bytes += chunk.capacity;
            free.classes[class].push(chunk);
        }
    }
}

impl FreeChunks {
    /// Accounts for bytes that go to an arena; the limit leaves that much less for idle chunks.
    fn lend(&mut self, bytes: usize) {
        self.lent += bytes;
        self.shrink(self.limit.saturating_sub(self.lent));
    }

    /// Frees idle chunks, the largest first, until they total at most `limit` bytes.
    fn shrink(&mut self, limit: usize) {
        for class in (0..CLASSES).rev() {
            while self.bytes > limit && self.classes[class].pop().is_some() {
                self.bytes -= class_bytes(class);
            }
        }
    }
}

impl std::fmt::Debug for ArenaPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArenaPool").field("idle_bytes", &self.idle_bytes()).finish()
    }
}

/// Size in bytes of a chunk of size class `class`.
const fn class_bytes(class: usize) -> usize {
    SMALLEST_CHUNK << class
}

/// The memory of one memtable's entries.
pub(crate) struct Arena {
    /// The chunk to claim from: one of `chunks`, or null before the first.
    current: AtomicPtr<Chunk>,
    /// Every chunk of this arena. None is removed before the arena is dropped.
    chunks: Mutex<Vec<Arc<Chunk>>>,
    /// Bytes of all chunks, including their heads and the allocator's overhead.
    reserved: AtomicUsize,
    pool: Arc<ArenaPool>,
}

impl Arena {
    pub(crate) fn new(pool: Arc<ArenaPool>) -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            chunks: Mutex::default(),
            reserved: AtomicUsize::new(0),
            pool,
        }
    }

    /// Bytes held, used or not.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// `len` bytes that no other call returns, at a multiple of [`CLAIM_ALIGN`].
    ///
    /// They are uninitialized, valid for reads and writes until the arena is dropped, and
    /// exclusively the caller's.
    #[inline]
    pub(crate) fn claim(&self, len: usize) -> NonNull<u8> {
        if len > LARGEST_SHARED {
            return self.claim_alone(len);
        }
        self.claim_current(len).unwrap_or_else(|| self.claim_locked(len))
    }

    #[inline]
    fn claim_current(&self, len: usize) -> Option<NonNull<u8>> {
        // Acquire: the chunk's fields were written before the pointer was stored.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: null, or the address of a chunk that an `Arc` in `chunks` keeps alive as long as
        // `self`, borrowed here, lives; chunks are only ever used shared.
        unsafe { current.as_ref() }?.claim(len)
    }

    /// Claims from a new current chunk, unless another thread has just replaced it.
    #[cold]
    fn claim_locked(&self, len: usize) -> NonNull<u8> {
        let mut chunks = self.chunks();
        loop {
            if let Some(claimed) = self.claim_current(len) {
                return claimed;
            }
            let class = (chunks.len()..CLASSES)
                .find(|class| class_bytes(*class) >= len.next_multiple_of(CLAIM_ALIGN))
                .unwrap_or(CLASSES - 1);
            let chunk = self.pool.take(class);
            self.current.store(Arc::as_ptr(&chunk).cast_mut(), Ordering::Release);
            self.keep(&mut chunks, chunk);
        }
    }

    /// Claims an allocation of its own, separate from the current chunk.
    #[cold]
    fn claim_alone(&self, len: usize) -> NonNull<u8> {
        let chunk = self.pool.take_alone(len.next_multiple_of(CLAIM_ALIGN));
        let claimed = chunk.claim(len).expect("a new chunk has room for what it was made for");
        self.keep(&mut self.chunks(), chunk);
        claimed
    }

    fn keep(&self, chunks: &mut Vec<Arc<Chunk>>, chunk: Arc<Chunk>) {
        // The chunk's head, its reference counts and the allocator's two words.
        let head = size_of::<Chunk>() + 4 * size_of::<usize>();
        self.reserved.fetch_add(chunk.capacity + head, Ordering::Relaxed);
        chunks.push(chunk);
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Arc<Chunk>>> {
        // The list is consistent wherever a panic is possible.
        lock(&self.chunks)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks().drain(..) {
            self.pool.give(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_claim_at_once_get_bytes_apart() {
        const CLAIMS: usize = 300_000;
        let arena = Arena::new(ArenaPool::new(0));
        let claim_all = || {
            let claim = |n: usize| {
                let len = 1 + n % 7 + if n % 16 < 8 { 0 } else { 64 * (n % 3) };
                let at = arena.claim(len).addr().get();
                assert!(at.is_multiple_of(CLAIM_ALIGN));
                (at, len.next_multiple_of(CLAIM_ALIGN))
            };
            (0..CLAIMS).map(claim).collect::<Vec<_>>()
        };
        let mut claimed = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(claim_all));
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        claimed.sort_unstable();
        for pair in claimed.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "bytes claimed twice");
        }
        let sum: usize = claimed.iter().map(|(_, len)| len).sum();
        let held = arena.reserved_bytes();
        assert!(held > sum && held < sum + 2 * LARGEST_CHUNK, "{held} bytes held for {sum}");
    }
}

#[cfg(all(test, trommel_loom))]
mod models {
    use trommel_base::sync::models::{check, thread};

    use super::*;

    /// Two claims fit the first chunk, or only one: the second may find it full, or replaced.
    const BYTES: usize = 3000;

    fn claim(arena: &Arena) -> usize {
        arena.claim(BYTES).addr().get()
    }

    /// Concurrent threads find no chunk, or a full one: each gets bytes of its own.
    #[test]
    fn claims_of_full_chunks_are_apart() {
        check("claims_of_full_chunks_are_apart", || {
            let arena = Arc::new(Arena::new(ArenaPool::new(0)));
            let threads = [(); 2].map(|()| {
                let arena = Arc::clone(&arena);
                thread::spawn(move || claim(&arena))
            });
            let mut claimed = vec![claim(&arena)];
            claimed.extend(threads.map(|thread| thread.join().unwrap()));
            claimed.sort_unstable();
            for pair in claimed.windows(2) {
                assert!(pair[0] + BYTES <= pair[1], "bytes claimed twice");
            }
        });
    }

    /// A chunk that is returned to the pool and reused by another arena is claimed from its
    /// beginning.
    #[test]
    fn a_chunk_is_handed_on_empty() {
        check("a_chunk_is_handed_on_empty", || {
            let pool = ArenaPool::new(LARGEST_CHUNK);
            let threads = [(); 2].map(|()| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || {
                    let arena = Arena::new(pool);
                    claim(&arena);
                    arena.reserved_bytes()
                })
            });
            for thread in threads {
                let reserved = thread.join().unwrap();
                assert!(reserved < 2 * SMALLEST_CHUNK, "{reserved} bytes: the chunk was not empty");
            }
            assert_eq!(pool.idle_bytes() % SMALLEST_CHUNK, 0);
            let idle = pool.free().classes[0].len();
            assert!((1..=2).contains(&idle), "{idle} chunks of one or two");
        });
    }
}

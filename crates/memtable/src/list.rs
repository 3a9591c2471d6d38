//! A list of fixed capacity with its own memory. A long list returns its memory to the system when
//! dropped; an allocator would keep much of it for requests that never come.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;

use crate::arena::{Chunk, LARGEST_CHUNK};

/// A list with a fixed capacity.
pub(crate) struct List<T> {
    memory: Chunk,
    /// Items written, from the beginning of the memory.
    len: usize,
    items: PhantomData<T>,
}

impl<T> List<T> {
    /// An empty list for `capacity` items, at least one.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self::in_memory(Chunk::new(capacity * size_of::<T>()))
    }

    fn in_memory(memory: Chunk) -> Self {
        const { assert!(align_of::<T>() <= Chunk::ALIGN) }
        Self { memory, len: 0, items: PhantomData }
    }

    /// An empty list for at least `capacity` items, in a map. A large map is rounded up to whole
    /// huge pages, and untouched pages take no memory. `None` if the system has no memory for it.
    pub(crate) fn with_room(capacity: usize) -> Option<Self> {
        let bytes = capacity * size_of::<T>();
        let whole =
            if bytes < LARGEST_CHUNK { bytes } else { bytes.next_multiple_of(LARGEST_CHUNK) };
        Chunk::mapped(whole).map(Self::in_memory)
    }

    fn room(&self) -> usize {
        self.memory.capacity() / size_of::<T>()
    }

    /// Whether another item fits.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.len < self.room()
    }

    /// Bytes of memory held, including the allocator's overhead.
    pub(crate) fn bytes(&self) -> usize {
        let written = self.len * size_of::<T>();
        let held = if self.memory.is_huge() {
            written.next_multiple_of(LARGEST_CHUNK)
        } else {
            self.memory.capacity()
        };
        // The reference counts of a shared list, and the allocator's words.
        held + size_of::<Self>() + 4 * size_of::<usize>()
    }

    /// A full list of `len` items, at least one.
    pub(crate) fn filled(len: usize, item: impl Fn() -> T) -> Self {
        let mut list = Self::with_capacity(len);
        let first = list.memory.start().cast::<T>();
        for nth in 0..len {
            // SAFETY: the capacity is `len`, and this list exclusively owns the memory.
            unsafe { first.add(nth).write(item()) }
        }
        list.len = len;
        list
    }
}

impl<T: Copy> List<T> {
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        self.extend(&[item]);
    }

    #[inline]
    pub(crate) fn extend(&mut self, items: &[T]) {
        assert!(items.len() <= self.room() - self.len, "items are never more than was reserved");
        // SAFETY: the capacity after the existing items was just checked, and this list exclusively
        // owns the memory.
        unsafe {
            let end = self.memory.start().cast::<T>().add(self.len);
            items.as_ptr().copy_to_nonoverlapping(end.as_ptr(), items.len());
        }
        self.len += items.len();
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: a chunk is aligned to a cache line, and `len` items were written.
        unsafe { slice::from_raw_parts(self.memory.start().cast().as_ptr(), self.len) }
    }
}

impl<T> DerefMut for List<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `self`, borrowed exclusively here, is the only owner.
        unsafe { slice::from_raw_parts_mut(self.memory.start().cast().as_ptr(), self.len) }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        // SAFETY: the items were written, and nothing can reach them any more.
        unsafe { std::ptr::drop_in_place::<[T]>(&raw mut **self) }
    }
}

//! A list that never grows, in memory of its own, which the system has back when the list is
//! dropped, if it is long: an allocator would keep much of it for requests that never come.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;

use crate::arena::{Chunk, LARGEST_CHUNK};

/// A list with room for as many items as it was made for.
pub(crate) struct List<T> {
    memory: Chunk,
    /// Items written, from the beginning of the memory on.
    len: usize,
    items: PhantomData<T>,
}

impl<T> List<T> {
    /// None yet, with room for `capacity`, at least one.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self::in_memory(Chunk::new(capacity * size_of::<T>()))
    }

    fn in_memory(memory: Chunk) -> Self {
        const { assert!(align_of::<T>() <= Chunk::ALIGN) }
        Self { memory, len: 0, items: PhantomData }
    }

    /// None yet, with room for at least `capacity`, in a map. Of a large one for as many more as
    /// lie in its last huge page, and what is not used takes no memory; `None` where the system has
    /// no room.
    pub(crate) fn with_room(capacity: usize) -> Option<Self> {
        let bytes = capacity * size_of::<T>();
        let whole =
            if bytes < LARGEST_CHUNK { bytes } else { bytes.next_multiple_of(LARGEST_CHUNK) };
        Chunk::mapped(whole).map(Self::in_memory)
    }

    fn room(&self) -> usize {
        self.memory.capacity() / size_of::<T>()
    }

    /// Whether there is room for one more.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.len < self.room()
    }

    /// Bytes of memory held, those that the allocator adds included.
    pub(crate) fn bytes(&self) -> usize {
        let written = self.len * size_of::<T>();
        let held = if self.memory.is_huge() {
            written.next_multiple_of(LARGEST_CHUNK)
        } else {
            self.memory.capacity()
        };
        // The reference counts of who shares it, and the allocator's words.
        held + size_of::<Self>() + 4 * size_of::<usize>()
    }

    /// A full list of so many items, at least one.
    pub(crate) fn filled(len: usize, item: impl Fn() -> T) -> Self {
        let mut list = Self::with_capacity(len);
        let first = list.memory.start().cast::<T>();
        for nth in 0..len {
            // SAFETY: there is room for `len` of them, and this memory is nobody else's.
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
        assert!(items.len() <= self.room() - self.len, "items are never more than was asked for");
        // SAFETY: there is room for them behind those that there are, as was just looked at, and
        // what is in this memory nobody else writes to.
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
        // SAFETY: a chunk begins at a cache line, and so many items of it were written.
        unsafe { slice::from_raw_parts(self.memory.start().cast().as_ptr(), self.len) }
    }
}

impl<T> DerefMut for List<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; this value, borrowed alone here, is the only one that leads there.
        unsafe { slice::from_raw_parts_mut(self.memory.start().cast().as_ptr(), self.len) }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        // SAFETY: they were written, and nobody can come to them any more.
        unsafe { std::ptr::drop_in_place::<[T]>(&raw mut **self) }
    }
}

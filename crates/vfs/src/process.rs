//! Identifies the process that opened a resource: a forked child has a copy of its parent's memory,
//! and must not act for the parent.
//!
//! Every opened resource takes an [`OpenFlag`], a word in a page that the system clears in a forked
//! child (`MADV_WIPEONFORK`), however it was forked. Without such pages, and in any case, the C
//! library clears the words in each child of its `fork`. So one load, without a system call, shows
//! whether a resource is open and was opened by this process.
//!
//! A child that shares its parent's memory (`vfork`, `posix_spawn`) cannot be distinguished: it may
//! only start a program.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

/// Words of a page.
const WORDS: usize = 512;
/// The word of an open resource. A forked child reads 0.
const OPEN: u64 = 1;
const CLOSED: u64 = 2;

/// Unused words, for reuse. In a forked child the lock may be held forever, so it is only ever
/// tried.
static FREE: Mutex<Vec<&'static AtomicU64>> = Mutex::new(Vec::new());
/// The newest page.
static PAGES: AtomicPtr<WordPage> = AtomicPtr::new(std::ptr::null_mut());

/// A page of words, which is never freed.
#[cfg_attr(not(unix), allow(dead_code, reason = "read in forked children"))]
struct WordPage {
    words: &'static [AtomicU64; WORDS],
    next: *const WordPage,
}

/// Whether a resource is open, and was opened by the current process. It is open until
/// [`close`](Self::close); dropping the flag frees its word.
#[derive(Debug)]
pub struct OpenFlag(OpenFlagRef);

impl OpenFlag {
    /// The flag of a resource that this process has just opened.
    #[expect(clippy::new_without_default, reason = "it takes a word of a page")]
    pub fn new() -> Self {
        let word = take();
        word.store(OPEN, Ordering::Release);
        Self(OpenFlagRef(word))
    }

    /// Marks the resource as closed. Must not be called in a forked child.
    pub fn close(&self) {
        self.0.0.store(CLOSED, Ordering::Release);
    }

    /// A reference that can be read as long as the flag lives.
    pub fn get(&self) -> OpenFlagRef {
        self.0
    }
}

impl Drop for OpenFlag {
    fn drop(&mut self) {
        if self.0.is_forked() {
            return;
        }
        if let Some(mut free) = free() {
            free.push(self.0.0);
        }
    }
}

/// The state of an [`OpenFlag`]. After that is dropped, only [`OpenFlagRef::is_forked`] is
/// meaningful.
#[derive(Debug, Clone, Copy)]
pub struct OpenFlagRef(&'static AtomicU64);

impl OpenFlagRef {
    /// Whether the resource is open, in this process.
    #[inline]
    pub fn is_open(self) -> bool {
        self.0.load(Ordering::Relaxed) == OPEN
    }

    /// Whether the current process was forked from the one that opened the resource.
    #[inline]
    pub fn is_forked(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// The unused words. `None` if another thread holds the lock, or held it when this process was
/// forked.
fn free() -> Option<std::sync::MutexGuard<'static, Vec<&'static AtomicU64>>> {
    match FREE.try_lock() {
        Ok(free) => Some(free),
        Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// An unused word.
fn take() -> &'static AtomicU64 {
    let mut free = free();
    if let Some(word) = free.as_mut().and_then(|free| free.pop()) {
        return word;
    }
    let [first, others @ ..] = add_page();
    if let Some(mut free) = free {
        free.extend(others);
    }
    first
}

/// A new page, which is cleared in each forked child from now on.
fn add_page() -> &'static [AtomicU64; WORDS] {
    clear_in_children();
    let words =
        wiped().unwrap_or_else(|| Box::leak(Box::new([const { AtomicU64::new(0) }; WORDS])));
    let page = Box::leak(Box::new(WordPage { words, next: std::ptr::null() }));
    let mut next = PAGES.load(Ordering::Relaxed);
    loop {
        page.next = next;
        let pushed = PAGES.compare_exchange(next, page, Ordering::Release, Ordering::Relaxed);
        match pushed {
            Ok(_) => return words,
            Err(newer) => next = newer,
        }
    }
}

/// Has the C library clear all words in each forked child.
#[cfg(unix)]
fn clear_in_children() {
    use std::sync::atomic::AtomicBool;
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler loads pointers to pages that live forever and stores to atomics,
        // which is allowed in a forked child. If there is no memory to register it, only the pages'
        // own clearing remains.
        unsafe { libc::pthread_atfork(None, None, Some(clear_in_child)) };
    }
}

/// There is no fork on this system.
#[cfg(not(unix))]
fn clear_in_children() {}

#[cfg(unix)]
extern "C" fn clear_in_child() {
    let mut page: *const WordPage = PAGES.load(Ordering::Acquire);
    // SAFETY: null, or a page that lives forever and does not change once it is in the list.
    while let Some(WordPage { words, next }) = unsafe { page.as_ref() } {
        for word in *words {
            word.store(0, Ordering::Relaxed);
        }
        page = *next;
    }
}

/// A page that the system clears in a forked child.
#[cfg(all(target_os = "linux", not(miri)))]
fn wiped() -> Option<&'static [AtomicU64; WORDS]> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    const BYTES: usize = size_of::<[AtomicU64; WORDS]>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address that the system chooses.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the range is that of the mapping; the cleared memory holds only atomics, in a child
    // that does not use them yet.
    let wiped = unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        // SAFETY: the mapping has not been shared.
        let _ = unsafe { munmap(page, BYTES) };
        return None;
    }
    // SAFETY: the mapping is page-aligned, filled with zeros, only used as these atomics, and never
    // unmapped.
    Some(unsafe { &*page.cast::<[AtomicU64; WORDS]>() })
}

/// Not available on this system.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn wiped() -> Option<&'static [AtomicU64; WORDS]> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_open_until_it_is_closed_and_then_given_back() {
        let (first, second) = (OpenFlag::new(), OpenFlag::new());
        assert!(first.get().is_open() && !first.get().is_forked());
        first.close();
        assert!(!first.get().is_open() && !first.get().is_forked());
        assert!(second.get().is_open(), "each has a word of its own");
        drop(first);
        let others: Vec<OpenFlag> = (0..2 * WORDS).map(|_| OpenFlag::new()).collect();
        assert!(others.iter().all(|flag| flag.get().is_open()));
        let distinct: std::collections::BTreeSet<_> =
            others.iter().map(|flag| std::ptr::from_ref(flag.get().0)).collect();
        assert_eq!(distinct.len(), others.len());
    }

    #[test]
    fn a_child_finds_all_words_cleared() {
        let flag = OpenFlag::new();
        // As in a forked child; no other test of this process reads this flag meanwhile.
        let before = flag.0.0.swap(0, Ordering::Relaxed);
        assert!(flag.get().is_forked() && !flag.get().is_open());
        flag.0.0.store(before, Ordering::Relaxed);
        assert!(flag.get().is_open());
    }
}

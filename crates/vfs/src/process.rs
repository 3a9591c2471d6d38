//! Which process opened something: a forked child has a copy of its parent's memory, and must not
//! act for it.
//!
//! Whatever is opened takes an [`OpenFlag`], a word of a page that the system clears in a forked
//! child (`MADV_WIPEONFORK`), however that was made. Where there is no such page, and in any case,
//! the C library clears the words in each child of its `fork`. So one load, without a call to the
//! system, tells whether something is open, and was opened by this process.
//!
//! A child that shares its parent's memory (`vfork`, `posix_spawn`) is not told from it: it may
//! only start a program.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

/// Words of a page.
const WORDS: usize = 512;
/// A word of something that is open. What a child reads is 0.
const OPEN: u64 = 1;
const CLOSED: u64 = 2;

/// Words that nobody uses, as many as were in use at once and are not. In a forked child the lock
/// may be held for ever, so nobody waits for it.
static FREE: Mutex<Vec<&'static AtomicU64>> = Mutex::new(Vec::new());
/// The newest page.
static PAGES: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());

/// A page of words, never given back.
struct Page {
    words: &'static [AtomicU64; WORDS],
    next: *const Page,
}

/// Whether something is open, and was opened by the process that asks. It is open until it is
/// closed; the word is given back when this is dropped.
#[derive(Debug)]
pub struct OpenFlag(OpenFlagRef);

impl OpenFlag {
    /// Of something that this process has just opened.
    #[expect(clippy::new_without_default, reason = "it takes a word of a page")]
    pub fn new() -> Self {
        let word = take();
        word.store(OPEN, Ordering::Release);
        Self(OpenFlagRef(word))
    }

    /// It is open no more. Not to be called in a forked child.
    pub fn close(&self) {
        self.0.0.store(CLOSED, Ordering::Release);
    }

    /// The flag itself, to be read for as long as this lives.
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

/// What an [`OpenFlag`] says. Once that is dropped only [`OpenFlagRef::is_forked`] still means
/// something.
#[derive(Debug, Clone, Copy)]
pub struct OpenFlagRef(&'static AtomicU64);

impl OpenFlagRef {
    /// Whether it is open, in this process.
    #[inline]
    pub fn is_open(self) -> bool {
        self.0.load(Ordering::Relaxed) == OPEN
    }

    /// Whether the caller runs in a process that was forked from the one that opened it.
    #[inline]
    pub fn is_forked(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// The words that nobody uses, unless another thread has them in hand, or had when this process was
/// forked.
fn free() -> Option<std::sync::MutexGuard<'static, Vec<&'static AtomicU64>>> {
    match FREE.try_lock() {
        Ok(free) => Some(free),
        Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A word that nobody uses.
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

/// A new page, which is cleared in each child from now on.
fn add_page() -> &'static [AtomicU64; WORDS] {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler loads pointers to what lives for ever and stores to atomics, which
        // may be done in a forked child. Where there is no memory to register it, the pages alone
        // have to do.
        unsafe { libc::pthread_atfork(None, None, Some(clear_in_child)) };
    }
    let words =
        wiped().unwrap_or_else(|| Box::leak(Box::new([const { AtomicU64::new(0) }; WORDS])));
    let page = Box::leak(Box::new(Page { words, next: std::ptr::null() }));
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

extern "C" fn clear_in_child() {
    let mut page: *const Page = PAGES.load(Ordering::Acquire);
    // SAFETY: it is null, or a page that lives for ever and does not change once it is in the list.
    while let Some(Page { words, next }) = unsafe { page.as_ref() } {
        for word in *words {
            word.store(0, Ordering::Relaxed);
        }
        page = *next;
    }
}

/// A page that the system clears in a child.
#[cfg(all(target_os = "linux", not(miri)))]
fn wiped() -> Option<&'static [AtomicU64; WORDS]> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    const BYTES: usize = size_of::<[AtomicU64; WORDS]>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the system's choice.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the range is that of the mapping; what is cleared are atomics, in a child in which
    // nobody uses them yet.
    let wiped = unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        // SAFETY: nobody else knows of the mapping.
        let _ = unsafe { munmap(page, BYTES) };
        return None;
    }
    // SAFETY: the mapping begins at a page, is filled with zeros, is only ever used as these
    // atomics, and stays.
    Some(unsafe { &*page.cast::<[AtomicU64; WORDS]>() })
}

/// There is none.
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
        // As in the child of a fork; other tests of this process do not look at theirs meanwhile.
        let before = flag.0.0.swap(0, Ordering::Relaxed);
        assert!(flag.get().is_forked() && !flag.get().is_open());
        flag.0.0.store(before, Ordering::Relaxed);
        assert!(flag.get().is_open());
    }
}

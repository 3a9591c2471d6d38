//! Which process this is: a forked child has a copy of its parent's memory, and must not act for it.
//!
//! A mark is kept in a page that the system clears in a forked child (`MADV_WIPEONFORK`), however that was made. Where
//! there is no such page, and in any case, the C library clears it in each child of its `fork`. The first that asks
//! in a child gives it a mark of its own, which no process before it in the line had. So a process is told from its
//! ancestors by one load, without a call to the system.
//!
//! A child that shares its parent's memory (`vfork`, `posix_spawn`) is not told from it: it may only start a program.

#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The mark of this process; 0 where it was forked and nobody has asked since.
static MARK: OnceLock<&'static AtomicU64> = OnceLock::new();
/// The mark of the next process that asks. A child goes on from its parent's.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Where the mark is kept if there is no page for it.
static UNPAGED: AtomicU64 = AtomicU64::new(0);

/// A process, as it is told from those that are forked from it.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    mark: &'static AtomicU64,
    own: u64,
}

impl Process {
    /// The process that calls.
    pub fn current() -> Self {
        let mark = *MARK.get_or_init(mark);
        let seen = mark.load(Ordering::Relaxed);
        if seen != 0 {
            return Self { mark, own: seen };
        }
        let new = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = match mark.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => new,
            Err(first) => first,
        };
        Self { mark, own }
    }

    /// Whether the caller runs in this process, and not in one that was forked from it.
    #[inline]
    pub fn is_current(self) -> bool {
        self.running() == self.own
    }

    /// Its number among this process and those that it was forked from; never 0 or `u64::MAX`.
    pub fn number(self) -> u64 {
        self.own
    }

    /// The number of the process that calls: another one, or 0, in one that was forked from this.
    #[inline]
    pub fn running(self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }
}

/// The place of the mark, which is cleared in each child from now on.
fn mark() -> &'static AtomicU64 {
    // SAFETY: the handler stores to an atomic that lives for ever, which may be done in a forked child and in a
    // signal handler. Where there is no memory to register it, the page alone has to do.
    unsafe { libc::pthread_atfork(None, None, Some(clear_in_child)) };
    page().unwrap_or(&UNPAGED)
}

extern "C" fn clear_in_child() {
    if let Some(mark) = MARK.get() {
        mark.store(0, Ordering::Relaxed);
    }
}

/// A page that the system clears in a child.
#[cfg(all(target_os = "linux", not(miri)))]
fn page() -> Option<&'static AtomicU64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    const BYTES: usize = size_of::<AtomicU64>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the system's choice.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the range is that of the mapping; what is cleared is an atomic, in a child in which nobody uses it yet.
    let wiped = unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        // SAFETY: nobody else knows of the mapping.
        let _ = unsafe { munmap(page, BYTES) };
        return None;
    }
    // SAFETY: the mapping begins at a page, is filled with zeros, is only ever used as this atomic, and stays.
    Some(unsafe { AtomicU64::from_ptr(page.cast()) })
}

/// There is none.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn page() -> Option<&'static AtomicU64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let (first, second) = (Process::current(), Process::current());
        assert!(first.is_current() && second.is_current());
        assert_ne!(first.own, 0);
        assert_eq!(first.own, second.own);
    }

    #[test]
    fn a_mark_that_was_cleared_is_another_process() {
        static MARK_OF_TEST: AtomicU64 = AtomicU64::new(7);
        let parent = Process { mark: &MARK_OF_TEST, own: 7 };
        assert!(parent.is_current());
        MARK_OF_TEST.store(0, Ordering::Relaxed);
        assert!(!parent.is_current());
    }
}

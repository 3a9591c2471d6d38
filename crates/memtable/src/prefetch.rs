//! Prefetching: requests cache lines that will be read soon.
//!
//! One of the modules of this crate that hold `unsafe`.

/// A cache line, in bytes.
pub(crate) const CACHE_LINE: usize = 64;

/// Prefetches the cache lines of `bytes` bytes from `address`, which need not be valid. Does
/// nothing on processors other than x86-64.
#[inline(always)]
pub(crate) fn prefetch(address: usize, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        use std::ptr;
        let mut line = address & !(CACHE_LINE - 1);
        while line < address + bytes {
            // SAFETY: a prefetch has no visible effect and never faults, whatever the address.
            // Every x86-64 processor has the instruction.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(ptr::without_provenance(line)) };
            line += CACHE_LINE;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, bytes);
}

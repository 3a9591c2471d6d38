//! Waits for pending instructions.
//!
//! A processor that has predicted an answer continues with the next query: a fence of the language
//! only orders what others may see, and does not prevent that. A serialising instruction does.
//!
//! `unsafe` is needed because the compiler requires a target feature for that instruction.
#![allow(unsafe_code)]

/// Starts nothing before everything before it is done.
#[inline(always)]
pub fn wait() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it neither reads nor writes memory.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

//! Waiting for what was begun.
//!
//! A processor that has guessed an answer goes on to the next question: a fence of the language
//! orders what others may see, and does not hold that up. An instruction that waits does.
//!
//! `unsafe` stands here because that instruction is one of a set that the compiler must be told of.
#![allow(unsafe_code)]

/// Lets nothing begin before everything before it is done.
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

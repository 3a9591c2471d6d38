//! Bits tested eight at a time, with 256-bit vectors.
//!
//! 1. Eight states of the chain are one vector multiplication of the seed with the table of powers.
//! 2. Their positions are two shifts, a multiplication and an addition.
//! 3. The block is two registers of eight 32-bit words. Each is permuted by the low three bits of
//!    the word's number, and the fourth bit chooses between the two.
//! 4. Each word is shifted until the bit in question is its sign; the eight signs are one mask.
//!
//! `unsafe` stands here because instructions that a processor lacks must not be reached: an
//! [`Avx2`] exists only if the processor said that it has them.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256,
    _mm256_castsi256_ps, _mm256_movemask_ps, _mm256_mullo_epi32, _mm256_permutevar8x32_epi32,
    _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_slli_epi32, _mm256_sllv_epi32,
    _mm256_srli_epi32, _mm256_xor_si256,
};

use super::{Probe, Task};
use crate::block::Block;
use crate::mix::{MAX_CHAIN, POWERS};

/// Bits tested at once.
const LANES: usize = 8;

/// Proof that this processor has AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Does `task`, compiled for AVX2.
    #[inline]
    pub(super) fn run<T: Task>(self, task: T) -> T::Answer {
        #[target_feature(enable = "avx2")]
        fn with_avx2<T: Task>(probe: Avx2, task: T) -> T::Answer {
            task.run(probe)
        }
        // SAFETY: `self` exists only if the processor has AVX2.
        unsafe { with_avx2(self, task) }
    }
}

impl Probe for Avx2 {
    #[inline(always)]
    fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
        // SAFETY: `self` exists only if the processor has AVX2.
        unsafe { hits::<RESERVED>(block, seed, count) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn hits<const RESERVED: u32>(block: &Block, seed: u32, count: usize) -> bool {
    let low = words(block, 0);
    let high = words(block, 4);
    let mut left = count.min(MAX_CHAIN);
    for powers in POWERS.as_chunks::<LANES>().0 {
        let positions = positions::<RESERVED>(seed, powers);
        let number = _mm256_srli_epi32::<5>(positions);
        // Bit 3 of the word's number, as the sign.
        let half = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(positions));
        let word = _mm256_castps_si256(_mm256_blendv_ps(
            _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, number)),
            _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, number)),
            half,
        ));
        // Shifting left by 31 - (position mod 32) makes the bit the sign.
        let low_bits = _mm256_set1_epi32(31);
        let shift = _mm256_xor_si256(_mm256_and_si256(positions, low_bits), low_bits);
        let signs = _mm256_castsi256_ps(_mm256_sllv_epi32(word, shift));
        let set = _mm256_movemask_ps(signs) as u32;
        let wanted = if left < LANES { (1_u32 << left) - 1 } else { 0xff };
        if set & wanted != wanted {
            return false;
        }
        left = left.saturating_sub(LANES);
        if left == 0 {
            break;
        }
    }
    true
}

/// The positions of eight probes of the chain from `seed`.
#[inline]
#[target_feature(enable = "avx2")]
fn positions<const RESERVED: u32>(seed: u32, powers: &[u32; LANES]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = powers.map(u32::cast_signed);
    let powers = _mm256_setr_epi32(a, b, c, d, e, f, g, h);
    let states = _mm256_mullo_epi32(_mm256_set1_epi32(seed.cast_signed()), powers);
    if RESERVED == 0 {
        return _mm256_srli_epi32::<23>(states);
    }
    let usable = _mm256_set1_epi32((512 - RESERVED).cast_signed());
    let scaled = _mm256_mullo_epi32(_mm256_srli_epi32::<9>(states), usable);
    _mm256_add_epi32(_mm256_srli_epi32::<23>(scaled), _mm256_set1_epi32(RESERVED.cast_signed()))
}

/// Four 64-bit words of a block, from number `from` on: eight words of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn words(block: &Block, from: usize) -> __m256i {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| block.0[from + i].cast_signed());
    _mm256_setr_epi64x(a, b, c, d)
}

//! Tests bits eight at a time, with 256-bit vectors.
//!
//! 1. Eight states of the chain are one vector multiplication of the seed by the table of powers.
//! 2. Their positions are two shifts, a multiplication and an addition.
//! 3. The block is two registers of eight 32-bit words. Each is permuted by the low three bits of
//!    the word's index, and the fourth bit selects one of the two.
//! 4. Each word is shifted until the tested bit is its sign; the eight signs form one mask.
#![allow(unsafe_code, reason = "see `vector_kernel`")]

use core::arch::x86_64::{
    __m256i, _bzhi_u32, _mm256_add_epi32, _mm256_andnot_si256, _mm256_blendv_ps,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_movemask_ps, _mm256_mullo_epi32,
    _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi64x,
    _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_srli_epi32,
};

use super::vector::vector_kernel;
use super::{LANES_IN_TURN, LANES_OF_POWERS, Probe, Query, Task};
use crate::block::{Bits, Block};

/// Bits tested at once.
const LANES: usize = 8;

/// Proof that this processor has AVX2 and BMI2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

vector_kernel!(
    Avx2,
    "avx2,bmi1,bmi2",
    ["avx2", "bmi1", "bmi2"],
    _mm256_set1_epi32,
    _mm256_set1_epi64x
);

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn hits_few<const RESERVED: u32>(block: &Block, seed: u32, count: usize) -> bool {
    let seeds = _mm256_set1_epi32(seed.cast_signed());
    all_set(block, positions::<RESERVED>(seeds, words(&LANES_OF_POWERS[0], 0)), count)
}

/// Whether the first `count` positions, whose states are the seeds times the powers, are all set.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn hits_in_lanes<const RESERVED: u32>(
    block: &Block,
    seeds: __m256i,
    powers: &[Block],
    count: usize,
) -> bool {
    let mut left = count;
    for powers in powers {
        for half in [0, 4] {
            if !all_set(block, positions::<RESERVED>(seeds, words(powers, half)), left) {
                return false;
            }
            if left <= LANES {
                return true;
            }
            left -= LANES;
        }
    }
    true
}

/// Whether the bits of `block` at the first `count` of the positions (at most eight) are all set.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn all_set(block: &Block, positions: __m256i, count: usize) -> bool {
    let number = _mm256_srli_epi32::<5>(positions);
    // Bit 3 of the word's index, as the sign.
    let half = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(positions));
    let word = _mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(words(block, 0), number)),
        _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(words(block, 4), number)),
        half,
    ));
    // Shifting left by 31 - (position mod 32) makes the bit the sign.
    let shift = _mm256_andnot_si256(positions, _mm256_set1_epi32(31));
    let signs = _mm256_castsi256_ps(_mm256_sllv_epi32(word, shift));
    let wanted = _bzhi_u32(0xff, count as u32);
    !(_mm256_movemask_ps(signs) as u32) & wanted == 0
}

/// Sets the first `count` positions whose states are the seeds times the powers.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn set_in_lanes<const RESERVED: u32>(
    block: &mut Block,
    seeds: __m256i,
    powers: &[Block],
    count: usize,
) {
    let mut left = count;
    for powers in powers {
        for half in [0, 4] {
            let positions = positions::<RESERVED>(seeds, words(powers, half));
            for &position in &to_numbers(positions)[..left.min(LANES)] {
                block.set(position);
            }
            if left <= LANES {
                return;
            }
            left -= LANES;
        }
    }
}

/// The positions of eight probes.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn positions<const RESERVED: u32>(seeds: __m256i, powers: __m256i) -> __m256i {
    let states = _mm256_mullo_epi32(seeds, powers);
    if RESERVED == 0 {
        return _mm256_srli_epi32::<23>(states);
    }
    let usable = _mm256_set1_epi32((512 - RESERVED).cast_signed());
    let scaled = _mm256_mullo_epi32(_mm256_srli_epi32::<9>(states), usable);
    _mm256_add_epi32(_mm256_srli_epi32::<23>(scaled), _mm256_set1_epi32(RESERVED.cast_signed()))
}

/// The eight 32-bit words in four 64-bit words of a block, from index `from`. (The compiler emits
/// one load of 32 bytes.)
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn words(block: &Block, from: usize) -> __m256i {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| block.0[from + i].cast_signed());
    _mm256_setr_epi64x(a, b, c, d)
}

/// The eight lanes.
#[inline]
fn to_numbers(lanes: __m256i) -> [u32; LANES] {
    // SAFETY: both are 256 bits of which any value is valid: eight 32-bit lanes, lowest first.
    unsafe { core::mem::transmute::<__m256i, [u32; LANES]>(lanes) }
}

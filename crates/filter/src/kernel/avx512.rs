//! Tests bits sixteen at a time, with 512-bit vectors.
//!
//! A block is one register of sixteen 32-bit words, so one permutation looks up the words of
//! sixteen probes, and one masked test compares their bits. The positions are computed as with AVX2
//! ([`super::avx2`]).
//!
//! A blocked filter's two chains alternate, one lane each: the folded hash, copied to all 64-bit
//! lanes, is both seeds in turn.
#![allow(unsafe_code, reason = "see `vector_kernel`")]

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, _bzhi_u32, _mm512_add_epi32, _mm512_castsi512_si256, _mm512_cvtepu32_epi64,
    _mm512_extracti64x4_epi64, _mm512_mask_testn_epi32_mask, _mm512_mullo_epi32, _mm512_or_si512,
    _mm512_permutexvar_epi32, _mm512_rorv_epi32, _mm512_set_epi64, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_srli_epi32, _mm512_sub_epi64,
};

use super::vector::vector_kernel;
use super::{LANES_IN_TURN, LANES_OF_POWERS, Probe, Query, Task};
use crate::block::{Bits, Block};

/// Bits tested at once.
const LANES: usize = 16;

/// Proof that this processor has AVX-512 F and VL, and BMI2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

vector_kernel!(
    Avx512,
    "avx512f,avx512vl,bmi1,bmi2",
    ["avx512f", "avx512vl", "bmi1", "bmi2"],
    _mm512_set1_epi32,
    _mm512_set1_epi64
);

#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn hits_few<const RESERVED: u32>(block: &Block, seed: u32, count: usize) -> bool {
    let seeds = _mm512_set1_epi32(seed.cast_signed());
    all_set(words(block), positions::<RESERVED>(seeds, &LANES_OF_POWERS[0]), lanes(count))
}

/// Whether the first `count` positions, whose states are the seeds times the powers, are all set.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn hits_in_lanes<const RESERVED: u32>(
    block: &Block,
    seeds: __m512i,
    powers: &[Block],
    count: usize,
) -> bool {
    let words = words(block);
    let mut left = count;
    for powers in powers {
        if !all_set(words, positions::<RESERVED>(seeds, powers), lanes(left)) {
            return false;
        }
        if left <= LANES {
            return true;
        }
        left -= LANES;
    }
    true
}

/// The mask of the first `count` lanes, or of all if there are fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn lanes(count: usize) -> u16 {
    _bzhi_u32(u32::from(u16::MAX), count as u32) as u16
}

/// The positions of sixteen probes.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn positions<const RESERVED: u32>(seeds: __m512i, powers: &Block) -> __m512i {
    let states = _mm512_mullo_epi32(seeds, words(powers));
    if RESERVED == 0 {
        return _mm512_srli_epi32::<23>(states);
    }
    let usable = _mm512_set1_epi32((512 - RESERVED).cast_signed());
    let scaled = _mm512_mullo_epi32(_mm512_srli_epi32::<9>(states), usable);
    _mm512_add_epi32(_mm512_srli_epi32::<23>(scaled), _mm512_set1_epi32(RESERVED.cast_signed()))
}

/// Whether the bits of `words` at the positions in the lanes of `mask` are all set.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn all_set(words: __m512i, positions: __m512i, mask: u16) -> bool {
    let word = _mm512_permutexvar_epi32(_mm512_srli_epi32::<5>(positions), words);
    // The rotation uses the position modulo 32.
    let turned = _mm512_rorv_epi32(word, positions);
    _mm512_mask_testn_epi32_mask(mask, turned, _mm512_set1_epi32(1)) == 0
}

/// Sets the first `count` positions, whose states are the seeds times the powers, in a register
/// that holds the whole block: bit `p` is 1 shifted by `p - 64 * lane` in each of the eight 64-bit
/// lanes. All lanes but one are shifted by 64 or more (a negative shift counts as a large one),
/// which gives 0.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn set_in_lanes<const RESERVED: u32>(
    block: &mut Block,
    seeds: __m512i,
    powers: &[Block],
    count: usize,
) {
    let mut bits = words(block);
    let firsts = _mm512_set_epi64(448, 384, 320, 256, 192, 128, 64, 0);
    let mut left = count;
    for powers in powers {
        let positions = positions::<RESERVED>(seeds, powers);
        let halves = [_mm512_castsi512_si256(positions), _mm512_extracti64x4_epi64::<1>(positions)];
        for half in halves {
            for &position in &to_block(_mm512_cvtepu32_epi64(half)).0[..left.min(8)] {
                let shift = _mm512_sub_epi64(_mm512_set1_epi64(position.cast_signed()), firsts);
                let bit = shifted_one(shift);
                bits = _mm512_or_si512(bits, bit);
            }
            left = left.saturating_sub(8);
            if left == 0 {
                *block = to_block(bits);
                return;
            }
        }
    }
    *block = to_block(bits);
}

/// 1 shifted left by `shifts`, which gives 0 from 64 on, in one instruction. (`_mm512_sllv_epi64`
/// of a constant compiles to two, the other a comparison with 64, which costs a tenth of the build
/// time.)
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn shifted_one(shifts: __m512i) -> __m512i {
    let shifted;
    // SAFETY: the instruction is part of AVX-512 F, which this function enables, and uses only
    // these registers.
    unsafe {
        asm!(
            "vpsllvq {shifted}, {one}, {shifts}",
            shifted = lateout(zmm_reg) shifted,
            one = in(zmm_reg) _mm512_set1_epi64(1),
            shifts = in(zmm_reg) shifts,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    shifted
}

/// The block as sixteen 32-bit words. (The compiler emits one load of 64 bytes.)
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn words(block: &Block) -> __m512i {
    let [a, b, c, d, e, f, g, h] = block.0.map(u64::cast_signed);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

/// The inverse of [`words`].
#[inline]
fn to_block(words: __m512i) -> Block {
    // SAFETY: both are 512 bits of which any value is valid: eight 64-bit lanes, lowest first.
    Block(unsafe { core::mem::transmute::<__m512i, [u64; 8]>(words) })
}

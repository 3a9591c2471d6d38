//! Bits tested sixteen at a time, with 512-bit vectors.
//!
//! A block is one register of sixteen 32-bit words, so one permutation finds the words of sixteen
//! probes, and one test under a mask compares their bits. The positions are found as with AVX2
//! ([`super::avx2`]).
//!
//! A blocked filter's two chains are tested together, if they have at most sixteen probes: the
//! lanes up to the first chain's end hold the first seed, the others the second.
//!
//! `unsafe` stands here because instructions that a processor lacks must not be reached: an
//! [`Avx512`] exists only if the processor said that it has them.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_and_si512, _mm512_mask_blend_epi32,
    _mm512_mask_test_epi32_mask, _mm512_mullo_epi32, _mm512_permutexvar_epi32, _mm512_set_epi64,
    _mm512_set1_epi32, _mm512_setr_epi32, _mm512_sllv_epi32, _mm512_srli_epi32,
};

use super::{Probe, Task};
use crate::block::Block;
use crate::mix::{MAX_CHAIN, POWERS};

/// Bits tested at once.
const LANES: usize = 16;

/// For each length of a first chain, the powers of both chains, lane by lane.
static BOTH: [[u32; LANES]; LANES + 1] = {
    let mut both = [[0; LANES]; LANES + 1];
    let mut first = 0;
    while first <= LANES {
        let mut lane = 0;
        while lane < LANES {
            both[first][lane] = POWERS[if lane < first { lane } else { lane - first }];
            lane += 1;
        }
        first += 1;
    }
    both
};

/// Proof that this processor has AVX-512 F and VL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        has.then_some(Self(()))
    }

    /// Does `task`, compiled for AVX-512.
    #[inline]
    pub(super) fn run<T: Task>(self, task: T) -> T::Answer {
        #[target_feature(enable = "avx512f,avx512vl")]
        fn with_avx512<T: Task>(probe: Avx512, task: T) -> T::Answer {
            task.run(probe)
        }
        // SAFETY: `self` exists only if the processor has these instructions.
        unsafe { with_avx512(self, task) }
    }
}

impl Probe for Avx512 {
    #[inline(always)]
    fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
        // SAFETY: `self` exists only if the processor has these instructions.
        unsafe { hits::<RESERVED>(block, seed, count) }
    }

    #[inline(always)]
    fn hits_both(self, block: &Block, seeds: (u32, u32), counts: (usize, usize)) -> bool {
        if counts.0 + counts.1 > LANES {
            return self.hits::<0>(block, seeds.0, counts.0)
                && self.hits::<0>(block, seeds.1, counts.1);
        }
        // SAFETY: `self` exists only if the processor has these instructions.
        unsafe { hits_both(block, seeds, counts) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn hits<const RESERVED: u32>(block: &Block, seed: u32, count: usize) -> bool {
    let words = words(block);
    let seeds = _mm512_set1_epi32(seed.cast_signed());
    let mut left = count.min(MAX_CHAIN);
    for powers in POWERS.as_chunks::<LANES>().0 {
        if !all_set(words, positions::<RESERVED>(seeds, powers), lanes(left)) {
            return false;
        }
        left = left.saturating_sub(LANES);
        if left == 0 {
            break;
        }
    }
    true
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn hits_both(block: &Block, seeds: (u32, u32), (first, second): (usize, usize)) -> bool {
    let seeds = _mm512_mask_blend_epi32(
        lanes(first),
        _mm512_set1_epi32(seeds.1.cast_signed()),
        _mm512_set1_epi32(seeds.0.cast_signed()),
    );
    let powers = &BOTH[first.min(LANES)];
    all_set(words(block), positions::<0>(seeds, powers), lanes(first + second))
}

/// The first `count` lanes.
#[inline]
fn lanes(count: usize) -> u16 {
    if count < LANES { (1 << count) - 1 } else { u16::MAX }
}

/// The positions of sixteen probes.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn positions<const RESERVED: u32>(seeds: __m512i, powers: &[u32; LANES]) -> __m512i {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = powers.map(u32::cast_signed);
    let powers = _mm512_setr_epi32(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
    let states = _mm512_mullo_epi32(seeds, powers);
    if RESERVED == 0 {
        return _mm512_srli_epi32::<23>(states);
    }
    let usable = _mm512_set1_epi32((512 - RESERVED).cast_signed());
    let scaled = _mm512_mullo_epi32(_mm512_srli_epi32::<9>(states), usable);
    _mm512_add_epi32(_mm512_srli_epi32::<23>(scaled), _mm512_set1_epi32(RESERVED.cast_signed()))
}

/// Whether the bits of `words` at the positions in the lanes of `mask` are all set.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn all_set(words: __m512i, positions: __m512i, mask: u16) -> bool {
    let word = _mm512_permutexvar_epi32(_mm512_srli_epi32::<5>(positions), words);
    let low_bits = _mm512_and_si512(positions, _mm512_set1_epi32(31));
    let bit = _mm512_sllv_epi32(_mm512_set1_epi32(1), low_bits);
    _mm512_mask_test_epi32_mask(mask, word, bit) == mask
}

/// The block as sixteen 32-bit words.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn words(block: &Block) -> __m512i {
    let [a, b, c, d, e, f, g, h] = block.0.map(u64::cast_signed);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

//! Tests bits one by one, with portable code.

use super::Probe;
use crate::block::Block;
use crate::mix::{Golden, Scheme, position};

/// Portable code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar;

impl Probe for Scalar {
    const FEW: usize = 0;

    #[inline(always)]
    fn hits_few<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
        self.hits::<RESERVED>(block, seed, count)
    }

    #[inline(always)]
    fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
        hits::<Golden, RESERVED>(block, seed, count)
    }

    #[inline(always)]
    fn set<const RESERVED: u32>(self, block: &mut Block, seed: u32, count: usize) {
        set::<Golden, RESERVED>(block, seed, count);
    }
}

/// Whether the first `count` positions of the chain from `seed` are all set in `block`.
///
/// Four bits are tested per branch: in a half-full block most negative queries end at the first
/// branch, and a positive one takes a quarter of the branches.
#[inline]
pub(crate) fn hits<S: Scheme, const RESERVED: u32>(block: &Block, seed: u32, count: usize) -> bool {
    let mut i = 0;
    while i + 4 <= count {
        let bit = |j| block.bit(position::<RESERVED>(S::state(seed, i + j)));
        if bit(0) & bit(1) & bit(2) & bit(3) & 1 == 0 {
            return false;
        }
        i += 4;
    }
    let mut all = 1;
    while i < count {
        all &= block.bit(position::<RESERVED>(S::state(seed, i)));
        i += 1;
    }
    all & 1 == 1
}

/// Sets the first `count` positions of the chain from `seed` in `block`.
#[inline]
pub(crate) fn set<S: Scheme, const RESERVED: u32>(block: &mut Block, seed: u32, count: usize) {
    for i in 0..count {
        block.set(position::<RESERVED>(S::state(seed, i)));
    }
}

//! The standard Bloom filter: one array of bits, every probe anywhere in it.
//!
//! # Idea
//! `m` bits, all clear. Adding a key sets `k` of them, chosen by `k` hash functions; a query looks
//! at its own `k` and says no if any is clear. A key that was added is never denied.
//!
//! # Algorithm
//! 1. The hash is remixed into a place `x` and a stride `y`, 64 bits each, the stride odd.
//! 2. Probe `i` is bit `x * m / 2^64`: uniform for any `m`, no power of two needed.
//! 3. Then `x += y` and `y *= C`, an odd constant.
//!
//! Step 3 is double hashing (Kirsch and Mitzenmacher, 2006) with a stride that changes at every
//! step. With a stride that stays, keys whose strides are close share runs of probes, and the rate
//! of a small or very accurate filter is measurably too high: by a quarter at 1,000 keys and 23.4
//! bits. It costs one multiplication more.
//!
//! # Mathematics
//! After `n` keys a bit is still clear with probability `(1 - 1/m)^(kn)`, about `e^(-kn/m)`, hence
//! the textbook's rate `(1 - e^(-k/c))^k` with `c = m/n` bits per key. It is best at `k = c ln 2`,
//! where half of the bits are set. The textbook treats the bits as independent; the exact rate is
//! `E[(X/m)^k]` with `X` the number of set bits, which matters below some thousand bits
//! ([`crate::theory::standard_fpr`]).
//!
//! # Bounds
//! `m` is a multiple of 512, so that a lone key still has 512 bits; and `k` is chosen for at most
//! 64 bits per key, so that it does not ask for 355 probes.
//!
//! # Source
//! B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970; A. Kirsch and
//! M. Mitzenmacher, "Less Hashing, Same Performance", 2006.

use crate::block::{BLOCK_BITS, Block};
use crate::mix::{remix, scale};
use crate::theory;

/// What the stride is multiplied with after each probe: odd, without visible pattern.
const STRIDE_FACTOR: u64 = 0xd134_2543_de82_ef95;

/// Blocks and probes for `keys` keys at `millibits` thousandths of a bit each.
pub(crate) fn plan(keys: u64, millibits: u32) -> crate::builder::Plan {
    let blocks = crate::builder::blocks_for(keys, millibits);
    let bits_per_key = (blocks * BLOCK_BITS) as f64 / keys as f64;
    crate::builder::Plan { blocks, probes: theory::best_standard_probes(bits_per_key) }
}

/// The positions of a key's probes.
struct Walk {
    place: u64,
    stride: u64,
}

impl Walk {
    #[inline]
    fn new(hash: u64) -> Self {
        let place = remix(hash);
        Self { place, stride: remix(place) | 1 }
    }

    #[inline]
    fn next(&mut self, bits: u64) -> u64 {
        let position = scale(self.place, bits);
        self.place = self.place.wrapping_add(self.stride);
        self.stride = self.stride.wrapping_mul(STRIDE_FACTOR);
        position
    }
}

/// Sets the bits of every hash.
pub(crate) fn fill(blocks: &mut [Block], probes: u32, hashes: impl Iterator<Item = u64>) {
    let bits = blocks.len() as u64 * BLOCK_BITS;
    for hash in hashes {
        let mut walk = Walk::new(hash);
        for _ in 0..probes {
            let position = walk.next(bits);
            blocks[(position / BLOCK_BITS) as usize].set(position as u32);
        }
    }
}

/// Whether every bit of `hash` is set. False for a filter without blocks.
#[inline]
pub(crate) fn contains(blocks: &[Block], probes: u32, hash: u64) -> bool {
    let bits = blocks.len() as u64 * BLOCK_BITS;
    let mut walk = Walk::new(hash);
    let mut next = || {
        let position = walk.next(bits);
        let block = blocks.get((position / BLOCK_BITS) as usize);
        block.map_or(0, |block| block.bit(position as u32))
    };
    // Two bits between branches: the second miss overlaps the first, and three of four negative
    // answers fall here.
    for _ in 0..probes / 2 {
        let (first, second) = (next(), next());
        if first & second & 1 == 0 {
            return false;
        }
    }
    !blocks.is_empty() && (probes.is_multiple_of(2) || next() & 1 == 1)
}

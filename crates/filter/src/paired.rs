//! The paired Bloom filter: two cache lines per key, chosen so that all pairs are equally full.
//!
//! # Idea
//! A blocked filter loses accuracy because keys fall unevenly on its blocks. Here the fullest block
//! of a batch of 128 is paired with the emptiest, the second fullest with the second emptiest, and
//! so on. Every key sets half of its bits in its own block (the *primary*) and half in that block's
//! *partner*. The sums of the pairs are almost equal (43.8 at 23.4 bits per key, with a standard
//! deviation of 1.25; two blocks paired at random have 6.6), and so all blocks are almost equally
//! full.
//!
//! # Algorithm
//! A block is 512 bits: bits 0 to 6 hold the partner's index in the batch; the other 505 are Bloom
//! bits.
//!
//! To build:
//! 1. Count the keys of every block; a hash's primary block is `hash * blocks / 2^64`.
//! 2. Divide the blocks into batches of 128 from the front. The number of blocks is even, so the
//!    last batch may be smaller, but has an even size. A filter that needs only one block has one,
//!    its own partner.
//! 3. Sort each batch by count and pair position `i` with position `last - i`. No other matching
//!    gives a lower expected rate, for any convex rate of a pair as a function of its keys.
//! 4. Fold every hash into two 32-bit seeds. The first gives `k/2` probes in the primary, the
//!    second `k/2` in the partner.
//!
//! To query: test the `k/2` bits in the primary; only if all are set, test the `k/2` in the partner
//! that its first seven bits name. An absent key reads a second cache line with probability
//! `2^(-k/2)`, a present one always.
//!
//! Step 4 assigns the sets of probes by role. The algorithm as first published assigns set 0 to the
//! block with the lower index. The rate is the same, but then a query must load the pair index
//! before it knows its first position.
//!
//! # Invariants
//! The pair table is an involution within each batch, without fixed points except in a filter of
//! one block. [`pairs_are_valid`] holds for every decoded filter, so that queries need not check
//! the partner's index.
//!
//! # Mathematics
//! A pair's keys `T = X_(i) + X_(B+1-i)` are sums of order statistics of a batch's counts. Each of
//! its blocks takes `T*k/2` balls in 505 bins, and a query passes both with `E[(X/505)^(k/2)]^2`;
//! [`crate::theory::paired_fpr`] sums that over the distribution of `T`. The same sum determines
//! the best even number of probes for the filter's actual bits per key.
//!
//! # Costs
//! A query costs one cache miss for an absent key, except for a share of `2^(-k/2)`, and two
//! dependent misses for a present key. Queries for many keys are pipelined in three stages, so that
//! all misses overlap ([`PairedContainsMany`]). The pair table takes 7 of 512 bits: 1.4%. To build,
//! the hashes are partitioned by batches, so that counting, pairing and setting bits stay in the
//! first-level cache; counting and sorting 128 numbers a batch is cheap next to setting the bits.
//! It takes 8 bytes a key on top of the filter.
//!
//! # Source
//! The algorithm is the Paired Bloom Filter described in Speedb's documentation (release 2.1). The
//! sets by role, two seeds, small batches and the exact theory are this crate's.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::hint::select_unpredictable;
use core::marker::PhantomData;

use crate::block::{BLOCK_BITS, Bits, Block};
use crate::blocked::{AHEAD, prefetch_block};
use crate::kernel::{Probe, Query, Task, prefetch};
use crate::mix::{BATCH, Golden, RESERVED, Scheme, fold, scale};
use crate::partition::TOGETHER;
use crate::plan::{PART, Part, Plan, blocks_for};
use crate::theory;

/// With at most this many probes in the primary, an absent key passes often enough for branch
/// mispredictions to matter: [`PairedContainsMany`] is branchless then.
const MOST_UNFORESEEN: usize = 4;

/// Blocks and probes for `keys` keys at `millibits` thousandths of a bit each.
pub(crate) fn plan(keys: u64, millibits: u32) -> Plan {
    let blocks = match blocks_for(keys, millibits) {
        1 => 1,
        blocks => blocks.next_multiple_of(2),
    };
    let bits_per_key = blocks as f64 * BLOCK_BITS as f64 / keys as f64;
    Plan { blocks, probes: theory::best_paired_probes(bits_per_key) }
}

/// The number of keys of each block, up to 65,535, for the blocks whose hashes are distributed and
/// not yet set. They are counted during distribution, when their indexes are known anyway.
pub(crate) struct BlockCounts(Vec<Cell<u16>>);

impl BlockCounts {
    const MOST: usize = TOGETHER * PART;

    /// Counts for a filter of this many blocks.
    pub(crate) fn new(blocks: usize) -> Self {
        Self(vec![Cell::new(0); blocks.min(Self::MOST)])
    }

    /// Counts a key of the block at `place`.
    #[inline]
    pub(crate) fn add(&self, place: usize) {
        let keys = &self.0[place % Self::MOST];
        keys.set(keys.get().saturating_add(1));
    }

    /// Returns the counts of a part's blocks and resets them to 0.
    pub(crate) fn take(&self, part: &Part<'_>) -> Vec<u16> {
        let from = part.first % Self::MOST;
        self.0[from..from + part.blocks.len()].iter().map(Cell::take).collect()
    }

    /// Bytes of the counts of a filter of this many blocks.
    pub(crate) fn bytes(blocks: u64) -> u64 {
        blocks.min(Self::MOST as u64) * size_of::<u16>() as u64
    }
}

/// Pairs the blocks of `part` and sets the bits of its hashes.
pub(crate) struct PairedFill<'a, 'b, S> {
    pub(crate) part: &'a mut Part<'b>,
    pub(crate) probes: u32,
    /// The number of keys of each block.
    pub(crate) keys: &'a [u16],
    pub(crate) chunks: &'a [Vec<u64>],
    pub(crate) scheme: PhantomData<S>,
}

impl<S: Scheme> Task for PairedFill<'_, '_, S> {
    type Answer = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) {
        let Self { part, probes, keys, chunks, .. } = self;
        for (blocks, keys) in part.blocks.chunks_mut(S::BATCH).zip(keys.chunks(S::BATCH)) {
            pair_batch(blocks, keys);
        }
        let half = probes as usize / 2;
        for chunk in chunks {
            for &hash in chunk {
                let (seed_0, seed_1) = S::seeds(fold(hash));
                let primary = part.place(hash);
                let block = &mut part.blocks[primary];
                let partner = partner::<S>(primary, block);
                probe.set::<RESERVED>(block, seed_0, half);
                probe.set::<RESERVED>(&mut part.blocks[partner], seed_1, half);
            }
        }
    }
}

/// Writes the index of its partner into each block of a batch: fullest with emptiest.
fn pair_batch(blocks: &mut [Block], keys: &[u16]) {
    let mut order = [0_u8; BATCH];
    let order = &mut order[..blocks.len()];
    for (i, place) in order.iter_mut().enumerate() {
        *place = i as u8;
    }
    order.sort_unstable_by_key(|&i| (keys[usize::from(i)], i));
    for (&i, &other) in order.iter().zip(order.iter().rev()) {
        blocks[usize::from(i)].0[0] = u64::from(other);
    }
}

/// The index of the partner of the block at `primary`.
#[inline]
pub(crate) fn partner<S: Scheme>(primary: usize, block: &Block) -> usize {
    let mask = S::BATCH - 1;
    primary & !mask | block.0[0] as usize & mask
}

/// Whether every block's partner is in its batch, is another block (unless there is only one), and
/// names it in turn.
pub(crate) fn pairs_are_valid(blocks: &[Block]) -> bool {
    blocks.iter().enumerate().all(|(place, block)| {
        let other = partner::<Golden>(place, block);
        (other != place || blocks.len() == 1)
            && blocks.get(other).is_some_and(|block| partner::<Golden>(other, block) == place)
    })
}

/// Whether every bit of a hash is set. False for a filter without blocks.
pub(crate) struct PairedContains;

impl Query for PairedContains {
    #[inline(always)]
    fn query<P: Probe>(probe: P, bits: &Bits, hash: u64) -> bool {
        let Bits { blocks, probes } = bits;
        let primary = scale(hash, blocks.len() as u64) as usize;
        let Some(block) = blocks.get(primary) else {
            return false;
        };
        let half = *probes as usize / 2;
        let (seed_0, seed_1) = Golden::seeds(fold(hash));
        probe.hits::<RESERVED>(block, seed_0, half)
            && blocks
                .get(partner::<Golden>(primary, block))
                .is_some_and(|block| probe.hits::<RESERVED>(block, seed_1, half))
    }
}

/// [`PairedContains`] for many hashes, as a pipeline of three stages. A primary is prefetched;
/// [`AHEAD`] queries later it is tested, and if it passes, its partner is prefetched; when the
/// primaries of the next [`AHEAD`] queries have been tested, the partner is tested.
pub(crate) struct PairedContainsMany<'a> {
    pub(crate) bits: &'a Bits,
    pub(crate) hashes: &'a [u64],
    pub(crate) answers: &'a mut [bool],
}

impl Task for PairedContainsMany<'_> {
    type Answer = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) {
        let half = self.bits.probes as usize / 2;
        if half <= P::FEW.min(MOST_UNFORESEEN) {
            self.run_with::<false>(|block, seed| probe.hits_few::<RESERVED>(block, seed, half));
        } else {
            self.run_with::<true>(|block, seed| probe.hits::<RESERVED>(block, seed, half));
        }
    }
}

impl PairedContainsMany<'_> {
    /// `BRANCH` if a branch may depend on whether a primary passes.
    #[inline(always)]
    fn run_with<const BRANCH: bool>(self, hits: impl Fn(&Block, u32) -> bool) {
        let Self { bits, hashes, answers } = self;
        let blocks = &bits.blocks;
        let count = blocks.len() as u64;
        // The remaining work of the previous chunk.
        let mut former = Passed::default();
        for &hash in hashes.iter().take(AHEAD) {
            prefetch_block(blocks, hash);
        }
        for (turn, chunk) in hashes.chunks(AHEAD).enumerate() {
            let from = turn * AHEAD;
            let answers_here = &mut answers[from..];
            let mut passed = Passed { from, ..Passed::default() };
            for (i, (&hash, answer)) in chunk.iter().zip(answers_here).enumerate() {
                if let Some(&later) = hashes.get(from + i + AHEAD) {
                    prefetch_block(blocks, later);
                }
                *answer = false;
                let primary = scale(hash, count) as usize;
                let Some(block) = blocks.get(primary) else { continue };
                let (seed, _) = Golden::seeds(fold(hash));
                let passes = hits(block, seed);
                if BRANCH && !passes {
                    continue;
                }
                let partner = partner::<Golden>(primary, block);
                if let Some(block) = blocks.get(select_unpredictable(passes, partner, primary)) {
                    prefetch(block);
                }
                passed.numbers[passed.count % AHEAD] = i as u8;
                passed.count += usize::from(passes);
            }
            former.settle(&hits, bits, hashes, answers);
            former = passed;
        }
        former.settle(&hits, bits, hashes, answers);
    }
}

/// The queries among [`AHEAD`] whose primary blocks have all their bits set.
#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    /// The index of the first query.
    from: usize,
    /// Their indexes, relative to `from`.
    numbers: [u8; AHEAD],
    count: usize,
}

impl Passed {
    /// Tests their partners.
    #[inline(always)]
    fn settle(
        &self,
        hits: impl Fn(&Block, u32) -> bool,
        bits: &Bits,
        hashes: &[u64],
        answers: &mut [bool],
    ) {
        let count = bits.blocks.len() as u64;
        let (hashes, answers) = (&hashes[self.from..], &mut answers[self.from..]);
        for &i in &self.numbers[..self.count] {
            let hash = hashes[usize::from(i)];
            let primary = scale(hash, count) as usize;
            let Some(block) = bits.blocks.get(primary) else { continue };
            let block = bits.blocks.get(partner::<Golden>(primary, block));
            let (_, seed) = Golden::seeds(fold(hash));
            answers[usize::from(i)] = block.is_some_and(|block| hits(block, seed));
        }
    }
}

/// The portable code of a scheme that is not shipped.
#[cfg(test)]
struct PlainCode<S>(PhantomData<S>);

#[cfg(test)]
impl<S> Clone for PlainCode<S> {
    fn clone(&self) -> Self {
        *self
    }
}

#[cfg(test)]
impl<S> Copy for PlainCode<S> {}

#[cfg(test)]
impl<S: Scheme> Probe for PlainCode<S> {
    const FEW: usize = 0;

    fn hits_few<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
        self.hits::<RESERVED>(block, seed, count)
    }

    fn hits<const RESERVED: u32>(self, block: &Block, seed: u32, count: usize) -> bool {
        crate::kernel::hits::<S, RESERVED>(block, seed, count)
    }

    fn set<const RESERVED: u32>(self, block: &mut Block, seed: u32, count: usize) {
        crate::kernel::set::<S, RESERVED>(block, seed, count);
    }
}

/// Like [`PairedFill`], with the portable code of a scheme.
#[cfg(test)]
pub(crate) fn fill<S: Scheme>(part: &mut Part<'_>, probes: u32, hashes: impl Iterator<Item = u64>) {
    let chunks: [Vec<u64>; 1] = [hashes.collect()];
    let keys = &part.counts(&chunks);
    let scheme = PhantomData::<S>;
    PairedFill { part, probes, keys, chunks: &chunks, scheme }.run(PlainCode(scheme));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FilterKind, FilterSpec, format};

    /// Uses more blocks than are distributed at a time, so that the counters are reused.
    #[test]
    fn the_fullest_block_of_every_batch_is_paired_with_the_emptiest() {
        let mut builder = FilterSpec::new(FilterKind::Paired, 64.0).unwrap().builder();
        let hashes: Vec<u64> = (0..600_000_u64).map(|n| crate::hash(&n.to_le_bytes())).collect();
        hashes.iter().for_each(|&hash| builder.add_hash(hash));
        let (_, blocks) = format::decode(&builder.finish(), |_| ()).unwrap();
        assert!(blocks.len() > 2 * BlockCounts::MOST, "{} blocks", blocks.len());
        let mut keys = vec![0; blocks.len()];
        for hash in hashes {
            keys[scale(hash, blocks.len() as u64) as usize] += 1;
        }
        for from in (0..blocks.len()).step_by(BATCH) {
            let end = blocks.len().min(from + BATCH);
            let mut order: Vec<usize> = (from..end).collect();
            order.sort_by_key(|&place| (keys[place], place));
            for (&place, &other) in order.iter().zip(order.iter().rev()) {
                assert_eq!(partner::<Golden>(place, &blocks[place]), other, "block {place}");
            }
        }
    }
}

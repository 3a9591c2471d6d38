//! The binary fuse filter: a table of small values. The three values of a key add up to its
//! fingerprint.
//!
//! # Idea
//! The hash of a key selects three slots of a table and a fingerprint of `w` bits. The table is
//! filled so that the exclusive or of the three slots equals the fingerprint for every added key.
//! For any other key it does so with probability `2^-w`. The table needs hardly more slots than
//! there are keys, so the filter takes `1.125 w` bits per key for a rate of `2^-w`, where a Bloom
//! filter takes `1.44 w`.
//!
//! # Algorithm
//! *Slots* form segments of equal length, a power of two. A key's three slots are in three adjacent
//! segments, so that the work moves through the table from front to back.
//!
//! To build:
//! 1. The hashes are partitioned by their high bits into shards of at most some million keys, which
//!    bounds the memory. Each shard has a table of its own, all of the same shape.
//! 2. Every slot counts the keys that selected it, and adds up their hashes.
//! 3. A slot with a single key is that key's own. The key is removed from its other two slots,
//!    which may leave one key in another slot, and so on. The order of removal is recorded.
//! 4. If keys remain, start over with another seed; the first time, equal hashes are reduced to
//!    one, because they can never be separated.
//! 5. In the reverse order of removal, each key's own slot is set so that its equation holds: no
//!    key that was removed earlier has set it, and no later one depends on another value.
//!
//! Any size can be met, because the first slots have one bit more than the others. A key whose
//! slots are all among these is compared in `w + 1` bits, any other in `w`.
//!
//! To query: compute the three slots and the fingerprint from the shard's seed. The first slot does
//! not depend on the seed, and increases with the hash.
//!
//! # Mathematics
//! The expected rate is `(1 - p / 2) 2^-w`, where `p` is the share of the positions of a first slot
//! for which all three slots are wide. It is exact for any keys and for a single filter too, since
//! the fingerprint does not depend on the slots. The slots needed to remove all keys are known by
//! experiment: [`Shape::of`](crate::fuse_shape::Shape::of) has the formula of the authors.
//!
//! Bits per key select the rate that a filter of many keys has. Fewer keys need more slots each
//! (1.23 for ten thousand keys, 1.13 for a million) and get the same rate, from more bits.
//!
//! # Bounds
//! An adversary who can compute the hash can choose keys that cannot be separated. The work to
//! build is bounded for any keys:
//! 1. A shard whose keys exceed its share by eight standard deviations is not attempted.
//! 2. A shard has [`SHARD_ATTEMPTS`] attempts, and all shards of a filter share [`MEAN_ATTEMPTS`]
//!    more each: random keys need hardly more than one on average.
//! 3. An attempt takes time linear in the keys, and ends if a slot has more than 63.
//!
//! If a bound is exceeded, the whole filter is built as a standard one, as for a
//! [ribbon](crate::ribbon).
//!
//! # Layout
//! The body begins with the shape (16 bytes, `Shape::to_words`) and the salt of each shard (8
//! bytes). The tables of the shards follow, each padded to a multiple of 8 bytes, then zeros (8
//! bytes at least) to a multiple of 64 bytes. A table is a sequence of bits: first its wide slots
//! of `w + 1` bits each, then the others of `w` bits.
//!
//! # Costs
//! To build: 13 bytes a slot and 8 bytes a key, of one shard at a time, on top of the hashes. To
//! query: three cache lines, for any key; they do not depend on each other, so their misses
//! overlap.
//!
//! # Source
//! T. M. Graf, D. Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022 (ACM
//! Journal of Experimental Algorithmics 27), with three slots. Widths that differ by one bit, and
//! shards of one shape, are this crate's.

use alloc::vec;
use alloc::vec::Vec;

use crate::block::{BLOCK_BITS, Bits, Block, word};
use crate::fuse_shape::{ARITY, Key, SHAPE_WORDS, SHARD_KEYS, Shape, Tables, shards};
use crate::kernel::{Probe, Query, Task, load, prefetch};
use crate::mix::remix;

/// Keys of a shard that are counted together, so that their slots stay in the cache.
const BATCH_KEYS: u64 = 1 << 14;
/// Attempts at one shard, each with another seed.
const SHARD_ATTEMPTS: u64 = 64;
/// Attempts that a filter of many shards has for each of them, in addition to those of one shard.
const MEAN_ATTEMPTS: u64 = 2;
/// The most keys of a slot during an attempt.
const MOST_COUNT: u8 = 63;
/// One key in the count of a slot.
const ONE_KEY: u8 = 1 << 2;
/// The positions other than each of a key's three.
const OTHERS: [[u8; ARITY - 1]; ARITY + 1] = [[1, 2], [0, 2], [0, 1], [0, 0]];
/// Queries whose cache misses overlap in [`FuseContainsMany`].
const GROUP: usize = 32;

/// Parts of each shard into which hashes are partitioned, so that slots are visited in order.
pub(crate) fn batches(keys: u64) -> u64 {
    (keys / shards(keys) / BATCH_KEYS).max(1)
}

/// The salt of the attempt with this number.
fn salt(attempt: u64) -> u64 {
    match attempt {
        0 => 0,
        attempt => remix(attempt),
    }
}

/// A query: the beginnings of its slots, and their required sum.
#[derive(Clone, Copy, Default)]
struct SlotLookup {
    bits: [u64; ARITY],
    fingerprint: u64,
    mask: u64,
}

impl SlotLookup {
    #[inline(always)]
    fn new(tables: &Tables, blocks: &[Block], hash: u64) -> Self {
        let (shard, first) = tables.first(hash);
        let key = tables.shape.key(hash, first, word(blocks, SHAPE_WORDS + shard as usize));
        let table = tables.table(shard);
        Self {
            bits: key.slots.map(|slot| table + tables.shape.bit(slot)),
            fingerprint: key.fingerprint,
            mask: tables.shape.mask(key.slots[ARITY - 1]),
        }
    }

    #[inline(always)]
    fn prefetch(&self, blocks: &[Block]) {
        for bit in self.bits {
            prefetch_bit(blocks, bit);
        }
    }

    #[inline(always)]
    fn answer(&self, blocks: &[Block]) -> bool {
        self.difference(blocks) == 0
    }

    /// The compared bits in which the slots do not add up to the fingerprint.
    #[inline(always)]
    fn difference(&self, blocks: &[Block]) -> u64 {
        // A slot has at most 57 bits, so eight bytes hold it wherever it begins.
        let [first, second, third] =
            self.bits.map(|bit| load(blocks, (bit / 8) as usize) >> (bit % 8));
        (first ^ second ^ third ^ self.fingerprint) & self.mask
    }
}

#[inline(always)]
fn prefetch_bit(blocks: &[Block], bit: u64) {
    if let Some(block) = blocks.get(bit as usize / BLOCK_BITS as usize) {
        prefetch(block);
    }
}

/// Whether the slots of a hash add up to its fingerprint. False for a filter without keys.
pub(crate) struct FuseContains;

impl Query for FuseContains {
    #[inline(always)]
    fn query<P: Probe>(_: P, bits: &Bits, hash: u64) -> bool {
        let blocks = &*bits.blocks;
        !blocks.is_empty() && SlotLookup::new(&Tables::of(blocks), blocks, hash).answer(blocks)
    }
}

/// [`FuseContains`] for many hashes, whose cache misses overlap.
pub(crate) struct FuseContainsMany<'a> {
    pub(crate) bits: &'a Bits,
    pub(crate) hashes: &'a [u64],
    pub(crate) answers: &'a mut [bool],
}

impl Task for FuseContainsMany<'_> {
    type Answer = ();

    #[inline(always)]
    fn run<P: Probe>(self, _: P) {
        let Self { bits: Bits { blocks, .. }, hashes, answers } = self;
        if blocks.is_empty() {
            return answers.fill(false);
        }
        let tables = Tables::of(blocks);
        let mut lookups = [SlotLookup::default(); GROUP];
        for (hashes, answers) in hashes.chunks(GROUP).zip(answers.chunks_mut(GROUP)) {
            for (&hash, lookup) in hashes.iter().zip(&mut lookups) {
                *lookup = SlotLookup::new(&tables, blocks, hash);
                lookup.prefetch(blocks);
            }
            for (lookup, answer) in lookups.iter().zip(answers) {
                *answer = lookup.answer(blocks);
            }
        }
    }
}

/// Whether the bits `from..to` of those that are compared agree.
#[cfg(test)]
pub(crate) fn contains_between(blocks: &[Block], from: u32, to: u32, hash: u64) -> bool {
    let tables = Tables::of(blocks);
    let below = |bit: u32| 1_u64.checked_shl(bit).map_or(u64::MAX, |bit| bit - 1);
    SlotLookup::new(&tables, blocks, hash).difference(blocks) & below(to) & !below(from) == 0
}

/// Prefetches the line of a hash's first slot.
#[inline(always)]
pub(crate) fn prefetch_first(blocks: &[Block], hash: u64) {
    let tables = Tables::of(blocks);
    let (shard, first) = tables.first(hash);
    prefetch_bit(blocks, tables.table(shard) + tables.shape.bit(first));
}

/// The most keys of a shard of a filter of `keys` keys: more than eight standard deviations above
/// the mean do not occur by chance.
fn most_shard_keys(keys: u64) -> u64 {
    match shards(keys) {
        1 => keys,
        shards => keys.div_ceil(shards) + 8 * SHARD_KEYS.isqrt(),
    }
}

/// The most bytes that the work on one shard takes, without the hashes and the filter.
pub(crate) fn working_bytes(keys: u64, millibits: u32) -> u64 {
    let slots = Shape::of(keys, millibits).slots();
    slots * Peeling::SLOT_BYTES + most_shard_keys(keys) * Peeling::KEY_BYTES
}

/// A filter under construction.
#[derive(Debug)]
pub(crate) struct Fuse {
    shape: Shape,
    blocks: Vec<Block>,
    /// Shards that are done.
    done: usize,
    /// The most keys of a shard, unless hashes are crafted.
    most_keys: u64,
    /// Remaining attempts, over all shards.
    attempts: u64,
}

impl Fuse {
    /// A filter for `keys` keys, without any.
    pub(crate) fn new(keys: u64, millibits: u32) -> Self {
        let shape = Shape::of(keys, millibits);
        let count = usize::try_from(shape.blocks()).unwrap_or(usize::MAX);
        let mut blocks = vec![Block::default(); count];
        if let Some(first) = blocks.first_mut() {
            first.0[..SHAPE_WORDS].copy_from_slice(&shape.to_words());
        }
        let attempts = SHARD_ATTEMPTS + MEAN_ATTEMPTS * (shards(keys) - 1);
        Self { shape, blocks, done: 0, most_keys: most_shard_keys(keys), attempts }
    }

    /// Adds the next shard. Returns whether its keys could be separated within the bounds on keys
    /// and attempts. If not, the filter must be of another kind. May reorder `chunks`, and remove
    /// equal hashes from a chunk.
    #[must_use]
    pub(crate) fn push(&mut self, chunks: &[Vec<u64>]) -> bool {
        let keys: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if keys > self.most_keys {
            return false;
        }
        let mut distinct = Vec::new();
        for attempt in 0..SHARD_ATTEMPTS.min(self.attempts) {
            self.attempts -= 1;
            let salt = salt(attempt);
            let peeling = match attempt {
                0 => Peeling::new(&self.shape, salt, chunks.iter().flatten()),
                _ => Peeling::new(&self.shape, salt, &distinct),
            };
            if let Some(peeling) = peeling {
                self.write(salt, peeling);
                return true;
            }
            if attempt == 0 {
                distinct.reserve_exact(keys as usize);
                distinct.extend(chunks.iter().flatten());
                distinct.sort_unstable();
                distinct.dedup();
            }
        }
        false
    }

    /// Writes the next table.
    fn write(&mut self, salt: u64, peeling: Peeling) {
        let shape = self.shape;
        let salt_at = SHAPE_WORDS + self.done;
        self.blocks[salt_at / 8].0[salt_at % 8] = salt;
        let table = shape.first_word() + self.done * shape.table_words() as usize;
        for (slot, value) in peeling.solve(&shape, salt).into_iter().enumerate() {
            let bit = shape.bit(slot as u64);
            let (at, shift) = (table + (bit / 64) as usize, bit % 64);
            let (low, high) = (value << shift, value >> 1 >> (63 - shift));
            self.blocks[at / 8].0[at % 8] |= low;
            if high != 0 {
                self.blocks[(at + 1) / 8].0[(at + 1) % 8] |= high;
            }
        }
        self.done += 1;
    }

    /// The shape.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The body.
    pub(crate) fn finish(self) -> Vec<Block> {
        self.blocks
    }
}

/// The keys of a shard in an order in which each has a slot that no later one has.
struct Peeling {
    /// The slots of the keys, in this order.
    order: Vec<u32>,
    /// For each slot the exclusive or of the hashes of its keys; once only its own key is left,
    /// that key's hash.
    hashes: Vec<u64>,
    /// The number of a slot's keys in the high six bits; in the low two, the exclusive or of the
    /// positions that the slot has among those of each key.
    counts: Vec<u8>,
}

impl Peeling {
    /// Bytes for each slot.
    const SLOT_BYTES: u64 = 4 + 8 + 1;
    /// Bytes for each key: its hash once more while equal ones are removed.
    const KEY_BYTES: u64 = 8;

    /// `None` if the keys cannot be separated with this salt.
    fn new<'a>(
        shape: &Shape,
        salt: u64,
        hashes_of_keys: impl IntoIterator<Item = &'a u64>,
    ) -> Option<Self> {
        let key = |hash: u64| shape.key(hash, shape.first(hash).1, salt);
        let mut hashes = vec![0_u64; shape.slots() as usize];
        let mut counts = vec![0_u8; hashes.len()];
        let mut keys = 0;
        for &hash in hashes_of_keys {
            keys += 1;
            for (position, slot) in key(hash).slots.into_iter().enumerate() {
                let slot = slot as usize;
                if counts[slot] >> 2 == MOST_COUNT {
                    return None;
                }
                hashes[slot] ^= hash;
                counts[slot] = (counts[slot] + ONE_KEY) ^ position as u8;
            }
        }
        // A slot is queued once: when its segment's turn comes or, from then on, when its second to
        // last key is removed. An entry is written before it is known to count, so there is one
        // more.
        let mut queue = vec![0_u32; hashes.len() + 1];
        let (mut queued, mut next, mut removed) = (0, 0, 0);
        for segment in (0..hashes.len()).step_by(1 << shape.segment_log2) {
            let counts_of_segment = counts.iter().skip(segment).take(1 << shape.segment_log2);
            for (slot, count) in (segment..).zip(counts_of_segment) {
                queue[queued] = slot as u32;
                queued += usize::from(count >> 2 == 1);
            }
            while next < queued {
                let own = queue[next] as usize;
                next += 1;
                let count = counts[own];
                if count >> 2 != 1 {
                    // Its key was removed by another of its slots.
                    continue;
                }
                counts[own] = 0;
                queue[removed] = own as u32;
                removed += 1;
                let hash = hashes[own];
                let slots = key(hash).slots;
                for position in OTHERS[usize::from(count & 3)] {
                    let slot = slots[usize::from(position)] as usize;
                    hashes[slot] ^= hash;
                    counts[slot] = (counts[slot] - ONE_KEY) ^ position;
                    queue[queued] = slot as u32;
                    queued += usize::from(counts[slot] >> 2 == 1);
                }
            }
        }
        queue.truncate(removed);
        (removed == keys).then_some(Self { order: queue, hashes, counts })
    }

    /// The values of all slots.
    fn solve(self, shape: &Shape, salt: u64) -> Vec<u64> {
        let Self { order, hashes: mut values, counts } = self;
        // The other two slots of a key have their values already, or have none and are 0.
        for &own in order.iter().rev() {
            let hash = values[own as usize];
            let Key { slots, fingerprint } = shape.key(hash, shape.first(hash).1, salt);
            let [first, second, third] = slots.map(|slot| values[slot as usize]);
            // Its own slot still has the hash, which is removed from the sum.
            let sum = fingerprint ^ first ^ second ^ third ^ hash;
            values[own as usize] = sum & shape.mask(u64::from(own));
        }
        drop(counts);
        values
    }
}

#[cfg(test)]
mod tests;

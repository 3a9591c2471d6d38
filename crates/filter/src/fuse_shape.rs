//! The shape of a fuse filter: the number of its slots, their positions, and the slots of each key.
//! See [`fuse`](crate::fuse) for their meaning.

use crate::block::{Block, word};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::mix::{fold, scale};

/// The most keys that a shard holds on average.
pub(crate) const SHARD_KEYS: u64 = 1 << 20;
/// Below this number of keys, segments are half as long as the authors have them.
const FEW_KEYS: f64 = 32_768.0;
/// Slots of a key.
pub(crate) const ARITY: usize = 3;
/// The most slots of a segment, as a power of two.
const MAX_SEGMENT_LOG2: u32 = 18;
/// The first bit of the third slot's offset in its segment.
const THIRD_SHIFT: u32 = 20;
/// The most bits of a narrow slot.
const MAX_BITS: u64 = 56;
/// Words of the shape.
pub(crate) const SHAPE_WORDS: usize = 2;
/// The multiplier of [`print`].
const PRINT_FACTOR: u64 = 0xd134_2543_de82_ef95;

/// Shards of a filter of `keys` keys.
pub(crate) fn shards(keys: u64) -> u64 {
    keys.div_ceil(SHARD_KEYS).max(1)
}

/// The shape that all tables of a filter have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) shards: u32,
    /// Positions that a key's first slot can have.
    pub(crate) starts: u32,
    /// Slots, from the front, that have `bits + 1` bits.
    wide: u32,
    /// Slots of a segment, as a power of two.
    pub(crate) segment_log2: u8,
    /// Bits of the other slots.
    pub(crate) bits: u8,
}

impl Shape {
    /// The shape of a filter of `keys` keys at `millibits` thousandths of a bit per key. Without
    /// keys, no slots.
    pub(crate) fn of(keys: u64, millibits: u32) -> Self {
        if keys == 0 {
            return Self::default();
        }
        let shards = shards(keys);
        let mean = keys.div_ceil(shards).max(2) as f64;
        // The constants of the authors' implementation; but few keys have shorter segments, because
        // the slots are whole segments.
        let shorter = u32::from(mean < FEW_KEYS);
        let log2 = (mean.ln() / 3.33_f64.ln() + 2.25) as u32 - shorter;
        let segment_log2 = log2.min(MAX_SEGMENT_LOG2);
        let per_key = (0.875 + 0.25 * 1e6_f64.ln() / mean.ln()).max(1.125);
        let segments = ((mean * per_key).round() as u64).div_ceil(1 << segment_log2);
        let starts = (segments.max(3) - 2) << segment_log2;
        // A slot has the bits that it would have among many keys, 1.125 slots for each.
        let thousandths = u64::from(millibits) * 8 / 9;
        let bits = (thousandths / 1000).min(MAX_BITS);
        let share = (thousandths - bits * 1000).min(1000);
        let wide = match share {
            0 => 0,
            share => (2 << segment_log2) + (starts * share + 500) / 1000,
        };
        Self {
            shards: u32::try_from(shards).unwrap_or(u32::MAX),
            starts: starts as u32,
            wide: wide as u32,
            segment_log2: segment_log2 as u8,
            bits: bits as u8,
        }
    }

    /// Slots of a table.
    #[inline(always)]
    pub(crate) fn slots(&self) -> u64 {
        match self.shards {
            0 => 0,
            _ => u64::from(self.starts) + (2 << self.segment_log2),
        }
    }

    /// Words of a table.
    #[inline(always)]
    pub(crate) fn table_words(&self) -> u64 {
        (self.slots() * u64::from(self.bits) + u64::from(self.wide)).div_ceil(64)
    }

    /// The index of the first word of the first table.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> usize {
        SHAPE_WORDS + self.shards as usize
    }

    /// Blocks of the body.
    pub(crate) fn blocks(&self) -> u64 {
        if self.shards == 0 {
            return 0;
        }
        let tables = u64::from(self.shards) * self.table_words();
        // One word more, so that eight bytes can be read from any bit of a table.
        (self.first_word() as u64 + tables + 1).div_ceil(8)
    }

    /// The most bits in which a key is compared.
    pub(crate) fn most_bits(&self) -> u32 {
        (u32::from(self.bits) + u32::from(self.wide > 0)).max(1)
    }

    /// The exact expected rate; 0 without keys.
    pub(crate) fn rate(&self) -> f64 {
        if self.shards == 0 {
            return 0.0;
        }
        let compared_wide = self.wide.saturating_sub(2 << self.segment_log2);
        let share = f64::from(compared_wide) / f64::from(self.starts);
        (1.0 - share / 2.0) * (-f64::from(self.bits)).exp2()
    }

    /// The shape at the front of a body.
    #[inline(always)]
    pub(crate) fn decode(blocks: &[Block]) -> Self {
        let (first, second) = (word(blocks, 0), word(blocks, 1));
        Self {
            shards: first as u32,
            starts: (first >> 32) as u32,
            wide: second as u32,
            segment_log2: (second >> 32) as u8,
            bits: (second >> 40) as u8,
        }
    }

    pub(crate) fn to_words(self) -> [u64; SHAPE_WORDS] {
        let widths = u64::from(self.segment_log2) << 32 | u64::from(self.bits) << 40;
        [u64::from(self.shards) | u64::from(self.starts) << 32, u64::from(self.wide) | widths]
    }

    /// Whether the shape of `blocks` is possible for `keys` keys and fills them.
    pub(crate) fn is_valid(blocks: &[Block], keys: u64) -> bool {
        if keys == 0 {
            return blocks.is_empty();
        }
        let shape = Self::decode(blocks);
        let segment = 1_u64 << u32::from(shape.segment_log2).min(MAX_SEGMENT_LOG2);
        u64::from(shape.segment_log2) <= u64::from(MAX_SEGMENT_LOG2)
            && u64::from(shape.bits) <= MAX_BITS
            && u64::from(shape.shards) == shards(keys)
            && shape.shards as usize <= blocks.len() * 8
            && shape.starts > 0
            && u64::from(shape.starts).is_multiple_of(segment)
            && u64::from(shape.wide) <= shape.slots()
            && word(blocks, 1) >> 48 == 0
            && shape.blocks() == blocks.len() as u64
    }

    /// The index of the shard of a hash, and the position of its first slot.
    #[inline(always)]
    pub(crate) fn first(&self, hash: u64) -> (u64, u64) {
        let product = u128::from(hash) * u128::from(self.shards);
        ((product >> 64) as u64, scale(product as u64, u64::from(self.starts)))
    }

    /// The slots of a key, and its fingerprint.
    #[inline(always)]
    pub(crate) fn key(&self, hash: u64, first: u64, salt: u64) -> Key {
        let mixed = fold(hash ^ salt);
        let segment = 1_u64 << self.segment_log2;
        let offset = segment - 1;
        let second = (first + segment) ^ (mixed & offset);
        let third = (first + 2 * segment) ^ (mixed >> THIRD_SHIFT & offset);
        Key { slots: [first, second, third], fingerprint: print(mixed) }
    }

    /// The first bit of a slot in its table.
    #[inline(always)]
    pub(crate) fn bit(&self, slot: u64) -> u64 {
        slot * u64::from(self.bits) + slot.min(u64::from(self.wide))
    }

    /// The bits of a slot, or those in which a key with this third slot is compared.
    #[inline(always)]
    pub(crate) fn mask(&self, slot: u64) -> u64 {
        (1 << (u32::from(self.bits) + u32::from(slot < u64::from(self.wide)))) - 1
    }
}

/// The fingerprint of a key, as a bijection of the word from which its slots derive: the product's
/// high half affects the low one, as in [`fold`].
#[inline(always)]
fn print(mixed: u64) -> u64 {
    let product = mixed.wrapping_mul(PRINT_FACTOR);
    product ^ product >> 32
}

/// A key's slots, in ascending order, and its fingerprint; only the low bits of that are used.
pub(crate) struct Key {
    pub(crate) slots: [u64; ARITY],
    pub(crate) fingerprint: u64,
}

/// The parts of a filter's shape that a query needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tables {
    pub(crate) shape: Shape,
    /// The first bit of the first table.
    first_bit: u64,
    /// Bits of a table.
    table_bits: u64,
}

impl Tables {
    /// The tables of a body.
    #[inline(always)]
    pub(crate) fn of(blocks: &[Block]) -> Self {
        Self::new(Shape::decode(blocks))
    }

    #[inline(always)]
    pub(crate) fn new(shape: Shape) -> Self {
        let table_bits = shape.table_words() * 64;
        Self { shape, first_bit: shape.first_word() as u64 * 64, table_bits }
    }

    /// The shard of a hash, and the position of its first slot.
    #[inline(always)]
    pub(crate) fn first(&self, hash: u64) -> (u64, u64) {
        self.shape.first(hash)
    }

    /// The first bit of the table of a shard.
    #[inline(always)]
    pub(crate) fn table(&self, shard: u64) -> u64 {
        self.first_bit + shard * self.table_bits
    }
}

/// Blocks of the body of a filter of any number of keys, even of more shards than a shape can
/// state.
pub(crate) fn expected_blocks(keys: u64, millibits: u32) -> u64 {
    let shape = Shape::of(keys, millibits);
    match shards(keys) {
        shards if shards > u64::from(u32::MAX) => {
            shards.saturating_mul(shape.table_words() + 1).div_ceil(8)
        }
        _ => shape.blocks(),
    }
}

/// The rate in the limit of many keys.
pub(crate) fn limit(bits_per_key: f64) -> f64 {
    let bits = (bits_per_key / 1.125).min(MAX_BITS as f64 + 1.0);
    let whole = bits.floor().min(MAX_BITS as f64);
    (1.0 - (bits - whole) / 2.0) * (-whole).exp2()
}

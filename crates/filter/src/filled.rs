//! The false positive rate of a filter that sets bits, computed from its set bits.
//!
//! The theoretical rate is that of random keys. Keys can be chosen if their hashes have no secret:
//! all may fall in a few blocks, which then answer yes to everything, or no two may share a bit.
//! The filter of such keys states the rate that its own bits have for random absent keys:
//! 1. A block with `x` of `m` bits set passes a key with `k` probes in it with probability
//!    `(x/m)^k`.
//! 2. For the blocked kind, the rate is the mean of that over the blocks. For the paired kind, it
//!    is the mean over the primaries of the product with the partner's, with `k/2` probes in each.
//!    A standard filter is one block.
//! 3. This rate is stated if it exceeds the theoretical one by more than chance explains: by a
//!    tenth, and by ten times the [`theory::spread`]. Otherwise the theoretical rate is stated.

use crate::block::{BLOCK_BITS, Block};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::kind::FilterKind;
use crate::mix::Golden;
use crate::mix::RESERVED;
use crate::paired;
use crate::theory;

/// The relative deviation from the theoretical rate that is always tolerated.
const SLACK: f64 = 0.1;
/// The deviation that chance explains, in standard deviations.
const MOST_DEVIATIONS: f64 = 10.0;

/// The rate to state for a filter of `keys` keys whose theoretical rate is `expected`.
pub(crate) fn rate(
    kind: FilterKind,
    keys: u64,
    probes: u32,
    blocks: &[Block],
    expected: f64,
) -> f64 {
    let bits_per_key = blocks.len() as f64 * BLOCK_BITS as f64 / keys.max(1) as f64;
    let chance = MOST_DEVIATIONS * theory::spread(kind, keys, bits_per_key);
    let own = own_rate(kind, probes, blocks);
    if own > expected * (1.0 + chance.max(SLACK)) { own } else { expected }
}

/// The rate that follows from the set bits.
fn own_rate(kind: FilterKind, probes: u32, blocks: &[Block]) -> f64 {
    if blocks.is_empty() {
        return 0.0;
    }
    let count = blocks.len() as f64;
    match kind {
        FilterKind::Blocked => {
            let pass = PassBySet::new(0, probes);
            blocks.iter().map(|block| pass.of(block)).sum::<f64>() / count
        }
        FilterKind::Paired => {
            let pass = PassBySet::new(RESERVED, probes / 2);
            let both = |(primary, block): (usize, &Block)| {
                pass.of(block) * pass.of(&blocks[paired::partner::<Golden>(primary, block)])
            };
            blocks.iter().enumerate().map(both).sum::<f64>() / count
        }
        FilterKind::Standard => {
            let set: u64 = blocks.iter().map(|block| u64::from(set_bits(block, 0))).sum();
            (set as f64 / (count * BLOCK_BITS as f64)).powi(probes as i32)
        }
        FilterKind::None | FilterKind::Ribbon | FilterKind::Fuse => 0.0,
    }
}

/// Set bits of a block, not counting the first `reserved`.
fn set_bits(block: &Block, reserved: u32) -> u32 {
    let all: u32 = block.0.iter().map(|word| word.count_ones()).sum();
    all - (block.0[0] & ((1 << reserved) - 1)).count_ones()
}

/// The probability of passing a block, by its number of set bits.
struct PassBySet {
    reserved: u32,
    chances: [f64; BLOCK_BITS as usize + 1],
}

impl PassBySet {
    fn new(reserved: u32, probes: u32) -> Self {
        let bits = BLOCK_BITS as u32 - reserved;
        let chance = |set| (set as f64 / f64::from(bits)).powi(probes as i32);
        Self { reserved, chances: core::array::from_fn(chance) }
    }

    fn of(&self, block: &Block) -> f64 {
        self.chances[set_bits(block, self.reserved) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::own_rate;
    use crate::mix::remix;
    use crate::plan::Plan;
    use crate::{Block, Filter, FilterSpec};

    /// The blocks of a finished filter.
    fn blocks(finished: &[u8]) -> Vec<Block> {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let block = |bytes: &[u8]| {
            let mut words = bytes.chunks(8).map(word);
            Block(std::array::from_fn(|_| words.next().unwrap()))
        };
        finished[64..].chunks(64).map(block).collect()
    }

    /// Over many filters, the rate of their bits is the theoretical one, and each filter states the
    /// theoretical one.
    #[test]
    fn for_random_keys_the_bits_have_the_theoretical_rate() {
        for (text, keys, filters) in [
            ("standard:10", 2000, 60),
            ("blocked:10", 2000, 60),
            ("paired:10", 2000, 60),
            ("paired:20", 2000, 60),
            ("blocked:16", 300, 200),
            ("paired:10", 1, 50),
            ("blocked:30", 3, 2000),
            ("standard:12", 7, 2000),
            ("paired:64", 20, 500),
        ] {
            let spec: FilterSpec = text.parse().unwrap();
            let probes = Plan::new(spec, keys).probes;
            let mut sum = 0.0;
            for salt in 0..filters {
                let mut builder = spec.builder();
                (0..keys).for_each(|key| builder.add_hash(remix(key | salt << 40)));
                let bytes = builder.finish();
                sum += own_rate(spec.kind(), probes, &blocks(&bytes));
                let filter = Filter::decode(bytes).unwrap();
                assert_eq!(filter.expected_fpr(), spec.expected_fpr(keys), "{text}, {keys} keys");
            }
            let (mean, expected) = (sum / filters as f64, spec.expected_fpr(keys));
            let off = mean / expected - 1.0;
            assert!(keys < 1000 || off.abs() < 0.05, "{text}, {keys} keys: {mean} for {expected}");
        }
    }
}

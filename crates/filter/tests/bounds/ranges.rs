//! The memory of range filters: of building them, and of refusing bytes.

use trommel_filter::{BlockEnds, RangeFilter, RangeSpec, hash};

use crate::allocator::most_held;

const BLOCK_KEYS: u64 = 40;

fn key(number: u64) -> [u8; 8] {
    (number << 30).swap_bytes().to_le_bytes()
}

/// The filters of leaves of this many blocks each, and the highest peak that the builder reported.
fn built(spec: RangeSpec, leaves: u64, blocks: u64) -> (Vec<Vec<u8>>, u64) {
    let (mut builder, mut filters, mut stated) = (spec.builder(), Vec::new(), 0);
    let mut first = key(0);
    for leaf in 0..leaves {
        for block in 0..blocks {
            let start = (leaf * blocks + block) * BLOCK_KEYS;
            (start..start + BLOCK_KEYS).for_each(|number| builder.add(&key(number)));
            let last = key(start + BLOCK_KEYS - 1);
            builder.end_block(BlockEnds { first: &first, last: &last });
            first = last;
        }
        stated = stated.max(builder.peak_bytes());
        filters.push(builder.take_blocks());
    }
    (filters, stated)
}

#[test]
fn a_builder_holds_the_keys_of_one_filter() {
    for bits in [4.0, 6.0, 20.0] {
        let spec = RangeSpec::new(bits).unwrap();
        for (leaves, blocks) in [(1, 1), (1, 40), (1, 4_000), (20, 200)] {
            let ((filters, stated), most) = most_held(|| built(spec, leaves, blocks));
            let finished: u64 = filters.iter().map(|filter| filter.len() as u64).sum();
            let what = format!("{spec}, {leaves} leaves of {blocks} blocks: {stated}, {most}");
            assert!(most <= stated + finished, "{what}");
            // 48 bytes for each key of a leaf, the list of filters, and frequencies of bytes.
            let limit = 56 * blocks * BLOCK_KEYS + finished + (48 << 10);
            assert!(most <= limit, "{what}, more than {limit}");
        }
    }
}

/// A code of more bytes than any builder writes was decoded whole before it was refused.
#[test]
fn a_code_that_is_too_long_is_refused_early() {
    let (filters, _) = built(RangeSpec::new(6.0).unwrap(), 1, 10);
    let head = &filters[0][..64];
    // The first position, the number of tables, and these, each with a weight of 1 for each value.
    let mut body = vec![0, 0, 32];
    (0..33).for_each(|_| body.extend([[0, 255].as_slice(), &[1; 256]].concat()));
    let sum = hash(&[&head[..56], &body].concat()).to_le_bytes();
    let forged = [&head[..56], &sum, &body].concat();
    let (refused, most) = most_held(|| RangeFilter::decode(&forged));
    assert!(refused.unwrap_err().to_string().contains("frequencies"));
    // Two bytes for each byte of a code of two KiB, and the tables themselves.
    assert!(most <= 8 << 10, "{most} bytes");
}

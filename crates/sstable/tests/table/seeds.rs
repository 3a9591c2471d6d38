//! Tables whose keys are hashed with a secret.

use std::collections::HashSet;

use trommel_filter::HashSeed;
use trommel_sstable::format::{FEATURE_HASH_SEED, FOOTER_BYTES};
use trommel_sstable::{Compression, Error, TableOptions};

use crate::common::*;

/// Keys that have the same hash without a seed used to have the same tag, so that a lookup compared
/// its key with every one of a block.
#[test]
fn tags_of_chosen_keys_differ() {
    let chosen_key = |n: u64| {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&0xbe4b_a423_396c_feb8_u64.to_le_bytes());
        key[8..16].copy_from_slice(&n.to_le_bytes());
        key
    };
    let entries = sorted((0..100).map(|n| put(chosen_key(n), 1, b"")).collect());
    let different_tags = |seed: u64| {
        let hash_seed = HashSeed::new(seed);
        let options = TableOptions { hash_seed, ..options(8 << 10, Compression::None, "none") };
        let table = InMemory::new(options, &entries);
        // Before the fixed part of the only block, and its frame.
        let end = table.summary.data_bytes as usize - 12 - 5;
        let tags: HashSet<u8> = table.bytes()[end - entries.len()..end].iter().copied().collect();
        tags.len()
    };
    assert_eq!(different_tags(0), 1, "the attack is none");
    assert!((1..50_u64).all(|n| different_tags(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) > 60));
}

/// A version that does not know seeds must refuse the table, in which it would find no key; and a
/// seed that the footer does not announce, or the other way around, is corruption.
#[test]
fn a_seed_is_announced_in_the_footer() {
    let entries = sorted(vec![put(b"key", 1, b"value")]);
    for seed in [0, 7] {
        let hash_seed = HashSeed::new(seed);
        let options = TableOptions { hash_seed, ..options(4096, Compression::None, "none") };
        let table = InMemory::new(options, &entries);
        let opened = table.open().unwrap();
        assert_eq!(opened.hash_seed(), hash_seed);
        let feature = opened.footer().features & FEATURE_HASH_SEED;
        assert_eq!(feature != 0, seed != 0);
        let mut footer = *opened.footer();
        footer.features ^= FEATURE_HASH_SEED;
        let mut bytes = table.bytes();
        let at = bytes.len() - FOOTER_BYTES;
        bytes.truncate(at);
        footer.encode(at as u64, &mut bytes);
        let file = InMemory::of_bytes(&bytes).open();
        assert!(matches!(file, Err(Error::Corruption(_))), "{file:?}");
    }
}

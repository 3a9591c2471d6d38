//! Range filters against sets of keys, their rates against theory, and damaged ones.

use std::collections::BTreeSet;

use super::*;
use crate::theory;

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let word = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^ word >> 29
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
}

type Key = Vec<u8>;

/// Blocks of keys with their ends.
struct Blocks {
    keys: Vec<Vec<Key>>,
    ends: Vec<(Key, Key)>,
}

/// A key from `last` to before `next`: short, or `last` itself.
fn between(last: &[u8], next: &[u8]) -> Key {
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    let short = next[..(shared + 1).min(next.len())].to_vec();
    if short.as_slice() < next && short.as_slice() >= last { short } else { last.to_vec() }
}

impl Blocks {
    /// Divides keys, in order, into blocks of these sizes in turn.
    fn new(keys: &[Key], sizes: &[usize]) -> Self {
        let (mut blocks, mut rest, mut size) = (Vec::new(), keys, sizes.iter().cycle());
        while !rest.is_empty() {
            let (block, others) = rest.split_at((*size.next().unwrap()).min(rest.len()));
            blocks.push(block.to_vec());
            rest = others;
        }
        let mut first = keys.first().cloned().unwrap_or_default();
        let mut ends = Vec::new();
        for (i, block) in blocks.iter().enumerate() {
            let last = block.last().unwrap();
            let after = blocks.get(i + 1).map_or(last.clone(), |next| between(last, &next[0]));
            ends.push((std::mem::replace(&mut first, after.clone()), after));
        }
        Self { keys: blocks, ends }
    }

    fn ends(&self, block: usize) -> BlockEnds<'_> {
        let (first, last) = &self.ends[block];
        BlockEnds { first, last }
    }

    fn filter(&self, spec: &str) -> (RangeFilter, Vec<u8>) {
        let mut builder = spec.parse::<RangeSpec>().unwrap().builder();
        for (i, keys) in self.keys.iter().enumerate() {
            keys.iter().for_each(|key| builder.add(key));
            builder.end_block(self.ends(i));
        }
        let bytes = builder.finish();
        (RangeFilter::decode(&bytes).unwrap(), bytes)
    }

    /// The block that a search for `key` reaches.
    fn find(&self, key: &[u8]) -> usize {
        self.ends.partition_point(|(_, last)| **last < *key)
    }
}

/// Keys of many shapes: of few bytes, prefixes of each other, longer than an infix where they are
/// equal, of zeros and of the largest byte.
fn odd_keys(random: &mut Random, count: usize) -> Vec<Key> {
    let mut keys = BTreeSet::new();
    for _ in 0..count {
        let mut key = vec![b'k'; [0, 0, 3, 20][random.below(4)]];
        let bytes = [b"\0\x01\xff".as_slice(), b"ab", b"0123456789", b"\xff"][random.below(4)];
        for _ in 0..random.below(14) {
            key.push(bytes[random.below(bytes.len())]);
        }
        keys.insert(key);
    }
    keys.into_iter().collect()
}

#[test]
fn no_key_is_denied() {
    let random = &mut Random(1);
    for round in 0..150 {
        let mut keys = odd_keys(random, 1 + round * 3);
        if round % 5 == 0 {
            // The same key in several blocks, as if its versions filled them.
            keys = keys.into_iter().flat_map(|key| [key.clone(), key.clone(), key]).collect();
        }
        let sizes = [[1, 1, 1], [7, 40, 2], [100, 3, 500]][round % 3];
        let blocks = Blocks::new(&keys, &sizes);
        let spec = ["infix:3", "infix:6", "infix:9.7", "infix:32"][round % 4];
        let (filter, _) = blocks.filter(spec);
        let (mut denied, mut queried) = (0, 0);
        for _ in 0..400 {
            let block = random.below(blocks.keys.len());
            let held = &blocks.keys[block];
            let near = &held[random.below(held.len())];
            let mut bounds = odd_keys(random, 3);
            bounds.extend([
                near.clone(),
                [near.as_slice(), b"\0"].concat(),
                blocks.ends[block].1.clone(),
            ]);
            let from = bounds[random.below(bounds.len())].clone();
            let to = (random.below(9) > 0).then(|| bounds[random.below(bounds.len())].clone());
            let is_in = |key: &&Key| **key >= from && to.as_ref().is_none_or(|to| *key < to);
            let holds = held.iter().any(|key| is_in(&key));
            let answer = filter.may_hold(block, blocks.ends(block), &from, to.as_deref());
            assert!(answer || !holds, "{spec}: {from:?}..{to:?} in block {block}");
            (denied, queried) = (denied + usize::from(!answer), queried + usize::from(!holds));
        }
        assert!(denied * 4 > queried, "{spec}: {denied} of {queried} empty ranges denied");
    }
}

/// Ranges of `width` times the mean distance of keys, with random starts, that hold no key: how
/// many are queried of one block, how many pass, and how many were expected to.
fn measured(
    blocks: &Blocks,
    filter: &RangeFilter,
    width: f64,
    key: impl Fn(u64) -> Key,
) -> [f64; 3] {
    let all: BTreeSet<&Key> = blocks.keys.iter().flatten().collect();
    let distance = u64::MAX as f64 / all.len() as f64;
    let random = &mut Random(77);
    let (mut queried, mut passed) = (0.0, 0.0);
    for _ in 0..150_000 {
        let start = random.next();
        let Some(end) = start.checked_add((width * distance) as u64 + 1) else { continue };
        let (from, to) = (key(start), key(end));
        let block = blocks.find(&from);
        if from >= to || block >= blocks.keys.len() || to > blocks.ends[block].1 {
            continue;
        }
        if from < blocks.ends[block].0 || all.range::<Key, _>(&from..&to).next().is_some() {
            continue;
        }
        queried += 1.0;
        let answer = filter.may_hold(block, blocks.ends(block), &from, Some(&to));
        passed += f64::from(u8::from(answer));
    }
    [queried, passed, queried * filter.expected_fpr()]
}

fn random_keys(count: usize, key: impl Fn(u64) -> Key) -> Vec<Key> {
    let random = &mut Random(5);
    let keys: BTreeSet<Key> = (0..count).map(|_| key(random.next())).collect();
    keys.into_iter().collect()
}

fn binary(n: u64) -> Key {
    n.swap_bytes().to_le_bytes().to_vec()
}

fn digits(n: u64) -> Key {
    format!("user{n:020}").into_bytes()
}

fn hex(n: u64) -> Key {
    format!("{n:016x}/profile").into_bytes()
}

/// Theory against measurement within 5%, for keys and ranges that are spread evenly: of binary
/// numbers, decimal and hexadecimal ones.
#[test]
fn rates_are_as_expected() {
    type Shape = fn(u64) -> Key;
    let shapes: [(&str, Shape); 3] = [("binary", binary), ("digits", digits), ("hex", hex)];
    for (name, shape) in shapes {
        let blocks = Blocks::new(&random_keys(150_000, shape), &[38, 42, 40]);
        for bits in [5.0, 6.0, 8.5] {
            let (filter, bytes) = blocks.filter(&format!("infix:{bits}"));
            let stored = bytes.len() as f64 * 8.0 / filter.keys() as f64;
            assert!(stored < bits + 0.15, "{name}, {bits} bits: {stored} stored");
            let limit = theory::infix_limit(bits);
            let off = filter.expected_fpr() / limit - 1.0;
            assert!(off.abs() < 0.05, "{name}, {bits} bits: {} of {limit}", filter.expected_fpr());
            let mut sum = [0.0; 3];
            for width in [0.0, 0.03, 0.4] {
                let of_width = measured(&blocks, &filter, width, shape);
                (0..3).for_each(|i| sum[i] += of_width[i]);
            }
            let [queried, passed, expected] = sum;
            let off = passed / expected - 1.0;
            assert!(queried > 100_000.0 && expected > 1000.0, "{queried} queried");
            assert!(off.abs() < 0.05, "{name}, {bits} bits: {passed} passed, {expected} expected");
        }
    }
}

/// Regression: the code was left out, and the bytes of a list of few bits per key were overstated.
#[test]
fn the_expected_bytes_are_those_of_keys_that_spread_evenly() {
    type Shape = fn(u64) -> Key;
    let shapes: [(&str, Shape); 3] = [("binary", binary), ("digits", digits), ("hex", hex)];
    for (name, shape) in shapes {
        for count in [3_000, 10_000, 100_000] {
            let blocks = Blocks::new(&random_keys(count, shape), &[38, 42, 40]);
            for bits in [3.0, 4.0, 5.3, 6.0, 6.9, 8.5, 14.0] {
                let (filter, bytes) = blocks.filter(&format!("infix:{bits}"));
                let expected = RangeSpec::new(bits).unwrap().expected_bytes(filter.keys());
                let off = bytes.len() as f64 / expected as f64 - 1.0;
                let what = format!("{name}, {count} keys, {bits} bits: {} bytes", bytes.len());
                println!("{what}, {off:+.3}");
                assert!(off.abs() < 0.05, "{what}, {expected} expected");
            }
        }
    }
    assert_eq!(RangeSpec::NONE.expected_bytes(1000), 0);
}

/// The filters that a builder makes one after the other are those of their blocks alone.
#[test]
fn filters_of_one_builder_are_independent() {
    let blocks = Blocks::new(&random_keys(5_000, digits), &[38, 42, 40]);
    let spec: RangeSpec = "infix:6".parse().unwrap();
    let (mut builder, mut alone) = (spec.builder(), spec.builder());
    for (i, keys) in blocks.keys.iter().enumerate() {
        if i % 30 == 29 {
            // The next block is open already.
            keys.iter().take(1).for_each(|key| builder.add(key));
            let taken = builder.take_blocks();
            assert_eq!(taken, std::mem::replace(&mut alone, spec.builder()).finish());
            assert!(builder.is_empty() && builder.blocks() == 0);
            keys.iter().skip(1).for_each(|key| builder.add(key));
        } else {
            keys.iter().for_each(|key| builder.add(key));
        }
        builder.end_block(blocks.ends(i));
        keys.iter().for_each(|key| alone.add(key));
        alone.end_block(blocks.ends(i));
    }
    assert_eq!(builder.finish(), alone.finish());
}

/// Numbers in a thousand clusters, dense in the middle of each.
fn clustered(random: &mut Random) -> Key {
    let center = Random(random.next() % 1000).next() % 1_000_000_000_000;
    let offset: u64 = (0..4).map(|_| random.next() % 50_000_000).sum();
    format!("user{:013}", center + offset).into_bytes()
}

/// A tenant of a thousand, and one of its minutes.
fn tenants(random: &mut Random) -> Key {
    let (tenant, minute) = (random.next() % 1000, random.next() % 1_440_000);
    let (day, hour, minute) = (minute / 1440, minute / 60 % 24, minute % 60);
    format!("t{tenant:06}/{day:03}T{hour:02}:{minute:02}").into_bytes()
}

/// A path of a file in a tree of directories of very uneven sizes.
fn paths(random: &mut Random) -> Key {
    // Of small numbers more often than of large ones.
    let mut word = |most: usize| {
        let nth = random.below(most).min(random.below(most)) as u64;
        let letters = Random(nth).next();
        let letter = |i: u64| char::from(b'a' + (letters >> (5 * i)) as u8 % 32 % 26);
        (0..3 + letters % 7).map(letter).collect::<String>()
    };
    let [top, name] = [word(20), word(5000)];
    let inner: Vec<String> = (0..1 + word(4).len() % 4).map(|_| word(100) + "/").collect();
    format!("/srv/{top}/{}{name}.{}", inner.concat(), word(3)).into_bytes()
}

/// The stated rate against the measured one within 5%, for ranges that begin with keys like those
/// of the filter, whatever these are like. Half of the keys of each kind are in the filter.
#[test]
fn stated_rates_are_true_of_keys_of_any_kind() {
    type Kind = fn(&mut Random) -> Key;
    let kinds: [(&str, Kind, f64); 4] = [
        ("uniform", |random| digits(random.next()), 0.065),
        ("clustered", clustered, 0.3),
        ("tenants", tenants, 0.1),
        ("paths", paths, 1.0),
    ];
    for (name, kind, most) in kinds {
        let random = &mut Random(11);
        let all: BTreeSet<Key> = (0..400_000).map(|_| kind(random)).collect();
        let (present, missing): (Vec<Key>, Vec<Key>) =
            all.into_iter().partition(|_| random.below(2) == 0);
        let blocks = Blocks::new(&present, &[38, 42, 40]);
        for bits in [4.0, 6.0, 8.0] {
            let (filter, _) = blocks.filter(&format!("infix:{bits}"));
            let (mut queried, mut passed) = (0.0, 0.0);
            for key in &missing {
                let block = blocks.find(key);
                if block >= blocks.keys.len() || *key < blocks.ends[block].0 {
                    continue;
                }
                let to = [key.as_slice(), b"\0"].concat();
                let answer = filter.may_hold(block, blocks.ends(block), key, Some(&to));
                queried += 1.0;
                passed += f64::from(u8::from(answer));
            }
            let (measured, stated) = (passed / queried, filter.expected_fpr());
            println!("{name}, {bits} bits: {measured} of {queried}, {stated} stated");
            let off = measured / stated - 1.0;
            assert!(off.abs() < 0.05, "{name}, {bits} bits: {measured}, {stated} stated");
            assert!(bits < 6.0 || measured < most, "{name}, {bits} bits: {measured}");
        }
    }
}

/// A range that begins within a cell's width after a key is not denied: stated, not hidden.
#[test]
fn a_range_next_to_a_key_is_a_maybe() {
    let keys = random_keys(40_000, binary);
    let blocks = Blocks::new(&keys, &[40]);
    let (filter, _) = blocks.filter("infix:6");
    let next_to = |key: &Key| {
        let block = blocks.find(key);
        let from = [key.as_slice(), b"\0"].concat();
        let to = [key.as_slice(), b"\x01"].concat();
        filter.may_hold(block, blocks.ends(block), &from, Some(&to))
    };
    let passed = keys.iter().filter(|key| next_to(key)).count();
    assert!(passed * 100 > keys.len() * 99, "{passed} of {}", keys.len());
}

/// Bytes of a range filter of `binary` keys.
fn small(count: usize) -> Vec<u8> {
    Blocks::new(&random_keys(count, digits), &[3, 17]).filter("infix:7.3").1
}

#[test]
fn damaged_filters_are_refused() {
    let whole = small(300);
    for at in 0..whole.len() {
        assert!(RangeFilter::decode(&whole[..at]).is_err(), "cut at {at}");
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        assert!(RangeFilter::decode(&flipped).is_err(), "byte {at}");
    }
    assert!(matches!(
        RangeFilter::decode(&[whole, vec![0]].concat()),
        Err(DecodeError::Damaged { .. })
    ));
}

/// Bytes with a right checksum, whatever else is wrong, are refused or answer in bounded time and
/// memory.
#[test]
fn forged_filters_do_no_harm() {
    let random = &mut Random(9);
    let mut usable = 0;
    for round in 0..20_000 {
        let mut bytes = small(2 + round % 40);
        for _ in 0..1 + random.below(3) {
            let at = 4 + random.below(bytes.len() - 4);
            let value = [0, 1, 0x7f, 0xff, random.next() as u8][random.below(5)];
            match random.below(8) {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, value),
                _ => bytes[at] = value,
            }
        }
        let Some((head, body)) = bytes.split_at_mut_checked(HEADER_BYTES) else { continue };
        let sum = checksum(&head[..CHECKSUM_AT], body);
        head[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        let Ok(filter) = RangeFilter::decode(&bytes) else { continue };
        usable += 1;
        assert!(filter.memory_bytes() <= RangeFilter::most_memory_bytes(bytes.len()));
        for _ in 0..20 {
            let [first, last, from] = [0; 3].map(|_| digits(random.next()));
            let ends = BlockEnds { first: &first, last: &last };
            let to = digits(random.next());
            filter.may_hold(random.below(30), ends, &from, Some(&to));
        }
    }
    assert!(usable > 2000, "{usable}");
}

//! Arbitrary bytes are decoded: nothing panics, nothing large is allocated, and a decoded filter
//! answers queries.
//!
//! 1. A valid filter is taken from a small collection: every kind, with and without keys, one cache
//!    line, several batches, several shards.
//! 2. It is changed once or a few times: bits flipped, bytes overwritten, removed, added, or copied
//!    from another filter; fields of the header and of a ribbon's shards set to extreme values; the
//!    family replaced.
//! 3. Seven times in eight the checksum is corrected, and sometimes the stated length as well, so
//!    that the code after the checksum is reached. Otherwise the change must be detected.
//! 4. It is decoded. This allocates at most as many bytes as the input has. A decoded filter is
//!    queried, one by one and many at once, and both must agree.
//!
//! Every execution has a number, and is deterministic. A run has 200,000 times `TROMMEL_SCALE`
//! executions. For ten million:
//!
//! `TROMMEL_SCALE=50 cargo test -p trommel-filter --test bounds fuzz -- --nocapture`

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use trommel_filter::{DecodeError, Filter, FilterSpec, hash};

use crate::allocator::most_held;

const EXECUTIONS: u64 = 200_000;

/// The layout of the changed bytes.
struct Layout {
    header: usize,
    checksum: usize,
    /// Fields of the header: offset and length in bytes.
    fields: &'static [(usize, usize)],
    /// Makes the bytes state their own length.
    settle: fn(&mut [u8]),
    /// Other values for the identification in bytes 4 to 6.
    other_kind: fn(&mut Random) -> [u8; 3],
}

const FILTER: Layout = Layout {
    header: 64,
    checksum: 56,
    fields: &[
        (0, 4),
        (4, 1),
        (5, 1),
        (6, 1),
        (7, 1),
        (8, 2),
        (10, 2),
        (12, 4),
        (16, 8),
        (24, 8),
        (32, 8),
        (40, 8),
    ],
    settle: |bytes| {
        let blocks = (bytes.len() - 64) as u64 / 64;
        put(bytes, 16, &blocks.to_le_bytes());
    },
    other_kind: |random| {
        [1 + random.below(5) as u8, 1 + random.below(2) as u8, 7 * random.below(2) as u8]
    },
};

/// The original filters: small, so that many can be tried.
const WHOLE: [(&str, u64); 26] = [
    ("standard:10", 0),
    ("standard:10", 1),
    ("standard:7.5", 200),
    ("standard:64", 20),
    ("blocked:10", 0),
    ("blocked:10", 1),
    ("blocked:9", 250),
    ("blocked:64", 30),
    ("paired:10", 0),
    ("paired:10", 40),
    ("paired:10", 100),
    ("paired:23.4", 150),
    ("paired:64", 40),
    ("paired:0.5", 140_000),
    ("ribbon:10", 0),
    ("ribbon:10", 1),
    ("ribbon:7.3", 300),
    ("ribbon:40", 20),
    ("ribbon:0.5", 17_000),
    ("ribbon:1.2", 33_000),
    ("fuse:10", 0),
    ("fuse:10", 1),
    ("fuse:7.3", 300),
    ("fuse:9", 200),
    ("fuse:40", 20),
    ("fuse:0.5", 17_000),
];

const EXTREMES: [u64; 20] = [
    0,
    1,
    2,
    63,
    64,
    65,
    127,
    128,
    255,
    500,
    64_000,
    64_001,
    u32::MAX as u64,
    1 << 32,
    1 << 58,
    1 << 63,
    u64::MAX / 512,
    u64::MAX - 1,
    u64::MAX,
    0x3ff0_0000_0000_0000,
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^ x >> 32
    }

    /// A number below `n`, or 0.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn extreme(&mut self) -> u64 {
        let value = EXTREMES[self.below(EXTREMES.len())];
        if self.below(4) == 0 { self.next() } else { value }
    }
}

fn collection() -> Vec<Vec<u8>> {
    let build = |(spec, keys): (&str, u64)| {
        let mut builder = spec.parse::<FilterSpec>().expect("a valid spec").builder();
        (0..keys).for_each(|key| builder.add(&key.to_le_bytes()));
        builder.finish()
    };
    WHOLE.map(build).to_vec()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (byte, &new) in bytes.iter_mut().skip(at).zip(value) {
        *byte = new;
    }
}

/// One change.
fn change(layout: &Layout, bytes: &mut Vec<u8>, whole: &[Vec<u8>], random: &mut Random) {
    let len = bytes.len();
    match random.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(random.below(len)) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => put(bytes, random.below(len), &random.next().to_le_bytes()[..1 + random.below(8)]),
        2 => bytes.truncate(random.below(len + 1)),
        3 => {
            let body = len.saturating_sub(layout.header);
            bytes.truncate(layout.header + body / 64 * random.below(64));
        }
        4 => bytes.resize(len + 1 + random.below(200), random.next() as u8),
        5 => {
            let other = &whole[random.below(whole.len())];
            let from = random.below(other.len());
            let to = from + 1 + random.below((other.len() - from).min(300));
            put(bytes, random.below(len), &other[from..to.min(other.len())]);
        }
        6 | 7 => {
            let (at, width) = layout.fields[random.below(layout.fields.len())];
            put(bytes, at, &random.extreme().to_le_bytes()[..width]);
        }
        // A ribbon's shards begin after the number of shards; a pair index is in a block's first
        // byte.
        8 => {
            let at = layout.header + 4 * random.below(24);
            put(bytes, at, &random.extreme().to_le_bytes()[..1 + random.below(8)]);
        }
        _ => put(bytes, 4, &(layout.other_kind)(random)),
    }
}

/// Sets the right checksum, and sometimes the right lengths.
fn seal(layout: &Layout, bytes: &mut [u8], random: &mut Random) {
    if bytes.len() < layout.header {
        return;
    }
    if random.below(2) == 0 {
        (layout.settle)(bytes);
    }
    let covered = [&bytes[..layout.checksum], &bytes[layout.header..]].concat();
    put(bytes, layout.checksum, &hash(&covered).to_le_bytes());
}

/// One of `whole`, changed, and whether it may decode.
fn changed(layout: &Layout, whole: &[Vec<u8>], random: &mut Random) -> (Vec<u8>, bool) {
    let original = &whole[random.below(whole.len())];
    let mut bytes = original.clone();
    for _ in 0..1 + random.below(3) {
        change(layout, &mut bytes, whole, random);
    }
    let sealed = random.below(8) > 0;
    if sealed {
        seal(layout, &mut bytes, random);
    }
    let may_open = sealed || bytes == *original;
    (bytes, may_open)
}

/// Decodes and queries. Returns the outcome in a word.
fn execute(number: u64, whole: &[Vec<u8>]) -> String {
    let mut random = Random(number << 20);
    let (bytes, may_open) = changed(&FILTER, whole, &mut random);
    let (answer, most) = most_held(|| Filter::decode(&bytes));
    assert!(most <= bytes.len() as u64, "{most} bytes to open {}", bytes.len());
    match answer {
        Ok(filter) => {
            assert!(may_open, "damage is not found");
            query(&filter, bytes.len(), &mut random);
            format!("opened as {}", filter.kind())
        }
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &DecodeError) -> String {
    match error {
        DecodeError::Unknown { .. } => "unknown".to_owned(),
        other => other.to_string(),
    }
}

/// Queries `filter`, whose answers must be deterministic.
fn query(filter: &Filter, len: usize, random: &mut Random) {
    let mut hashes = [0, 1, u64::MAX, 1 << 63, u64::MAX >> 1, 0, 0, 0, 0, 0, 0, 0];
    hashes[5..].fill_with(|| random.next());
    let mut many = [false; 12];
    filter.may_contain_many(&hashes, &mut many);
    let one_by_one = hashes.map(|hash| filter.may_contain_hash(hash));
    assert_eq!(one_by_one, many);
    assert!((0.0..=1.0).contains(&filter.expected_fpr()));
    assert!(filter.bits_per_key() >= 0.0 && filter.requested_bits_per_key() >= 0.5);
    assert!((1..=64).contains(&filter.probes()));
    assert!(filter.memory_bytes() <= len + 128);
}

fn scale() -> u64 {
    let scale = std::env::var("TROMMEL_SCALE").ok();
    scale.map_or(1, |text| text.parse().expect("TROMMEL_SCALE is a whole number"))
}

/// Runs all executions, and asserts that each of the `expected` outcomes is reached many times.
#[expect(clippy::print_stdout, reason = "a test's helper: what was reached is reported")]
fn run(execute: impl Fn(u64) -> String + Copy + Send, expected: &[&str]) {
    let executions = EXECUTIONS * scale();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let work = move |first: u64| {
        let mut seen = BTreeMap::<String, u64>::new();
        for number in (first..executions).step_by(threads as usize) {
            let outcome = catch_unwind(AssertUnwindSafe(|| execute(number)));
            let outcome = outcome.unwrap_or_else(|_| panic!("execution {number} failed"));
            *seen.entry(outcome).or_default() += 1;
        }
        seen
    };
    let mut seen = BTreeMap::<String, u64>::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|nth| scope.spawn(move || work(nth))).collect();
        for worker in workers {
            for (outcome, count) in worker.join().expect("every execution passes") {
                *seen.entry(outcome).or_default() += count;
            }
        }
    });
    assert_eq!(seen.values().sum::<u64>(), executions);
    println!("{executions} executions:");
    for (outcome, count) in &seen {
        println!("{count:>10} {outcome}");
    }
    for way in expected {
        let count: u64 =
            seen.iter().filter(|(outcome, _)| outcome.contains(way)).map(|(_, count)| count).sum();
        assert!(count > executions / 2000, "{way}: reached {count} times");
    }
}

#[test]
fn fuzz_decoding_and_querying() {
    let whole = collection();
    let expected = [
        "opened as standard",
        "opened as blocked",
        "opened as paired",
        "opened as ribbon",
        "opened as fuse",
        "unknown",
        "shorter than its header",
        "the magic number of a filter",
        "checksum",
        "number of probes",
        "bits per key",
        "contradict",
        "probability",
        "is odd",
        "length",
        "as pairs",
        "shards",
    ];
    run(|number| execute(number, &whole), &expected);
}

/// Without a forged checksum, any single wrong byte is detected: all values of all bytes.
#[test]
fn any_damaged_byte_is_found() {
    for bytes in collection().iter().filter(|bytes| bytes.len() <= 400) {
        let mut damaged = bytes.clone();
        for at in 0..bytes.len() {
            for value in 0..=255 {
                damaged[at] = value;
                assert_eq!(Filter::decode(&damaged).is_ok(), value == bytes[at], "byte {at}");
            }
            damaged[at] = bytes[at];
        }
    }
}

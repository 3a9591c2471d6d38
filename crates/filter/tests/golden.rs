//! The format is frozen: every later version opens filters written by the first one, with the same
//! answers; and a filter that is not intact is never opened. `docs/format/filter.md` describes the
//! bytes.

use std::path::Path;

use trommel_filter::{
    BlockEnds, DecodeError, Filter, FilterKind, FilterSpec, RangeFilter, RangeSpec,
};

struct Golden {
    file: &'static str,
    spec: &'static str,
    keys: u32,
    bytes: &'static [u8],
    probes: u32,
    expected_fpr: f64,
    /// The absent keys, of `absent 0` to `absent 1999`, that are false positives.
    mistaken: &'static [u32],
}

macro_rules! golden {
    ($file:literal, $spec:literal, $keys:literal, $probes:literal, $fpr:literal, $mistaken:expr) => {
        Golden {
            file: $file,
            spec: $spec,
            keys: $keys,
            bytes: include_bytes!(concat!("golden/", $file)),
            probes: $probes,
            expected_fpr: $fpr,
            mistaken: &$mistaken,
        }
    };
}

const GOLDEN: [Golden; 11] = [
    golden!(
        "standard.filter",
        "standard:8",
        300,
        6,
        0.01662219297159921,
        [
            5, 87, 160, 206, 227, 231, 261, 474, 484, 507, 516, 640, 693, 873, 887, 983, 990, 1023,
            1123, 1136, 1175, 1181, 1233, 1293, 1324, 1375, 1578, 1581, 1639, 1742, 1872, 1877,
            1924, 1935, 1996
        ]
    ),
    golden!(
        "blocked.filter",
        "blocked:8",
        300,
        6,
        0.01805041319682851,
        [
            14, 94, 230, 258, 334, 361, 386, 429, 467, 706, 751, 775, 776, 788, 805, 901, 926,
            1299, 1392, 1648, 1652, 1714, 1741, 1897, 1927, 1944, 1980
        ]
    ),
    golden!(
        "blocked-odd.filter",
        "blocked:9.5",
        250,
        7,
        0.00844042937302918,
        [14, 270, 334, 383, 614, 668, 684, 788, 1115, 1332, 1380, 1824]
    ),
    golden!(
        "paired.filter",
        "paired:8",
        300,
        8,
        0.008201673870249171,
        [135, 497, 557, 637, 774, 923, 1006, 1700, 1758, 1893, 1968]
    ),
    golden!(
        "paired-lone.filter",
        "paired:fpr=1e-2",
        50,
        8,
        0.00819606751573107,
        [5, 28, 800, 834, 870, 877, 905, 950, 1228, 1536, 1548, 1650]
    ),
    golden!(
        "paired-batches.filter",
        "paired:8",
        8250,
        6,
        0.022235821358494376,
        [
            29, 58, 219, 272, 274, 327, 336, 340, 343, 344, 384, 405, 420, 421, 475, 487, 494, 671,
            684, 734, 792, 830, 831, 856, 870, 893, 894, 941, 1040, 1050, 1134, 1167, 1227, 1288,
            1355, 1412, 1491, 1508, 1515, 1525, 1531, 1636, 1642, 1714, 1768, 1857, 1901, 1915,
            1922, 1947, 1967
        ]
    ),
    golden!(
        "ribbon.filter",
        "ribbon:8.3",
        300,
        9,
        0.003898650291828794,
        [273, 297, 733, 1022, 1025, 1271, 1410, 1474, 1490]
    ),
    golden!(
        "ribbon-shards.filter",
        "ribbon:5",
        17000,
        5,
        0.03359241556851621,
        [
            0, 90, 100, 112, 162, 254, 269, 285, 303, 322, 342, 390, 461, 466, 469, 603, 614, 617,
            624, 636, 647, 648, 668, 675, 710, 736, 767, 884, 921, 971, 1085, 1131, 1145, 1210,
            1216, 1217, 1240, 1279, 1302, 1345, 1365, 1389, 1476, 1555, 1572, 1590, 1606, 1611,
            1618, 1648, 1654, 1675, 1690, 1699, 1776, 1791, 1815, 1824, 1844, 1993
        ]
    ),
    golden!(
        "fuse.filter",
        "fuse:8.3",
        300,
        8,
        0.006337483723958333,
        [43, 54, 262, 332, 728, 914, 1204, 1408, 1656, 1851, 1852]
    ),
    golden!(
        "fuse-whole.filter",
        "fuse:9",
        2000,
        8,
        0.00390625,
        [12, 160, 296, 398, 961, 968, 1395, 1455, 1995]
    ),
    golden!("empty.filter", "paired:10", 0, 2, 0.0, []),
];

fn present(n: u32) -> Vec<u8> {
    format!("present {n}").into_bytes()
}

fn build(golden: &Golden) -> Vec<u8> {
    let mut builder = golden.spec.parse::<FilterSpec>().expect("a valid spec").builder();
    (0..golden.keys).for_each(|n| builder.add(&present(n)));
    builder.finish()
}

fn mistaken(filter: &Filter) -> Vec<u32> {
    (0..2000).filter(|n| filter.may_contain(format!("absent {n}").as_bytes())).collect()
}

#[test]
fn golden_filters_decode_with_the_same_answers() {
    for golden in &GOLDEN {
        let filter = Filter::decode(golden.bytes).expect(golden.file);
        let spec: FilterSpec = golden.spec.parse().expect("a valid spec");
        assert_eq!(filter.kind(), spec.kind(), "{}", golden.file);
        assert_eq!(filter.keys(), u64::from(golden.keys), "{}", golden.file);
        assert_eq!(filter.probes(), golden.probes, "{}", golden.file);
        assert_eq!(filter.expected_fpr(), golden.expected_fpr, "{}", golden.file);
        assert!((0..golden.keys).all(|n| filter.may_contain(&present(n))), "{}", golden.file);
        assert_eq!(mistaken(&filter), golden.mistaken, "{}", golden.file);
    }
}

/// Builders still write the bytes of the first version. The expected rate may differ in its last
/// digits, as the theory is computed in floating point.
#[test]
fn builders_still_write_the_golden_bytes() {
    for golden in &GOLDEN {
        let mut bytes = build(golden);
        assert_eq!(bytes.len(), golden.bytes.len(), "{}", golden.file);
        bytes[32..40].copy_from_slice(&golden.bytes[32..40]);
        bytes[56..64].copy_from_slice(&golden.bytes[56..64]);
        assert!(bytes == golden.bytes, "{} is written differently", golden.file);
    }
}

#[test]
fn every_kind_has_a_golden_file() {
    for kind in FilterKind::ALL {
        let is_there = GOLDEN.iter().any(|golden| Filter::peek_kind(golden.bytes) == kind);
        assert!(is_there, "{kind}");
    }
}

/// Decodes the header by hand, by the table of the format page.
#[test]
fn the_header_matches_the_format_page() {
    for golden in &GOLDEN {
        let bytes = golden.bytes;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let filter = Filter::decode(bytes).expect(golden.file);
        assert_eq!(&bytes[..4], b"TrFl");
        let (family, version, batch) = match filter.kind() {
            FilterKind::Standard => (1, 1, 0),
            FilterKind::Blocked => (2, 2, 0),
            FilterKind::Paired => (3, 2, 7),
            FilterKind::Ribbon => (4, 1, 0),
            FilterKind::Fuse => (5, 1, 0),
            kind => panic!("add {kind} to the table of the format page"),
        };
        assert_eq!(bytes[4..8], [family, version, batch, filter.probes() as u8]);
        assert_eq!(bytes[8..12], [0; 4]);
        let millibits = u32::from_le_bytes(std::array::from_fn(|i| bytes[12 + i]));
        assert_eq!(f64::from(millibits) / 1000.0, filter.requested_bits_per_key());
        assert_eq!(word(16), (bytes.len() as u64 - 64) / 64);
        assert_eq!(word(24), filter.keys());
        assert_eq!(f64::from_bits(word(32)), filter.expected_fpr());
        assert_eq!(bytes[40..56], [0; 16]);
        let covered: Vec<u8> = [&bytes[..56], &bytes[64..]].concat();
        assert_eq!(word(56), trommel_filter::hash(&covered));
    }
}

/// The first versions of two families mixed their hashes differently. No release wrote them. A
/// leftover one must not be queried, and is not corrupt either.
#[test]
fn versions_before_the_first_release_are_unknown() {
    let old: [&[u8]; 2] =
        [include_bytes!("golden/blocked-1.filter"), include_bytes!("golden/paired-1.filter")];
    for bytes in old {
        let error = Filter::decode(bytes).expect_err("not a filter of today");
        assert!(matches!(error, DecodeError::Unknown { version: 1, .. }), "{error}");
    }
}

#[test]
fn one_wrong_bit_anywhere_is_found() {
    for golden in &GOLDEN {
        let mut bytes = golden.bytes.to_vec();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert!(Filter::decode(&bytes).is_err(), "{}: byte {at}, bit {bit}", golden.file);
                bytes[at] ^= 1 << bit;
            }
        }
        assert!(Filter::decode(&bytes).is_ok());
    }
}

#[test]
fn a_missing_or_added_byte_is_found() {
    for golden in &GOLDEN {
        for len in 0..golden.bytes.len() {
            assert!(Filter::decode(&golden.bytes[..len]).is_err(), "{}: {len} bytes", golden.file);
            assert!(Filter::decode(&golden.bytes[len + 1..]).is_err());
        }
        for more in [1, 8, 64] {
            let longer = [golden.bytes, &vec![0; more]].concat();
            assert!(Filter::decode(longer).is_err(), "{}: {more} bytes more", golden.file);
        }
    }
}

/// Writes the files and prints the values for the table above. Only for a new file: existing ones
/// are never overwritten.
#[test]
#[ignore = "writes golden files that are missing"]
fn write_missing_golden_files() {
    for golden in &GOLDEN {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden.file);
        if std::fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            continue;
        }
        let bytes = build(golden);
        std::fs::write(&path, &bytes).expect("the file can be written");
        let filter = Filter::decode(bytes).expect("what a builder wrote");
        println!(
            "golden!({:?}, {:?}, {}, {}, {:?}, {:?}),",
            golden.file,
            golden.spec,
            golden.keys,
            filter.probes(),
            filter.expected_fpr(),
            mistaken(&filter)
        );
    }
}

/// The keys of the golden range filter, in blocks of twenty.
fn range_keys() -> Vec<Vec<u8>> {
    let mut word = 1_u64;
    let mut keys: Vec<Vec<u8>> = (0..600)
        .map(|_| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            format!("row {:08}", (word >> 33) % 100_000_000).into_bytes()
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

fn range_ends(keys: &[Vec<u8>]) -> Vec<[Vec<u8>; 2]> {
    let mut first = keys[0].clone();
    let ends = keys.chunks(20).map(|block| {
        let last = block[block.len() - 1].clone();
        [std::mem::replace(&mut first, last.clone()), last]
    });
    ends.collect()
}

fn build_ranges() -> Vec<u8> {
    let keys = range_keys();
    let mut builder = "infix:7.5".parse::<RangeSpec>().expect("a valid spec").builder();
    for (block, [first, last]) in keys.chunks(20).zip(range_ends(&keys)) {
        block.iter().for_each(|key| builder.add(key));
        builder.end_block(BlockEnds { first: &first, last: &last });
    }
    builder.finish()
}

/// The format of range filters is frozen too, and its header is that of the format page.
#[test]
fn the_golden_filter_for_ranges_has_the_same_answers() {
    let bytes: &[u8] = include_bytes!("golden/infix.ranges");
    assert!(build_ranges() == bytes, "it is written differently");
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let filter = RangeFilter::decode(bytes).expect("a golden file");
    assert_eq!((&bytes[..4], bytes[4], bytes[5], bytes[7]), (&b"TrRf"[..], 1, 1, 0));
    assert_eq!(word(8) & 0xffff_ffff, 7500);
    assert_eq!((word(8) >> 32, word(16)), (filter.blocks() as u64, filter.keys()));
    assert!(word(24) as f64 / (word(32) * (word(8) >> 32)) as f64 <= filter.expected_fpr());
    assert_eq!(f64::from_bits(word(40)), filter.expected_fpr());
    assert_eq!(bytes[48..56], [0; 8]);
    let covered: Vec<u8> = [&bytes[..56], &bytes[64..]].concat();
    assert_eq!(word(56), trommel_filter::hash(&covered));
    let keys = range_keys();
    let ends = range_ends(&keys);
    let mistaken = (0..2000_u32).filter(|n| {
        let [from, to] = [0, 9000].map(|more| format!("row {:08}", n * 49_999 + more).into_bytes());
        let block = ends.partition_point(|[_, last]| **last < *from);
        let is_empty = !keys.iter().any(|key| from <= *key && *key < to);
        let Some([first, last]) = ends.get(block).filter(|_| is_empty) else { return false };
        filter.may_hold(block, BlockEnds { first, last }, &from, Some(&to))
    });
    assert_eq!(mistaken.count(), MISTAKEN_RANGES);
}

/// The empty ranges that the golden range filter takes for ones with keys.
const MISTAKEN_RANGES: usize = 36;

#[test]
#[ignore = "writes the golden file if it is missing"]
fn write_the_missing_golden_filter_for_ranges() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/infix.ranges");
    if !std::fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
        std::fs::write(&path, build_ranges()).expect("the file can be written");
    }
}

use std::path::Path;
use std::sync::Arc;

use trommel_base::codec::{put_bytes, put_varint};
use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};
use trommel_vfs::Vfs;

use super::format::{
    ABOUT_BYTES, BLOCK_KEY_BYTES, BLOCK_LOOKUPS, FORM, KIND_ABOUT, KIND_LOOKUPS, MAX_PAYLOAD_BYTES,
    VERSION, put_lookup,
};
use super::*;
use crate::error::{Error, Result};
use crate::framed::{FrameHead, FrameWriter, HEAD_BYTES, HEADER_BYTES, Header, KIND_END};
use crate::{Db, Options};

const PAGE: &str = include_str!("../../../../docs/format/trace.md");
const GOLDEN: &[u8] = include_bytes!("testdata/v1.trace");
const ID: u64 = 0x7472_6f6d_6d65_6c21;
const INFO: TraceInfo = TraceInfo { store_id: 0x12ab, sample: 100 };

type Lookup = (Vec<u8>, Outcome, u64);

const NOWHERE: Outcome = Outcome { place: Place::Nowhere, found: false };

fn at(place: Place, found: bool) -> Outcome {
    Outcome { place, found }
}

/// Every possible outcome, in an order other than a block's; keys that share prefixes.
fn small() -> Vec<Lookup> {
    let lookup = |key: &[u8], outcome, times| (key.to_vec(), outcome, times);
    vec![
        lookup(b"pear", at(Place::Level(0), true), 3),
        lookup(b"pear", NOWHERE, 1),
        lookup(b"", at(Place::Memory, true), 2),
        lookup(b"\xff\0", at(Place::Memory, false), 1),
        lookup(b"pea", at(Place::Level(6), false), MAX_TIMES),
        lookup(b"pear", at(Place::Level(0), true), 4),
        lookup(&[7; 300], at(Place::Level(3), true), 1),
    ]
}

/// The same, in a block's order.
fn small_sorted() -> Vec<Lookup> {
    let mut all = small();
    all.sort();
    all.dedup_by(|later, first| {
        let alike = (&later.0, later.1) == (&first.0, first.1);
        first.2 += if alike { later.2 } else { 0 };
        alike
    });
    all
}

fn written(lookups: &[Lookup]) -> Vec<u8> {
    let mut writer = TraceWriter::with_id(Vec::new(), INFO, ID).unwrap();
    for (key, outcome, times) in lookups {
        writer.add(key, *outcome, *times).unwrap();
    }
    let (bytes, totals) = writer.finish().unwrap();
    assert_eq!(totals.lookups, lookups.iter().map(|lookup| lookup.2).sum::<u64>());
    bytes
}

/// The lookups that are yielded, the outcome, and whether the trace was reported as cut off.
fn read(bytes: &[u8]) -> (Vec<Lookup>, Result<TraceTotals>, bool) {
    let mut lookups = Vec::new();
    let mut reader = match TraceReader::new(bytes, "x.trace") {
        Ok(reader) => reader,
        Err(error) => return (lookups, Err(error), false),
    };
    assert_eq!(reader.info(), INFO);
    loop {
        match reader.next_lookup() {
            Ok(Some(TracedLookup { key, outcome, times })) => {
                lookups.push((key.to_vec(), outcome, times));
            }
            Ok(None) => return (lookups, Ok(reader.totals()), false),
            Err(error) => {
                let is_cut_off = reader.is_cut_off();
                assert!(reader.next_lookup().unwrap().is_none());
                return (lookups, Err(error), is_cut_off);
            }
        }
    }
}

fn offset_of_damage(result: Result<TraceTotals>) -> u64 {
    match result {
        Err(Error::Corruption(damage)) => damage.offset,
        other => panic!("it is damaged, and not {other:?}"),
    }
}

#[test]
fn a_written_trace_is_read_sorted_and_counted() {
    assert_eq!(read(&written(&[])).0, []);
    let (found, end, _) = read(&written(&small()));
    assert_eq!(found, small_sorted());
    assert_eq!(found.len(), 6, "two entries of one key and outcome are one");
    assert_eq!(end.unwrap().lookups, small().iter().map(|lookup| lookup.2).sum::<u64>());
    // Blocks that are full of lookups, and of bytes; each sorted separately.
    let many: Vec<Lookup> = (0..40_000_u32)
        .map(|n| (n.wrapping_mul(0x9e37_79b9).to_le_bytes().to_vec(), NOWHERE, 1))
        .collect();
    let long: Vec<Lookup> = (0..9_u8).map(|n| (vec![n; 65_535], NOWHERE, 1)).collect();
    for lookups in [many, long] {
        let bytes = written(&lookups);
        let (mut found, end, _) = read(&bytes);
        let totals = end.unwrap();
        assert_eq!(totals.lookups, lookups.len() as u64);
        let falls = found.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
        assert!((1..=2).contains(&falls) || lookups.len() < BLOCK_LOOKUPS, "{falls} blocks");
        found.sort();
        let mut lookups = lookups;
        lookups.sort();
        assert!(found == lookups);
    }
}

#[test]
fn impossible_lookups_are_not_written() {
    let mut writer = TraceWriter::with_id(Vec::new(), INFO, ID).unwrap();
    for (key, outcome, times) in [
        (&[b'k'; 65_536][..], NOWHERE, 1),
        (b"k", at(Place::Nowhere, true), 1),
        (b"k", at(Place::Level(7), true), 1),
        (b"k", at(Place::Level(255), true), 1),
        (b"k", NOWHERE, MAX_TIMES + 1),
    ] {
        assert!(writer.add(key, outcome, times).is_err(), "{outcome:?} {times}");
    }
    writer.add(b"k", NOWHERE, 0).unwrap();
    assert_eq!(writer.finish().unwrap().1, TraceTotals::default());
    for sample in [0, (1 << 32) + 1] {
        assert!(TraceWriter::new(Vec::new(), TraceInfo { sample, ..INFO }).is_err());
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let (whole, bytes) = (small_sorted(), written(&small()));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let (found, end, is_cut_off) = read(&flipped);
            assert!(offset_of_damage(end) <= at as u64 && !is_cut_off, "byte {at}");
            let after_block = at >= bytes.len() - HEAD_BYTES;
            assert_eq!(found, if after_block { whole.clone() } else { vec![] }, "byte {at}");
        }
    }
}

#[test]
fn every_truncation_is_found_and_distinguished_from_corruption() {
    let bytes = written(&small());
    let first = HEADER_BYTES + HEAD_BYTES + ABOUT_BYTES + 4;
    for end in 0..bytes.len() {
        let (found, result, is_cut_off) = read(&bytes[..end]);
        assert!(offset_of_damage(result) <= end as u64);
        assert_eq!(is_cut_off, end >= first, "cut at {end}: it says what it is from {first} on");
        assert_eq!(found.is_empty(), end < bytes.len() - HEAD_BYTES);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(offset_of_damage(read(&longer).1), bytes.len() as u64);
}

/// A trace whose one block has this payload, with valid checksums.
fn forged(payload: &[u8], lookups: u64) -> Vec<u8> {
    let mut frames = FrameWriter::begin(Vec::new(), FORM, ID).unwrap();
    frames.frame(KIND_ABOUT, 0, &INFO.encode()).unwrap();
    frames.frame(KIND_LOOKUPS, lookups, payload).unwrap();
    frames.end(lookups, payload.len() as u64).unwrap()
}

#[test]
fn forged_blocks_with_valid_checksums_are_refused() {
    let entry = |shared: u64, rest: &[u8], outcome: u8, times: u64| {
        let mut out = Vec::new();
        put_varint(&mut out, shared);
        put_bytes(&mut out, rest);
        out.push(outcome);
        put_varint(&mut out, times);
        out
    };
    let good = entry(0, b"ab", 0x82, 1);
    assert_eq!(read(&forged(&good, 1)).0.len(), 1);
    let refused = [
        (vec![], 0),
        (good.clone(), 2),
        (entry(0, b"ab", 0x80, 1), 1),
        (entry(0, b"ab", 9, 1), 1),
        (entry(0, b"ab", 0x7f, 1), 1),
        (entry(0, b"ab", 0x82, 0), 0),
        (entry(0, b"ab", 0x82, MAX_TIMES + 1), MAX_TIMES + 1),
        (entry(1, b"b", 0x82, 1), 1),
        ([&*good, &entry(2, b"", 0x82, 1)].concat(), 2),
        ([&*good, &entry(2, b"", 0, 1)].concat(), 2),
        ([&*good, &entry(1, b"a", 0x82, 1)].concat(), 2),
        ([&*good, &entry(3, b"", 0x83, 1)].concat(), 2),
        ([&*good, &entry(2, &[0; 65_534], 0, 1)].concat(), 2),
        ([&*good, &[0]].concat(), 1),
        (good[..3].to_vec(), 1),
    ];
    for (payload, lookups) in refused {
        let (found, end, _) = read(&forged(&payload, lookups));
        assert!(matches!(end, Err(Error::Corruption(_))), "{payload:?}");
        assert_eq!(found, []);
    }
    // Two blocks whose sum exceeds 64 bits.
    let (entries, mut block) = (40_000_u32, Vec::new());
    for n in 0..entries {
        let key = |n: u32| format!("{n:05}").into_bytes();
        let last = n.checked_sub(1).map_or(Vec::new(), key);
        put_lookup(&mut block, &last, &key(n), 0, MAX_TIMES);
    }
    assert!(block.len() as u64 <= MAX_PAYLOAD_BYTES);
    let mut frames = FrameWriter::begin(Vec::new(), FORM, ID).unwrap();
    frames.frame(KIND_ABOUT, 0, &INFO.encode()).unwrap();
    for _ in 0..2 {
        frames.frame(KIND_LOOKUPS, u64::from(entries) * MAX_TIMES, &block).unwrap();
    }
    let (found, end, _) = read(&frames.end(0, 0).unwrap());
    assert!(matches!(end, Err(Error::Corruption(_))) && found.len() == entries as usize);
    // Other frames in wrong positions, and an end with wrong counts.
    for (kind, entries) in [(KIND_ABOUT, 0), (KIND_LOOKUPS, 1), (4, 0)] {
        let mut frames = FrameWriter::begin(Vec::new(), FORM, ID).unwrap();
        if kind != KIND_ABOUT {
            frames.frame(kind, entries, &good).unwrap();
        }
        let bytes = frames.end(entries, 0).unwrap();
        assert!(TraceReader::new(&*bytes, "x").is_err(), "kind {kind}");
    }
    let mut counted = forged(&good, 1);
    let end = counted.len() - HEAD_BYTES;
    counted.truncate(end);
    counted.extend(FrameHead { kind: KIND_END, entries: 2, bytes: 6 }.encode(ID, end as u64));
    assert_eq!(offset_of_damage(read(&counted).1), end as u64);
}

#[test]
fn a_newer_version_is_no_damage_and_a_dump_is_no_trace() {
    for (version, features) in [(VERSION + 1, 0), (VERSION, 1)] {
        let header = Header { version, features, id: ID }.encode(&MAGIC);
        assert!(matches!(read(&header).1, Err(Error::Unsupported { .. })));
    }
    let header = Header { version: VERSION, features: 0, id: ID }.encode(&crate::dump::MAGIC);
    let error = read(&header).1.unwrap_err().to_string();
    assert!(error.contains("it does not begin as a trace of lookups does"), "{error}");
}

#[test]
fn a_claimed_size_takes_no_memory() {
    let whole = forged(b"", 0);
    let begin = &whole[..HEADER_BYTES + HEAD_BYTES + ABOUT_BYTES + 4];
    for bytes in [MAX_PAYLOAD_BYTES, u64::MAX] {
        let mut forged = begin.to_vec();
        let head = FrameHead { kind: KIND_LOOKUPS, entries: 1, bytes };
        forged.extend(head.encode(ID, begin.len() as u64));
        assert!(matches!(read(&forged).1, Err(Error::Corruption(_))));
    }
}

/// `TROMMEL_REFREEZE=1` rewrites the file, which is allowed only before the first release.
#[test]
fn a_trace_of_the_first_version_is_read_and_written_as_ever() {
    let bytes = written(&small());
    if std::env::var_os("TROMMEL_REFREEZE").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/trace/testdata/v1.trace");
        std::fs::write(file, &bytes).unwrap();
        return;
    }
    assert!(bytes == GOLDEN, "a trace is no longer written as it was");
    assert_eq!(read(GOLDEN).0, small_sorted());
}

#[test]
fn the_page_states_the_constants_of_the_code() {
    let magic: Vec<String> = MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    for said in [
        format!("`{}`", magic.join(" ")),
        format!("header, {HEADER_BYTES} B"),
        format!("head, {HEAD_BYTES} B"),
        format!("end, {HEAD_BYTES} B"),
        format!("| version  | {VERSION} |"),
        format!("kind {KIND_LOOKUPS} "),
        format!("kind {KIND_END} "),
        format!("kind {KIND_ABOUT} "),
        format!("{ABOUT_BYTES} bytes"),
        format!("{BLOCK_KEY_BYTES} bytes"),
        format!("{BLOCK_LOOKUPS} lookups"),
        format!("{MAX_PAYLOAD_BYTES} bytes"),
        "2^48".to_owned(),
        "2^32".to_owned(),
    ] {
        assert!(PAGE.contains(&said), "docs/format/trace.md does not say \"{said}\"");
    }
}

fn open(vfs: Arc<dyn Vfs>) -> Db {
    Db::open("db", Options::default().vfs(vfs).background_threads(0)).unwrap()
}

/// The contents of a trace, in order.
fn trace_of(vfs: &dyn Vfs, path: &str) -> Vec<Lookup> {
    let mut reader = TraceReader::open(vfs, Path::new(path)).unwrap();
    let mut lookups = Vec::new();
    while let Some(TracedLookup { key, outcome, times }) = reader.next_lookup().unwrap() {
        lookups.push((key.to_vec(), outcome, times));
    }
    lookups
}

#[test]
fn every_way_to_look_up_is_recorded_with_its_end() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let db = open(Arc::clone(&vfs));
    db.put("deep", "1").unwrap();
    db.put("gone", "1").unwrap();
    db.compact_all().unwrap();
    // Otherwise the tombstone would be compacted down to the entry that it deletes.
    db.set_options(|o| o.compaction(|c| c.auto_compaction(false))).unwrap();
    db.delete("gone").unwrap();
    db.flush().unwrap();
    db.put("fresh", "1").unwrap();
    db.delete("lost").unwrap();
    db.get("deep").unwrap();
    let trace = db.trace_lookups("all.trace", TraceOptions::default()).unwrap();
    for key in ["deep", "gone", "fresh", "lost", "none"] {
        db.get(key).unwrap();
        db.contains_key(key).unwrap();
    }
    db.snapshot().get("deep").unwrap();
    db.insert_if_absent("deep", "2").unwrap();
    let keys = ["none", "deep", "lost", "fresh", "gone", "deep"];
    db.multi_get(&keys).unwrap();
    db.snapshot().multi_get(&keys).unwrap();
    let totals = trace.finish().unwrap();
    db.get("deep").unwrap();
    let lookup = |key: &str, place, found, times| (key.into(), at(place, found), times);
    let expected = [
        lookup("deep", Place::Level(1), true, 8),
        lookup("fresh", Place::Memory, true, 4),
        lookup("gone", Place::Level(0), false, 4),
        lookup("lost", Place::Memory, false, 4),
        lookup("none", Place::Nowhere, false, 4),
    ];
    assert_eq!(trace_of(&*vfs, "all.trace"), expected);
    assert_eq!(totals.lookups, 24);
    assert_eq!(TraceReader::open(&*vfs, Path::new("all.trace")).unwrap().info().store_id, db.id());
}

#[test]
fn a_trace_continues_after_its_store_is_reopened() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let db = open(Arc::clone(&vfs));
    let trace = db.trace_lookups("t", TraceOptions::default()).unwrap();
    db.get("a").unwrap();
    db.close().unwrap();
    let db = open(Arc::clone(&vfs));
    db.get("b").unwrap();
    trace.go_on(&db).unwrap();
    db.get("c").unwrap();
    let other_vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let other = open(other_vfs).trace_lookups("t", TraceOptions::default()).unwrap();
    assert!(matches!(other.go_on(&db), Err(Error::InvalidOption { .. })), "another store's");
    db.close().unwrap();
    trace.finish().unwrap();
    let keys: Vec<_> = trace_of(&*vfs, "t").into_iter().map(|lookup| lookup.0).collect();
    assert_eq!(keys, [b"a", b"c"]);
}

#[test]
fn a_trace_is_refused_where_it_cannot_be() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let db = open(Arc::clone(&vfs));
    let begin = |path: &str, options| db.trace_lookups(path, options);
    let usage = |path: &str, options| match begin(path, options) {
        Err(error) => (error.kind(), error.to_string()),
        Ok(_) => panic!("{path} is refused"),
    };
    let all = TraceOptions::default();
    for (path, options, says) in [
        ("db/x.trace", all, "lies in the store's directory"),
        ("x.trace", all.sample(0), "one lookup of 1 to 4294967296, not of 0"),
        ("x.trace", all.sample(1 << 33), "not of 8589934592"),
    ] {
        let (kind, text) = usage(path, options);
        assert!(kind == crate::ErrorKind::Usage && text.contains(says), "{text}");
    }
    let first = begin("x.trace", all).unwrap();
    assert!(usage("y.trace", all).1.contains("being recorded already"));
    drop(first);
    assert_eq!(usage("x.trace", all).0, crate::ErrorKind::Usage, "it is there already");
    begin("y.trace", all).unwrap().finish().unwrap();
    assert_eq!(trace_of(&*vfs, "x.trace"), [], "a trace that is dropped has its end");
    assert!(begin("no/such/place", all).is_err());
    db.clone().close().unwrap();
    assert!(matches!(begin("z.trace", all), Err(Error::Closed)));
}

/// Each call on the trace's file fails once; no lookup fails, and the store continues to write.
#[test]
fn an_error_of_the_trace_fails_no_lookup() {
    let lookups = 3 * BLOCK_LOOKUPS as u32;
    // The header and the first frame are written when the trace begins: four appends. Then three
    // for each block, and one for the end.
    for (kind, fails) in [(OpKind::Append, 10), (OpKind::Sync, 1), (OpKind::SyncDir, 1)] {
        for nth in 0..=fails {
            let disk = SimDisk::new();
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            vfs.create_dir(Path::new("/traces")).unwrap();
            let db = Db::open("/db", Options::default().vfs(vfs).background_threads(0)).unwrap();
            let trace = db.trace_lookups("/traces/t.traces", TraceOptions::default()).unwrap();
            disk.inject(Fault::new(Failure::NoSpace).on(kind).named("traces").after(nth));
            for n in 0..lookups {
                assert!(db.get(n.to_le_bytes()).unwrap().is_none());
            }
            let ended = trace.finish();
            assert_eq!(disk.faults_fired(), u64::from(nth < fails), "{kind:?} {nth}");
            assert_eq!(ended.is_ok(), nth == fails, "{kind:?} {nth}: {ended:?}");
            assert!(matches!(ended, Ok(_) | Err(Error::Io { .. })), "{ended:?}");
            disk.clear_faults();
            db.put("k", "v").unwrap();
            let next = db.trace_lookups("/next", TraceOptions::default()).unwrap();
            assert_eq!(next.finish().unwrap().lookups, 0);
        }
    }
}

#[test]
fn threads_share_a_trace_and_a_sample_is_about_its_part() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let db = open(Arc::clone(&vfs));
    let (threads, each) = (4_u32, 20_000_u32);
    for (sample, path) in [(1, "all"), (10, "some")] {
        let trace = db.trace_lookups(path, TraceOptions::default().sample(sample).seed(3)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let db = &db;
                scope.spawn(move || {
                    for n in 0..each {
                        db.get((thread * each + n).to_le_bytes()).unwrap();
                    }
                });
            }
        });
        let lookups = trace.finish().unwrap().lookups;
        let expected = f64::from(threads * each) / sample as f64;
        let off = (lookups as f64 - expected).abs();
        assert!(off <= 4.0 * (expected * (1.0 - 1.0 / sample as f64)).sqrt(), "{lookups}");
        let mut keys: Vec<_> = trace_of(&*vfs, path).into_iter().map(|lookup| lookup.0).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len() as u64, lookups, "each was looked up once");
    }
}

//! Operations on a store and on a sorted map: all results agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel::{Compression, Db, FilterShape, Options, ReadMode, Verify, WriteBatch};
use trommel_sim::MemoryVfs;

use crate::image::DIR;

/// Maximum number of operations in an input.
const MOST_OPERATIONS: usize = 300;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The bytes of an input, followed by zeros.
struct Input<'a>(std::slice::Iter<'a, u8>);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    /// One of a few keys, with lengths within and beyond a word.
    fn key(&mut self) -> Vec<u8> {
        let byte = self.byte();
        let stem: &[u8] = [&b"k"[..], b"key of words ", b"", b"\xff\xff"][usize::from(byte >> 6)];
        [stem, &[byte & 0x1f]].concat()
    }

    fn value(&mut self) -> Vec<u8> {
        let (byte, length) = (self.byte(), self.byte());
        let times = if length & 0x80 == 0 { 1 } else { 12 };
        vec![byte; usize::from(length & 0x7f) * times]
    }
}

fn options(input: &mut Input<'_>, vfs: &MemoryVfs) -> Options {
    let (a, b) = (input.byte(), input.byte());
    let filters = ["none", "paired:16", "blocked:10", "L0=ribbon:12,L1-=standard:10"];
    let shapes = [FilterShape::Whole, FilterShape::Partitioned];
    Options::default()
        .vfs(Arc::new(vfs.clone()))
        .background_threads(0)
        .reads(|r| {
            r.cache_bytes(1 << 20).block_bytes([64, 128, 256, 4096][usize::from(a & 3)]).read_mode(
                [ReadMode::Cached, ReadMode::Mapped(Verify::EachUse)][usize::from(a >> 3 & 1)],
            )
        })
        .writes(|w| w.write_buffer_bytes(4096))
        .compaction(|c| {
            c.table_bytes(1 << 10).base_level_bytes(1 << 10).level_ratio(2).l0_trigger(2)
        })
        .compression(if a & 4 == 0 { Compression::None } else { Compression::Lz4 })
        .filters(filters[usize::from(a >> 4 & 3)].parse().expect("a filter policy"))
        .filtering(|f| f.filter_shape(shapes[usize::from(b) % 2]).filter_partition_bytes(256))
}

fn agree(db: &Db, model: &Model) {
    let forward: Vec<_> = db.iter().map(|entry| entry.expect("memory is well")).collect();
    let same = |((key, value), (k, v)): (&(_, _), (&Vec<u8>, &Vec<u8>))| {
        let (key, value): (&trommel::Slice, &trommel::Slice) = (key, value);
        **key == **k && **value == **v
    };
    assert!(forward.len() == model.len() && forward.iter().zip(model).all(same));
    let mut reverse: Vec<_> = db.iter().rev().map(|entry| entry.expect("memory is well")).collect();
    reverse.reverse();
    assert_eq!(forward, reverse);
}

pub(crate) fn operations(input: &[u8]) {
    let vfs = MemoryVfs::new();
    let mut input = Input(input.iter());
    let mut db = Db::open(DIR, options(&mut input, &vfs)).expect("a new store");
    let mut model = Model::new();
    let mut frozen = None;
    for _ in 0..MOST_OPERATIONS {
        if input.0.as_slice().is_empty() {
            break;
        }
        match input.byte() % 16 {
            0..=4 => {
                let (key, value) = (input.key(), input.value());
                db.put(&key, &value).expect("memory is well");
                model.insert(key, value);
            }
            5 | 6 => {
                let key = input.key();
                db.delete(&key).expect("memory is well");
                model.remove(&key);
            }
            7 => {
                let mut batch = WriteBatch::new();
                for _ in 0..input.byte() % 8 {
                    let (key, value) = (input.key(), input.value());
                    if value.len() % 3 == 0 {
                        batch.delete(&key);
                        model.remove(&key);
                    } else {
                        batch.put(&key, &value);
                        model.insert(key, value);
                    }
                }
                db.write(batch).expect("memory is well");
            }
            8 | 9 => {
                let key = input.key();
                let found = db.get(&key).expect("memory is well");
                assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{key:?}");
            }
            10 => db.flush().expect("memory is well"),
            11 => db.compact_all().expect("memory is well"),
            12 => frozen = Some((db.snapshot(), model.clone())),
            13 => {
                let Some((snapshot, then)) = &frozen else { continue };
                let key = input.key();
                let found = snapshot.get(&key).expect("memory is well");
                assert_eq!(found.as_deref(), then.get(&key).map(Vec::as_slice), "{key:?}");
                assert_eq!(snapshot.iter().count(), then.len());
            }
            14 => {
                let (a, b) = (input.key(), input.key());
                let (from, to) = if a <= b { (a, b) } else { (b, a) };
                let found = db.range(from.clone()..to.clone());
                let keys: Vec<_> = found.map(|entry| entry.expect("memory is well").0).collect();
                let want: Vec<_> = model.range(from..to).map(|(key, _)| key).collect();
                assert!(keys.len() == want.len() && keys.iter().zip(want).all(|(a, b)| **a == **b));
            }
            _ => {
                frozen = None;
                db.close().expect("memory is well");
                db = Db::open(DIR, options(&mut input, &vfs)).expect("a store that was closed");
            }
        }
    }
    agree(&db, &model);
    db.verify().expect("what the store wrote verifies");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // Fill, flush, overwrite, delete, compact, reopen; with each of several options.
    let mut seeds = Vec::new();
    for options in [[0x00, 0], [0x16, 1], [0x2d, 2], [0x3b, 0]] {
        let mut seed = options.to_vec();
        for round in 0..4_u8 {
            for key in 0..24_u8 {
                seed.extend([0, key | round << 6, key, 40 + round]);
            }
            seed.extend([12, 10, 5, 3, 13, 4, 8, 5, 14, 1, 20, 11]);
        }
        seed.push(15);
        seed.extend(options);
        seeds.push(seed);
    }
    seeds
}

//! A whole store: fields are changed, every checksum is fixed, and then it is opened, read in every
//! way, verified, compacted and reopened.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use trommel::inspect::{Table, live_files, properties};
use trommel::{Db, Options, ReadMode, Slice, Verify};
use trommel_vfs::Vfs;

use crate::fix;
use crate::image::{DIR, Image, Kind, golden_stores, kind_of, vfs_of};

/// Bytes of one change in an input.
const CHANGE_BYTES: usize = 8;
/// Maximum number of changes in an input.
const MOST_CHANGES: usize = 16;
/// Maximum length of a file after a change.
const MOST_FILE_BYTES: usize = 64 << 10;

/// Checks that all kinds of reads agree; returns the entries.
pub(crate) fn agree(db: &Db) -> Vec<(Slice, Slice)> {
    let forward: Vec<_> = db.iter().map(|entry| entry.expect("it verifies")).collect();
    let mut reverse: Vec<_> = db.iter().rev().map(|entry| entry.expect("it verifies")).collect();
    reverse.reverse();
    assert_eq!(forward, reverse, "two ways through one store");
    assert!(forward.is_sorted_by(|a, b| *a.0 < *b.0), "keys in order, each once");
    let keys: Vec<&[u8]> = forward.iter().map(|(key, _)| &**key).collect();
    let values = db.multi_get(&keys).expect("it verifies");
    for ((key, value), also) in forward.iter().zip(values) {
        let found = db.get(key).expect("it verifies");
        assert_eq!(found.as_ref(), Some(value), "a get of {key:?} and a scan");
        assert_eq!(found, also, "a get of {key:?} and of many");
    }
    forward
}

/// The input selects the store and the way to open it, followed by changes of eight bytes each.
pub(crate) fn store(input: &[u8]) {
    let Some(([which, how], changes)) = input.split_first_chunk::<2>() else { return };
    let bases = bases();
    let base = &bases[usize::from(*which) % bases.len()];
    let mut image = base.clone();
    for change in changes.chunks_exact(CHANGE_BYTES).take(MOST_CHANGES) {
        apply(change, &mut image);
    }
    for (name, bytes) in &mut image {
        match kind_of(name) {
            Kind::Table => fix::table(bytes),
            Kind::Sidecar => fix::sidecar(bytes),
            Kind::Log | Kind::Manifest => fix::framed(bytes),
            Kind::Current => fix::current(bytes),
            Kind::Other => {}
        }
    }
    // A manifest is trusted about the levels of tables; see `tests/damage/hostile.rs`.
    let manifest = |(name, bytes): (&String, &Vec<u8>)| {
        kind_of(name) == Kind::Manifest && base.get(name) != Some(bytes)
    };
    examine(&image, *how, !image.iter().any(manifest));
}

/// A change: the file, the operation, the offset (three bytes), and the operands (three bytes).
fn apply(change: &[u8], image: &mut Image) {
    let &[file, what, a, b, c, x, y, z] = change else { return };
    let count = image.len();
    let Some((name, bytes)) = image.iter_mut().nth(usize::from(file) % count) else { return };
    let at = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
    let at = at % (bytes.len() + 1);
    let is_table = kind_of(name) == Kind::Table;
    match what % 9 {
        0 => put(bytes, at, &[x]),
        1 => put(bytes, at, &[x, y]),
        2 => put(bytes, at, &u32::from_le_bytes([x, y, z, 0]).to_le_bytes()),
        3 => put(bytes, at, &u64::from_le_bytes([x, y, z, 0, 0, 0, 0, 0]).to_le_bytes()),
        4 => put(bytes, at, &[0xff; 8][..usize::from(x % 8) + 1]),
        5 => {
            let from = usize::from(x) | usize::from(y) << 8;
            let some: Vec<u8> = bytes.iter().skip(from).take(usize::from(z)).copied().collect();
            put(bytes, at, &some);
        }
        6 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = byte.wrapping_add(x);
            }
        }
        // If a table's length differs from that in the manifest, nothing else of it is read.
        7 if !is_table => bytes.truncate(at),
        8 if !is_table && bytes.len() < MOST_FILE_BYTES => {
            let more = vec![y; usize::from(x)];
            bytes.splice(at..at, more);
        }
        _ => {}
    }
}

fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(with) {
        *byte = *new;
    }
}

fn examine(image: &Image, how: u8, levels_are_true: bool) {
    let vfs = Arc::new(vfs_of(image));
    let dir = Path::new(DIR);
    let _ = live_files(&*vfs, dir);
    let _ = properties(&*vfs, dir);
    for name in image.keys().filter(|name| kind_of(name) == Kind::Table) {
        if let Ok(table) = Table::open(&*vfs, &dir.join(name)) {
            let (_, _) = (table.info(), table.check());
        }
    }
    let open = || {
        let vfs: Arc<dyn Vfs> = Arc::<trommel_sim::MemoryVfs>::clone(&vfs);
        let options = Options::default()
            .vfs(vfs)
            .background_threads(0)
            .reads(|r| {
                r.cache_bytes(1 << 20).read_mode(
                    [ReadMode::Cached, ReadMode::Mapped(Verify::EachUse)][usize::from(how & 1)],
                )
            })
            .compaction(|c| c.table_bytes(1 << 10))
            .opening(|o| o.read_only(how & 2 != 0).salvage(how & 4 != 0));
        Db::open(DIR, options)
    };
    let Ok(db) = open() else { return };
    let verified = db.verify();
    if verified.is_err() || !levels_are_true {
        read_all(&db);
        let _ = db.compact_all();
        let _ = db.close();
        return;
    }
    let entries = agree(&db);
    if how & 2 != 0 {
        return;
    }
    db.put("one more", "value").expect("a store that verifies takes writes");
    db.delete("one more").expect("a store that verifies takes writes");
    let want: Vec<_> = entries.into_iter().filter(|(key, _)| &**key != b"one more").collect();
    db.compact_all().expect("a store that verifies can be compacted");
    db.verify().expect("a compaction writes what verifies");
    assert_eq!(agree(&db), want, "before and after a compaction");
    db.close().expect("memory takes it");
    let db = open().expect("what was closed opens");
    assert_eq!(agree(&db), want, "before and after a close");
}

/// Reads in every way, ignoring the results.
fn read_all(db: &Db) {
    let keys: Vec<Slice> = db.iter().map_while(Result::ok).map(|(key, _)| key).collect();
    let _ = db.iter().rev().take_while(Result::is_ok).count();
    let _ = db.multi_get(&keys);
    for key in keys.iter().map(|key| &**key).chain([&b""[..], b"key 006", b"zzz"]) {
        let _ = db.get(key);
    }
}

/// The stores to change: the golden ones, and some with filters of other shapes.
fn bases() -> &'static [Image] {
    static BASES: OnceLock<Vec<Image>> = OnceLock::new();
    BASES.get_or_init(golden_stores)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for which in 0..bases().len() as u8 {
        let base = &bases()[usize::from(which)];
        for (file, bytes) in base.values().enumerate() {
            let end = (bytes.len() as u32).saturating_sub(60).to_le_bytes();
            let change = [file as u8, 0, end[0], end[1], end[2], 1, 0, 0];
            seeds.push([&[which, which % 8], &change[..]].concat());
        }
    }
    seeds
}

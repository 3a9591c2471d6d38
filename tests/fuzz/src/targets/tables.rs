//! Tables: whole ones with all checksums fixed, and single blocks within a table.

use std::path::Path;
use std::sync::Arc;

use trommel_base::codec::{put_bytes, put_u16, put_u32, put_u64, put_varint};
use trommel_base::{Cursor, EntryKind, SeqNo, first_word};
use trommel_filter::hash;
use trommel_sstable::format::{BlockKind, FRAME_BYTES, Footer};
use trommel_sstable::{
    BlockCache, Expected, ReadStats, Request, ScanOptions, Table, TableConfig, get_many, layout,
};
use trommel_vfs::{Access, ReadFile};

use crate::fix;
use crate::image::{self, Bytes};

/// Maximum number of entries to scan: more than any valid input can hold.
const MOST_ENTRIES: usize = 1 << 20;
const TABLE_ID: u64 = 0x7461_626c_6531;

type Entry = (Vec<u8>, SeqNo, EntryKind, Vec<u8>);

/// Reads a table in every way. If it verifies, all reads agree.
fn examine(bytes: &[u8]) {
    for (access, mapped) in [(Access::Buffered, false), (Access::Mapped, true)] {
        let file: Arc<dyn ReadFile> = Arc::new(Bytes { bytes: bytes.to_vec(), mapped });
        let path = Path::new("000001.sst");
        let _ = layout(&file, path);
        let Ok(expected) = Expected::of_file(&*file, path) else { return };
        let cache = BlockCache::new(1 << 20);
        let config = TableConfig { cache, access, filter_host: None };
        let Ok(table) = Table::open(file, path, expected, &config) else { continue };
        let table = Arc::new(table);
        let forward = scan(&table, true);
        let reverse = scan(&table, false);
        let is_whole = table.verify().is_ok();
        query(&table, forward.as_deref().unwrap_or_default(), is_whole);
        if !is_whole {
            continue;
        }
        let mut reverse = reverse.expect("a table that verifies can be read backward");
        reverse.reverse();
        assert_eq!(forward.as_deref(), Some(&*reverse), "two ways through one table");
    }
}

/// All entries in one direction, unless there is an error.
fn scan(table: &Arc<Table>, forward: bool) -> Option<Vec<Entry>> {
    let mut cursor = table.cursor(ScanOptions { check_order: forward, ..ScanOptions::default() });
    let began = if forward { cursor.seek_to_first() } else { cursor.seek_to_last() };
    began.ok()?;
    let mut found = Vec::new();
    while let Some(entry) = cursor.entry() {
        found.push((entry.key.to_vec(), entry.seqno, entry.kind, entry.value.to_vec()));
        assert!(found.len() <= MOST_ENTRIES, "a scan without an end");
        (if forward { cursor.next() } else { cursor.prev() }).ok()?;
    }
    Some(found)
}

/// Looks up present and absent keys.
fn query(table: &Arc<Table>, entries: &[Entry], is_whole: bool) {
    let others = [&b""[..], b"a", b"key 010", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"];
    let step = entries.len() / 64 + 1;
    let there = entries.iter().step_by(step).map(|(key, ..)| &**key);
    let keys: Vec<&[u8]> = there.chain(others).collect();
    let mut stats = ReadStats::default();
    let hash = |key: &[u8]| table.hash_seed().hash(key);
    let mut cursor = table.cursor(ScanOptions::default());
    for key in &keys {
        let verdict = table.filters().query(key, hash(key));
        let prefix = key.get(..2).unwrap_or(key);
        let _ = table.filters().query_prefix(prefix, hash(prefix), "fixed:2");
        let _ = table.approximate_offset(key);
        let found = table.get(key, hash(key), SeqNo::MAX, &mut stats);
        let _ = cursor.seek(key, SeqNo::MAX);
        let _ = cursor.seek_before(key);
        if !is_whole {
            continue;
        }
        let newest = entries.iter().find(|(other, ..)| other == key);
        let found = found.expect("a table that verifies can be read");
        let found = found.map(|found| (found.seqno, found.kind, found.value.to_vec()));
        assert_eq!(found, newest.map(|(_, seqno, kind, value)| (*seqno, *kind, value.clone())));
        assert!(verdict.maybe || newest.is_none(), "the filter denies a key of its table");
    }
    let of_table = |key| Request { table: 0, key, hash: hash(key), seqno: SeqNo::MAX };
    let requests: Vec<Request<'_>> = keys.iter().map(|key| of_table(*key)).collect();
    let mut answers = 0;
    let all = get_many(|_| Some(&**table), &requests, &mut stats, |_, _| answers += 1);
    assert!(!is_whole || (all.is_ok() && answers == requests.len()));
    table.evict();
}

/// The payloads of the parts of a table; frames and footer are added.
#[derive(Default)]
struct Parts<'a> {
    data: Vec<&'a [u8]>,
    /// Including its frames, but without checksums.
    filters: &'a [u8],
    leaf: Option<&'a [u8]>,
    index: &'a [u8],
    properties: &'a [u8],
}

impl Parts<'_> {
    fn assemble(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut ends = Vec::new();
        let frame = |out: &mut Vec<u8>, payload: &[u8], kind: BlockKind| {
            let offset = out.len();
            out.extend_from_slice(payload);
            out.push(0);
            let content = &out[offset..];
            let sum =
                trommel_sstable::format::block_checksum(TABLE_ID, offset as u64, kind, content);
            put_u32(out, sum);
        };
        for payload in &self.data {
            frame(&mut out, payload, BlockKind::Data);
        }
        ends.push(out.len());
        out.extend_from_slice(self.filters);
        ends.push(out.len());
        if let Some(leaf) = self.leaf {
            frame(&mut out, leaf, BlockKind::IndexLeaf);
        }
        ends.push(out.len());
        frame(&mut out, self.index, BlockKind::IndexTop);
        ends.push(out.len());
        frame(&mut out, self.properties, BlockKind::Properties);
        let footer = Footer {
            table_id: TABLE_ID,
            data_bytes: ends[0] as u64,
            filter_bytes: (ends[1] - ends[0]) as u64,
            leaves_bytes: (ends[2] - ends[1]) as u64,
            index_bytes: (ends[3] - ends[2]) as u64,
            properties_bytes: (out.len() - ends[3]) as u64,
            extension_bytes: 0,
            features: u64::from(self.leaf.is_some()) | 2,
        };
        footer.encode(out.len() as u64, &mut out);
        out
    }
}

/// An index block over contiguous blocks from `first` on, each with its separator.
fn index_of(first: u64, blocks: &[(&[u8], usize)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_u32(&mut out, blocks.len() as u32);
    put_u16(&mut out, 0);
    put_u16(&mut out, 0);
    put_u64(&mut out, first);
    blocks.iter().for_each(|(separator, _)| put_u64(&mut out, first_word(separator)));
    blocks.iter().for_each(|(_, bytes)| put_u32(&mut out, *bytes as u32));
    blocks.iter().for_each(|(separator, _)| put_u16(&mut out, separator.len() as u16));
    for (separator, _) in blocks {
        out.extend_from_slice(separator.get(8..).unwrap_or_default());
    }
    out
}

/// Plausible properties, with this directory of filters.
fn properties_of(entries: u64, blocks: u64, ends: [&[u8]; 2], directory: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut field = |tag: u64, bytes: &[u8]| {
        put_varint(&mut out, tag);
        put_bytes(&mut out, bytes);
    };
    let number = |value: u64| {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        bytes
    };
    field(1, &number(entries));
    field(2, &number(0));
    field(3, &number(entries));
    field(4, ends[0]);
    field(5, ends[1]);
    field(6, &number(1));
    field(7, &number(entries.max(1)));
    field(8, &number(blocks));
    field(9, &number(entries * 20));
    field(10, &number(4096));
    field(11, b"none");
    field(12, b"paired:16");
    field(13, b"");
    if !directory.is_empty() {
        field(14, directory);
    }
    out
}

/// The golden tables, complete.
fn golden() -> Vec<Vec<u8>> {
    image::golden("crates/sstable/tests/golden", "sst")
}

/// The payloads of all blocks of one kind in the golden tables.
fn payloads(kind: BlockKind) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for bytes in golden() {
        let file: Arc<dyn ReadFile> = Arc::new(Bytes { bytes: bytes.clone(), mapped: false });
        let blocks = layout(&file, Path::new("golden.sst")).expect("a golden table");
        for block in blocks.iter().filter(|block| block.kind == kind) {
            let (from, to) = (block.offset as usize, (block.offset + block.bytes) as usize);
            found.push(bytes[from..to - FRAME_BYTES].to_vec());
        }
    }
    found.sort_by_key(Vec::len);
    found.dedup();
    found.into_iter().filter(|bytes| bytes.len() <= 8 << 10).take(40).collect()
}

/// The input is the payload of the only data block. It is decoded because its checksum is valid.
pub(crate) fn data_block(input: &[u8]) {
    let last = b"\xff\xff\xff\xff\xff\xff\xff\xff";
    let index = index_of(0, &[(last, input.len() + FRAME_BYTES)]);
    let entries = input.len().checked_sub(4).and_then(|at| input[at..].first_chunk::<2>());
    let entries = entries.map_or(1, |bytes| u64::from(u16::from_le_bytes(*bytes)).max(1));
    let properties = properties_of(entries, 1, [b"", last], b"");
    let parts =
        Parts { data: vec![input], index: &index, properties: &properties, ..Parts::default() };
    examine(&parts.assemble());
}

pub(crate) fn data_block_seeds() -> Vec<Vec<u8>> {
    payloads(BlockKind::Data)
}

/// A data block with one entry, `key` at sequence number 1, according to the format page.
fn one_entry(key: &[u8]) -> Vec<u8> {
    let mut out = b"value".to_vec();
    let key_at = out.len() as u16;
    put_varint(&mut out, 0);
    out.extend_from_slice(key);
    put_u16(&mut out, 0);
    put_u16(&mut out, key_at);
    out.push((hash(key) >> 24) as u8);
    put_u64(&mut out, 1 << 8 | 1);
    put_u16(&mut out, 1);
    out.extend_from_slice(&[0, 0]);
    out
}

const KEYS: [&[u8]; 4] = [b"alpha", b"beta and more", b"gamma", b"gamma ray"];

/// The input's first byte selects the index level of the rest; the blocks below it are valid.
pub(crate) fn index(input: &[u8]) {
    let Some((which, payload)) = input.split_first() else { return };
    let data: Vec<Vec<u8>> = KEYS.iter().map(|key| one_entry(key)).collect();
    let bytes: usize = data.iter().map(|payload| payload.len() + FRAME_BYTES).sum();
    let good: Vec<(&[u8], usize)> =
        KEYS.iter().zip(&data).map(|(key, payload)| (*key, payload.len() + FRAME_BYTES)).collect();
    let leaf = index_of(0, &good);
    let top = index_of(bytes as u64, &[(KEYS[3], payload.len() + FRAME_BYTES)]);
    let properties = properties_of(4, 4, [KEYS[0], KEYS[3]], b"");
    let data = data.iter().map(Vec::as_slice).collect();
    let (leaf, index) = match which % 3 {
        0 => (None, payload),
        1 => (Some(payload), &*top),
        _ => (Some(&*leaf), payload),
    };
    examine(&Parts { data, leaf, index, properties: &properties, filters: b"" }.assemble());
}

pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    let sizes: Vec<(&[u8], usize)> =
        KEYS.iter().map(|key| (*key, one_entry(key).len() + FRAME_BYTES)).collect();
    let bytes: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
    let leaf = index_of(0, &sizes);
    let top = index_of(bytes as u64, &[(KEYS[3], leaf.len() + FRAME_BYTES)]);
    let marked = |which: u8, payload: &[u8]| [&[which], payload].concat();
    let mut seeds = vec![marked(0, &leaf), marked(1, &leaf), marked(2, &top)];
    seeds.extend(payloads(BlockKind::IndexTop).iter().map(|payload| marked(0, payload)));
    seeds.extend(payloads(BlockKind::IndexLeaf).iter().map(|payload| marked(1, payload)));
    seeds
}

/// The first two bytes are the length of the directory in the input; the rest is the filter region.
pub(crate) fn directory(input: &[u8]) {
    let Some((split, rest)) = input.split_first_chunk::<2>() else { return };
    let split = usize::from(u16::from_le_bytes(*split)).min(rest.len());
    let (directory, filters) = rest.split_at(split);
    let data: Vec<Vec<u8>> = KEYS.iter().map(|key| one_entry(key)).collect();
    let blocks: Vec<(&[u8], usize)> =
        KEYS.iter().zip(&data).map(|(key, payload)| (*key, payload.len() + FRAME_BYTES)).collect();
    let index = index_of(0, &blocks);
    let properties = properties_of(4, 4, [KEYS[0], KEYS[3]], directory);
    let data = data.iter().map(Vec::as_slice).collect();
    let mut bytes =
        Parts { data, filters, index: &index, properties: &properties, leaf: None }.assemble();
    fix::table(&mut bytes);
    examine(&bytes);
}

pub(crate) fn directory_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for bytes in golden() {
        let file: Arc<dyn ReadFile> = Arc::new(Bytes { bytes: bytes.clone(), mapped: false });
        let path = Path::new("golden.sst");
        let expected = Expected::of_file(&*file, path).expect("a golden table");
        let cache = BlockCache::new(1 << 20);
        let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
        let table = Table::open(file, path, expected, &config).expect("a golden table");
        let from = table.footer().filter_offset() as usize;
        let region = &bytes[from..from + table.footer().filter_bytes as usize];
        let directory = &table.properties().filters;
        if region.len() <= 16 << 10 {
            let split = (directory.len() as u16).to_le_bytes();
            seeds.push([&split, &**directory, region].concat());
        }
    }
    seeds
}

/// The input is the payload of the properties of an otherwise valid table.
pub(crate) fn properties(input: &[u8]) {
    let data = one_entry(KEYS[0]);
    let index = index_of(0, &[(KEYS[0], data.len() + FRAME_BYTES)]);
    let parts = Parts { data: vec![&data], index: &index, properties: input, ..Parts::default() };
    examine(&parts.assemble());
}

pub(crate) fn properties_seeds() -> Vec<Vec<u8>> {
    let mut seeds = payloads(BlockKind::Properties);
    seeds.push(properties_of(1, 1, [KEYS[0], KEYS[0]], b""));
    seeds
}

/// The input is a whole table including the footer, whose checksums are fixed.
pub(crate) fn table(input: &[u8]) {
    let mut bytes = input.to_vec();
    fix::table(&mut bytes);
    examine(&bytes);
}

pub(crate) fn table_seeds() -> Vec<Vec<u8>> {
    golden().into_iter().filter(|bytes| bytes.len() <= 32 << 10).collect()
}

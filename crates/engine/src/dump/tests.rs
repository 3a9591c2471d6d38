use super::format::{BLOCK_BYTES, MAX_PAYLOAD_BYTES, VERSION};
use super::*;
use crate::error::{Error, Result};
use crate::framed::{FrameHead, HEAD_BYTES, HEADER_BYTES, Header, KIND_END};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

const PAGE: &str = include_str!("../../../../docs/format/dump.md");
const GOLDEN: &[u8] = include_bytes!("testdata/v1.dump");
const ID: u64 = 0x7472_6f6d_6d65_6c21;

fn small() -> Entries {
    let entry = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    vec![entry(b"", b"of the empty key"), entry(b"\0\xff", b""), entry(b"k", &[7; 300])]
}

/// A little more than two blocks.
fn large() -> Entries {
    (0..3000_u32).map(|n| (format!("{n:04}").into_bytes(), vec![n as u8; 40])).collect()
}

fn written(entries: &Entries) -> Vec<u8> {
    let mut writer = DumpWriter::with_id(Vec::new(), ID).unwrap();
    for (key, value) in entries {
        writer.append(key, value).unwrap();
    }
    let (bytes, totals) = writer.finish().unwrap();
    assert_eq!(totals.entries, entries.len() as u64);
    bytes
}

/// The entries returned, and the final result.
fn read(bytes: &[u8]) -> (Entries, Result<DumpTotals>) {
    let mut entries = Vec::new();
    let mut reader = match DumpReader::new(bytes, "x.dump") {
        Ok(reader) => reader,
        Err(error) => return (entries, Err(error)),
    };
    loop {
        match reader.next_entry() {
            Ok(Some((key, value))) => entries.push((key.to_vec(), value.to_vec())),
            Ok(None) => return (entries, Ok(reader.totals())),
            Err(error) => {
                assert!(reader.next_entry().unwrap().is_none());
                return (entries, Err(error));
            }
        }
    }
}

fn offset_of_damage(result: Result<DumpTotals>) -> u64 {
    match result {
        Err(Error::Corruption(damage)) => damage.offset,
        other => panic!("it is damaged, and not {other:?}"),
    }
}

#[test]
fn what_is_written_is_read() {
    for entries in [vec![], small(), large()] {
        let bytes = written(&entries);
        let (found, end) = read(&bytes);
        assert_eq!(end.unwrap().entries, entries.len() as u64);
        assert!(found == entries);
    }
    assert!(written(&large()).len() > 2 * BLOCK_BYTES);
}

#[test]
fn every_flipped_bit_is_found() {
    let (whole, bytes) = (small(), written(&small()));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let (found, end) = read(&flipped);
            assert!(offset_of_damage(end) <= at as u64, "byte {at}");
            let after_block = at >= bytes.len() - HEAD_BYTES;
            assert_eq!(found, if after_block { whole.clone() } else { vec![] }, "byte {at}");
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let bytes = written(&small());
    for end in 0..bytes.len() {
        assert!(offset_of_damage(read(&bytes[..end]).1) <= end as u64);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(offset_of_damage(read(&longer).1), bytes.len() as u64);
}

#[test]
fn moved_blocks_are_detected() {
    let entries = large();
    let bytes = written(&entries);
    let first = FrameHead::decode(bytes[HEADER_BYTES..][..HEAD_BYTES].try_into().unwrap(), ID, 36);
    let block = HEAD_BYTES + first.unwrap().bytes as usize + 4;
    let (header, blocks) = bytes.split_at(HEADER_BYTES);
    let without_first = [header, &blocks[block..]].concat();
    let twice = [header, &blocks[..block], &blocks[..block], &blocks[block..]].concat();
    assert_eq!(offset_of_damage(read(&without_first).1), 36);
    let (found, end) = read(&twice);
    assert_eq!(offset_of_damage(end), 36 + block as u64);
    assert_eq!(found, entries[..found.len()]);
    let mut other = DumpWriter::with_id(Vec::new(), ID + 1).unwrap();
    other.append(b"a", b"").unwrap();
    let (other, _) = other.finish().unwrap();
    let mixed = [&bytes[..HEADER_BYTES], &other[HEADER_BYTES..]].concat();
    assert_eq!(offset_of_damage(read(&mixed).1), 36);
}

#[test]
fn entries_must_ascend() {
    let mut writer = DumpWriter::new(Vec::new()).unwrap();
    writer.append(b"b", b"").unwrap();
    for key in ["b", "a", ""] {
        assert!(writer.append(key.as_bytes(), b"").is_err(), "{key}");
    }
    assert!(writer.append(&[b'c'; 65_536], b"").is_err());
    assert_eq!(writer.finish().unwrap().1.entries, 1);
}

#[test]
fn a_newer_version_is_unsupported() {
    for (version, features) in [(VERSION + 1, 0), (VERSION, 1)] {
        let header = Header { version, features, id: ID }.encode(&MAGIC);
        assert!(matches!(read(&header).1, Err(Error::Unsupported { .. })));
    }
}

#[test]
fn a_claimed_size_takes_no_memory() {
    let mut bytes = Header { version: VERSION, features: 0, id: ID }.encode(&MAGIC);
    let head = FrameHead { kind: 1, entries: 1, bytes: MAX_PAYLOAD_BYTES };
    bytes.extend(head.encode(ID, bytes.len() as u64));
    let mut reader = DumpReader::new(&*bytes, "x").unwrap();
    assert!(matches!(reader.next_entry(), Err(Error::Corruption(_))));
    let head = FrameHead { kind: 1, entries: 1, bytes: u64::MAX };
    bytes.truncate(HEADER_BYTES);
    bytes.extend(head.encode(ID, bytes.len() as u64));
    assert_eq!(offset_of_damage(read(&bytes).1), HEADER_BYTES as u64);
}

/// `TROMMEL_REFREEZE=1` rewrites the file, which is allowed only before the first release.
#[test]
fn a_dump_of_version_1_is_read_and_written_unchanged() {
    let bytes = written(&small());
    if std::env::var_os("TROMMEL_REFREEZE").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dump/testdata/v1.dump");
        std::fs::write(file, &bytes).unwrap();
        return;
    }
    assert!(bytes == GOLDEN, "a dump is no longer written as it was");
    assert_eq!(read(GOLDEN).0, small());
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
        format!("kind {KIND_END}"),
        format!("{BLOCK_BYTES} bytes"),
    ] {
        assert!(PAGE.contains(&said), "docs/format/dump.md does not say \"{said}\"");
    }
}

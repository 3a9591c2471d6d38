use super::format::{
    BLOCK_BYTES, FORM, KEYSPACES, KIND_KEYSPACE, MAX_KEYSPACE_BYTES, MAX_PAYLOAD_BYTES, VERSION,
};
use super::*;
use crate::error::{Error, Result};
use crate::framed::{Form, FrameHead, FrameWriter, HEAD_BYTES, HEADER_BYTES, Header, KIND_END};
use crate::keyspaces::KeyspaceOptions;
use crate::{Compression, Prefix};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

const PAGE: &str = include_str!("../../../../docs/format/dump.md");
const GOLDEN: &[u8] = include_bytes!("testdata/v1.dump");
const GOLDEN_OF_KEYSPACES: &[u8] = include_bytes!("testdata/v1-keyspaces.dump");
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
    let mut writer = DumpWriter::with_id(Vec::new(), 0, ID).unwrap();
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
    let mut other = DumpWriter::with_id(Vec::new(), 0, ID + 1).unwrap();
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
    for (version, features) in [(VERSION + 1, 0), (VERSION, 2), (VERSION, 3)] {
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
        format!("kind {KIND_KEYSPACE}"),
        format!("at most {},536", MAX_KEYSPACE_BYTES / 1000),
        format!("{BLOCK_BYTES} bytes"),
    ] {
        assert!(PAGE.contains(&said), "docs/format/dump.md does not say \"{said}\"");
    }
}

/// A dump with named keyspaces, one of them empty.
fn of_keyspaces() -> Vec<u8> {
    let mut writer = DumpWriter::with_id(Vec::new(), KEYSPACES, ID).unwrap();
    writer.append(b"k", b"of the default keyspace").unwrap();
    let options = KeyspaceOptions::new().compression(Compression::None);
    let options = options.prefix_extractor(Prefix::until("/"));
    writer.begin_keyspace("empty", &options).unwrap();
    writer.begin_keyspace("users", &KeyspaceOptions::new()).unwrap();
    writer.append(b"a", b"its keys begin anew").unwrap();
    let (bytes, totals) = writer.finish().unwrap();
    assert_eq!(totals.entries, 2);
    bytes
}

/// The parts of a dump, one a line, and its end.
fn items(bytes: &[u8]) -> (Vec<String>, Result<DumpTotals>) {
    let mut items = Vec::new();
    let mut reader = match DumpReader::new(bytes, "x.dump") {
        Ok(reader) => reader,
        Err(error) => return (items, Err(error)),
    };
    loop {
        match reader.next_item() {
            Ok(Some(DumpItem::Entry { key, value })) => {
                items.push(format!("{} {}", key.escape_ascii(), value.len()));
            }
            Ok(Some(DumpItem::Keyspace { name, options })) => {
                items.push(format!("{name} {:?}", options.settings()));
            }
            Ok(None) => return (items, Ok(reader.totals())),
            Err(error) => {
                assert!(reader.next_item().unwrap().is_none(), "after an error there is no more");
                return (items, Err(error));
            }
        }
    }
}

#[test]
fn keyspaces_are_read_with_their_options() {
    let bytes = of_keyspaces();
    if std::env::var_os("TROMMEL_REFREEZE").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dump/testdata/v1-keyspaces.dump");
        std::fs::write(file, &bytes).unwrap();
        return;
    }
    assert!(bytes == GOLDEN_OF_KEYSPACES, "a dump is no longer written as it was");
    let (found, end) = items(&bytes);
    let options = "[(\"prefix_extractor\", \"until:/\"), (\"compression\", \"none\")]";
    assert_eq!(found, ["k 23", &format!("empty {options}"), "users []", "a 19"]);
    assert_eq!(end.unwrap().entries, 2);
    // A reader of one keyspace does not return the entries of others.
    let (found, end) = read(&bytes);
    assert_eq!(found.len(), 1);
    assert!(matches!(end, Err(Error::InvalidOption { .. })), "{end:?}");
}

#[test]
fn every_flipped_bit_and_truncation_of_keyspaces_is_found() {
    let bytes = of_keyspaces();
    for at in 0..bytes.len() {
        assert!(offset_of_damage(items(&bytes[..at]).1) <= at as u64);
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(offset_of_damage(items(&flipped).1) <= at as u64, "byte {at}");
        }
    }
}

#[test]
fn keyspaces_must_ascend_and_be_known() {
    let none = KeyspaceOptions::new();
    let mut writer = DumpWriter::with_keyspaces(Vec::new()).unwrap();
    writer.begin_keyspace("b", &none).unwrap();
    for name in ["", "a", "b", &"c".repeat(70_000)] {
        assert!(writer.begin_keyspace(name, &none).is_err());
    }
    assert!(DumpWriter::new(Vec::new()).unwrap().begin_keyspace("b", &none).is_err());
    let with = |features, payloads: &[&[u8]]| {
        let form = Form { features, ..FORM };
        let mut frames = FrameWriter::begin(Vec::new(), form, ID).unwrap();
        payloads.iter().for_each(|bytes| frames.frame(KIND_KEYSPACE, 0, bytes).unwrap());
        let bytes = payloads.iter().map(|payload| payload.len() as u64).sum();
        items(&frames.end(0, bytes).unwrap()).1
    };
    assert!(with(KEYSPACES, &[b"\x01a", b"\x01b"]).is_ok());
    let unknown = with(KEYSPACES, &[b"\x01a\x06colour\x05green"]);
    assert!(matches!(unknown, Err(Error::Unsupported { .. })), "{unknown:?}");
    for (features, payloads) in [
        (0, &[&b"\x01a"[..]][..]),
        (KEYSPACES, &[b"\x01b", b"\x01a"]),
        (KEYSPACES, &[b"\x01a", b"\x01a"]),
        (KEYSPACES, &[b"\0"]),
        (KEYSPACES, &[b""]),
        (KEYSPACES, &[b"\x02a"]),
        (KEYSPACES, &[b"\x01\xff"]),
        (KEYSPACES, &[b"\x01a\x06colour"]),
    ] {
        assert!(matches!(with(features, payloads), Err(Error::Corruption(_))), "{payloads:?}");
    }
}

/// Regression: a prefix rule that is a closure was written into the dump, which no reader then
/// accepted.
#[test]
fn options_of_code_are_left_out() {
    let prefix = Prefix::custom("first byte", |key| (!key.is_empty()).then_some(1));
    let options =
        KeyspaceOptions::new().prefix_extractor(prefix).filters("ribbon:8".parse().unwrap());
    let mut writer = DumpWriter::with_keyspaces(Vec::new()).unwrap();
    writer.begin_keyspace("a", &options).unwrap();
    let (bytes, _) = writer.finish().unwrap();
    let mut reader = DumpReader::new(&*bytes, "the dump").unwrap();
    let Some(DumpItem::Keyspace { options, .. }) = reader.next_item().unwrap() else {
        panic!("it has a keyspace")
    };
    assert_eq!(options.settings(), [("filters", "ribbon:8".to_owned())]);
}

//! The frozen format: a log of version 1 is read and written unchanged. `TROMMEL_REFREEZE=1`
//! rewrites the files, which is allowed only before the first release.

use std::path::Path;

use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use super::format::{
    AHEAD_BYTES, FILE_CHECKSUM_AT, FILE_HEADER_BYTES, FORMAT_VERSION, KIND_DATA, KIND_END,
    KNOWN_FEATURES, LOG_MAGIC, RECORD_CHECKSUM_AT, RECORD_HEADER_BYTES, RECORD_MAGIC,
    RECORD_OVERHEAD_BYTES, RECORD_TRAILER, SECTOR_BYTES, SECTOR_MIN_NONZERO,
};
use super::framing::{FileHeader, FileKind};
use super::reader::{LogImage, Verdict};
use super::writer::LogWriter;

const PAGE: &str = include_str!("../../../../docs/format/log.md");
const ENDED: &[u8] = include_bytes!("testdata/000007.log");
const KILLED: &[u8] = include_bytes!("testdata/000009.log");

fn header(number: u64, previous: u64) -> FileHeader {
    let (salt, store_id) = (0xa5a5_0000_0000_0000 + number, 0x7472_6f6d_6d65_6c21);
    FileHeader { kind: FileKind::Log, number, salt, store_id, previous }
}

fn payloads() -> Vec<(u64, Vec<u8>)> {
    let text = b"The quick brown fox jumps over the lazy dog.".to_vec();
    vec![(1, text), (2, vec![]), (100, vec![0; 1500]), ((1 << 56) - 1, (0..=255).collect())]
}

/// Two appends, the second a group; a sync between them.
fn write(number: u64, previous: u64, next: Option<u64>) -> Vec<u8> {
    let (vfs, path) = (MemoryVfs::new(), Path::new("log"));
    let mut writer = LogWriter::create(&vfs, path, &header(number, previous)).unwrap();
    writer.set_previous_durable();
    let payloads = payloads();
    writer.append(payloads[0].0, &[&payloads[0].1]).unwrap();
    writer.sync().unwrap();
    for (seqno, payload) in &payloads[1..] {
        writer.push(*seqno, &[payload]).unwrap();
    }
    writer.commit().unwrap();
    if let Some(next) = next {
        writer.finish(next).unwrap();
    }
    vfs.read(path, 1 << 20).unwrap()
}

fn check(golden: &[u8], number: u64, previous: u64, next: Option<u64>) {
    let written = write(number, previous, next);
    if std::env::var_os("TROMMEL_REFREEZE").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/log/testdata");
        std::fs::write(folder.join(format!("{number:06}.log")), &written).unwrap();
        return;
    }
    assert!(written == golden, "log {number} is no longer written as it was");
    let path = Path::new("golden");
    let image = LogImage::decode(golden.to_vec(), path, FileKind::Log, number).unwrap();
    let read: Vec<(u64, Vec<u8>)> =
        image.records().map(|record| (record.first_seqno, record.payload.to_vec())).collect();
    assert_eq!(read, payloads());
    assert_eq!(image.summary().header, Some(header(number, previous)));
    assert!(image.summary().claims_durable);
    let verdict = next.map_or(Verdict::Clean, |next| Verdict::Ended { next });
    assert_eq!(image.summary().verdict, verdict);
}

#[test]
fn a_log_of_version_1_is_read_and_written_unchanged() {
    check(ENDED, 7, 0, Some(9));
    check(KILLED, 9, 7, None);
}

fn page_says(what: &str) {
    assert!(PAGE.contains(what), "docs/format/log.md does not say \"{what}\"");
}

#[test]
fn the_page_states_the_constants_of_the_code() {
    let magic: Vec<String> = LOG_MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    page_says(&format!("| magic    | `{}` |", magic.join(" ")));
    page_says(&format!("| version  | {FORMAT_VERSION} |"));
    page_says(&format!("file header, {FILE_HEADER_BYTES} B"));
    page_says(&format!("CRC-32 of bytes 0 to {}", FILE_CHECKSUM_AT - 1));
    page_says(&format!("`RECORD_MAGIC = {RECORD_MAGIC:#x}`; five bits"));
    page_says(&format!("`RECORD_TRAILER = {RECORD_TRAILER:#x}`; five bits"));
    page_says(&format!("bytes 0 to {} of the record", RECORD_CHECKSUM_AT - 1));
    page_says(&format!("fewer than {RECORD_HEADER_BYTES} bytes left"));
    page_says(&format!("costs {RECORD_OVERHEAD_BYTES} bytes besides its payload"));
    page_says(&format!("{KIND_DATA}: a batch; {KIND_END}: the end marker"));
    page_says(&format!("aligned\nsector of {SECTOR_BYTES} bytes"));
    page_says(&format!("at least\n{SECTOR_MIN_NONZERO} payload bytes"));
    page_says(&format!("length is a multiple of {} KiB", AHEAD_BYTES >> 10));
    assert_eq!(KNOWN_FEATURES, 0, "the page says that none are assigned");
    assert_eq!((RECORD_MAGIC.count_ones(), RECORD_TRAILER.count_ones()), (5, 5));
}

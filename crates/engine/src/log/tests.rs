//! What a log promises, shown on logs small enough to try everything.

use std::path::Path;

use trommel_vfs::{MemoryVfs, Vfs};

use super::framing::{FileHeader, FileKind};
use super::reader::{LogImage, Summary, Verdict};
use super::writer::LogWriter;

pub(super) const NUMBER: u64 = 7;
pub(super) const SALT: u64 = 0x0123_4567_89ab_cdef;

pub(super) fn header() -> FileHeader {
    FileHeader { kind: FileKind::Log, number: NUMBER, salt: SALT, store_id: 99, previous: 0 }
}

fn path() -> &'static Path {
    Path::new("000007.log")
}

/// A log with these payloads, numbered 10, 20, 30, ...; `ended` or not; synced after the records
/// whose index `sync` holds.
fn build(payloads: &[Vec<u8>], sync: &[usize], ended: bool) -> Vec<u8> {
    let vfs = MemoryVfs::new();
    let mut writer = LogWriter::create(&vfs, path(), &header()).unwrap();
    writer.set_previous_durable();
    for (index, payload) in payloads.iter().enumerate() {
        let (a, b) = payload.split_at(payload.len() / 3);
        writer.append(10 * (index as u64 + 1), &[a, b]).unwrap();
        if sync.contains(&index) {
            writer.sync().unwrap();
        }
    }
    if ended {
        writer.finish(8).unwrap();
    }
    vfs.read(path(), u64::MAX).unwrap()
}

/// The payloads that come back, checked to be numbered as they were, and the summary.
fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Summary) {
    let image = LogImage::decode(bytes.to_vec(), path(), FileKind::Log, NUMBER).unwrap();
    let mut payloads = Vec::new();
    for (index, record) in image.records().enumerate() {
        assert_eq!(record.first_seqno, 10 * (index as u64 + 1));
        payloads.push(record.payload.to_vec());
    }
    assert_eq!(image.summary().records, payloads.len() as u64);
    (payloads, image.summary().clone())
}

#[test]
fn what_was_appended_comes_back() {
    let payloads = vec![b"".to_vec(), b"x".to_vec(), vec![0; 5000], (0..=255).collect()];
    let (back, summary) = read(&build(&payloads, &[], true));
    assert_eq!(back, payloads);
    assert_eq!(summary.verdict, Verdict::Ended { next: 8 });
    let (back, summary) = read(&build(&payloads, &[1], false));
    assert_eq!(back, payloads);
    assert_eq!(summary.verdict, Verdict::Clean);
    assert_eq!(summary.end, summary.file_bytes);
    assert_eq!(summary.seqnos, Some((10, 40)));
}

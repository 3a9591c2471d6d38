//! The promises of a log, tested exhaustively on small logs.

use std::io;
use std::ops::Range;
use std::path::Path;

use trommel_sim::MemoryVfs;
use trommel_vfs::{ReadFile, Vfs};

use super::format::{AHEAD_BYTES, FILE_HEADER_BYTES, RECORD_OVERHEAD_BYTES, RECORD_TRAILER};
use super::framing::{FileHeader, FileKind};
use super::reader::{LogImage, Summary, TearReason, Verdict};
use super::testing::{Crash, Op, OpRecorder, choices};
use super::writer::LogWriter;
use crate::error::Error;

const NUMBER: u64 = 7;

fn header() -> FileHeader {
    let salt = 0x0123_4567_89ab_cdef;
    FileHeader { kind: FileKind::Log, number: NUMBER, salt, store_id: 99, previous: 0 }
}

fn path() -> &'static Path {
    Path::new("000007.log")
}

fn create(vfs: &dyn Vfs) -> LogWriter {
    let mut writer = LogWriter::create(vfs, path(), &header()).unwrap();
    writer.set_previous_durable();
    writer
}

/// A log with these payloads, numbered 10, 20, 30, ...; `ended` or not; synced after the records
/// with an index in `sync`.
fn build(payloads: &[Vec<u8>], sync: &[usize], ended: bool) -> Vec<u8> {
    let vfs = MemoryVfs::new();
    let mut writer = create(&vfs);
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

/// The payloads read back, with their numbers checked, and the summary.
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

/// Bytes without zeros, and without the first byte of a record.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| b'a' + (i % 26) as u8).collect()
}

/// Offset of the record after `payloads`.
fn end_of(payloads: &[Vec<u8>]) -> usize {
    let records = payloads.iter().map(|payload| payload.len() + RECORD_OVERHEAD_BYTES);
    FILE_HEADER_BYTES + records.sum::<usize>()
}

/// Logs of different shapes: empty and tiny records, text, zeros over several sectors.
fn shapes() -> Vec<Vec<Vec<u8>>> {
    vec![
        vec![],
        vec![vec![]],
        vec![vec![0]],
        vec![vec![0; 3], vec![], text(5)],
        vec![text(300), text(200), text(100)],
        vec![vec![0; 1400], text(10)],
        vec![text(40), vec![0; 2100]],
        vec![text(374), vec![0; 1024], vec![0; 411], text(1)],
        (0..20).map(|i| vec![0; i]).collect(),
        vec![sparse(1), sparse(7), sparse(8)],
    ]
}

/// Zeros, except for `ones` single bits in each 512 bytes.
fn sparse(ones: usize) -> Vec<u8> {
    (0..2100).map(|i| u8::from(i % 512 < ones)).collect()
}

#[test]
fn what_was_appended_comes_back() {
    for payloads in shapes() {
        let (back, summary) = read(&build(&payloads, &[], true));
        assert_eq!(back, payloads);
        assert_eq!(summary.verdict, Verdict::Ended { next: 8 });
        let (back, summary) = read(&build(&payloads, &[1], false));
        assert_eq!(back, payloads);
        assert_eq!(summary.verdict, Verdict::Clean);
        assert_eq!(summary.end, summary.file_bytes);
        assert_eq!(summary.end, end_of(&payloads) as u64);
    }
}

/// Guards against the usual mistake: to treat a record that fails its checksum as the log's end.
#[test]
fn every_flipped_bit_is_corruption_not_a_tear() {
    for payloads in shapes() {
        for (sync, ended) in [(vec![], false), (vec![], true), (vec![0, 1], false)] {
            let good = build(&payloads, &sync, ended);
            for bit in 0..good.len() * 8 {
                expect_damage(&good, bit, &payloads);
            }
        }
    }
}

/// Zeros after a record do not excuse it.
#[test]
fn flipped_bits_before_preallocated_zeros_are_corruption() {
    for payloads in shapes() {
        for ended in [false, true] {
            let mut good = build(&payloads, &[0, 1], ended);
            let bits = good.len() * 8;
            good.resize(AHEAD_BYTES as usize, 0);
            for bit in (0..bits).step_by(11) {
                expect_damage(&good, bit, &payloads);
            }
        }
    }
}

/// The rules depend on sectors: each of the first 512 lengths shifts a record of zeros, an end
/// marker and a short tail over every sector boundary.
#[test]
fn every_flipped_bit_is_corruption_at_every_sector_offset() {
    for shift in 0..512 {
        for (zeros, ended) in [(700, false), (0, true), (1, false), (470, false)] {
            let payloads = vec![text(shift), vec![0; zeros]];
            let good = build(&payloads, &[], ended);
            let second = FILE_HEADER_BYTES + RECORD_OVERHEAD_BYTES + shift;
            for byte in (second..good.len()).filter(|at| *at < second + 60 || at % 37 == 0) {
                for bit in 0..8 {
                    expect_damage(&good, byte * 8 + bit, &payloads);
                }
            }
            for bit in (good.len() - 3) * 8..good.len() * 8 {
                expect_damage(&good, bit, &payloads);
            }
        }
    }
}

fn expect_damage(good: &[u8], bit: usize, payloads: &[Vec<u8>]) {
    let mut bad = good.to_vec();
    bad[bit / 8] ^= 1 << (bit % 8);
    let (back, summary) = read(&bad);
    assert!(back.len() <= payloads.len() && back[..] == payloads[..back.len()]);
    match summary.verdict {
        Verdict::Damaged(found) => assert!(found.offset <= bit as u64 / 8, "{found}, bit {bit}"),
        other => panic!("bit {bit} of {} bytes: {other:?}", good.len()),
    }
}

#[test]
fn a_file_cut_at_any_length_is_an_exact_prefix() {
    for payloads in shapes() {
        let good = build(&payloads, &[0], true);
        for length in 0..good.len() {
            let (back, summary) = read(&good[..length]);
            let whole = (0..=payloads.len()).rev().find(|n| end_of(&payloads[..*n]) <= length);
            assert_eq!(back, payloads[..whole.unwrap_or(0)], "cut to {length}");
            match whole.map(|n| end_of(&payloads[..n])) {
                Some(end) if end == length => assert_eq!(summary.verdict, Verdict::Clean),
                end => {
                    assert!(matches!(summary.verdict, Verdict::Torn(_)), "{summary:?}");
                    assert_eq!(summary.end, end.unwrap_or(0) as u64);
                }
            }
        }
    }
}

/// Even if an append is cut within a sector, with preallocated zeros after it.
#[test]
fn an_append_cut_before_zeros_ahead_is_a_tear() {
    for payloads in shapes() {
        let good = build(&payloads, &[0], true);
        for length in (FILE_HEADER_BYTES..good.len()).step_by(3) {
            let whole = (0..=payloads.len()).rev().find(|n| end_of(&payloads[..*n]) <= length);
            let mut cut = good[..length].to_vec();
            cut.resize(AHEAD_BYTES as usize, 0);
            let (back, summary) = read(&cut);
            assert_eq!(back, payloads[..whole.unwrap_or(0)], "cut to {length}");
            assert!(!matches!(summary.verdict, Verdict::Damaged(_)), "{length}: {summary:?}");
            assert!(summary.written_bytes() <= length as u64);
        }
    }
}

/// Every disk that a power cut can leave: at every call, with every unsynced sector in every state
/// since the last sync, and the file at every interesting length.
#[test]
fn every_power_cut_leaves_a_prefix_past_the_synced_part() {
    let mut images = 0;
    for (payloads, syncs, ended) in torn_shapes() {
        let vfs = OpRecorder::default();
        let mut writer = create(&vfs);
        for (index, payload) in payloads.iter().enumerate() {
            writer.append(10 * (index as u64 + 1), &[payload]).unwrap();
            if syncs.contains(&index) {
                writer.sync().unwrap();
            }
        }
        if ended {
            writer.finish(8).unwrap();
        }
        let ops = vfs.ops();
        for count in 1..=ops.len() {
            let file = &Crash::after(&ops, count).by_name()[path()];
            let synced =
                (0..=payloads.len()).rev().find(|n| end_of(&payloads[..*n]) <= file.synced);
            for choice in choices(&file.states(), 600) {
                let lengths = file.lengths().into_iter();
                for (length, as_now) in lengths.flat_map(|length| [(length, true), (length, false)])
                {
                    if as_now && file.zeros[0] == file.zeros[1] {
                        continue;
                    }
                    let image = file.with_zeros(&choice, length, as_now);
                    let (back, summary) = read(&image);
                    assert_eq!(back, payloads[..back.len()]);
                    assert!(back.len() >= synced.unwrap_or(0), "{back:?} of {synced:?}");
                    if let Verdict::Damaged(found) = summary.verdict {
                        panic!("{found}; {choice:?} at length {length} after call {count}");
                    }
                    images += 1;
                }
            }
        }
    }
    assert!(images > 50_000, "{images}");
}

fn torn_shapes() -> Vec<(Vec<Vec<u8>>, Vec<usize>, bool)> {
    let mut all = vec![
        (vec![vec![]; 30], vec![10], true),
        (vec![text(100), vec![0; 900], text(2000)], vec![0], true),
        (vec![text(100), vec![0; 1900], text(200)], vec![], false),
        (vec![vec![0; 600], vec![0; 600], vec![0; 600], vec![0; 600]], vec![1], true),
        // With preallocated zeros, and after the end marker until a sync.
        (vec![text(100), vec![], vec![0; 900], text(700), vec![0; 600]], vec![0, 1, 2, 3], true),
        (vec![text(400), text(90), text(80), vec![0; 1900], text(200)], vec![0, 1, 2], false),
    ];
    for shift in (385..450).step_by(3) {
        all.push((vec![text(shift), vec![0; 5], text(600)], vec![0], true));
        all.push((vec![text(shift), text(1000), vec![]], vec![], true));
    }
    all
}

/// A lost sector in the synced part is not a torn append, as the next record proves.
#[test]
fn a_zeroed_sector_in_the_synced_part_is_corruption() {
    let payloads = vec![text(900), text(900), text(300)];
    for sync in [vec![1], vec![0, 1]] {
        let good = build(&payloads, &sync, false);
        let synced = end_of(&payloads[..2]);
        for sector in 0..good.len().div_ceil(512) {
            let mut bad = good.clone();
            let end = good.len().min(sector * 512 + 512);
            bad[sector * 512..end].fill(0);
            let (back, summary) = read(&bad);
            assert_eq!(back, payloads[..back.len()]);
            let damaged = matches!(summary.verdict, Verdict::Damaged(_));
            let third_is_whole = sector * 512 + 512 <= synced;
            assert!(damaged == (third_is_whole || sector == 0), "{sector}: {summary:?}");
        }
    }
}

/// While earlier logs are not known to be durable, a record claims nothing.
#[test]
fn nothing_is_claimed_before_earlier_logs_are_durable() {
    let vfs = MemoryVfs::new();
    let mut writer = LogWriter::create(&vfs, path(), &header()).unwrap();
    writer.append(10, &[b"a"]).unwrap();
    writer.sync().unwrap();
    writer.append(20, &[b"b"]).unwrap();
    assert_eq!(writer.durable_to(), 0);
    let (_, summary) = read(&vfs.read(path(), 1 << 20).unwrap());
    assert!(!summary.claims_durable);
    writer.set_previous_durable();
    assert_eq!(writer.durable_to(), end_of(&[b"a".to_vec()]) as u64);
    writer.append(30, &[b"c"]).unwrap();
    let (_, summary) = read(&vfs.read(path(), 1 << 20).unwrap());
    assert!(summary.claims_durable);
}

/// A user may store a log as a value. After a tear, its records must not count as records of this
/// log.
#[test]
fn a_value_that_holds_log_bytes_is_no_record() {
    let inner = build(&vec![text(50); 40], &(0..40).collect::<Vec<_>>(), true);
    for shift in 0..64 {
        let payloads = vec![text(600 + shift), inner.clone(), text(20)];
        let good = build(&payloads, &[], false);
        assert_eq!(read(&good).0, payloads);
        let mut torn = good.clone();
        torn[512..1024].fill(0);
        let (back, summary) = read(&torn);
        assert!(back.is_empty());
        assert_eq!(summary.verdict, Verdict::Torn(TearReason::ZeroSector));
        assert!(summary.later_records <= 2, "{summary:?}");
        let mut flipped = good;
        flipped[100] ^= 1;
        let (_, summary) = read(&flipped);
        assert!(matches!(summary.verdict, Verdict::Damaged(_)));
        assert!(summary.later_records == 2, "{summary:?}");
    }
}

#[test]
fn a_log_of_another_number_salt_or_store_is_detected() {
    let good = build(&[text(10)], &[], true);
    let as_eight = LogImage::decode(good.clone(), path(), FileKind::Log, 8).unwrap();
    assert!(matches!(as_eight.summary().verdict, Verdict::Damaged(_)));
    let as_manifest = LogImage::decode(good.clone(), path(), FileKind::Manifest, 7).unwrap();
    assert!(matches!(as_manifest.summary().verdict, Verdict::Damaged(_)));
    let mut stale = FileHeader { salt: 1, ..header() }.encode();
    stale.extend_from_slice(&good[FILE_HEADER_BYTES..]);
    let (back, summary) = read(&stale);
    assert!(back.is_empty() && matches!(summary.verdict, Verdict::Damaged(_)));
}

/// Two files cannot have the same salt; even if they had, valid records of one would not fit the
/// other.
#[test]
fn a_record_after_a_foreign_one_is_corruption() {
    let one = build(&[text(100), text(50)], &[], true);
    let other = build(&[vec![b'#'; 100], text(50)], &[], true);
    let second = end_of(&[text(100)]);
    let mixed = [&one[..second], &other[second..]].concat();
    let (back, summary) = read(&mixed);
    assert_eq!(back, [text(100)]);
    assert!(matches!(summary.verdict, Verdict::Damaged(found) if found.offset == second as u64));
}

#[test]
fn a_newer_format_is_a_typed_error() {
    let good = build(&[text(10)], &[], true);
    for (at, value) in [(8, 2u8), (16, 1), (23, 0x80)] {
        let mut newer = good.clone();
        newer[at] = value;
        let checksum = crate::log::framing::file_checksum(&newer[..60]);
        newer[60..64].copy_from_slice(&checksum.to_le_bytes());
        let error = LogImage::decode(newer, path(), FileKind::Log, NUMBER).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}

/// Bytes that a legal tear cannot leave.
#[test]
fn garbage_after_the_last_record_is_corruption() {
    for ended in [false, true] {
        let good = build(&[text(10)], &[], ended);
        for garbage in [vec![1], vec![RECORD_TRAILER; 3], vec![0x55; 36], vec![0x55; 2000]] {
            let bytes = [good.clone(), garbage].concat();
            assert!(matches!(read(&bytes).1.verdict, Verdict::Damaged(_)));
        }
        let zeros = [good, vec![0; 600]].concat();
        let torn = matches!(read(&zeros).1.verdict, Verdict::Torn(_));
        assert_eq!(torn, !ended, "nothing is ever appended behind an end marker");
    }
}

/// Preallocated zeros are neither records nor a loss: the length of the file identifies them.
#[test]
fn zeros_ahead_are_no_tear() {
    const AHEAD: usize = AHEAD_BYTES as usize;
    let long = vec![text(AHEAD - end_of(&[text(9)]) - RECORD_OVERHEAD_BYTES), text(9)];
    for payloads in shapes().into_iter().chain([long]) {
        for ended in [false, true] {
            let good = build(&payloads, &[], ended);
            let is_good = |bytes: &[u8]| {
                let (back, summary) = read(bytes);
                assert_eq!(back, payloads);
                assert_eq!(summary.file_bytes, bytes.len() as u64);
                match summary.verdict {
                    Verdict::Clean => assert!(!ended),
                    Verdict::Ended { next } => assert!(ended && next == 8),
                    _ => return false,
                }
                assert_eq!(summary.zeros_ahead, (bytes.len() - good.len()) as u64);
                assert_eq!(summary.end, good.len() as u64);
                true
            };
            assert!(is_good(&good));
            let length = good.len().next_multiple_of(AHEAD);
            for length in [length, length + AHEAD] {
                let mut longer = good.clone();
                longer.resize(length, 0);
                assert!(is_good(&longer));
                for cut in [1, 512, 4096] {
                    assert!(
                        length - cut <= good.len() || !is_good(&longer[..length - cut]),
                        "{cut}"
                    );
                }
                for at in [good.len(), good.len() + 600, length - 1] {
                    let mut bad = longer.clone();
                    if (good.len()..length).contains(&at) {
                        bad[at] = 1;
                        assert!(!is_good(&bad), "{at}");
                    }
                }
            }
        }
    }
    // A manifest has none.
    let manifest = FileHeader { kind: FileKind::Manifest, ..header() };
    let mut bytes = manifest.encode().to_vec();
    bytes.resize(AHEAD, 0);
    let image = LogImage::decode(bytes, path(), FileKind::Manifest, NUMBER).unwrap();
    assert!(matches!(image.summary().verdict, Verdict::Torn(_)), "{:?}", image.summary());
}

/// Only a log with frequent small syncs gets preallocated zeros, in few steps.
#[test]
fn zeros_are_preallocated_for_small_syncs() {
    let steps = |kind, payload: usize, appends_a_sync: u64| {
        let vfs = OpRecorder::default();
        let mut writer = LogWriter::create(&vfs, path(), &FileHeader { kind, ..header() }).unwrap();
        for seqno in 1..=600 {
            writer.append(seqno, &[&text(payload)]).unwrap();
            if seqno % appends_a_sync == 0 {
                writer.sync().unwrap();
            }
        }
        let end = writer.bytes();
        writer.finish(8).unwrap();
        writer.sync().unwrap();
        let zeros = |op| if let Op::Zeros(_, to) = op { Some(to) } else { None };
        (vfs.ops().into_iter().filter_map(zeros).collect::<Vec<u64>>(), end)
    };
    let (zeros, end) = steps(FileKind::Log, 300, 1);
    let (last, ahead) = zeros.split_last().unwrap();
    assert_eq!(*last, 0, "they are cut off at the end");
    let expected: Vec<u64> = (1..=end / AHEAD_BYTES + 1).map(|step| step * AHEAD_BYTES).collect();
    assert_eq!(ahead, expected);
    assert_eq!(steps(FileKind::Log, 300, 20).0.len(), ahead.len() + 1);
    for (kind, payload, appends_a_sync) in
        [(FileKind::Log, 300, 30), (FileKind::Log, 9000, 1), (FileKind::Manifest, 300, 1)]
    {
        assert_eq!(steps(kind, payload, appends_a_sync).0, [0; 0], "{kind:?} {payload}");
    }
}

#[test]
fn a_group_is_one_append() {
    let vfs = OpRecorder::default();
    let mut writer = create(&vfs);
    let before = vfs.ops().len();
    writer.commit().unwrap();
    for seqno in [10, 20, 30] {
        writer.push(seqno, &[b"one", b"two"]).unwrap();
    }
    assert_eq!(writer.bytes() as usize, end_of(&vec![vec![0; 6]; 3]));
    writer.commit().unwrap();
    assert_eq!(vfs.ops().len(), before + 1);
    assert_eq!(read(&vfs.read(path(), 1 << 20).unwrap()).0, vec![b"onetwo".to_vec(); 3]);
    writer.sync().unwrap();
    writer.sync().unwrap();
    assert_eq!(vfs.ops().len(), before + 2, "what is synced is not synced again");
}

/// Guards against a failed sync that is retried and "succeeds".
#[test]
fn after_a_failure_nothing_is_written_or_synced() {
    for fail_at in 4..8 {
        let vfs = OpRecorder::default();
        let mut writer = create(&vfs);
        *vfs.fail_at.lock().unwrap() = Some(fail_at);
        let mut failures = 0;
        for seqno in [1, 2, 3] {
            failures += usize::from(writer.append(seqno, &[b"x"]).is_err());
            failures += usize::from(writer.sync().is_err());
        }
        failures += usize::from(writer.finish(0).is_err());
        assert_eq!(vfs.ops().len(), fail_at + 1, "no call reached the file after the failed one");
        assert_eq!(failures, 7 - (fail_at - 4));
        let error = writer.push(99, &[]).unwrap_err().to_string();
        assert!(error.ends_with(": injected failure"), "{error}");
    }
}

/// A file with an impossible length.
#[derive(Debug)]
struct Endless;

impl ReadFile for Endless {
    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        panic!("nothing of it is read");
    }

    fn bytes(&self) -> u64 {
        1 << 62
    }
}

#[test]
fn a_length_that_no_log_has_is_damage_and_allocates_no_memory() {
    let error = super::read_all(&Endless, path()).unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error}");
    assert!(error.to_string().contains("longer than any log"), "{error}");
}

/// Space for a log is preallocated in few steps that grow with it, and released at its end; a
/// manifest has none.
#[test]
fn space_for_a_log_is_preallocated() {
    for (kind, next) in [(FileKind::Log, 8), (FileKind::Log, 0), (FileKind::Manifest, 0)] {
        let vfs = OpRecorder::default();
        let header = FileHeader { kind, ..header() };
        let mut writer = LogWriter::create(&vfs, path(), &header).unwrap();
        let aside = || vfs.aside.lock().unwrap().clone();
        for seqno in 1..=300 {
            writer.append(seqno, &[&text(100_000)]).unwrap();
            let end = aside().last().map(|last| last.end);
            assert_eq!(end.is_some(), kind == FileKind::Log);
            assert!(end.is_none_or(|end| end >= writer.bytes()), "{end:?}, {}", writer.bytes());
        }
        let steps = aside();
        let sizes: Vec<u64> = steps.iter().map(|step| step.end - step.start).collect();
        assert!(sizes.is_sorted() && steps.len() <= 16, "{steps:?}");
        assert!(sizes.iter().all(|bytes| *bytes <= (4 << 20) + 100_100), "{sizes:?}");
        writer.finish(next).unwrap();
        let given_back = aside().last().is_some_and(Range::is_empty);
        assert!(given_back, "{kind:?} {next}");
    }
}

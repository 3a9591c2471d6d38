//! The promises of a manifest, tested exhaustively on small manifests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trommel_sim::MemoryVfs;
use trommel_vfs::{Access, Vfs};

use super::current::{self, Current};
use super::edit::VersionEdit;
use super::edit_tests::table;
use super::reader::{Recovered, recover};
use super::state::ManifestState;
use super::writer::ManifestWriter;
use crate::error::Error;
use crate::log::testing::{Crash, OpRecorder, disk};
use crate::log::{DropReason, FileHeader, FileKind, LogWriter};
use crate::names;
use crate::version::TableMeta;

const STORE: u64 = 0xfeed_face_cafe_beef;
const DIR: &str = "";

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn manifest(number: u64) -> PathBuf {
    PathBuf::from(format!("MANIFEST-{number:06}"))
}

/// Edit `step` of a sequence in which each flush adds a table and each third edit replaces the two
/// before.
fn edit(step: u64) -> VersionEdit {
    let number = 10 + step;
    let added = |level| vec![(level, flushed(number))];
    let numbers = VersionEdit {
        next_file_number: Some(number + 1),
        last_seqno: Some(step * 10 + 9),
        ..VersionEdit::default()
    };
    match step % 3 {
        2 => VersionEdit {
            removed: vec![(0, number - 1), (0, number - 2)],
            added: added(1),
            ..numbers
        },
        _ => VersionEdit { added: added(0), ..numbers },
    }
}

/// A table whose keys are mostly zeros, so that payloads are masked.
fn flushed(number: u64) -> TableMeta {
    let smallest = format!("{number:04}{}", "\0".repeat(700 * (number % 3) as usize));
    let largest = format!("{smallest}z");
    table(number, (&smallest, &largest), (number * 10, number * 10 + 9))
}

fn states(count: u64) -> Vec<ManifestState> {
    let first = VersionEdit { next_file_number: Some(10), ..VersionEdit::default() };
    let mut all = vec![ManifestState::default().apply(&first).unwrap()];
    for step in 0..count {
        let next = all[step as usize].apply(&edit(step)).unwrap();
        all.push(next);
    }
    all
}

fn create(vfs: &dyn Vfs, number: u64, state: &ManifestState) -> Result<ManifestWriter, Error> {
    ManifestWriter::create(vfs, Path::new(DIR), number, number * 31 + 7, STORE, state)
}

/// A manifest with `count` edits.
fn written(count: u64, closed: bool) -> Files {
    let vfs = OpRecorder::default();
    let mut writer = create(&vfs, 1, &states(0)[0]).unwrap();
    for step in 0..count {
        writer.append(&edit(step)).unwrap();
    }
    if closed {
        writer.finish().unwrap();
    }
    let ops = vfs.ops();
    Crash::after(&ops, ops.len()).images(1).remove(0)
}

/// A file system with `files` and the tables of `state`.
fn on_disk(files: &Files, state: &ManifestState) -> MemoryVfs {
    let vfs = disk(files.iter().map(|(path, bytes)| (&**path, &**bytes)));
    for (_, table) in state.version.tables() {
        add_file(&vfs, &format!("{:06}.sst", table.number), table.file_bytes);
    }
    vfs
}

fn add_file(vfs: &MemoryVfs, name: &str, bytes: u64) {
    vfs.create(Path::new(name)).unwrap().append(&vec![1; bytes as usize]).unwrap();
}

fn open(vfs: &dyn Vfs) -> Result<Option<Recovered>, Error> {
    recover(vfs, Path::new(DIR), &vfs.list(Path::new(DIR)).unwrap(), false)
}

/// The index in `states` of the recovered state.
fn which(states: &[ManifestState], found: &Recovered) -> usize {
    let snapshot =
        |state: &ManifestState| VersionEdit { next_file_number: None, ..state.snapshot() };
    let found = snapshot(&found.state);
    states.iter().position(|state| snapshot(state) == found).expect("one of the states there were")
}

fn offset_and_file(error: Error) -> (u64, PathBuf) {
    match error {
        Error::Corruption(found) => (found.offset, found.file),
        other => panic!("not corruption: {other}"),
    }
}

#[test]
fn what_was_written_comes_back() {
    let states = states(7);
    for (closed, count) in [(false, 7), (true, 7), (true, 0)] {
        let vfs = on_disk(&written(count, closed), &states[count as usize]);
        let found = open(&vfs).unwrap().unwrap();
        assert_eq!(which(&states, &found), count as usize);
        assert_eq!((found.store_id, found.number, found.closed), (STORE, 1, closed));
        assert!(found.tail_dropped.is_none());
    }
}

#[test]
fn every_flipped_bit_is_corruption() {
    let states = states(4);
    for closed in [false, true] {
        let files = written(4, closed);
        for (path, bytes) in &files {
            for bit in 0..bytes.len() * 8 {
                let mut bad = files.clone();
                bad.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
                let (offset, file) = offset_and_file(open(&on_disk(&bad, &states[4])).unwrap_err());
                assert!(file == *path && offset <= bit as u64 / 8, "{path:?} bit {bit}");
            }
        }
    }
}

#[test]
fn a_manifest_cut_at_any_length_is_a_prefix_or_corruption() {
    let states = states(4);
    let files = written(4, true);
    // The tables of all states: nothing has been deleted yet.
    let everything = states[2].version.tables().chain(states[4].version.tables());
    let everything: BTreeMap<u64, u64> =
        everything.map(|(_, table)| (table.number, table.file_bytes)).collect();
    let (mut prefixes, mut reported) = ([false; 5], 0);
    for length in 0..files[&manifest(1)].len() {
        let mut bad = files.clone();
        bad.get_mut(&manifest(1)).unwrap().truncate(length);
        let vfs = on_disk(&bad, &ManifestState::default());
        for (number, bytes) in &everything {
            add_file(&vfs, &format!("{number:06}.sst"), *bytes);
        }
        match open(&vfs) {
            Ok(found) => {
                let found = found.unwrap();
                assert!(!found.closed);
                prefixes[which(&states, &found)] = true;
                reported += usize::from(found.tail_dropped.is_some());
            }
            Err(error) => assert_eq!(offset_and_file(error).1, manifest(1)),
        }
    }
    assert_eq!((prefixes, reported > 200), ([true; 5], true));
}

#[test]
fn a_current_cut_anywhere_or_garbled_is_corruption() {
    let files = written(1, false);
    let text = files[Path::new("CURRENT")].clone();
    assert_eq!(text, current::text(1).into_bytes());
    let doubled = text.repeat(2);
    let mut wrong: Vec<Vec<u8>> = (0..text.len()).map(|length| text[..length].to_vec()).collect();
    let foreign = "MANIFEST-1\ncrc32 00000000\n".as_bytes().to_vec();
    wrong.extend([doubled, vec![0; 16], vec![b'M'; 100_000], foreign, current::text(2).into()]);
    for bytes in wrong {
        let mut bad = files.clone();
        bad.insert("CURRENT".into(), bytes);
        let (offset, _) = offset_and_file(open(&on_disk(&bad, &states(1)[1])).unwrap_err());
        assert_eq!(offset, 0);
    }
}

#[test]
fn a_missing_file_is_named() {
    let states = states(2);
    let files = written(2, false);
    let good = on_disk(&files, &states[2]);
    assert!(open(&good).is_ok());
    for name in ["CURRENT", "MANIFEST-000001", "000010.sst", "000011.sst"] {
        let vfs = on_disk(&files, &states[2]);
        vfs.remove(Path::new(name)).unwrap();
        assert_eq!(offset_and_file(open(&vfs).unwrap_err()), (0, PathBuf::from(name)));
    }
    good.remove(Path::new("000010.sst")).unwrap();
    add_file(&good, "000010.sst", 19);
    let error = open(&good).unwrap_err();
    assert!(error.to_string().contains("19 bytes"), "{error}");
}

#[test]
fn an_unfinished_creation_is_not_a_store() {
    let never = |files: &Files| open(&on_disk(files, &ManifestState::default()));
    assert!(never(&Files::new()).unwrap().is_none());
    let mut files = written(0, false);
    let text = files.remove(Path::new("CURRENT")).unwrap();
    files.insert("CURRENT.tmp".into(), text);
    files.insert("000009.log".into(), vec![0; 64]);
    files.insert("notes.txt".into(), vec![1; 1000]);
    files.insert("7.sst".into(), vec![1; 1000]);
    assert!(never(&files).unwrap().is_none());
    for used in ["000009.log", "000007.sst", "000007.flt"] {
        let mut files = files.clone();
        files.insert(used.into(), vec![0; 65]);
        let error = never(&files).unwrap_err();
        assert_eq!(offset_and_file(error), (0, "CURRENT".into()));
    }
}

#[test]
fn a_missing_log_is_named() {
    let vfs = MemoryVfs::new();
    let state = ManifestState { next_file_number: 9, log_number: 8, ..ManifestState::default() };
    create(&vfs, 1, &state).unwrap();
    assert_eq!(offset_and_file(open(&vfs).unwrap_err()), (0, "000008.log".into()));
    add_file(&vfs, "000008.log", 1);
    assert_eq!(open(&vfs).unwrap().unwrap().state.log_number, 8);
}

/// Guards against reusing the number of a file that is unknown to the manifest.
#[test]
fn the_next_file_number_is_above_all_files() {
    for name in ["000123.log", "000123.sst", "000123.flt", "MANIFEST-000123"] {
        let vfs = on_disk(&written(2, false), &states(2)[2]);
        add_file(&vfs, name, 1);
        assert_eq!(open(&vfs).unwrap().unwrap().state.next_file_number, 124, "{name}");
    }
    let vfs = on_disk(&written(2, false), &states(2)[2]);
    assert_eq!(open(&vfs).unwrap().unwrap().state.next_file_number, 12);
    add_file(&vfs, "4611686018427387903.sst", 1);
    assert!(matches!(open(&vfs), Err(Error::Unsupported { .. })));
}

/// A sequence with two manifests, and every disk that a power cut leaves of it.
#[test]
fn every_power_cut_leaves_a_state_at_or_past_the_last_synced_edit() {
    let states = states(7);
    let vfs = OpRecorder::default();
    let mut synced: Vec<(usize, Option<usize>)> = vec![(0, None)];
    let mut writer = create(&vfs, 1, &states[0]).unwrap();
    synced.push((vfs.ops().len(), Some(0)));
    for step in 0..7 {
        if step == 4 {
            writer = create(&vfs, 5, &states[4]).unwrap();
            synced.push((vfs.ops().len(), Some(4)));
            vfs.remove(&manifest(1)).unwrap();
        }
        writer.append(&edit(step)).unwrap();
        synced.push((vfs.ops().len(), Some(step as usize + 1)));
    }
    writer.finish().unwrap();
    let everything: BTreeMap<u64, u64> = states
        .iter()
        .flat_map(|state| state.version.tables().map(|(_, t)| (t.number, t.file_bytes)))
        .collect();
    let ops = vfs.ops();
    let (mut images, mut dropped) = (0, 0);
    for count in 0..=ops.len() {
        let (_, acknowledged) = *synced.iter().rfind(|(calls, _)| *calls <= count).unwrap();
        for image in Crash::after(&ops, count).images(4000) {
            let disk = on_disk(&image, &ManifestState::default());
            if acknowledged.is_some() {
                for (number, bytes) in &everything {
                    add_file(&disk, &format!("{number:06}.sst"), *bytes);
                }
            }
            let found = open(&disk).unwrap_or_else(|error| panic!("after call {count}: {error}"));
            let state = found.as_ref().map(|found| which(&states, found));
            assert!(state >= acknowledged, "{state:?} of {acknowledged:?} after call {count}");
            images += 1;
            dropped += usize::from(found.is_some_and(|found| found.tail_dropped.is_some()));
        }
    }
    assert!(images > 1000 && dropped > 50, "{dropped} of {images}");
}

/// A torn edit counts as never installed only if all files that it replaced exist.
#[test]
fn a_torn_tail_is_disproved_by_a_missing_table() {
    let states = states(3);
    let mut files = written(3, false);
    let bytes = files.get_mut(&manifest(1)).unwrap();
    bytes.truncate(bytes.len() - 5);
    let found = open(&on_disk(&files, &states[2])).unwrap().unwrap();
    assert_eq!(which(&states, &found), 2);
    let dropped = found.tail_dropped.unwrap();
    assert!(matches!(dropped.reason, DropReason::Torn(_)));
    assert_eq!(dropped.offset + dropped.bytes, files[&manifest(1)].len() as u64);
    let (offset, file) = offset_and_file(open(&on_disk(&files, &states[3])).unwrap_err());
    assert_eq!((offset, file), (dropped.offset, manifest(1)));
}

#[test]
fn a_zeroed_sector_that_was_synced_is_corruption() {
    let states = states(7);
    let files = written(7, false);
    let length = files[&manifest(1)].len();
    let last = length - edit(6).encode().len();
    for sector in (0..last).step_by(512).filter(|sector| sector + 512 <= last) {
        let mut bad = files.clone();
        bad.get_mut(&manifest(1)).unwrap()[sector..sector + 512].fill(0);
        assert_eq!(offset_and_file(open(&on_disk(&bad, &states[7])).unwrap_err()).1, manifest(1));
    }
}

#[test]
fn salvage_keeps_the_prefix_before_corruption_if_its_files_exist() {
    let states = states(4);
    let mut files = written(4, false);
    let bytes = files.get_mut(&manifest(1)).unwrap();
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    let salvage =
        |vfs: &MemoryVfs| recover(vfs, Path::new(DIR), &vfs.list(Path::new(DIR)).unwrap(), true);
    let found = salvage(&on_disk(&files, &states[3])).unwrap().unwrap();
    assert_eq!(which(&states, &found), 3);
    assert!(matches!(found.tail_dropped.unwrap().reason, DropReason::Damaged(_)));
    assert!(salvage(&on_disk(&files, &states[1])).is_err());
    files.get_mut(&manifest(1)).unwrap()[70] ^= 1;
    assert!(salvage(&on_disk(&files, &states[3])).is_err(), "not even the snapshot is left");
}

/// Correct framing, but contents that no writer writes.
#[test]
fn records_without_valid_edits_are_errors() {
    let with = |records: &[(u64, Vec<u8>)]| {
        let vfs = MemoryVfs::new();
        let header = FileHeader {
            kind: FileKind::Manifest,
            number: 1,
            salt: 5,
            store_id: STORE,
            previous: 0,
        };
        let mut log = LogWriter::create(&vfs, &manifest(1), &header).unwrap();
        for (ordinal, payload) in records {
            log.append(*ordinal, &[payload]).unwrap();
        }
        current::install(&vfs, Path::new(DIR), 1).unwrap();
        open(&vfs)
    };
    let first = states(0)[0].snapshot().encode();
    assert!(with(&[(1, first.clone())]).is_ok());
    assert_eq!(offset_and_file(with(&[]).unwrap_err()), (64, manifest(1)));
    assert_eq!(offset_and_file(with(&[(2, first.clone())]).unwrap_err()).0, 64);
    let second = 64 + 37 + first.len() as u64;
    for payload in [vec![1], edit(2).encode(), vec![3, 1, 1]] {
        let error = with(&[(1, first.clone()), (2, payload)]).unwrap_err();
        assert_eq!(offset_and_file(error), (second, manifest(1)));
    }
    let error = with(&[(1, first.clone()), (2, vec![100, 0])]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
}

/// A failure anywhere leaves the state before or the one after, and stops the writer.
#[test]
fn a_failed_write_sync_or_rename_stops_the_writer() {
    let states = states(3);
    let calls = {
        let vfs = OpRecorder::default();
        let mut writer = create(&vfs, 1, &states[0]).unwrap();
        (0..3).for_each(|step| writer.append(&edit(step)).unwrap());
        vfs.ops().len()
    };
    for fail_at in 0..calls {
        let vfs = OpRecorder::default();
        *vfs.fail_at.lock().unwrap() = Some(fail_at);
        let failed = create(&vfs, 1, &states[0]).and_then(|mut writer| {
            let appended: Vec<_> = (0..3).map(|step| writer.append(&edit(step))).collect();
            let first = appended.iter().position(Result::is_err).unwrap();
            assert!(appended[first..].iter().all(Result::is_err));
            appended.into_iter().collect::<Result<(), _>>()
        });
        assert!(matches!(failed, Err(Error::Io { .. })), "call {fail_at}");
        assert_eq!(vfs.ops().len(), fail_at + 1, "nothing is tried after a failure");
    }
}

#[test]
fn a_manifest_rolls_over_when_it_has_grown() {
    let vfs = MemoryVfs::new();
    let mut state = states(0).remove(0);
    let mut writer = create(&vfs, 1, &state).unwrap();
    assert_eq!(writer.number(), 1);
    let mut steps = 0;
    while !writer.should_roll() {
        writer.append(&edit(steps)).unwrap();
        state = state.apply(&edit(steps)).unwrap();
        steps += 1;
    }
    let bytes = |number| vfs.open(&manifest(number), Access::Buffered).unwrap().bytes();
    assert!(bytes(1) > 1 << 20);
    assert!(!create(&vfs, 2, &state).unwrap().should_roll() && bytes(2) < bytes(1));
    assert_eq!(
        current::find(&vfs, Path::new(DIR), &vfs.list(Path::new(DIR)).unwrap()).unwrap(),
        Current::Manifest(2)
    );
}

/// Regression: a follower failed with "it is missing" when it listed the directory of a store that
/// was being created: the listing was read partly before `CURRENT` was installed, and partly after.
#[test]
fn a_current_installed_during_the_listing_is_found() {
    let vfs = MemoryVfs::new();
    create(&vfs, 1, &states(0).remove(0)).unwrap();
    vfs.create(Path::new(names::table(2).as_str())).unwrap();
    let mut listing = vfs.list(Path::new(DIR)).unwrap();
    listing.retain(|entry| entry.name != names::CURRENT);
    let found = |vfs: &MemoryVfs| current::find(vfs, Path::new(DIR), &listing);
    assert_eq!(found(&vfs).unwrap(), Current::Manifest(1));
    vfs.remove(&Path::new(DIR).join(names::CURRENT)).unwrap();
    assert!(matches!(found(&vfs), Err(Error::Corruption(_))));
}

//! Recovery of several consecutive logs after a power cut, with a missing file, and with a flipped
//! bit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use super::recover::{DropReason, Needed, ReplayPlan, plan};
use super::testing::{Crash, OpRecorder, disk};
use super::{FileHeader, FileKind, LogEnd, LogEnds, LogWriter};
use crate::error::Error;

const STORE: u64 = 4711;
static NO_ENDS: LogEnds = LogEnds::new();

type Batches = Vec<Vec<u8>>;
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Batch `index`: its index, and sometimes many zeros.
fn batch(index: usize) -> Vec<u8> {
    let mut bytes = vec![index as u8 + 1];
    bytes.resize([30, 700, 3, 400][index % 4], if index.is_multiple_of(3) { b'x' } else { 0 });
    bytes
}

fn path(number: u64) -> PathBuf {
    PathBuf::from(format!("{number:06}.log"))
}

fn header(number: u64, previous: u64) -> FileHeader {
    FileHeader { kind: FileKind::Log, number, salt: number * 77, store_id: STORE, previous }
}

/// Facts that hold from a call on.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    calls: usize,
    /// Batches acknowledged as synced.
    synced: usize,
    /// Batches in tables, and the oldest log that the manifest then needs.
    flushed: usize,
    oldest: u64,
}

/// A store reduced to its logs.
struct Store {
    vfs: OpRecorder,
    logs: Vec<(u64, LogWriter)>,
    /// Batches before each log.
    starts: BTreeMap<u64, usize>,
    written: usize,
    moments: Vec<Moment>,
}

impl Store {
    fn new() -> Self {
        let vfs = OpRecorder::default();
        let mut store = Self {
            vfs,
            logs: Vec::new(),
            starts: BTreeMap::new(),
            written: 0,
            moments: Vec::new(),
        };
        store.create(1, 0);
        store.logs[0].1.set_previous_durable();
        store.moment(|now| now.oldest = 1);
        store
    }

    fn create(&mut self, number: u64, previous: u64) {
        let header = header(number, previous);
        let writer = LogWriter::create(&self.vfs, &path(number), &header).unwrap();
        self.logs.push((number, writer));
        self.starts.insert(number, self.written);
    }

    fn moment(&mut self, change: impl FnOnce(&mut Moment)) {
        let mut now = self.moments.last().copied().unwrap_or_default();
        now.calls = self.vfs.ops().len();
        change(&mut now);
        self.moments.push(now);
    }

    /// W: write a batch; S: sync; R: rotate; F: flush the oldest log to a table.
    fn run(&mut self, script: &str) -> &mut Self {
        for step in script.chars() {
            match step {
                'W' => self.write(),
                'S' => self.sync(),
                'R' => self.rotate(),
                'F' => self.flush_oldest(),
                _ => panic!("no step {step}"),
            }
        }
        self
    }

    fn write(&mut self) {
        let (_, writer) = self.logs.last_mut().unwrap();
        writer.append(self.written as u64 * 5 + 1, &[&batch(self.written)]).unwrap();
        self.written += 1;
    }

    fn sync(&mut self) {
        for (_, writer) in &mut self.logs {
            writer.sync().unwrap();
        }
        self.logs.last_mut().unwrap().1.set_previous_durable();
        let written = self.written;
        self.moment(|now| now.synced = written);
    }

    fn rotate(&mut self) {
        let previous = self.logs.last().unwrap().0;
        let number = previous + 3;
        self.create(number, previous);
        let before = self.logs.len() - 2;
        self.logs[before].1.finish(number).unwrap();
    }

    /// Tables are durable, so their contents count as synced.
    fn flush_oldest(&mut self) {
        if self.logs.len() < 2 {
            return;
        }
        self.logs.remove(0);
        if let [(_, only)] = &mut self.logs[..] {
            only.set_previous_durable();
        }
        let oldest = self.logs[0].0;
        let flushed = self.starts[&oldest];
        self.moment(|now| {
            now.oldest = oldest;
            now.flushed = flushed;
            now.synced = now.synced.max(flushed);
        });
    }

    fn batches(&self) -> Batches {
        (0..self.written).map(batch).collect()
    }

    /// The files that a killed process leaves.
    fn killed(&self) -> Files {
        let ops = self.vfs.ops();
        Crash::after(&ops, ops.len())
            .by_name()
            .into_iter()
            .map(|(path, file)| (path, file.bytes))
            .collect()
    }

    fn now(&self) -> Moment {
        *self.moments.last().unwrap()
    }
}

fn on_disk(files: &Files) -> MemoryVfs {
    disk(files.iter().map(|(path, bytes)| (&**path, &**bytes)))
}

fn number_of(path: &Path) -> u64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

struct Found {
    batches: Batches,
    dropped: Vec<DropReason>,
    newest: u64,
}

fn strict(oldest: u64) -> Needed<'static> {
    Needed {
        dir: Path::new(""),
        store_id: STORE,
        oldest,
        present: &[],
        ends: &NO_ENDS,
        closed: false,
        salvage: false,
    }
}

fn salvaging(oldest: u64) -> Needed<'static> {
    Needed { salvage: true, ..strict(oldest) }
}

fn recover_with(files: &Files, needed: Needed<'_>) -> Result<Found, Error> {
    let vfs = on_disk(files);
    let present: Vec<u64> = files.keys().map(|path| number_of(path)).collect();
    let needed = Needed { present: &present, ..needed };
    let plan: ReplayPlan = plan(&vfs, &needed)?;
    let dropped = plan.dropped().iter().map(|dropped| dropped.reason.clone()).collect();
    let (newest, records) = (plan.newest(), plan.records());
    let mut batches = Batches::new();
    plan.replay(&vfs, |_, record| {
        batches.push(record.payload.to_vec());
        Ok(())
    })?;
    assert_eq!(batches.len() as u64, records);
    Ok(Found { batches, dropped, newest })
}

fn recover(files: &Files, oldest: u64) -> Result<Found, Error> {
    recover_with(files, strict(oldest))
}

fn scripts() -> Vec<String> {
    let steps = ['W', 'S', 'R', 'F'];
    let mut all = vec![String::from("W")];
    for _ in 0..5 {
        let longer = |script: &String| steps.map(|step| format!("{script}{step}"));
        all = all.iter().flat_map(longer).collect();
    }
    all.extend(["WWRWWSWRWWRW", "WWSWRRWSRWW", "WRWRWRWSWRWFWS", "WSRWSRWSRW"].map(String::from));
    all
}

#[test]
fn every_power_cut_over_several_logs_leaves_a_prefix_past_the_acknowledged() {
    let (mut images, mut torn) = (0, 0);
    for script in scripts() {
        let mut store = Store::new();
        store.run(&script);
        let ops = store.vfs.ops();
        for count in 4..=ops.len() {
            let moment = *store.moments.iter().rfind(|moment| moment.calls <= count).unwrap();
            for image in Crash::after(&ops, count).images(100) {
                let found = recover(&image, moment.oldest)
                    .unwrap_or_else(|error| panic!("{script} after call {count}: {error}"));
                let all = &store.batches()[moment.flushed..];
                assert!(all.starts_with(&found.batches), "{script} after call {count}");
                let synced = moment.synced - moment.flushed;
                assert!(found.batches.len() >= synced, "{script} after call {count}");
                images += 1;
                torn += usize::from(!found.dropped.is_empty());
            }
        }
    }
    assert!(images > 50_000 && torn > 10_000, "{torn} of {images}");
}

#[test]
fn every_flipped_bit_in_every_log_is_corruption() {
    for script in ["WWRWW", "WWRWSWRW", "WRRW", "WSWR", "RWWRW", "WWRWWRWF"] {
        let mut store = Store::new();
        store.run(script);
        let (files, now) = (store.killed(), store.now());
        let all = &store.batches()[now.flushed..];
        assert_eq!(recover(&files, now.oldest).unwrap().batches, all);
        for (path, bytes) in files.iter().filter(|(path, _)| number_of(path) >= now.oldest) {
            for bit in 0..bytes.len() * 8 {
                let mut bad = files.clone();
                bad.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
                match recover(&bad, now.oldest) {
                    Err(Error::Corruption(found)) => assert_eq!(found.file, *path),
                    other => panic!("{script}, {path:?} bit {bit}: {:?}", other.map(|f| f.dropped)),
                }
                if bit % 97 == 0 {
                    let saved = recover_with(&bad, salvaging(now.oldest)).unwrap();
                    assert!(all.starts_with(&saved.batches) && !saved.dropped.is_empty());
                }
            }
        }
    }
}

#[test]
fn a_log_cut_at_any_length_gives_a_prefix_or_corruption() {
    for script in ["WWRWW", "WWRWSWRW", "WSRWSW"] {
        let mut store = Store::new();
        store.run(script);
        let (files, now, all) = (store.killed(), store.now(), store.batches());
        let newest = files.keys().map(|path| number_of(path)).max().unwrap();
        for (path, bytes) in &files {
            for length in 0..bytes.len() {
                let mut bad = files.clone();
                bad.get_mut(path).unwrap().truncate(length);
                match recover(&bad, now.oldest) {
                    Ok(found) => {
                        assert!(all.starts_with(&found.batches));
                        let last = number_of(path) == newest;
                        assert!(last || !found.dropped.is_empty(), "{path:?} cut to {length}");
                    }
                    Err(Error::Corruption(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}

/// The header of a log that the manifest or an end marker names was durable before. So an empty log
/// is corrupt. Regression: it counted as torn, and all entries that were in no table were lost.
#[test]
fn a_named_log_without_a_header_is_corruption() {
    let mut store = Store::new();
    store.run("WWRWW");
    let (files, oldest) = (store.killed(), store.now().oldest);
    for path in files.keys() {
        for length in 0..64 {
            let mut bad = files.clone();
            bad.get_mut(path).unwrap().truncate(length);
            match recover(&bad, oldest) {
                Err(Error::Corruption(found)) => assert_eq!(found.file, *path),
                other => panic!("{path:?} cut to {length}: {:?}", other.map(|f| f.dropped)),
            }
        }
    }
}

/// A later log proves that the tear in an earlier one is not legal.
#[test]
fn a_tear_before_something_synced_is_corruption() {
    let mut store = Store::new();
    store.run("WWRWSWRW");
    let files = store.killed();
    for (length, zero_from) in [(200, 200), (90, 90), (777, 512)] {
        let mut bad = files.clone();
        let first = bad.get_mut(&path(1)).unwrap();
        first[zero_from..].fill(0);
        first.truncate(length);
        let error = recover(&bad, 1).map(|found| found.dropped).unwrap_err();
        assert!(error.to_string().contains("was synced"), "{error}");
    }
}

/// A tear drops later logs, but corrupt ones may hold proof against it.
#[test]
fn corruption_after_a_tear_is_corruption() {
    let mut store = Store::new();
    store.run("WWRWRW");
    let mut files = store.killed();
    let first = files.get_mut(&path(1)).unwrap();
    first.truncate(first.len() - 1);
    assert_eq!(recover(&files, 1).unwrap().dropped.len(), 3);
    for number in [4, 7] {
        for at in 0..files[&path(number)].len() {
            files.get_mut(&path(number)).unwrap()[at] ^= 1;
            assert!(matches!(recover(&files, 1), Err(Error::Corruption(_))));
            files.get_mut(&path(number)).unwrap()[at] ^= 1;
        }
    }
}

#[test]
fn a_missing_log_is_corruption() {
    for script in ["WRWRW", "RRW", "WSRW", "WRWRWFW"] {
        let mut store = Store::new();
        store.run(script);
        let (files, now) = (store.killed(), store.now());
        for path in files.keys() {
            let mut bad = files.clone();
            bad.remove(path);
            let found = recover(&bad, now.oldest);
            if number_of(path) < now.oldest {
                assert!(found.is_ok(), "nobody needs {path:?}");
                continue;
            }
            match found {
                Err(Error::Corruption(found)) => assert_eq!(found.file, *path, "{script}"),
                other => panic!("{script} without {path:?}: {:?}", other.map(|f| f.dropped)),
            }
            let saved = recover_with(&bad, salvaging(now.oldest)).unwrap();
            assert!(store.batches()[now.flushed..].starts_with(&saved.batches));
            assert!(matches!(saved.dropped[0], DropReason::Damaged(_)));
        }
    }
}

#[test]
fn logs_of_another_sequence_are_corruption() {
    let mut store = Store::new();
    store.run("WRWRW");
    let good = store.killed();
    let mut swapped = good.clone();
    swapped.insert(path(4), good[&path(7)].clone());
    assert!(matches!(recover(&swapped, 1), Err(Error::Corruption(_))));

    let stranger = |number, previous, store_id, seqno| {
        let vfs = MemoryVfs::new();
        let header = FileHeader { store_id, ..header(number, previous) };
        let mut writer = LogWriter::create(&vfs, &path(number), &header).unwrap();
        writer.append(seqno, &[b"stranger"]).unwrap();
        let mut files = good.clone();
        files.insert(path(number), vfs.read(&path(number), 1 << 20).unwrap());
        recover(&files, 1)
    };
    assert!(matches!(stranger(9, 7, STORE + 1, 500), Err(Error::Corruption(_))), "its store");
    assert!(matches!(stranger(9, 4, STORE, 500), Err(Error::Corruption(_))), "its predecessor");
    assert!(matches!(stranger(9, 8, STORE, 500), Err(Error::Corruption(_))), "a missing one");
    assert!(matches!(stranger(1, 1, STORE, 500), Err(Error::Corruption(_))), "before itself");
    // The last log has no end marker: its records may only be followed by a log without any.
    let followed = stranger(9, 7, STORE, 500).unwrap();
    assert_eq!(followed.dropped, [DropReason::NoEndMarker, DropReason::BehindTear]);

    store.logs.last_mut().unwrap().1.finish(0).unwrap();
    let mut ended = store.killed();
    let vfs = MemoryVfs::new();
    let mut writer = LogWriter::create(&vfs, &path(9), &header(9, 7)).unwrap();
    writer.append(11, &[b"a number that was used"]).unwrap();
    ended.insert(path(9), vfs.read(&path(9), 1 << 20).unwrap());
    assert!(matches!(recover(&ended, 1), Err(Error::Corruption(_))), "sequence numbers");
}

#[test]
fn no_log_is_read_if_none_is_needed() {
    let mut files = Files::new();
    files.insert(path(5), vec![1, 2, 3]);
    let found = recover(&files, 0).unwrap();
    assert!(found.batches.is_empty() && found.dropped.is_empty() && found.newest == 0);
    assert!(matches!(recover(&Files::new(), 5), Err(Error::Corruption(_))));
}

/// In a closed store no tear is legal.
#[test]
fn logs_of_a_closed_store_cut_or_zeroed_anywhere_are_corruption() {
    let mut store = Store::new();
    store.run("WWRWW");
    store.logs.last_mut().unwrap().1.finish(0).unwrap();
    let mut files = store.killed();
    let closed = |files: &Files| recover_with(files, Needed { closed: true, ..strict(1) });
    let expect_corruption = |files: &Files, path: &Path| match closed(files) {
        Err(Error::Corruption(found)) => assert_eq!(found.file, path),
        other => panic!("{:?}", other.map(|found| found.dropped)),
    };
    for extra in [None, Some(9)] {
        if let Some(number) = extra {
            // The logs that an interrupted recovery of the closed store leaves.
            files.insert(path(number), header(number, 4).encode());
        }
        assert_eq!(closed(&files).unwrap().batches, store.batches());
        for number in [1, 4] {
            let path = path(number);
            let good = files[&path].clone();
            for length in 0..good.len() {
                files.insert(path.clone(), good[..length].to_vec());
                expect_corruption(&files, &path);
            }
            for sector in (0..good.len()).step_by(512) {
                let mut bad = good.clone();
                let end = good.len().min(sector + 512);
                bad[sector..end].fill(0);
                files.insert(path.clone(), bad);
                expect_corruption(&files, &path);
            }
            files.insert(path, good);
        }
    }
}

/// An interrupted recovery leaves a new log without records, or the torn start of one.
#[test]
fn recovery_may_be_interrupted_and_repeated() {
    let mut store = Store::new();
    store.run("WWRW");
    let mut files = store.killed();
    let torn = files.get_mut(&path(4)).unwrap();
    torn.truncate(torn.len() - 1);
    let expected = recover(&files, 1).unwrap().batches;
    let mut previous = 4;
    for number in 5..40 {
        let bytes = header(number, previous).encode();
        let left = match number % 3 {
            0 => bytes,
            1 => vec![0; bytes.len()],
            _ => bytes[..number as usize].to_vec(),
        };
        files.insert(path(number), left);
        previous = number;
        assert_eq!(recover(&files, 1).unwrap().batches, expected);
    }
}

/// An I/O error is not the end of a log.
#[test]
fn a_log_that_cannot_be_read_is_an_error() {
    let mut store = Store::new();
    store.run("WWRW");
    let vfs = on_disk(&store.killed());
    vfs.remove(&path(4)).unwrap();
    vfs.create_dir(&path(4)).unwrap();
    let needed = Needed { present: &[1, 4], ..salvaging(1) };
    assert!(matches!(plan(&vfs, &needed), Err(Error::Io { .. })));
}

/// Two logs of a killed process, the second of them torn, and the log of the open that kept them;
/// the ends recorded in its manifest, and the valid batches.
fn kept() -> (Files, LogEnds, Batches) {
    let mut store = Store::new();
    store.run("WWRWW");
    let all = store.batches();
    let mut files = store.killed();
    let torn = files.get_mut(&path(4)).unwrap();
    torn.truncate(torn.len() - 1);
    let torn_at = |files: &Files| {
        let plan = plan(&on_disk(files), &Needed { present: &[1, 4], ..strict(1) }).unwrap();
        assert_eq!((plan.logs().collect::<Vec<_>>(), plan.dropped().len()), (vec![1, 4], 1));
        plan.ends(9).collect::<Vec<_>>()
    };
    let stated = torn_at(&files);
    assert_eq!((stated.len(), stated[0].number, stated[0].next), (1, 4, 9));
    let mut ends = LogEnds::new();
    assert!(ends.add(stated[0]));
    let mut next = Store::new();
    next.create(9, 4);
    next.written = 3;
    next.run("WW");
    files.insert(path(9), next.killed().remove(&path(9)).unwrap());
    let batches = [&all[..3], &next.batches()[3..]].concat();
    (files, ends, batches)
}

/// Regression: bytes that an open had dropped and writes of an earlier log reappeared, or the next
/// log was taken for the remains of a power cut.
#[test]
fn a_log_ends_at_its_recorded_end() {
    let (files, ends, batches) = kept();
    let found = |files: &Files| recover_with(files, Needed { ends: &ends, ..strict(1) });
    let whole = found(&files).unwrap();
    assert_eq!((whole.batches, whole.dropped, whole.newest), (batches.clone(), vec![], 9));
    // Everything after that is ignored, even records.
    let end = ends.of(4).unwrap().end as usize;
    let mut store = Store::new();
    let longer = store.run("WWRWWWS").killed().remove(&path(4)).unwrap();
    let mut noise = longer[..end].to_vec();
    noise.extend([0x5a; 700]);
    for behind in [&longer[..end], &longer[..], &noise[..]] {
        let files = [files.clone(), Files::from([(path(4), behind.to_vec())])];
        let found = found(&files.into_iter().flatten().collect()).unwrap();
        assert_eq!((found.batches, found.dropped), (batches.clone(), vec![]));
    }
    // Without the recorded end it is a tear, and the following records are dropped.
    let torn = recover(&files, 1).unwrap();
    assert_eq!((&torn.batches[..], torn.dropped.len()), (&batches[..3], 2));
}

#[test]
fn a_log_cut_before_its_recorded_end_is_corruption() {
    let (files, ends, _) = kept();
    let end = ends.of(4).unwrap().end as usize;
    for length in 0..end {
        let mut cut = files.clone();
        cut.get_mut(&path(4)).unwrap().truncate(length);
        let found = recover_with(&cut, Needed { ends: &ends, ..strict(1) });
        assert!(matches!(&found, Err(Error::Corruption(c)) if c.file == path(4)), "{length} bytes");
    }
    for bit in 0..end * 8 {
        let mut bad = files.clone();
        bad.get_mut(&path(4)).unwrap()[bit / 8] ^= 1 << (bit % 8);
        let found = recover_with(&bad, Needed { ends: &ends, ..strict(1) });
        assert!(matches!(&found, Err(Error::Corruption(c)) if c.file == path(4)), "bit {bit}");
    }
}

/// The log that follows a recorded end was created before the manifest recorded it.
#[test]
fn the_recorded_successor_of_a_log_must_exist() {
    let (mut files, ends, batches) = kept();
    files.remove(&path(9));
    let needed = Needed { ends: &ends, ..strict(1) };
    let found = recover_with(&files, needed);
    assert!(matches!(found, Err(Error::Corruption(c)) if c.file == path(9)));
    let saved = recover_with(&files, Needed { salvage: true, ..needed }).unwrap();
    assert_eq!((&saved.batches[..], saved.dropped.len()), (&batches[..3], 1));
}

/// Regression: a log that an earlier open had dropped entirely reappeared after the end of its
/// predecessor.
#[test]
fn logs_between_a_recorded_end_and_its_successor_are_ignored() {
    let mut store = Store::new();
    store.run("WWRWW");
    let mut files = store.killed();
    let torn = files.get_mut(&path(1)).unwrap();
    torn.truncate(torn.len() - 60);
    let needed = Needed { present: &[1, 4], ..strict(1) };
    let before = plan(&on_disk(&files), &needed).unwrap();
    assert_eq!((before.dropped().len(), before.newest()), (2, 4));
    let mut ends = LogEnds::new();
    before.ends(9).for_each(|end| assert!(ends.add(end)));
    let kept = before.records() as usize;
    let mut next = Store::new();
    next.create(9, before.newest());
    next.written = kept;
    next.run("W");
    let batches = next.batches();
    files.insert(path(9), next.killed().remove(&path(9)).unwrap());
    for is_there in [true, false] {
        let found = recover_with(&files, Needed { ends: &ends, ..strict(1) }).unwrap();
        assert_eq!((found.batches, found.dropped), (batches.clone(), vec![]), "{is_there}");
        files.remove(&path(4));
    }
    assert!(ends.ignores(4) && !ends.ignores(1) && !ends.ignores(9));
    assert_eq!(ends.of(1).map(|end: LogEnd| end.next), Some(9));
}

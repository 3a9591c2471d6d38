//! Preallocated zeros of a log in an open store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_sim::{Policy, Replay, SimDisk};
use trommel_vfs::{DiskVfs, Vfs};

use super::format::{AHEAD_BYTES, END_PAYLOAD_BYTES, RECORD_OVERHEAD_BYTES};
use crate::inspect::{Ending, Log, LogSpanKind};
use crate::{Db, Durability, Options};

const KEYS: usize = 30;

fn options(vfs: Arc<dyn Vfs>) -> Options {
    Options::default().vfs(vfs).background_threads(0).durability(Durability::Sync)
}

/// A store whose log was synced after each of its keys.
fn written(vfs: Arc<dyn Vfs>, dir: &Path) -> Db {
    let db = Db::open(dir, options(vfs)).unwrap();
    (0..KEYS).for_each(|n| {
        db.put(format!("{n}"), format!("value {n}")).unwrap();
    });
    db
}

/// Opens the store, which may have lost only part of an end marker, and must report just that.
/// Returns whether it was closed, and whether a part of the end marker was lost.
fn whole(vfs: Arc<dyn Vfs>, dir: &Path) -> (bool, bool) {
    let db = Db::open(dir, options(vfs)).unwrap();
    let report = db.recovery_report();
    let marker = (RECORD_OVERHEAD_BYTES + END_PAYLOAD_BYTES) as u64;
    assert!(report.dropped.iter().all(|dropped| dropped.bytes <= marker), "{:?}", report.dropped);
    for n in 0..KEYS {
        assert_eq!(db.get(format!("{n}")).unwrap().unwrap(), format!("value {n}").as_bytes());
    }
    let was_cut = !report.dropped.is_empty();
    (report.was_closed, was_cut)
}

fn log(vfs: &dyn Vfs, dir: &Path) -> (PathBuf, u64) {
    let listing = vfs.list(dir).unwrap();
    let is_log = |name: &Path| name.extension().is_some_and(|extension| extension == "log");
    let mut logs = listing.iter().filter(|entry| is_log(Path::new(&entry.name)));
    let log = logs.next_back().unwrap();
    (dir.join(&log.name), log.bytes)
}

/// The disks that a power cut or a kill may leave now.
fn crashes(replay: &Replay) -> impl Iterator<Item = SimDisk> {
    let seeds = |policy: Policy| if policy.is_random() { 5 } else { 1 };
    let all = Policy::ALL
        .into_iter()
        .flat_map(move |policy| (0..seeds(policy)).map(move |seed| (policy, seed)));
    all.map(|(policy, seed)| replay.image(policy, seed).disk())
}

#[test]
fn a_crash_behind_a_sync_loses_nothing_and_reports_nothing() {
    let (disk, dir) = (SimDisk::new(), Path::new("db"));
    let db = written(Arc::new(disk.clone()), dir);
    let mut replay = disk.replay();
    replay.seek(usize::MAX);
    for image in crashes(&replay) {
        assert_eq!(log(&image, dir).1, AHEAD_BYTES);
        assert_eq!(whole(Arc::new(image), dir), (false, false));
    }
    // Wherever closing is interrupted, with the zeros and without them.
    let before = replay.position();
    db.close().unwrap();
    let mut replay = disk.replay();
    replay.seek(before);
    let mut closed = Vec::new();
    loop {
        for image in crashes(&replay) {
            closed.push(whole(Arc::new(image), dir));
        }
        if replay.step().is_none() {
            break;
        }
    }
    assert_eq!((closed[0], closed.last()), ((false, false), Some(&(true, false))));
    assert!(log(&disk, dir).1 < AHEAD_BYTES);
}

#[test]
fn a_store_in_use_verifies_and_its_copy_opens() {
    let home = tempfile::tempdir().unwrap();
    let (used, copy) = (home.path().join("used"), home.path().join("copy"));
    let db = written(Arc::new(DiskVfs), &used);
    let (path, bytes) = log(&DiskVfs, &used);
    assert_eq!(bytes, AHEAD_BYTES);
    db.verify().unwrap();
    let in_use = Log::open(&DiskVfs, &path).unwrap();
    assert_eq!(in_use.info().unwrap().ending, Ending::Open);
    in_use.check().unwrap();
    let spans = in_use.layout();
    assert_eq!(spans.last().unwrap().kind, LogSpanKind::ZerosAhead);
    assert_eq!(spans.iter().map(|span| span.bytes).sum::<u64>(), bytes);
    DiskVfs.create_dir(&copy).unwrap();
    for entry in DiskVfs.list(&used).unwrap() {
        let found = DiskVfs.read(&used.join(&entry.name), u64::MAX).unwrap();
        DiskVfs.create(&copy.join(&entry.name)).unwrap().append(&found).unwrap();
    }
    assert_eq!(whole(Arc::new(DiskVfs), &copy), (false, false));
    db.close().unwrap();
    assert!(log(&DiskVfs, &used).1 < AHEAD_BYTES);
    assert_eq!(whole(Arc::new(DiskVfs), &used), (true, false));
}

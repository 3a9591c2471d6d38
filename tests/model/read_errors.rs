//! A read error during a scan: the scan returns it, in either direction, and yields nothing more.
//! It never ends as if there were no more entries.
//!
//! Only scans read here: nothing is flushed or compacted while the disk fails.

use std::sync::Arc;

use trommel::{Db, Error, Options, Slice};
use trommel_sim::{Failure, Fault, OpKind, SimDisk};

const ENTRIES: u32 = 300;

type Entry = (Slice, Slice);

/// The kind of a scan.
#[derive(Debug, Clone, Copy)]
enum Way {
    Forward,
    Backward,
    BothEnds,
    Cursor,
    CursorBackward,
}

const WAYS: [Way; 5] =
    [Way::Forward, Way::Backward, Way::BothEnds, Way::Cursor, Way::CursorBackward];

fn options(disk: &SimDisk) -> Options {
    Options::default()
        .vfs(Arc::new(disk.clone()))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false).table_bytes(4 << 10))
        .reads(|r| r.block_bytes(256).cache_bytes(0))
}

/// A store of several levels, with two tables of level 0 above them.
fn filled() -> SimDisk {
    let disk = SimDisk::new();
    let db = Db::open("/db", options(&disk)).unwrap();
    for round in 0..3u32 {
        for i in (0..ENTRIES).filter(|i| i % (round + 1) == 0) {
            db.put(format!("key{i:04}"), format!("{round}-{i}-").repeat(3)).unwrap();
        }
        if round == 0 {
            db.compact_all().unwrap();
        } else {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
    disk
}

/// The entries of a scan, in key order, and the error that ended it.
fn scan(db: &Db, way: Way) -> (Vec<Entry>, Option<Error>) {
    let mut seen = Vec::new();
    let mut failed = None;
    match way {
        Way::Forward | Way::Backward | Way::BothEnds => {
            let mut range = db.range(..);
            let mut behind = Vec::new();
            for turn in 0.. {
                let from_back =
                    matches!(way, Way::Backward) || (matches!(way, Way::BothEnds) && turn % 2 == 1);
                let step = if from_back { range.next_back() } else { range.next() };
                match step {
                    Some(Ok(entry)) if from_back => behind.push(entry),
                    Some(Ok(entry)) => seen.push(entry),
                    Some(Err(error)) => {
                        failed = Some(error);
                        assert!(range.next().is_none(), "{way:?}: it goes on after an error");
                        assert!(range.next_back().is_none(), "{way:?}: it goes on after an error");
                        break;
                    }
                    None => break,
                }
            }
            seen.extend(behind.into_iter().rev());
        }
        Way::Cursor | Way::CursorBackward => {
            let is_back = matches!(way, Way::CursorBackward);
            failed = iterate(db, is_back, &mut seen).err();
            if is_back {
                seen.reverse();
            }
        }
    }
    (seen, failed)
}

fn iterate(db: &Db, is_back: bool, seen: &mut Vec<Entry>) -> trommel::Result<()> {
    let mut cursor = db.cursor()?;
    if is_back {
        cursor.seek_to_last()?;
    } else {
        cursor.seek_to_first()?;
    }
    while let (Some(key), Some(value)) = (cursor.key(), cursor.value()) {
        seen.push((Slice::from(key), value));
        let moved = if is_back { cursor.prev() } else { cursor.next() };
        if moved.is_err() {
            assert!(!cursor.valid(), "it stands on an entry after an error");
        }
        moved?;
    }
    Ok(())
}

/// Each read of a scan fails in turn, in each way that a read can fail.
#[test]
fn a_read_error_is_never_the_end_of_a_scan() {
    let disk = filled();
    let whole = {
        let db = Db::open("/db", options(&disk)).unwrap();
        scan(&db, Way::Forward).0
    };
    assert_eq!(whole.len(), ENTRIES as usize);
    for way in WAYS {
        let (mut errors, mut after_some) = (0, 0);
        for call in 0.. {
            let db = Db::open("/db", options(&disk)).unwrap();
            let before = disk.faults_fired();
            let fault = if call % 2 == 0 { Fault::new(Failure::Io) } else { Fault::short_read(7) };
            disk.inject(fault.on(OpKind::Read).named(".sst").after(call));
            let (seen, failed) = scan(&db, way);
            let is_met = disk.faults_fired() > before;
            disk.clear_faults();
            let case = format!("{way:?}, read {call}");
            match &failed {
                None => assert!(seen == whole, "{case}: {} entries, and no error", seen.len()),
                Some(error) => {
                    assert!(matches!(error, Error::Io { .. }), "{case}: {error:?}");
                    assert!(seen.iter().all(|entry| whole.contains(entry)), "{case}");
                    errors += 1;
                    after_some += u32::from(!seen.is_empty());
                }
            }
            let (seen, failed) = scan(&db, way);
            assert!(seen == whole && failed.is_none(), "{case}: on a mended disk: {failed:?}");
            if !is_met {
                break;
            }
        }
        assert!(errors > 8 && after_some > 4, "{way:?}: {errors} errors, {after_some} later");
    }
}

//! The end of a store's life: closed while it is used, poisoned during a group commit, copied,
//! stopped and started.

use shuttle::thread::spawn;
use trommel::{Db, Error, WriteOptions};
use trommel_sim::{Failure, Fault, OpKind, SimDisk};

use crate::lane::lane;
use crate::store::{after_power_cut, number, open, options};

/// Every user of a closed store gets an error; earlier acknowledged writes are present.
fn close_against_all() {
    let disk = SimDisk::new();
    let db = open(options(&disk).compaction(|c| c.l0_trigger(2)));
    db.put("k", 1u64.to_le_bytes()).unwrap();
    let writer = spawn({
        let db = db.clone();
        move || {
            let mut acknowledged = 1;
            for round in 2..=4u64 {
                match db.put("k", round.to_le_bytes()) {
                    Ok(_) => acknowledged = round,
                    Err(Error::Closed) => break,
                    Err(other) => panic!("{other}"),
                }
            }
            acknowledged
        }
    });
    let reader = spawn({
        let db = db.clone();
        move || {
            let mut last = 1;
            for _ in 0..3 {
                match db.get("k") {
                    Ok(found) => {
                        let found = number(found);
                        assert!(found >= last, "{found} after {last}");
                        last = found;
                    }
                    Err(Error::Closed) => break,
                    Err(other) => panic!("{other}"),
                }
            }
            let walked = db.iter().next();
            assert!(matches!(walked, Some(Ok(_) | Err(Error::Closed))), "{walked:?}");
        }
    });
    let worker = spawn({
        let db = db.clone();
        move || {
            let noted = db.flush().and_then(|()| db.compact_all()).and_then(|()| db.wait_idle());
            assert!(matches!(noted, Ok(()) | Err(Error::Closed)), "{noted:?}");
        }
    });
    db.close().unwrap();
    let acknowledged = writer.join().unwrap();
    reader.join().unwrap();
    worker.join().unwrap();
    let db = after_power_cut(&disk);
    assert_eq!(number(db.get("k").unwrap()), acknowledged);
    db.verify().unwrap();
}

/// One sync of a log fails: no write of the group that waited for it is acknowledged, nor any later
/// one; readers continue, and earlier acknowledged writes are present after a power failure.
/// Rejected writes have no effect, also if other writers of the group were to insert while the next
/// group's sync failed. Of three writers those from `first_synced` on sync; `synced` of these syncs
/// succeed.
fn poisoning(first_synced: u64, synced: u64) {
    let disk = SimDisk::new();
    let db = open(options(&disk).writes(|w| w.write_buffer_bytes(1 << 20)));
    db.put_with("k0", 7u64.to_le_bytes(), WriteOptions::sync()).unwrap();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log").after(synced));
    let writers: Vec<_> = (1..=3u64)
        .map(|writer| {
            let (db, disk) = (db.clone(), disk.clone());
            spawn(move || {
                let key = format!("k{writer}");
                let before = disk.faults_fired();
                let syncs = writer >= first_synced;
                let how = if syncs { WriteOptions::sync() } else { WriteOptions::default() };
                let written = db.put_with(&key, writer.to_le_bytes(), how);
                match written {
                    Ok(_) => assert_eq!(before, 0, "acknowledged after a failed sync"),
                    Err(_) => assert_eq!(disk.faults_fired(), 1, "refused before anything failed"),
                }
                assert_eq!(number(db.get("k0").unwrap()), 7, "reads go on");
                (key, syncs, written.is_ok())
            })
        })
        .collect();
    let written: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    for (key, _, is_written) in &written {
        assert_eq!(db.get(key).unwrap().is_some(), *is_written, "{key}");
    }
    assert!(disk.faults_fired() == 0 || !written.iter().all(|(.., is_written)| *is_written));
    let synced = written.iter().filter(|(_, syncs, is_written)| *syncs && *is_written);
    let acknowledged: Vec<_> = synced.map(|(key, ..)| key.clone()).collect();
    if disk.faults_fired() == 1 {
        let refused = db.put("k9", [0; 8]);
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    }
    let _ = db.close();
    let db = after_power_cut(&disk);
    for key in acknowledged.iter().map(String::as_str).chain(["k0"]) {
        assert!(db.get(key).unwrap().is_some(), "{key} was acknowledged as durable");
    }
}

/// One call on a log fails while others wait for their turn to rotate, to write or to check: none
/// of them writes after the partial record, nothing is reported as corrupt, and the store opens
/// with all acknowledged writes.
fn fail_before_others(fault: Fault) {
    let disk = SimDisk::new();
    // The memtable is never full, so the first flush ends a log.
    let db = open(options(&disk).writes(|w| w.write_buffer_bytes(1 << 20)));
    db.put_with("k0", 7u64.to_le_bytes(), WriteOptions::sync()).unwrap();
    disk.inject(fault.named(".log"));
    let acts: [fn(&Db) -> trommel::Result<()>; 4] = [
        Db::flush,
        Db::flush,
        |db| db.verify().map(drop),
        |db| db.put("k1", 1u64.to_le_bytes()).map(drop),
    ];
    let others = acts.map(|act| {
        let db = db.clone();
        spawn(move || act(&db))
    });
    let noted = others.map(|other| other.join().unwrap());
    assert_eq!(disk.faults_fired(), 1);
    let is_legal = |noted: &trommel::Result<()>| {
        matches!(noted, Ok(()) | Err(Error::Io { .. } | Error::Poisoned { .. }))
    };
    assert!(noted.iter().all(is_legal), "{noted:?}");
    let _ = db.close();
    let (cut, killed) = (after_power_cut(&disk), open(options(&disk).background_threads(0)));
    for db in [&cut, &killed] {
        assert_eq!(number(db.get("k0").unwrap()), 7);
        db.verify().unwrap();
    }
    assert!(noted[3].is_err() || killed.contains_key("k1").unwrap());
}

fn fail_creating() {
    fail_before_others(Fault::new(Failure::Io).on(OpKind::Sync));
}

fn fail_appending() {
    fail_before_others(Fault::new(Failure::NoSpace).on(OpKind::Append).writing_part(3));
}

/// A checkpoint taken during the writes of two threads holds a consistent state of each, and
/// everything acknowledged before it began.
fn checkpoint_against_writers() {
    let disk = SimDisk::new();
    let db = open(options(&disk).compaction(|c| c.l0_trigger(2)));
    db.put("k0", 1u64.to_le_bytes()).unwrap();
    db.put("k1", 1u64.to_le_bytes()).unwrap();
    let writers: Vec<_> = (0..2u64)
        .map(|writer| {
            let db = db.clone();
            spawn(move || {
                for round in 2..=3u64 {
                    db.put(format!("k{writer}"), round.to_le_bytes()).unwrap();
                }
            })
        })
        .collect();
    let least: Vec<u64> = (0..2).map(|n| number(db.get(format!("k{n}")).unwrap())).collect();
    db.checkpoint("/copy").unwrap();
    for writer in writers {
        writer.join().unwrap();
    }
    db.close().unwrap();
    let copy = Db::open("/copy", options(&disk).background_threads(0)).unwrap();
    copy.verify().unwrap();
    for (n, least) in least.into_iter().enumerate() {
        let found = number(copy.get(format!("k{n}")).unwrap());
        assert!((least..=3).contains(&found), "{found} of {n}, at least {least}");
    }
    copy.close().unwrap();
}

/// Writers stall until a flush and a compaction have made space: every wake-up arrives, since a
/// lost one would leave all threads waiting.
fn stall() {
    let disk = SimDisk::new();
    let narrow = options(&disk)
        .writes(|w| w.max_frozen_memtables(1))
        .compaction(|c| c.l0_trigger(1).l0_slowdown(1).l0_stop(2));
    let db = open(narrow);
    let writers: Vec<_> = (0..2u64)
        .map(|writer| {
            let db = db.clone();
            spawn(move || {
                for round in 1..=3u64 {
                    db.put(format!("k{writer}"), round.to_le_bytes()).unwrap();
                }
            })
        })
        .collect();
    let pauser = spawn({
        let db = db.clone();
        move || {
            db.pause_compaction().unwrap();
            db.resume_compaction();
        }
    });
    for writer in writers {
        writer.join().unwrap();
    }
    pauser.join().unwrap();
    db.wait_idle().unwrap();
    for writer in 0..2 {
        assert_eq!(number(db.get(format!("k{writer}")).unwrap()), 3);
    }
    db.close().unwrap();
}

/// A writer stalls until a compaction has made space, while compactions are paused: it continues.
fn stall_and_pause() {
    let disk = SimDisk::new();
    let db = open(options(&disk).compaction(|c| c.l0_trigger(1).l0_slowdown(1).l0_stop(1)));
    let writer = spawn({
        let db = db.clone();
        move || {
            for round in 1..=3u64 {
                db.put("k", round.to_le_bytes()).unwrap();
            }
        }
    });
    db.pause_compaction().unwrap();
    writer.join().unwrap();
    db.resume_compaction();
    db.wait_idle().unwrap();
    assert_eq!(number(db.get("k").unwrap()), 3);
    db.close().unwrap();
}

/// A stall that ends with a poisoned store: the stalled writer gets the error.
fn stall_and_poison() {
    let disk = SimDisk::new();
    let db = open(options(&disk).writes(|w| w.max_frozen_memtables(1)));
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".sst"));
    let writers: Vec<_> = (0..2u64)
        .map(|writer| {
            let db = db.clone();
            spawn(move || {
                for round in 1..=3u64 {
                    if db.put(format!("k{writer}"), round.to_le_bytes()).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let noted = db.flush();
    assert!(matches!(noted, Err(Error::Poisoned { .. })), "{noted:?}");
    assert!(db.close().is_err());
}

/// A full disk while a table is written: the write is retried, and no thread is left waiting.
fn stall_and_shortage() {
    let disk = SimDisk::new();
    let db = open(options(&disk).writes(|w| w.max_frozen_memtables(1)));
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).named(".sst"));
    let writers: Vec<_> = (0..2u64)
        .map(|writer| {
            let db = db.clone();
            spawn(move || {
                let mut kept = 0;
                for round in 1..=3u64 {
                    match db.put(format!("k{writer}"), round.to_le_bytes()) {
                        Ok(_) => kept = round,
                        Err(error) => assert!(!matches!(error, Error::Poisoned { .. }), "{error}"),
                    }
                }
                kept
            })
        })
        .collect();
    let kept: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    db.flush().unwrap();
    for (writer, kept) in kept.into_iter().enumerate() {
        assert_eq!(number(db.get(format!("k{writer}")).unwrap()), kept);
    }
    db.close().unwrap();
}

#[test]
fn closes_against_all() {
    lane("closes_against_all", 10_000, close_against_all);
}

#[test]
fn poisons_a_group() {
    lane("poisons_a_group", 20_000, || poisoning(1, 1));
}

#[test]
fn poisons_behind_a_group() {
    lane("poisons_behind_a_group", 10_000, || poisoning(3, 0));
}

#[test]
fn fails_creating_a_log_before_others() {
    lane("fails_creating_a_log_before_others", 5_000, fail_creating);
}

#[test]
fn fails_appending_before_others() {
    lane("fails_appending_before_others", 5_000, fail_appending);
}

#[test]
fn copies_against_writers() {
    lane("copies_against_writers", 5_000, checkpoint_against_writers);
}

#[test]
fn stops_and_wakes_writers() {
    lane("stops_and_wakes_writers", 4_000, stall);
}

#[test]
fn lets_stopped_writers_pass_a_pause() {
    lane("lets_stopped_writers_pass_a_pause", 6_000, stall_and_pause);
}

#[test]
fn tells_stopped_writers_of_poison() {
    lane("tells_stopped_writers_of_poison", 15_000, stall_and_poison);
}

#[test]
fn stops_writers_while_the_disk_is_full() {
    lane("stops_writers_while_the_disk_is_full", 5_000, stall_and_shortage);
}

//! Power cuts and failing disk calls.
//!
//! After every crash: each listed backup is intact, those that were reported done are listed, and a
//! new one can be created.

use std::collections::HashSet;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel_backup::{Directory, Repository, Target};
use trommel_sim::{Failure, Fault, Image, OpKind, Policy, SimDisk};

use crate::stores::{Entries, entries, entries_in, new_store, write};

fn target(disk: &SimDisk) -> Arc<dyn Target> {
    Arc::new(Directory::on(Arc::new(disk.clone()), "above/repository"))
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir("above".as_ref()).unwrap();
    disk.sync_dir(".".as_ref()).unwrap();
    disk
}

/// The entries of each backup, by its ID less one.
struct History {
    disk: SimDisk,
    states: Vec<Entries>,
}

/// Creates and deletes backups, and marks every return. Mark `n` means that backup `n` is done,
/// mark `100 + n` that the deletion of backup `n` began.
fn history() -> History {
    let disk = disk();
    let (_, db) = new_store();
    let mut states = Vec::new();
    let repository = Repository::open_or_create(target(&disk)).unwrap();
    for id in 1..=3 {
        for table in 0..4 {
            write(&db, 10 * id + table, 40);
        }
        repository.create(&db, &()).unwrap();
        disk.mark(id);
        states.push(entries(&db));
    }
    disk.mark(102);
    repository.delete(2, &()).unwrap();
    db.compact_all().unwrap();
    repository.create(&db, &()).unwrap();
    disk.mark(4);
    states.push(entries(&db));
    for id in [101, 103] {
        disk.mark(id);
    }
    repository.purge(1, &()).unwrap();
    History { disk, states }
}

/// Asserts the guarantees on `image`, and continues to work there.
fn check(image: &Image, marks: &[u64], states: &[Entries]) {
    let disk = image.disk();
    let ids: Vec<u64> = match Repository::open(target(&disk)) {
        Ok(repository) => {
            let verified = repository.verify(None, &()).unwrap();
            assert_eq!(verified.damages, []);
            verified.whole
        }
        Err(_) => Vec::new(),
    };
    for &done in marks.iter().filter(|mark| **mark < 100) {
        let may_be_gone = marks.contains(&(done + 100));
        assert!(may_be_gone || ids.contains(&done), "backup {done} is lost: {ids:?}");
    }
    // The power was cut before the folder above was durable.
    if disk.list("above".as_ref()).is_err() {
        assert!(marks.is_empty());
        return;
    }
    let repository = Repository::open_or_create(target(&disk)).unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(SimDisk::new());
    for id in ids {
        let dir = format!("restored-{id}");
        repository.restore_on(vfs.clone(), id, &dir, &()).unwrap();
        assert!(entries_in(&vfs, &dir) == states[id as usize - 1], "backup {id}");
    }
    let (_, db) = new_store();
    write(&db, 99, 10);
    let created = repository.create(&db, &()).unwrap();
    repository.purge(1, &()).unwrap();
    // Reported work is durable, whatever unfinished work the crash left before it.
    let after = disk.crash(Policy::SYNCED, 0).disk();
    let repository = Repository::open(target(&after)).unwrap();
    let verified = repository.verify(Some(created.backup.id), &()).unwrap();
    assert_eq!(verified.damages, []);
}

#[test]
fn a_crash_leaves_complete_backups_only() {
    let History { disk, states } = history();
    let mut replay = disk.replay();
    let mut met = HashSet::new();
    let mut random = fastrand::Rng::with_seed(3);
    loop {
        let more = [(); 20].map(|()| Policy::ALL[random.usize(2..Policy::ALL.len())]);
        for policy in [Policy::SYNCED, Policy::EVERYTHING].into_iter().chain(more) {
            let image = replay.image(policy, random.u64(..));
            if met.insert((image.hash(), replay.marks().len())) {
                check(&image, replay.marks(), &states);
            }
        }
        if replay.step().is_none() {
            break;
        }
    }
    println!("distinct images: {}", met.len());
    assert!(met.len() > 300, "only {} images", met.len());
}

/// Each call to the repository's disk fails once, in each way: the backup returns an error or is
/// durable, and the next one, after a restart, is.
#[test]
fn a_failing_disk_costs_no_backup() {
    let kinds = [
        OpKind::Create,
        OpKind::Append,
        OpKind::Sync,
        OpKind::Rename,
        OpKind::Remove,
        OpKind::CreateDir,
        OpKind::SyncDir,
        OpKind::List,
        OpKind::Open,
        OpKind::Read,
        OpKind::Lock,
    ];
    let mut fired = 0;
    for (kind, failure) in kinds
        .into_iter()
        .flat_map(|kind| [Failure::Io, Failure::NoSpace].map(|failure| (kind, failure)))
    {
        for passed in 0.. {
            let disk = disk();
            let (_, db) = new_store();
            write(&db, 1, 40);
            disk.inject(Fault::new(failure).on(kind).after(passed));
            let tried = Repository::open_or_create(target(&disk)).and_then(|repository| {
                let created = repository.create(&db, &())?;
                write(&db, 2, 40);
                let second = repository.create(&db, &())?;
                repository.delete(1, &())?;
                Ok((created, second))
            });
            let has_fired = disk.faults_fired() > 0;
            fired += u64::from(has_fired);
            disk.clear_faults();
            let after = disk.crash(Policy::SYNCED, 0).disk();
            let why = format!("{kind:?} after {passed}, {failure:?}: {tried:?}");
            if let Ok((_, second)) = &tried {
                let repository = Repository::open(target(&after)).expect(&why);
                assert_eq!(
                    repository.verify(None, &()).unwrap().whole,
                    [second.backup.id],
                    "{why}"
                );
            } else if let Ok(repository) = Repository::open(target(&after)) {
                assert_eq!(repository.verify(None, &()).unwrap().damages, [], "{why}");
            }
            let repository = Repository::open_or_create(target(&after)).expect(&why);
            let created = repository.create(&db, &()).expect(&why);
            let verified = repository.verify(Some(created.backup.id), &()).unwrap();
            assert_eq!(verified.damages, [], "{why}");
            if !has_fired {
                break;
            }
        }
    }
    assert!(fired > 100, "only {fired} calls failed");
}

/// A directory that could not be synced is not trusted again.
#[test]
fn after_a_failed_sync_nothing_more_is_written() {
    let disk = disk();
    let (_, db) = new_store();
    write(&db, 1, 40);
    let repository = Repository::open_or_create(target(&disk)).unwrap();
    disk.inject(Fault::new(Failure::Io).on(OpKind::SyncDir));
    repository.create(&db, &()).unwrap_err();
    for error in [repository.create(&db, &()).unwrap_err(), repository.purge(1, &()).unwrap_err()] {
        assert!(error.to_string().contains("open the repository again"), "{error}");
    }
    assert!(repository.list().unwrap().is_empty(), "reading goes on");
}

/// A restore that the power interrupts leaves a whole store or none, and can be repeated.
#[test]
fn a_restore_cut_short_is_no_store() {
    let (_, db) = new_store();
    write(&db, 1, 40);
    write(&db, 2, 40);
    let repository = Repository::open_or_create(target(&disk())).unwrap();
    repository.create(&db, &()).unwrap();
    let disk = SimDisk::new();
    repository.restore_on(Arc::new(disk.clone()), 1, "restored", &()).unwrap();
    let mut replay = disk.replay();
    let (mut whole, mut none) = (0, 0);
    loop {
        for seed in 0..8 {
            let policy = Policy::ALL[seed as usize % Policy::ALL.len()];
            let vfs: Arc<dyn Vfs> = Arc::new(replay.image(policy, seed).disk());
            let options = crate::stores::options(&vfs).opening(|o| o.read_only(true));
            match trommel::Db::open("restored", options) {
                Ok(restored) => {
                    assert!(entries(&restored) == entries(&db));
                    restored.verify().unwrap();
                    whole += 1;
                }
                Err(_) => {
                    repository.restore_on(vfs.clone(), 1, "restored", &()).unwrap();
                    assert!(entries_in(&vfs, "restored") == entries(&db));
                    none += 1;
                }
            }
        }
        if replay.step().is_none() {
            break;
        }
    }
    assert!(whole >= 8 && none > 50, "{whole} whole, {none} none");
    let last = disk.crash(Policy::SYNCED, 0).disk();
    let vfs: Arc<dyn Vfs> = Arc::new(last);
    assert!(entries_in(&vfs, "restored") == entries(&db), "what was reported done is durable");
}

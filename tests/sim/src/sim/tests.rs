//! Each rule of what a power cut may do has a test here that fails if the rule is broken.

mod faults;
mod legality;
mod parts;

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const SEEDS: u64 = 300;

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// Bytes without zeros, so that a lost byte is visible.
fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|i| (i % 255) as u8 + 1).collect()
}

/// `bytes(0, live)`, then zeros up to `length`.
fn padded(live: u64, length: u64) -> Vec<u8> {
    let mut found = bytes(0, live);
    found.resize(length as usize, 0);
    found
}

fn create(disk: &SimDisk, name: &str) -> Box<dyn WriteFile> {
    disk.create(path(name)).expect("a new file")
}

/// A file with these bytes, synced; its entry is not.
fn write(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let mut file = create(disk, name);
    file.append(bytes).expect("no fault is planned");
    file.sync().expect("no fault is planned");
}

fn sync_dir(disk: &SimDisk, name: &str) {
    disk.sync_dir(path(name)).expect("no fault is planned");
}

fn read(vfs: &dyn Vfs, name: &str) -> Option<Vec<u8>> {
    match vfs.read(path(name), u64::MAX) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            None
        }
    }
}

fn names(vfs: &dyn Vfs, dir: &str) -> Vec<String> {
    let entries = vfs.list(path(dir)).expect("it is there");
    entries.into_iter().map(|entry| entry.name.into_string().expect("plain names")).collect()
}

/// An image for every policy and many seeds.
fn images(replay: &Replay) -> impl Iterator<Item = (Policy, u64, Image)> {
    Policy::ALL.into_iter().flat_map(move |policy| {
        let seeds = if policy.is_random() { SEEDS } else { 1 };
        (0..seeds).map(move |seed| (policy, seed, replay.image(policy, seed)))
    })
}

fn now(disk: &SimDisk) -> Replay {
    let mut replay = disk.replay();
    replay.seek(usize::MAX);
    replay
}

/// The distinct results of `look` on all images of the disk's current state.
fn all<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let images = now(disk).images_exhaustive(16).expect("few decisions");
    images.iter().map(|image| look(&image.disk())).collect()
}

fn set<T: Ord, const N: usize>(items: [T; N]) -> BTreeSet<T> {
    BTreeSet::from(items)
}

#[test]
fn conforms() {
    crate::conformance::check(&SimDisk::new(), path(""));
}

#[test]
fn images_conform() {
    let disk = SimDisk::new();
    disk.create_dir(path("used")).expect("a new directory");
    crate::conformance::check(&disk, path("used"));
    for (_, _, image) in images(&now(&disk)).step_by(40) {
        for vfs in [&image.disk() as &dyn Vfs, &image.memory()] {
            vfs.create_dir(path("fresh")).expect("a new directory");
            crate::conformance::check(vfs, path("fresh"));
        }
    }
}

#[test]
fn synced_data_is_never_lost() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    sync_dir(&disk, "");
    for round in 0..5 {
        file.append(&bytes(round * 700, (round + 1) * 700)).expect("room");
        file.sync().expect("works");
        file.append(b"").expect("nothing to do");
    }
    file.append(&bytes(3500, 5000)).expect("room");
    for (policy, seed, image) in images(&now(&disk)) {
        let found = read(&image.disk(), "a").expect("its entry is durable");
        assert_eq!(found[..3500], bytes(0, 3500), "{policy} seed={seed}");
    }
}

#[test]
fn unsynced_data_may_be_lost_or_kept() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    file.append(&bytes(0, 100)).expect("room");
    file.sync().expect("works");
    sync_dir(&disk, "");
    file.append(&bytes(100, 700)).expect("room");
    let found = |policy| read(&disk.crash(policy, 0).disk(), "a").expect("its entry is durable");
    assert_eq!(found(Policy::SYNCED), bytes(0, 100));
    assert_eq!(found(Policy::EVERYTHING), bytes(0, 700));
    assert_eq!(found(Policy::new(Entries::Synced, Data::All)), bytes(0, 700));
    // The tail sector was synced with 100 bytes in it: its new version is lost, the old one is not.
    assert_eq!(found(Policy::new(Entries::Synced, Data::Zeroed)), padded(100, 700));
    // Two sectors in two versions each, at the long length; and the short file.
    let mut second_only = padded(100, 700);
    second_only[512..].copy_from_slice(&bytes(512, 700));
    let expected =
        set([bytes(0, 100), padded(100, 700), padded(512, 700), second_only, bytes(0, 700)]);
    assert_eq!(all(&disk, |disk| read(disk, "a").expect("its entry is durable")), expected);
    assert_eq!(now(&disk).undecided(), 3);
    assert!(now(&disk).images_exhaustive(2).is_none());
}

#[test]
fn a_sector_may_be_as_it_was_after_any_append() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    sync_dir(&disk, "");
    file.append(&bytes(0, 10)).expect("room");
    file.append(&bytes(10, 30)).expect("room");
    let expected = set([
        padded(0, 0),
        padded(0, 10),
        padded(10, 10),
        padded(0, 30),
        padded(10, 30),
        padded(30, 30),
    ]);
    assert_eq!(all(&disk, |disk| read(disk, "a").expect("its entry is durable")), expected);
    let seen: BTreeSet<_> = (0..SEEDS)
        .map(|seed| read(&disk.crash(Policy::RANDOM, seed).disk(), "a").expect("durable"))
        .collect();
    assert_eq!(seen, expected, "chance finds them all");
}

#[test]
fn a_sector_is_whole_or_not_written() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    sync_dir(&disk, "");
    file.append(&bytes(0, 16_000)).expect("room");
    let policy = Policy::new(Entries::All, Data::Random);
    let mut scattered = 0;
    for seed in 0..SEEDS {
        let found = read(&disk.crash(policy, seed).disk(), "a").expect("its entry is durable");
        let kept: Vec<bool> = found
            .chunks(512)
            .enumerate()
            .map(|(number, sector)| {
                let start = number as u64 * 512;
                let kept = sector == bytes(start, start + sector.len() as u64);
                assert!(kept || sector.iter().all(|&byte| byte == 0), "seed={seed}");
                kept
            })
            .collect();
        let mixed = |of: &[bool]| of.contains(&true) && of.contains(&false);
        scattered += u64::from(kept.chunks(8).any(mixed));
    }
    assert!(scattered > SEEDS / 4, "of a page some sectors may be kept: {scattered}");
}

#[test]
fn the_last_append_is_torn_and_no_other() {
    let disk = SimDisk::new();
    let mut other = create(&disk, "other");
    other.append(&bytes(0, 2000)).expect("room");
    let mut file = create(&disk, "a");
    file.append(&bytes(0, 600)).expect("room");
    file.append(&bytes(600, 1300)).expect("room");
    sync_dir(&disk, "");
    let policy = Policy::new(Entries::All, Data::Torn);
    let (mut zeroed, mut cut, mut mid_sector) = (BTreeSet::new(), BTreeSet::new(), 0);
    for seed in 0..SEEDS {
        let disk = disk.crash(policy, seed).disk();
        assert_eq!(read(&disk, "other").expect("durable"), bytes(0, 2000));
        let found = read(&disk, "a").expect("its entry is durable");
        let live = found.iter().position(|&byte| byte == 0).unwrap_or(found.len()) as u64;
        assert_eq!(found, padded(live, found.len() as u64));
        assert!(live >= 600, "the append before is whole");
        if found.len() == 1300 {
            zeroed.insert(live);
        } else {
            assert_eq!(found.len() as u64, live);
            cut.insert(live);
            mid_sector += u64::from(!live.is_multiple_of(512));
        }
    }
    assert_eq!(zeroed, set([600, 1024]));
    assert!(cut.contains(&600) && cut.contains(&1024) && mid_sector > SEEDS / 5);
    file.sync().expect("works");
    let torn = disk.crash(policy, 1);
    assert_eq!(torn.hash(), disk.hash(), "a synced append is not torn");
}

#[test]
fn an_entry_needs_its_directory_synced() {
    let disk = SimDisk::new();
    write(&disk, "a", b"synced");
    let expected = set([None, Some(b"synced".to_vec())]);
    assert_eq!(all(&disk, |disk| read(disk, "a")), expected);
    assert_eq!(read(&disk.crash(Policy::SYNCED, 0).disk(), "a"), None);
    sync_dir(&disk, "");
    assert_eq!(all(&disk, |disk| read(disk, "a")), set([Some(b"synced".to_vec())]));
}

#[test]
fn an_entry_and_its_bytes_do_not_wait_for_each_other() {
    let disk = SimDisk::new();
    create(&disk, "a").append(b"bytes").expect("room");
    let found = |entries, data| read(&disk.crash(Policy::new(entries, data), 0).disk(), "a");
    assert_eq!(found(Entries::All, Data::Synced), Some(vec![]));
    assert_eq!(found(Entries::All, Data::Zeroed), Some(vec![0; 5]));
    assert_eq!(found(Entries::Synced, Data::All), None);
    sync_dir(&disk, "");
    assert_eq!(found(Entries::Synced, Data::Synced), Some(vec![]));
}

#[test]
fn syncing_a_directory_is_for_its_own_entries_only() {
    let disk = SimDisk::new();
    disk.create_dir(path("db")).expect("a new directory");
    write(&disk, "db/a", b"a");
    write(&disk, "b", b"b");
    sync_dir(&disk, "db");
    // The directory's own entry is not durable: if lost, all its files are lost.
    let look = |disk: &SimDisk| {
        let inside = disk.list(path("db")).is_ok().then(|| names(disk, "db"));
        (inside, read(disk, "b").is_some())
    };
    let a = vec!["a".to_string()];
    let both = [(None, false), (None, true), (Some(a.clone()), false), (Some(a.clone()), true)];
    assert_eq!(all(&disk, look), set(both));
    sync_dir(&disk, "");
    assert_eq!(all(&disk, look), set([(Some(a), true)]));
}

#[test]
fn changes_of_one_name_happen_in_order_and_of_others_in_any() {
    let disk = SimDisk::new();
    write(&disk, "a", b"first");
    disk.remove(path("a")).expect("it is there");
    write(&disk, "a", b"second");
    write(&disk, "b", b"other");
    let seen = all(&disk, |disk| (read(disk, "a"), read(disk, "b").is_some()));
    let states = [None, Some(b"first".to_vec()), Some(b"second".to_vec())];
    let expected = states.iter().flat_map(|a| [(a.clone(), false), (a.clone(), true)]);
    assert_eq!(seen, expected.collect());
    // Of the eight ways to keep or drop three changes of one name, the order allows four.
    assert_eq!(now(&disk).images_exhaustive(9).expect("few decisions").len(), 6);
}

#[test]
fn a_rename_is_atomic() {
    let disk = SimDisk::new();
    write(&disk, "CURRENT", b"old");
    write(&disk, "tmp", b"new");
    sync_dir(&disk, "");
    disk.rename(path("tmp"), path("CURRENT")).expect("it is there");
    let look = |disk: &SimDisk| (names(disk, ""), read(disk, "CURRENT"));
    let before = (vec!["CURRENT".into(), "tmp".into()], Some(b"old".to_vec()));
    let after = (vec!["CURRENT".into()], Some(b"new".to_vec()));
    assert_eq!(all(&disk, look), set([before, after.clone()]));
    sync_dir(&disk, "");
    assert_eq!(all(&disk, look), set([after]));
}

#[test]
fn a_rename_needs_the_creation_of_what_it_renames() {
    let disk = SimDisk::new();
    write(&disk, "CURRENT", b"old");
    sync_dir(&disk, "");
    write(&disk, "tmp", b"new");
    disk.rename(path("tmp"), path("CURRENT")).expect("it is there");
    let seen = all(&disk, |disk| (names(disk, "").len(), read(disk, "CURRENT")));
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    assert_eq!(seen, set([(1, old.clone()), (2, old), (1, new)]));
}

#[test]
fn a_rename_between_directories_is_made_durable_by_either() {
    for synced in ["x", "y"] {
        let disk = SimDisk::new();
        disk.create_dir(path("x")).expect("a new directory");
        disk.create_dir(path("y")).expect("a new directory");
        sync_dir(&disk, "");
        write(&disk, "x/a", b"a");
        disk.rename(path("x/a"), path("y/b")).expect("it is there");
        let look = |disk: &SimDisk| (names(disk, "x").len(), names(disk, "y").len());
        assert_eq!(all(&disk, look), set([(0, 0), (1, 0), (0, 1)]));
        sync_dir(&disk, synced);
        // Its creation in `x` becomes durable too: it is an earlier change of the same name.
        assert_eq!(all(&disk, look), set([(0, 1)]));
    }
}

#[test]
fn a_removed_file_may_be_back_with_its_bytes() {
    let disk = SimDisk::new();
    write(&disk, "a", b"synced");
    sync_dir(&disk, "");
    disk.remove(path("a")).expect("it is there");
    assert_eq!(all(&disk, |disk| read(disk, "a")), set([None, Some(b"synced".to_vec())]));
    sync_dir(&disk, "");
    assert_eq!(all(&disk, |disk| read(disk, "a")), set([None]));
}

#[test]
fn the_names_of_one_file_show_the_same_bytes() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    disk.hard_link(path("a"), path("b")).expect("a free name");
    file.append(&bytes(0, 3000)).expect("room");
    let mut both = 0;
    for (_, _, image) in images(&now(&disk)) {
        let image = image.disk();
        if let (Some(a), Some(b)) = (read(&image, "a"), read(&image, "b")) {
            assert_eq!(a, b);
            both += 1;
            // Still one file: more bytes are visible under both names.
            let before = image.used_bytes();
            assert_eq!(before, a.len() as u64);
        }
    }
    assert!(both > 100);
}

#[test]
fn bytes_of_a_failed_sync_stay_in_doubt_through_later_syncs() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    sync_dir(&disk, "");
    file.append(&bytes(0, 100)).expect("room");
    file.sync().expect("works");
    file.append(&bytes(100, 1200)).expect("room");
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync));
    file.sync().expect_err("planned");
    file.sync().expect("it says");
    let found = |disk: &SimDisk| read(&disk.crash(Policy::SYNCED, 0).disk(), "a").expect("durable");
    assert_eq!(found(&disk), bytes(0, 100), "a second sync has nothing to write");
    file.append(&bytes(1200, 2000)).expect("room");
    file.sync().expect("it says");
    // The sector with the new bytes was written again, whole. The others were not.
    let mut expected = bytes(0, 2000);
    expected[100..1024].fill(0);
    assert_eq!(found(&disk), expected);
    let seen = all(&disk, |disk| read(disk, "a").expect("durable"));
    assert_eq!(seen.len(), 4, "two sectors are in doubt, and the length is not");
    assert!(seen.contains(&bytes(0, 2000)));
    for (_, _, image) in images(&now(&disk)) {
        let found = read(&image.disk(), "a").expect("durable");
        assert_eq!(found.len(), 2000);
        assert_eq!((&found[..100], &found[1024..]), (&bytes(0, 100)[..], &bytes(1024, 2000)[..]));
    }
}

/// A directory is opened to be synced. Without a handle for it, nothing was tried.
#[test]
fn a_directory_that_could_not_be_opened_is_synced_later() {
    let disk = SimDisk::new();
    write(&disk, "a", b"a");
    disk.inject(Fault::new(Failure::TooManyOpenFiles).on(OpKind::SyncDir));
    assert!(trommel_vfs::is_out_of_handles(&disk.sync_dir(path("")).expect_err("no handle")));
    let look = |disk: &SimDisk| read(disk, "a").is_some();
    assert_eq!(all(&disk, look), set([false, true]));
    sync_dir(&disk, "");
    assert_eq!(all(&disk, look), set([true]));
}

#[test]
fn entries_of_a_failed_directory_sync_stay_in_doubt_through_later_syncs() {
    let disk = SimDisk::new();
    write(&disk, "a", b"a");
    write(&disk, "b", b"b");
    disk.inject(Fault::new(Failure::Io).on(OpKind::SyncDir));
    disk.sync_dir(path("")).expect_err("planned");
    disk.remove(path("b")).expect("it is there");
    write(&disk, "c", b"c");
    sync_dir(&disk, "");
    // `b` was changed again and that change synced; `a` was not.
    let c = || "c".to_string();
    assert_eq!(all(&disk, |disk| names(disk, "")), set([vec![c()], vec!["a".into(), c()]]));
}

#[test]
fn a_lying_sync_shows_in_a_crash_and_the_next_sync_covers_it() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    file.append(b"bytes").expect("room");
    disk.inject(Fault::lying_sync().named("a"));
    file.sync().expect("it says");
    disk.inject(Fault::lying_sync());
    disk.sync_dir(path("")).expect("it says");
    assert_eq!(disk.faults_fired(), 2);
    assert_eq!(read(&disk.crash(Policy::SYNCED, 0).disk(), "a"), None);
    sync_dir(&disk, "");
    assert_eq!(read(&disk.crash(Policy::SYNCED, 0).disk(), "a"), Some(vec![]));
    file.sync().expect("works");
    assert_eq!(read(&disk.crash(Policy::SYNCED, 0).disk(), "a"), Some(b"bytes".to_vec()));
}

#[test]
fn an_image_is_durable_and_crashes_in_its_turn() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "log");
    file.append(&bytes(0, 1000)).expect("room");
    let image = disk.crash(Policy::EVERYTHING, 0);
    let second = image.disk();
    for (_, _, again) in images(&second.replay()) {
        assert_eq!(again.hash(), image.hash(), "nothing happened yet");
    }
    write(&second, "new", b"new");
    assert_eq!(second.crash(Policy::SYNCED, 0).hash(), image.hash());
    sync_dir(&second, "");
    let third = second.crash(Policy::SYNCED, 0).disk();
    assert_eq!(read(&third, "log"), Some(bytes(0, 1000)));
    assert_eq!(read(&third, "new"), Some(b"new".to_vec()));
    assert_eq!(names(&disk, ""), ["log"], "the first disk knows nothing of it");
    assert_eq!(names(&image.disk(), ""), ["log"], "nor does the image");
}

#[test]
fn a_replay_stops_at_every_boundary_and_shows_marks_passed() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    for batch in 1..=3 {
        file.append(&[batch]).expect("room");
        disk.mark(u64::from(batch));
    }
    let mut replay = disk.replay();
    let mut lines = Vec::new();
    let mut lengths = Vec::new();
    loop {
        let found = read(&replay.image(Policy::EVERYTHING, 0).disk(), "a");
        lengths.push((found.map(|bytes| bytes.len()), replay.marks().len()));
        let Some(op) = replay.step() else { break };
        lines.push(op.to_string());
    }
    let none = (None, 0);
    let expected = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)];
    assert_eq!(lengths[0], none);
    assert_eq!(lengths[1..], expected.map(|(length, marks)| (Some(length), marks)));
    assert_eq!(lines[..3], ["Create a", "Append a 0..1", "Mark 1"]);
    assert_eq!((replay.position(), replay.ops().len()), (7, 7));
    assert_eq!(replay.marks(), [1, 2, 3]);
}

#[test]
fn the_same_seed_makes_the_same_image_and_another_another() {
    let disk = SimDisk::new();
    for name in ["a", "b", "c"] {
        create(&disk, name).append(&bytes(0, 20_000)).expect("room");
    }
    let replay = now(&disk);
    let hashes = |seed| replay.image(Policy::RANDOM, seed).hash();
    let first: Vec<_> = (0..SEEDS).map(hashes).collect();
    let second: Vec<_> = (0..SEEDS).map(hashes).collect();
    assert_eq!(first, second);
    let distinct: BTreeSet<_> = first.into_iter().collect();
    assert!(distinct.len() as u64 > SEEDS / 2, "{} of {SEEDS}", distinct.len());
}

#[test]
fn an_image_hash_depends_on_names_and_bytes_and_on_nothing_else() {
    let (one, two) = (SimDisk::new(), SimDisk::new());
    write(&one, "a", b"same");
    write(&two, "gone", b"x");
    two.rename(path("gone"), path("away")).expect("it is there");
    two.remove(path("away")).expect("it is there");
    write(&two, "a", b"same");
    assert_eq!(one.hash(), two.hash());
    assert_eq!(one.hash(), two.crash(Policy::EVERYTHING, 0).hash());
    two.rename(path("a"), path("b")).expect("it is there");
    assert_ne!(one.hash(), two.hash());
    two.create_dir(path("c")).expect("a new directory");
    let with_dir = two.hash();
    two.rename(path("b"), path("c/b")).expect("it is there");
    assert_ne!(with_dir, two.hash());
}

#[test]
fn the_log_has_the_order_in_which_threads_did_things() {
    const ROUNDS: usize = 1000;
    let disk = SimDisk::new();
    let creating = || disk.create(path("a")).map(drop);
    let removing = || disk.remove(path("a"));
    // One thread can only create what the other has removed, and vice versa.
    std::thread::scope(|scope| {
        for work in [&creating as &(dyn Fn() -> io::Result<()> + Sync), &removing] {
            scope.spawn(move || {
                (0..ROUNDS).for_each(|_| while work().is_err() {});
            });
        }
    });
    let replay = disk.replay();
    let kinds: Vec<_> = replay.ops().iter().map(Op::kind).collect();
    assert!(kinds.chunks(2).all(|pair| pair == [OpKind::Create, OpKind::Remove]));
    assert_eq!(kinds.len(), 2 * ROUNDS);
}

/// Measured, not asserted tightly: fifty thousand images of a store of some size must take seconds.
#[test]
fn images_are_cheap() {
    let disk = SimDisk::new();
    for table in 0..30 {
        write(&disk, &format!("{table:06}.sst"), &bytes(table, table + 64_000));
    }
    sync_dir(&disk, "");
    let mut log = create(&disk, "000031.log");
    (0..200).for_each(|i| log.append(&bytes(i * 100, i * 100 + 100)).expect("room"));
    let replay = now(&disk);
    let start = std::time::Instant::now();
    let hashes: BTreeSet<_> =
        (0..5000).map(|seed| replay.image(Policy::RANDOM, seed).hash()).collect();
    println!("{} distinct of 5000 images in {:?}", hashes.len(), start.elapsed());
    assert!(hashes.len() > 1500);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

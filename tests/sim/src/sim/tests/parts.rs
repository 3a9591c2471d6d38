//! The losses of an image, one by one; and the stale bytes that it may hold.

use super::*;

/// A log that is half synced, a synced table whose entry is not, a removed file.
fn used() -> (SimDisk, Box<dyn WriteFile>) {
    let disk = SimDisk::new();
    write(&disk, "old", &[b'o'; 2000]);
    sync_dir(&disk, "");
    disk.remove(path("old")).expect("it is there");
    let mut log = create(&disk, "log");
    log.append(&bytes(0, 700)).expect("room");
    log.sync().expect("works");
    sync_dir(&disk, "");
    write(&disk, "table", &bytes(0, 3000));
    log.append(&bytes(700, 9000)).expect("room");
    (disk, log)
}

#[test]
fn an_image_matches_its_losses() {
    let (disk, _log) = used();
    let replay = now(&disk);
    let parts = Policy::ALL.into_iter().filter(|policy| policy.data != Data::Torn);
    for (policy, seed) in parts.flat_map(|policy| (0..40).map(move |seed| (policy, seed))) {
        let losses = replay.losses(policy, seed).expect("it can be taken apart");
        let (image, again) = (replay.image(policy, seed), replay.image_losing(&losses));
        assert_eq!(image.hash(), again.hash(), "{policy} seed={seed}");
        assert_eq!(losses.is_empty(), image.hash() == disk.hash(), "{policy} seed={seed}");
    }
    assert_eq!(replay.image_losing(&[]).hash(), disk.hash());
    assert_eq!(replay.losses(Policy::STALE[0], 0), None);
    let table = replay.losses(Policy::BYTES_ONLY, 0).expect("it can be taken apart");
    let lost: Vec<_> = table.iter().map(ToString::to_string).collect();
    assert_eq!(lost, ["change 0 of an entry"]);
    assert_eq!(read(&replay.image_losing(&table).disk(), "table"), None);
}

/// Preallocated zeros may be lost or kept until a sync makes their end durable, and do not count as
/// appended.
#[test]
fn zeros_ahead_are_as_they_were_synced_or_as_they_are() {
    let disk = SimDisk::new();
    let mut log = create(&disk, "log");
    sync_dir(&disk, "");
    let found = || all(&disk, |disk| read(disk, "log").expect("its entry is durable"));
    log.append(&bytes(0, 700)).expect("room");
    log.sync().expect("works");
    log.write_zeros_ahead(2000).expect("room");
    assert_eq!(found(), set([padded(700, 700), padded(700, 2000)]));
    log.sync().expect("works");
    assert_eq!(found(), set([padded(700, 2000)]));
    // The bytes that replace them may be lost, but not the length.
    log.append(&bytes(700, 900)).expect("room");
    assert_eq!(found(), set([padded(700, 2000), padded(900, 2000)]));
    log.give_space_back();
    let (short, long) =
        ([700, 900].map(|live| padded(live, live)), [700, 900].map(|live| padded(live, 2000)));
    let mut either = set(short);
    either.extend(long);
    assert!(found().is_superset(&set([padded(900, 900), padded(700, 2000), padded(900, 2000)])));
    assert!(found().iter().all(|found| found.len() == 900 || either.contains(found)));
    let replay = now(&disk);
    for policy in Policy::ALL.into_iter().filter(|policy| policy.data != Data::Torn) {
        for seed in 0..40 {
            let losses = replay.losses(policy, seed).expect("it can be taken apart");
            let (image, again) = (replay.image(policy, seed), replay.image_losing(&losses));
            assert_eq!(image.hash(), again.hash(), "{policy} seed={seed}");
        }
    }
    log.sync().expect("works");
    assert_eq!(found(), set([padded(900, 900)]));
    assert_eq!((log.bytes(), read(&disk, "log")), (900, Some(bytes(0, 900))));
}

#[test]
fn pages_share_one_fate() {
    let disk = SimDisk::new();
    create(&disk, "a").append(&bytes(0, 40_000)).expect("room");
    let replay = now(&disk);
    let mut mixed = BTreeSet::new();
    for seed in 0..SEEDS {
        let image = replay.image(Policy::new(Entries::All, Data::Pages), seed);
        let found = read(&image.disk(), "a").expect("its entry was kept");
        let kept: Vec<bool> = found.chunks(512).map(|sector| sector[0] != 0).collect();
        for (number, page) in kept.chunks(8).enumerate() {
            assert!(page.iter().all(|&sector| sector == page[0]), "page {number} seed={seed}");
        }
        mixed.insert(kept);
    }
    assert!(mixed.len() as u64 > SEEDS / 3, "{}", mixed.len());
}

#[test]
fn stale_bytes_are_those_of_other_files_and_lie_where_nothing_was_durable() {
    let (disk, _log) = used();
    let replay = now(&disk);
    let (mut old, mut table, mut zeros) = (0, 0, 0);
    for seed in 0..SEEDS {
        let found = read(&replay.image(Policy::STALE[0], seed).disk(), "log").expect("kept");
        assert_eq!(found.len(), 9000, "it keeps its length");
        assert_eq!(found[..1024], bytes(0, 1024), "the sector that it shares is its own");
        for (number, sector) in found.chunks(512).enumerate() {
            let start = number as u64 * 512;
            if sector == &bytes(start, start + sector.len() as u64)[..] {
                continue;
            }
            if sector.iter().all(|&byte| byte == 0) {
                zeros += 1;
            } else if sector[0] == b'o' {
                old += 1;
            } else {
                table += 1;
            }
        }
    }
    assert!(old > 100 && table > 100 && zeros > 100, "{old} {table} {zeros}");
    let synced = replay.image(Policy::STALE[1], 1);
    assert_eq!(read(&synced.disk(), "table"), None);
    assert_eq!(read(&synced.disk(), "log").map(|bytes| bytes.len()), Some(9000));
}

/// While a file is overwritten, a power cut leaves old bytes wherever new ones did not reach the
/// disk. Bytes synced under the new name are intact, under whichever name they are found.
#[test]
fn a_recycled_file_holds_old_bytes_until_it_is_synced() {
    const OLD: usize = 5_000;
    let old = [b'o'; OLD];
    for is_synced in [false, true] {
        let disk = SimDisk::new();
        write(&disk, "old", &old);
        sync_dir(&disk, "");
        let mut file = disk.create_over(path("old"), path("new")).expect("nobody needs it");
        file.append(&bytes(0, 1_800)).expect("room");
        if is_synced {
            file.sync().expect("works");
        }
        let mut found_names = BTreeSet::new();
        let mut whole = [0; 2];
        for (policy, seed, image) in images(&now(&disk)) {
            let disk = image.disk();
            let names = names(&disk, "");
            assert_eq!(names.len(), 1, "{policy} seed={seed}");
            let found = read(&disk, &names[0]).expect("listed");
            found_names.insert(names[0].clone());
            if is_synced {
                assert_eq!(found, bytes(0, 1_800), "{policy} seed={seed}");
                continue;
            }
            if matches!(policy.data, Data::Torn | Data::Stale | Data::All) {
                continue;
            }
            assert_eq!(found.len(), OLD, "{policy} seed={seed}");
            for (at, byte) in found.iter().enumerate() {
                let new = (at < 1_800).then(|| (at % 255) as u8 + 1);
                assert!(
                    *byte == b'o' || Some(*byte) == new,
                    "{policy} seed={seed} at={at}: {byte}"
                );
            }
            whole[usize::from(found == old)] += 1;
        }
        assert_eq!(found_names.len(), 2, "the new name is not durable");
        assert!(is_synced || whole.iter().all(|count| *count > 0), "{whole:?}");
    }
}

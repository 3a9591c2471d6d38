//! Injected failures.

use super::*;
use trommel_vfs::os_error;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

#[track_caller]
fn fails<T>(result: io::Result<T>, number: i32, name: &str) {
    let error = result.err().expect("planned to fail");
    assert_eq!(os_error(&error), Some(number), "{error}");
    assert!(error.to_string().contains(name), "{error} must name {name}");
}

#[test]
fn a_fault_hits_the_call_it_was_planned_for() {
    let disk = SimDisk::new();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Append).named(".log").after(2));
    let mut log = create(&disk, "1.log");
    let mut table = create(&disk, "2.sst");
    for _ in 0..2 {
        log.append(b"x").expect("not yet");
        table.append(b"x").expect("another name");
        log.sync().expect("another kind");
    }
    table.append(b"x").expect("another name");
    assert_eq!(disk.faults_fired(), 0);
    fails(log.append(b"lost"), EIO, "1.log");
    assert_eq!((log.bytes(), disk.faults_fired()), (2, 1));
    log.append(b"y").expect("it was to fail once");
    assert_eq!(read(&disk, "1.log"), Some(b"xxy".to_vec()));
}

#[test]
fn every_kind_of_call_can_fail_and_then_does_nothing() {
    let disk = SimDisk::new();
    write(&disk, "a", b"bytes");
    let reader = disk.open(path("a"), Access::Buffered).expect("it is there");
    let mut writer = create(&disk, "w");
    let before = disk.hash();
    disk.inject(Fault::new(Failure::NoSpace).lasting());
    fails(disk.create(path("b")), ENOSPC, "b");
    fails(disk.open(path("a"), Access::Mapped), ENOSPC, "a");
    fails(reader.read_at(0, &mut [0]), ENOSPC, "a");
    fails(disk.list(path("")), ENOSPC, "");
    fails(writer.append(b"x"), ENOSPC, "w");
    fails(writer.sync(), ENOSPC, "w");
    fails(disk.rename(path("a"), path("b")), ENOSPC, "a");
    fails(disk.remove(path("a")), ENOSPC, "a");
    fails(disk.hard_link(path("a"), path("b")), ENOSPC, "a");
    fails(disk.create_dir(path("d")), ENOSPC, "d");
    fails(disk.sync_dir(path("")), ENOSPC, "");
    fails(disk.lock(path("LOCK")), ENOSPC, "LOCK");
    assert_eq!((disk.faults_fired(), disk.hash()), (12, before));
    disk.clear_faults();
    drop(disk.lock(path("LOCK")).expect("nothing was locked"));
    let mut buffer = [0; 5];
    reader.read_at(0, &mut buffer).expect("works again");
    assert_eq!(&buffer, b"bytes");
    let (kinds, marks) = (OpKind::COUNT as u64, disk.calls(OpKind::Mark));
    assert_eq!((kinds, marks), (13, 0));
    assert_eq!(disk.calls(OpKind::Append), 2);
    assert_eq!(disk.all_calls(), 5 + 12 + 2);
}

#[test]
fn a_disk_that_has_become_read_only_can_still_be_read() {
    let disk = SimDisk::new();
    write(&disk, "a", b"bytes");
    let mut file = create(&disk, "w");
    disk.inject(Fault::new(Failure::ReadOnly).on_writes().lasting());
    assert_eq!(read(&disk, "a"), Some(b"bytes".to_vec()));
    assert_eq!(names(&disk, ""), ["a", "w"]);
    for result in [file.append(b"x"), file.sync(), disk.sync_dir(path(""))] {
        assert_eq!(result.expect_err("planned").kind(), ErrorKind::ReadOnlyFilesystem);
    }
    disk.create(path("b")).expect_err("planned");
}

#[test]
fn an_append_may_stop_half_way() {
    let disk = SimDisk::new();
    let mut file = create(&disk, "a");
    file.append(b"0123").expect("not yet");
    disk.inject(Fault::new(Failure::NoSpace).writing_part(3));
    fails(file.append(b"456789"), ENOSPC, "a");
    assert_eq!(file.bytes(), 7);
    disk.inject(Fault::new(Failure::Io).writing_part(30));
    fails(file.append(b"789"), EIO, "a");
    assert_eq!(read(&disk, "a"), Some(b"0123456789".to_vec()));
    assert_eq!(disk.crash(Policy::EVERYTHING, 0).hash(), disk.hash());
    disk.inject(Fault::new(Failure::Io).writing_all_but(1));
    fails(file.append(b"abc"), EIO, "a");
    assert_eq!(read(&disk, "a"), Some(b"0123456789ab".to_vec()));
}

#[test]
fn a_call_may_fail_after_the_fact() {
    let disk = SimDisk::new();
    let after_the_fact = || disk.inject(Fault::new(Failure::Io).after_the_fact());
    after_the_fact();
    fails(disk.create(path("a")), EIO, "a");
    after_the_fact();
    fails(disk.rename(path("a"), path("b")), EIO, "a");
    after_the_fact();
    fails(disk.sync_dir(path("")), EIO, "");
    assert_eq!(names(&disk.crash(Policy::SYNCED, 0).disk(), ""), ["b"]);
    let mut file = create(&disk, "c");
    after_the_fact();
    fails(file.append(b"bytes"), EIO, "c");
    after_the_fact();
    fails(file.sync(), EIO, "c");
    let kept = disk.crash(Policy::new(Entries::All, Data::Synced), 0).disk();
    assert_eq!(read(&kept, "c"), Some(b"bytes".to_vec()));
}

#[test]
fn a_rename_is_matched_by_either_name() {
    let disk = SimDisk::new();
    write(&disk, "tmp", b"x");
    disk.inject(Fault::new(Failure::Io).named("CURRENT"));
    fails(disk.rename(path("tmp"), path("CURRENT")), EIO, "tmp");
    // The directory's name does not count.
    disk.create_dir(path("CURRENT")).expect("it was to fail once");
    disk.inject(Fault::new(Failure::Io).named("CURRENT"));
    create(&disk, "CURRENT/other");
    assert_eq!(disk.faults_fired(), 1);
}

#[test]
fn several_faults_count_the_same_calls() {
    let disk = SimDisk::new();
    disk.inject(Fault::new(Failure::Io).after(1));
    disk.inject(Fault::new(Failure::NoSpace).after(2));
    create(&disk, "a");
    fails(disk.create(path("b")), EIO, "b");
    fails(disk.create(path("c")), ENOSPC, "c");
    create(&disk, "d");
}

#[test]
fn a_full_disk_appends_what_fits_and_recovers_when_there_is_room() {
    let disk = SimDisk::new();
    write(&disk, "old", &bytes(0, 600));
    disk.set_capacity(Some(1000));
    let mut file = create(&disk, "a");
    file.append(&bytes(0, 300)).expect("it fits");
    fails(file.append(&bytes(300, 500)), ENOSPC, "a");
    assert_eq!((file.bytes(), disk.used_bytes()), (400, 1000));
    fails(file.append(&bytes(400, 401)), ENOSPC, "a");
    create(&disk, "names cost nothing");
    file.append(b"").expect("nothing to do");
    disk.remove(path("old")).expect("it is there");
    file.append(&bytes(400, 1000)).expect("room again");
    assert_eq!(read(&disk, "a"), Some(bytes(0, 1000)));
    disk.set_capacity(None);
    file.append(&bytes(0, 5000)).expect("no limit");
}

#[test]
fn a_short_read_is_an_error() {
    let disk = SimDisk::new();
    write(&disk, "a", b"0123456789");
    let reader = disk.open(path("a"), Access::Buffered).expect("it is there");
    let mut buffer = [b'-'; 8];
    for (fault, kind) in [
        (Fault::end_of_file(4), ErrorKind::UnexpectedEof),
        (Fault::short_read(4), ErrorKind::Other),
    ] {
        disk.inject(fault);
        buffer.fill(b'-');
        let error = reader.read_at(1, &mut buffer).expect_err("planned");
        assert_eq!(error.kind(), kind);
        assert_eq!(&buffer, b"1234----");
    }
    reader.read_at(1, &mut buffer).expect("once is enough");
    assert_eq!(&buffer, b"12345678");
}

#[test]
fn failures_and_calls_are_counted_by_path() {
    let disk = SimDisk::new();
    write(&disk, "uncounted", b"bytes");
    disk.count_by_path();
    disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).after(1).lasting());
    let mut file = create(&disk, "a");
    for _ in 0..3 {
        file.append(b"x").expect("appends work");
        let _ = file.sync();
    }
    let site = |kind, name: &str| (kind, PathBuf::from(name));
    let expected = [
        (site(OpKind::Create, "a"), 1),
        (site(OpKind::Append, "a"), 3),
        (site(OpKind::Sync, "a"), 3),
    ];
    assert_eq!(disk.calls_by_path(), BTreeMap::from(expected));
    let fired = BTreeMap::from([((OpKind::Sync, PathBuf::from("a"), Failure::Io), 2)]);
    assert_eq!((disk.faults_by_path(), disk.faults_fired()), (fired, 2));
}

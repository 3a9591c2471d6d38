//! The frozen format, the checksum of every byte, and the effect of each kind of file on an open.
//! `TROMMEL_REFREEZE=1` rewrites the golden file, which is allowed only before the first release.

use std::path::Path;
use std::sync::Arc;

use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, Policy, SimDisk};
use trommel_sstable::{Compression, FilterShape};
use trommel_vfs::Vfs;

use super::*;
use crate::inspect::{Role, live_files};
use crate::{Db, Prefix};

const PAGE: &str = include_str!("../../../../docs/format/options.md");
/// A file written before `filter_partition_bytes` was renamed, and before `memtable` and `ttl`
/// existed.
const FORMER_GOLDEN: &[u8] = include_bytes!("testdata/OPTIONS");
const GOLDEN: &[u8] = include_bytes!("testdata/OPTIONS_WITH_PARTITIONS");

/// Every option that shapes a store, each with a value other than its default.
fn shaped() -> Options {
    Options::default()
        .filters("L0=paired:20,L1-3=blocked:12.5,last=none".parse().unwrap())
        .filtering(|f| {
            f.filter_shape(FilterShape::Partitioned)
                .filter_partition_bytes(4096)
                .filters_on_last_level(false)
                .prefix_extractor(Prefix::until_nth("\0,", 2))
                .prefix_filters("ribbon:8".parse::<crate::FilterPolicy>().unwrap())
                .whole_key_filters(false)
        })
        .writes(|w| {
            w.write_buffer_bytes(1 << 20)
                .memtable(crate::MemtableKind::SkipList)
                .ttl(std::time::Duration::from_secs(90))
                .log_archive_bytes(1 << 20)
        })
        .reads(|r| r.block_bytes(8192).block_align(true))
        .compression(Compression::None)
        .compaction(|c| {
            c.table_bytes(2 << 20)
                .base_level_bytes(4 << 20)
                .level_ratio(8)
                .l0_trigger(3)
                .l0_slowdown(9)
                .l0_stop(18)
                .debt_stop_bytes(1 << 30)
        })
}

fn text(options: &Options) -> String {
    Lines::of(options, &Lines::default()).text()
}

/// A file of version 1 with these lines.
fn text_of(lines: &str) -> String {
    let body = format!("{HEADER}{VERSION}\n{lines}");
    format!("{body}{CHECKSUM}{:08x}\n", checksum(body.as_bytes()))
}

fn write(vfs: &dyn Vfs, name: &str, bytes: &[u8]) {
    let _ = vfs.remove(Path::new(name));
    vfs.create(Path::new(name)).unwrap().append(bytes).unwrap();
}

fn bytes_of(vfs: &dyn Vfs) -> Option<Vec<u8>> {
    vfs.read(Path::new("db/OPTIONS"), MAX_BYTES).ok()
}

/// A store in memory, and the options to open it again.
fn store(options: Options) -> (Arc<MemoryVfs>, Options) {
    let vfs = Arc::new(MemoryVfs::new());
    let given = Options::default().vfs(Arc::<MemoryVfs>::clone(&vfs)).background_threads(0);
    let db = Db::open("db", options.vfs(Arc::<MemoryVfs>::clone(&vfs)).background_threads(0));
    let db = db.unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    (vfs, given)
}

#[test]
fn a_file_of_the_first_version_is_read_and_written_as_ever() {
    let written = text(&shaped());
    if std::env::var_os("TROMMEL_REFREEZE").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/options_file/testdata");
        std::fs::write(folder.join("OPTIONS_WITH_PARTITIONS"), &written).unwrap();
        return;
    }
    assert_eq!(written.as_bytes(), GOLDEN, "the file is no longer written as it was");
    let former = &["memtable", "ttl", "log_archive_bytes"][..];
    for (golden, lines, missing) in [(FORMER_GOLDEN, 19, former), (GOLDEN, 23, &[])] {
        let vfs = MemoryVfs::new();
        vfs.create_dir(Path::new("old")).unwrap();
        write(&vfs, "old/OPTIONS", golden);
        let latest = Options::default().vfs(Arc::new(vfs)).load_latest("old").unwrap();
        let differing = latest.options.differences(&shaped());
        assert!(differing.iter().map(|(name, ..)| name).eq(missing), "{differing:?}");
        assert_eq!((latest.remembered.len(), latest.ignored.len()), (lines, 0));
    }
}

/// A program that knows only the former name keeps the line with the current name, and adds its
/// own.
#[test]
fn the_former_name_of_an_option_has_the_newer_value() {
    let lines = "filter_piece_bytes = 8192\nfilter_partition_bytes = 4096\n";
    let read = parse(text_of(lines).as_bytes()).unwrap();
    assert_eq!(read.0, [("filter_partition_bytes".to_owned(), "8192".to_owned())]);
    let written = Lines::of(&Options::default(), &read);
    let named = written.0.iter().filter(|(name, _)| name.starts_with("filter_p")).count();
    assert_eq!(named, 1, "no line has the former name: {written:?}");
}

#[test]
fn the_page_states_the_constants_of_the_code() {
    let says = |what: &str| assert!(PAGE.contains(what), "options.md does not say {what:?}");
    says(&format!("`{HEADER}{VERSION}`"));
    says(&format!("{MAX_BYTES} bytes"));
    for (name, _) in shaping::settings(&Options::default()) {
        says(&format!("| `{name}` "));
    }
    let example = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let written = parse(example.as_bytes()).unwrap();
    assert_eq!(written.text(), example, "the example of the page is a file");
    assert_eq!(written, Lines::of(&Options::default(), &Lines::default()));
}

#[test]
fn options_that_shape_a_store_differ_in_the_test() {
    let defaults = Options::default();
    let same: Vec<_> = shaping::settings(&shaped())
        .into_iter()
        .filter(|setting| shaping::settings(&defaults).contains(setting))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        same,
        ["user_filters", "compaction_filter"],
        "code of the program is not had back from its name"
    );
}

/// Every flipped bit, truncation and addition: nothing of the file is used then.
#[test]
fn every_byte_is_under_the_checksum() {
    let whole = text(&shaped()).into_bytes();
    assert!(parse(&whole).is_ok());
    let refused = |bytes: &[u8], what: String| match parse(bytes) {
        Err(Flaw::Corrupt(_)) => {}
        other => panic!("{what}: {other:?}"),
    };
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            refused(&flipped, format!("byte {at}, bit {bit}"));
        }
        refused(&whole[..at], format!("{at} bytes"));
    }
    for tail in [&b"\n"[..], b"x", b"\0\0\0\0", &whole] {
        refused(&[&whole, tail].concat(), format!("and {} bytes", tail.len()));
    }
}

/// With a valid checksum, as a newer program may write it.
#[test]
fn what_is_not_known_is_reported_and_kept() {
    let (vfs, given) = store(Options::default());
    let lines = "filters = cuckoo:9\ncompression = snappy\ntable_bytes = 4096\nspill = fast = 7\n\
                 prefix_extractor = custom:tenant\nwhole_key_filters = false\nlevel_ratio = ten\n";
    write(&*vfs, "db/OPTIONS", text_of(lines).as_bytes());
    let latest = given.clone().load_latest("db").unwrap();
    assert_eq!(latest.remembered, ["table_bytes"]);
    let reported: Vec<_> = latest.ignored.iter().map(|i| (&*i.name, &*i.value)).collect();
    let wanted = [
        ("filters", "cuckoo:9"),
        ("prefix_extractor", "custom:tenant"),
        ("whole_key_filters", "false"),
        ("compression", "snappy"),
        ("level_ratio", "ten"),
        ("spill", "fast = 7"),
    ];
    assert_eq!(reported, wanted);
    assert!(latest.ignored[1].why.contains("closure"), "{:?}", latest.ignored[1]);
    Db::open("db", latest.options).unwrap().close().unwrap();
    let again = given.load_latest("db").unwrap();
    assert_eq!(again.remembered.len(), 23);
    assert_eq!(again.ignored.len(), 1, "{:?}", again.ignored);
    assert_eq!((&*again.ignored[0].name, &*again.ignored[0].value), ("spill", "fast = 7"));
}

#[test]
fn a_store_records_what_it_was_opened_with_and_what_changes() {
    let (vfs, given) = store(shaped());
    let load = || given.clone().load_latest("db").unwrap();
    assert_eq!(load().options.differences(&shaped()), []);
    // A reader is given other options, and records nothing.
    let before = bytes_of(&*vfs);
    Db::open_read_only("db", given.clone()).unwrap().close().unwrap();
    assert_eq!(bytes_of(&*vfs), before);
    let db = Db::open("db", load().options).unwrap();
    assert_eq!(bytes_of(&*vfs), before);
    db.set_filters("ribbon:10".parse().unwrap()).unwrap();
    let differences = load().options.differences(&shaped());
    assert_eq!(differences.len(), 1, "{differences:?}");
    assert_eq!((differences[0].0, &*differences[0].1), ("filters", "ribbon:10"));
    db.clone().close().unwrap();
    let _ = db.set_filters("none".parse().unwrap());
    assert_eq!(
        load().options.differences(&db.options()).len(),
        1,
        "a closed store records nothing"
    );
}

/// Options that do not shape a store, and those that are unchanged, cost no write.
#[test]
fn only_changes_that_shape_are_written() {
    let disk = SimDisk::new();
    disk.count_by_path();
    let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
    let written = || {
        let calls = disk.calls_by_path();
        calls.get(&(OpKind::Create, "db/OPTIONS.tmp".into())).copied().unwrap_or(0)
    };
    let db = Db::open("db", options.clone()).unwrap();
    assert_eq!(written(), 1);
    db.set_options(|options| {
        options.compaction(|c| c.auto_compaction(false)).reads(|r| r.cache_bytes(1 << 20))
    })
    .unwrap();
    db.set_filters(crate::FilterPolicy::default()).unwrap();
    db.close().unwrap();
    let db = Db::open("db", options).unwrap();
    assert_eq!(written(), 1);
    db.set_options(|options| options.compaction(|c| c.table_bytes(1 << 20))).unwrap();
    assert_eq!(written(), 2);
}

#[test]
fn a_store_without_the_file_gets_one_when_it_is_opened_for_writing() {
    let (vfs, given) = store(shaped());
    vfs.remove(Path::new("db/OPTIONS")).unwrap();
    let latest = given.clone().load_latest("db").unwrap();
    assert_eq!((latest.remembered, latest.ignored), (vec![], vec![]));
    let db = Db::open_read_only("db", given.clone()).unwrap();
    assert!(db.recovery_report().options.is_none() && !db.verify().unwrap().options_recorded);
    drop(db);
    assert_eq!(bytes_of(&*vfs), None);
    let db = Db::open("db", given.clone()).unwrap();
    assert!(db.verify().unwrap().options_recorded);
    drop(db);
    assert_eq!(given.clone().load_latest("db").unwrap().remembered.len(), 23);
    assert!(given.load_latest("nowhere").unwrap().remembered.is_empty());
}

/// A corrupt file loses the options, and nothing else; one of a newer version is left unchanged.
#[test]
fn a_file_that_cannot_be_used_is_reported_and_keeps_no_store_closed() {
    let newer = text(&Options::default()).replace("options 1", "options 2");
    let body = newer.rsplit_once(CHECKSUM).unwrap().0;
    let newer = format!("{body}{CHECKSUM}{:08x}\n", checksum(body.as_bytes()));
    let torn = text(&shaped())[..70].to_owned();
    for (bytes, remedy) in [(torn, Remedy::Reopen), (newer, Remedy::Upgrade)] {
        let (vfs, given) = store(shaped());
        write(&*vfs, "db/OPTIONS", bytes.as_bytes());
        assert!(given.clone().load_latest("db").is_err());
        let report = Db::verify_dir("db", &given).unwrap();
        let reported: Vec<_> = report.damage.iter().map(|d| (d.file.as_path(), d.remedy)).collect();
        assert_eq!(reported, [(Path::new("db/OPTIONS"), remedy)]);
        let files = live_files(&*vfs, Path::new("db")).unwrap();
        let file = files.iter().find(|file| file.role == Role::Options).unwrap();
        assert!(file.live && file.problem.is_some(), "{file:?}");
        for read_only in [true, false] {
            let db = Db::open("db", given.clone().opening(|o| o.read_only(read_only))).unwrap();
            let found = db.recovery_report().options.as_ref().map(|damage| damage.remedy);
            assert_eq!(found, Some(remedy));
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
            let is_mended = !read_only && remedy == Remedy::Reopen;
            assert_eq!(db.options_fault().is_none(), is_mended, "{:?}", db.options_fault());
            assert_eq!(db.verify().is_ok(), is_mended);
            assert_eq!(db.verify_all().unwrap().damage.is_empty(), is_mended);
            db.close().unwrap();
        }
        assert_eq!(bytes_of(&*vfs) == Some(bytes.into_bytes()), remedy == Remedy::Upgrade);
    }
}

/// A foreign file of that name is neither replaced nor removed, and does not make a directory a
/// store.
#[test]
fn what_is_somebody_else_s_is_left() {
    let (vfs, given) = store(Options::default());
    vfs.remove(Path::new("db/OPTIONS")).unwrap();
    vfs.create_dir(Path::new("db/OPTIONS")).unwrap();
    let db = Db::open("db", given.clone()).unwrap();
    assert_eq!(db.recovery_report().options.as_ref().unwrap().remedy, Remedy::Remove);
    db.put("more", "value").unwrap();
    db.close().unwrap();
    vfs.create_dir(Path::new("mine")).unwrap();
    write(&*vfs, "mine/OPTIONS", b"volume = 11\n");
    assert!(matches!(Db::open("mine", given.clone()), Err(Error::NotAStore { .. })));
    assert!(matches!(Db::destroy("mine", &given), Err(Error::NotAStore { .. })));
    assert_eq!(vfs.list(Path::new("mine")).unwrap().len(), 1);
}

#[test]
fn copies_of_a_store_have_its_options() {
    let (vfs, given) = store(shaped());
    let db = Db::open("db", given.clone().load_latest("db").unwrap().options).unwrap();
    db.checkpoint("copy").unwrap();
    db.close().unwrap();
    let latest = given.clone().load_latest("copy").unwrap();
    assert_eq!(latest.options.differences(&shaped()), []);
    assert!(Db::destroy("copy", &given).unwrap().left.is_empty());
    assert!(vfs.list(Path::new("copy")).is_err());
}

/// If the write of the file fails in any way, an open continues, and a change of options is refused
/// entirely.
#[test]
fn a_record_that_cannot_be_written_costs_no_data() {
    for kind in [OpKind::Create, OpKind::Append, OpKind::Sync, OpKind::Rename] {
        let disk = SimDisk::new();
        let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
        Db::open("db", options.clone()).unwrap().close().unwrap();
        let fault = Fault::new(Failure::NoSpace).on(kind).named("OPTIONS");
        disk.inject(fault.clone());
        let db = Db::open("db", options.clone().compaction(|c| c.table_bytes(1 << 20))).unwrap();
        assert_eq!(disk.faults_fired(), 1, "{kind:?}");
        assert!(db.options_fault().is_some(), "{kind:?}");
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        disk.inject(fault);
        assert!(
            db.set_options(|options| options.compaction(|c| c.level_ratio(5))).is_err(),
            "{kind:?}"
        );
        assert_eq!(db.options().compaction.level_ratio, 10);
        db.set_options(|options| options.compaction(|c| c.level_ratio(6))).unwrap();
        assert_eq!(db.options_fault().map(|error| error.to_string()), None);
        db.close().unwrap();
        let latest = options.load_latest("db").unwrap();
        assert_eq!(
            (latest.options.compaction.table_bytes, latest.options.compaction.level_ratio),
            (1 << 20, 6)
        );
    }
}

/// A crash at any call of a creation, an open with other options and a change leaves the complete
/// file of one of them, or none of a store that does not exist yet; the next open removes temporary
/// files.
#[test]
fn a_crash_at_any_moment_leaves_one_whole_file() {
    let disk = SimDisk::new();
    let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
    Db::open("db", options.clone().compaction(|c| c.level_ratio(3))).unwrap().close().unwrap();
    let db = Db::open("db", options.compaction(|c| c.level_ratio(4))).unwrap();
    db.set_options(|options| options.compaction(|c| c.level_ratio(5))).unwrap();
    drop(db);
    let mut replay = disk.replay();
    let mut met = std::collections::BTreeSet::new();
    loop {
        for policy in Policy::ALL {
            let left = replay.image(policy, 7).disk();
            let given = Options::default().vfs(Arc::new(left.clone())).background_threads(0);
            let latest = given.clone().load_latest("db");
            let latest = latest.unwrap_or_else(|error| panic!("{policy}: {error}"));
            if !latest.remembered.is_empty() {
                met.insert(latest.options.compaction.level_ratio);
            }
            Db::open("db", latest.options).unwrap().close().unwrap();
            let names = left.list(Path::new("db")).unwrap();
            assert!(names.iter().all(|entry| entry.name != OPTIONS_TMP), "{policy}: {names:?}");
        }
        if replay.step().is_none() {
            break;
        }
    }
    assert_eq!(met.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
}

/// A disk that ignored a sync may keep the options of a store and lose everything else: that is no
/// reason to refuse a directory. A file of that name that is not an options file is foreign.
#[test]
fn options_alone_are_no_foreign_file() {
    for (name, bytes) in [("db/OPTIONS", GOLDEN), ("db/OPTIONS.tmp", b"half of")] {
        let vfs = MemoryVfs::new();
        vfs.create_dir(Path::new("db")).unwrap();
        write(&vfs, name, bytes);
        let options = Options::default().vfs(Arc::new(vfs)).background_threads(0);
        let db = Db::open("db", options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(db.recovery_report().created, "{name}");
    }
    let vfs = Arc::new(MemoryVfs::new());
    vfs.create_dir(Path::new("db")).unwrap();
    write(&*vfs, "db/OPTIONS", b"of a bond");
    let options = Options::default().vfs(Arc::<MemoryVfs>::clone(&vfs)).background_threads(0);
    let refused = Db::open("db", options).err();
    assert!(matches!(refused, Some(Error::NotAStore { .. })), "{refused:?}");
    assert_eq!(bytes_of(&*vfs).as_deref(), Some(&b"of a bond"[..]));
}

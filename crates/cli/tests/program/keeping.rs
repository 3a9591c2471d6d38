//! A command that only reads, or does one operation, leaves the rest of a store as it is: its
//! tables, its levels and the options that shape it.

use std::collections::BTreeMap;
use std::fs;

use trommel::{Db, Options};
use trommel_harness::KeySpace;

use crate::support::{Program, Ran};

/// The parts of a store that a command preserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// Every file, byte for byte.
    Everything,
    /// Every table and the options; opening the store writes a new log, manifest and `CURRENT`.
    Tables,
    /// Every table; there are new ones in level 0.
    OldTables,
    /// The options only: the command's purpose is to change tables.
    Record,
    /// Every table; the options change to the given ones.
    TablesNotOptions,
}

/// A store with levels that the default options would compact at once, and tables that they would
/// write differently.
fn shaped() -> Options {
    Options::default()
        .filters("ribbon:10".parse().unwrap())
        .compression(trommel::Compression::None)
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .compaction(|c| {
            c.table_bytes(32 << 10).base_level_bytes(64 << 10).level_ratio(3).l0_trigger(8)
        })
}

fn store(program: &Program, name: &str) {
    let db = Db::open(program.path(name), shaped()).unwrap();
    let keys = KeySpace::integers(100, 16).unwrap();
    let mut maker = keys.maker();
    for index in 0..keys.len() {
        db.put(maker.key(index), "of the bench").unwrap();
    }
    for round in 0..4_u32 {
        for i in 0..1500_u32 {
            let key = format!("{:016}", i.wrapping_mul(2_654_435_761) % 100_000 + round);
            db.put(key, format!("{i:060}")).unwrap();
        }
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    db.set_options(|options| options.compaction(|c| c.auto_compaction(false))).unwrap();
    // As many runs as the defaults' trigger, so that they would start a compaction.
    for round in 0..6_u32 {
        db.put(format!("{round:016}"), "v").unwrap();
        db.flush().unwrap();
    }
    let levels = db.stats().levels;
    assert!(levels[0].tables >= 4 && levels.len() >= 2, "{levels:?}");
    db.close().unwrap();
}

type Files = BTreeMap<String, Vec<u8>>;

fn files(program: &Program, name: &str) -> Files {
    let entries = fs::read_dir(program.path(name)).unwrap().map(|entry| entry.unwrap());
    let named = entries.filter(|entry| entry.file_type().unwrap().is_file());
    named
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}

/// The tables with their levels.
fn tables(program: &Program, name: &str) -> (Vec<(u64, usize)>, Files) {
    let dir = program.path(name);
    let manifest = trommel::inspect::Manifest::in_force(&trommel::vfs::DiskVfs, &dir).unwrap();
    let levels =
        manifest.info().unwrap().contents.tables.iter().map(|t| (t.meta.number, t.level)).collect();
    let mut files = files(program, name);
    files.retain(|name, _| name.ends_with(".sst"));
    (levels, files)
}

fn check(program: &Program, line: &str, keeps: Keeps, act: impl FnOnce() -> Ran) {
    let (all, before) = (files(program, "db"), tables(program, "db"));
    let ran = act();
    assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
    let (all_after, after) = (files(program, "db"), tables(program, "db"));
    let options = || assert_eq!(all_after.get("OPTIONS"), all.get("OPTIONS"), "{line}: OPTIONS");
    match keeps {
        Keeps::Everything => {
            for (name, bytes) in &all {
                assert!(all_after.get(name) == Some(bytes), "{line}: {name}");
            }
            assert_eq!(all_after.len(), all.len(), "{line}: {:?}", all_after.keys());
        }
        Keeps::Tables | Keeps::TablesNotOptions => {
            assert_eq!(after.0, before.0, "{line}: tables and their levels");
            assert!(after.1 == before.1, "{line}: bytes of tables");
            if keeps == Keeps::Tables {
                options();
            }
        }
        Keeps::OldTables => {
            let new = |table: &&(u64, usize)| !before.0.contains(table);
            assert!(after.0.iter().filter(new).all(|(_, level)| *level == 0), "{line}: {after:?}");
            assert!(before.0.iter().all(|table| after.0.contains(table)), "{line}: old tables");
            for (name, bytes) in &before.1 {
                assert!(after.1.get(name) == Some(bytes), "{line}: {name}");
            }
            options();
        }
        Keeps::Record => options(),
    }
}

const BENCH: &str = "bench --use-existing-db --num=100 --reads=100 --benchmarks=";

/// Every command that opens a store, on one that the program's defaults would compact and write
/// differently.
#[test]
fn no_command_reshapes_a_store_beside_what_it_is_for() {
    let program = Program::new();
    store(&program, "db");
    let at = |name: &str| program.path(name).display().to_string();
    fs::write(program.path("in.tsv"), "a\t1\nb\t2\n").unwrap();
    let table = files(&program, "db").into_keys().find(|name| name.ends_with(".sst")).unwrap();
    let table = at(&format!("db/{table}"));
    use Keeps::{Everything, OldTables, Record, Tables, TablesNotOptions};
    let lines: Vec<(String, Keeps)> = vec![
        ("get 0000000000000001".into(), Everything),
        ("mget 0000000000000001 0000000000000002".into(), Everything),
        ("scan --limit=3".into(), Everything),
        (format!("dump {}", at("all.dump")), Everything),
        ("stats".into(), Everything),
        ("levels".into(), Everything),
        ("filters --probe=1000".into(), Everything),
        ("memory".into(), Everything),
        ("options".into(), Everything),
        ("options --filters=blocked:9".into(), Everything),
        ("properties".into(), Everything),
        ("find 0000000000000001".into(), Everything),
        ("files".into(), Everything),
        ("verify".into(), Everything),
        ("manifest info".into(), Everything),
        ("tune advise".into(), Everything),
        ("rebuild-filters --dry-run --filters=blocked:12".into(), Everything),
        (format!("{BENCH}readrandom,readmissing,multireadrandom,seekrandom,readseq"), Everything),
        (format!("{BENCH}levelstats,filterstats,stats,verify,open"), Everything),
        (format!("{BENCH}readrandom --table-size=1M --filters=paired:20"), Everything),
        (format!("{BENCH}checkpoint,flush"), Tables),
        ("flush".into(), Tables),
        (format!("checkpoint {}", at("copy")), Tables),
        (format!("backup create --to {}", at("backups")), Tables),
        ("put k v".into(), OldTables),
        ("flush".into(), OldTables),
        ("delete k".into(), OldTables),
        (format!("load {}", at("in.tsv")), OldTables),
        ("flush".into(), OldTables),
        (format!("{BENCH}overwrite --writes=10"), Record),
        ("flush".into(), Record),
        ("rebuild-filters".into(), Tables),
        ("rebuild-filters --filters=blocked:12".into(), TablesNotOptions),
        ("rebuild-filters --filters=ribbon:10".into(), TablesNotOptions),
        ("compact".into(), Record),
    ];
    check(&program, "sst info", Everything, || program.run(&format!("sst info {table}")));
    for (line, keeps) in &lines {
        check(&program, line, *keeps, || program.run_on(line));
    }
    let script = "get 0000000000000001\nput k v\nflush\nlevels\noptions --filters=blocked:9\n";
    check(&program, "shell", OldTables, || program.run_on_with("shell", script.as_bytes()));
    let given = Options::default().load_latest(program.path("db")).unwrap().options;
    assert_eq!(given.differences(&shaped()), [], "the store is remembered as it was made");
    let at_copy = |name: &str| Options::default().load_latest(program.path(name)).unwrap().options;
    assert_eq!(at_copy("copy").differences(&shaped()), []);
    for line in [
        format!("restore latest {} --from {}", at("back"), at("backups")),
        format!("repair {} {}", at("db"), at("mended")),
    ] {
        let ran = program.run(&line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
    }
    assert_eq!(at_copy("back").differences(&shaped()), []);
    assert_eq!(at_copy("mended").differences(&shaped()), []);
}

/// `load --filters=ribbon:10`, then `flush`, used to write paired:16.
#[test]
fn a_store_keeps_the_filters_that_it_was_given() {
    let program = Program::new();
    let ran = program.run_on_with("load --create --filters=ribbon:10 -", b"a\t1\nb\t2\n");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    let ran = program.run_on("flush");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    let ran = program.run_on("options --format=json");
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shown["tables"][0]["filter"], "ribbon", "{shown}");
    let row = |name: &str| {
        let rows = shown["options"].as_array().unwrap();
        rows.iter().find(|row| row["option"] == name).unwrap().clone()
    };
    assert_eq!(row("filters")["value"], "ribbon:10");
    assert_eq!(row("filters")["from"], "remembered");
    assert_eq!(row("cache_bytes")["from"], "default");
    let ran = program.run_on("options --filters=paired:8 --format=csv");
    assert!(ran.out.contains("filters,paired:8,given"), "{}", ran.out);
}

#[test]
fn every_changed_option_is_reported() {
    let program = Program::new();
    assert_eq!(program.run_on("put --create --filters=ribbon:10 a 1").err, "");
    let ran = program.run_on("put --filters=paired:16 --compression=none b 2");
    let reported: Vec<&str> = ran.err.lines().collect();
    let wanted = [
        "note: filters: paired:16 given, store has ribbon:10",
        "note: compression: none given, store has lz4",
    ];
    assert_eq!(reported, wanted);
    assert_eq!(program.run_on("put --filters=paired:16 c 3").err, "", "it is the store's now");
    let ran = program.run_on("bench --use-existing-db --benchmarks=compact --table-size=1M");
    assert_eq!(ran.err, "note: table_bytes: 1048576 given, store has 67108864\n");
}

/// Once recorded, neither could be switched off again.
#[test]
fn switches_that_a_store_remembers_can_be_taken_back() {
    let program = Program::new();
    let ran = program
        .run_on("bench --benchmarks=fillseq --num=100 --optimize-filters-for-hits --block-align");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = program.run_on(
        "bench --use-existing-db --benchmarks=compact --optimize-filters-for-hits=false \
         --block-align=false",
    );
    let mut reported: Vec<&str> = ran.err.lines().collect();
    reported.sort_unstable();
    let wanted = [
        "note: block_align: false given, store has true",
        "note: filters_on_last_level: true given, store has false",
    ];
    assert_eq!(reported, wanted, "{ran:?}");
}

#[test]
fn unreadable_options_are_reported() {
    let program = Program::new();
    assert_eq!(program.run_on("put --create --filters=ribbon:10 a 1").code, Some(0));
    let file = program.path("db/OPTIONS");
    let mut bytes = fs::read(&file).unwrap();
    bytes[30] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let ran = program.run_on("verify");
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.out.contains("OPTIONS") && ran.out.contains("reopen"), "{}", ran.out);
    for line in ["get a", "put b 2"] {
        let ran = program.run_on(line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        let reported = ran.err.contains("OPTIONS") && ran.err.contains("the default options");
        assert!(reported, "{line}: {}", ran.err);
    }
    assert_eq!(program.run_on("get b").err, "", "it was written anew");
    #[expect(clippy::disallowed_methods, reason = "as a user removes it")]
    fs::remove_file(&file).unwrap();
    let ran = program.run_on("verify --format=json");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("\"options\": false") || ran.out.contains("\"options\":false"),
        "{}",
        ran.out
    );
    assert_eq!(program.run_on("get b").err, "");
    let ran = program.run_on("put c 3");
    assert!(ran.err.contains("has no record of its options"), "{}", ran.err);
    assert_eq!(program.run_on("put d 4").err, "");
}

/// An empty fresh store used to give "0 of 1000 found" without a warning.
#[test]
fn reads_of_a_fresh_store_are_doubted() {
    let bench = |names: &str| {
        Program::new().run_on(&format!("bench --num=1000 --reads=1000 --benchmarks={names}"))
    };
    for workload in ["readrandom", "multireadrandom", "seekrandom"] {
        let empty = bench(workload);
        assert_eq!(empty.code, Some(0), "{empty:?}");
        let reported = empty.err.contains(&format!("{workload} found none of"))
            && empty.err.contains(&format!("--benchmarks=fillrandom,{workload}"));
        assert!(reported, "{workload}: {}", empty.err);
        let filled = bench(&format!("fillrandom,{workload}"));
        assert_eq!((filled.code, &*filled.err), (Some(0), ""), "{workload}: {filled:?}");
    }
    let missing = bench("readmissing");
    assert_eq!((missing.code, &*missing.err), (Some(0), ""), "{missing:?}");
}

/// A wrong `--num` or `--key-size`, or an empty store, used to give "0 of 1000 found" and millions
/// of operations a second.
#[test]
fn a_bench_of_keys_that_are_not_there_says_so() {
    let program = Program::new();
    let fill = program.run_on("bench --num=2000 --benchmarks=filluniquerandom");
    assert_eq!(fill.code, Some(0), "{fill:?}");
    let on = |line: &str| program.run_on(&format!("bench --use-existing-db --reads=200 {line}"));
    let well = on("--num=2000 --benchmarks=readwhilewriting,overwrite --writes=10");
    assert_eq!((well.code, &*well.err), (Some(0), ""), "{well:?}");
    for workload in ["readrandom", "multireadrandom", "seekrandom", "readwhilescanning", "readhot"]
    {
        let well = on(&format!("--num=2000 --benchmarks={workload}"));
        assert_eq!((well.code, &*well.err), (Some(0), ""), "{workload}: {well:?}");
        let other = on(&format!("--num=2000 --key-size=20 --benchmarks={workload}"));
        assert_eq!(other.code, Some(2), "{workload}: {other:?}");
        let reported = other.err.contains("found none of") && other.err.contains("--key-size");
        assert!(reported, "{workload}: {}", other.err);
    }
    let more = on("--num=20000 --benchmarks=readrandom");
    assert_eq!(more.code, Some(0), "{more:?}");
    assert!(more.err.contains("found only") && more.err.contains("--num"), "{}", more.err);
    let other = on("--num=2000 --key-size=24 --writes=10 --benchmarks=overwrite");
    assert!(other.err.contains("finds none of its keys"), "{}", other.err);
    let dir = program.path("empty").display().to_string();
    for (line, code) in [
        ("put --create k v --db ", 0),
        ("delete k --db ", 0),
        ("bench --use-existing-db --num=1000 --benchmarks=readrandom --db ", 2),
    ] {
        let ran = program.run(&format!("{line}{dir}"));
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
    }
}

#[test]
fn ambiguous_numbers_are_rejected_with_what_was_meant() {
    let program = Program::new();
    assert_eq!(program.run_on("put --create a 1").code, Some(0));
    assert_eq!(program.run_on("flush").code, Some(0));
    for (line, reported) in [
        ("put b 2 --filters=budget=10", "did you mean 10/key"),
        ("bench --filters=budget=12 --num=10", "did you mean 12/key"),
        ("tune advise --budget=10", "did you mean 10/key"),
        ("tune advise --read-cost=L9=1", "L9"),
    ] {
        let ran = program.run_on(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.err.contains(reported), "{line}: {}", ran.err);
    }
    for (line, reported) in [
        ("tune simulate --keys=100000 --filters=budget=10", "did you mean 10/key"),
        ("tune simulate --keys=100000 --read-cost=L9=1", "L9"),
        ("filter-bench --filters=paired:8..11/2", "does not reach 11"),
    ] {
        let ran = program.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.err.contains(reported), "{line}: {}", ran.err);
    }
}

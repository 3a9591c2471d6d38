//! Commands on a store as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use trommel::{
    Db, FilterChoice, FilterContext, Options, UserFilter, UserFilterBuilder, UserFilterPolicy,
};
use trommel_harness::RepeatableDisk;

use crate::support::{Program, check_snapshot};

/// A program whose store has 20,000 keys, the last of them only in the log.
fn with_many() -> Program {
    let program = Program::new();
    // Without a hash seed, filters return the same false positives each time.
    let options = Options::default().vfs(Arc::new(RepeatableDisk));
    drop(Db::open(program.path("db"), options).unwrap());
    let lines: String = (0..20_000).map(|n| format!("key{n:06}\tvalue {n}\n")).collect();
    let ran = program.run_on_with("load -", lines.as_bytes());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(program.run_on("flush").code, Some(0));
    assert_eq!(program.run_on("put key999999 last").code, Some(0));
    program
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|other| other == extension)).collect()
}

/// The text with everything that differs from run to run masked.
fn settled(text: &str, program: &Program) -> String {
    let mut text = text.replace(&program.path("db").display().to_string(), "DIR");
    for start in ["id ", "\"id\":\"", "cache_bytes "] {
        let Some(at) = text.find(start) else { continue };
        let digits = text[at + start.len()..].trim_start();
        let from = text.len() - digits.len();
        let length = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        text.replace_range(from..from + length, "ID");
    }
    text.replace(
        "cache_bytes                  ID",
        "cache_bytes                  (of this machine)",
    )
}

#[test]
fn reports_on_a_store_are_as_documented() {
    let program = with_many();
    let table = files(&program.path("db"), "sst").remove(0);
    let table: u64 = table.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let rebuild = format!("rebuild-filters --filters=ribbon:12 --table={table}");
    let mut text = String::new();
    for line in [
        "stats",
        "stats --format=json",
        "levels",
        "levels --format=jsonl",
        "filters --probe=20K",
        "filters --probe=20K --format=json",
        "filters --probe=0 --level=0 --format=csv",
        "filters --filters=budget=10/key --probe=20K --tables",
        "filters --filters=budget=1KiB,misses=1 --probe=0 --tables --level=0 --format=json",
        "memory",
        "options",
        "verify",
        "rebuild-filters --filters=blocked:12 --level=0 --dry-run",
        &rebuild,
        "rebuild-filters --filters=blocked:12 --format=json",
        "verify",
        "compact --filters=blocked:20",
        "verify --format=jsonl",
    ] {
        let ran = program.run_on(line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
        text += &format!("$ trommel {line}\n{}{}\n", ran.err, settled(&ran.out, &program));
    }
    check_snapshot("store_commands", &text);
}

#[test]
fn measured_rates_are_shown_with_the_expected_ones() {
    let program = with_many();
    let ran = program.run_on("filters --probe=200K --format=json");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let level = &report["levels"][0];
    assert_eq!(report["schema"], "trommel.filters.v1");
    // Keys are unevenly distributed here; nearly all probes reach the table nevertheless.
    assert!(level["probes"].as_u64().unwrap() > 180_000, "{level}");
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (low, high) = (number(&level["interval_95"][0]), number(&level["interval_95"][1]));
    let expected = number(&level["expected_rate"]);
    // Far wider than 95%: with a fixed seed the result is always the same.
    assert!(expected > low / 2.0 && expected < high * 2.0, "{low} {expected} {high}");
}

#[test]
fn damage_is_found_and_named() {
    let program = with_many();
    let table = files(&program.path("db"), "sst").pop().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x20;
    fs::write(&table, bytes).unwrap();
    let ran = program.run_on("verify");
    assert_eq!((ran.code, &*ran.err), (Some(4), "error: 1 file damaged, in one place\n"));
    for said in [&*table.display().to_string(), "fails its checksum", "restore the store from a"] {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    let json = program.run_on("verify --format=json");
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json.code, Some(4));
    assert_eq!(report["damage"][0]["remedy"], "restore_or_repair");
    assert_eq!(report["damage"][0]["file"], table.display().to_string());
    // Scans find the corruption too.
    assert_eq!(program.run_on("scan --count").code, Some(4));
    // The exit code is the same if nobody reads the output.
    let mut unread = program.command_on("verify");
    let mut unread = unread.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(unread.stdout.take());
    let ran = unread.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(4));
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "error: 1 file damaged, in one place\n");
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let program = with_many();
    let copy = program.path("copy");
    assert_eq!(program.run_on(&format!("checkpoint {}", copy.display())).code, Some(0));
    assert_eq!(program.run_on("delete key999999").code, Some(0));
    let count = |dir: PathBuf| program.run(&format!("scan --count --db {}", dir.display())).out;
    assert_eq!(
        (count(copy.clone()), count(program.path("db"))),
        ("20001\n".into(), "20000\n".into())
    );
    let again = program.run_on(&format!("checkpoint {}", copy.display()));
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.err.contains("copy"), "{}", again.err);
}

#[test]
fn a_store_is_destroyed_only_on_request_and_alone() {
    let program = with_many();
    let ran = program.run_on("destroy");
    assert_eq!((ran.code, &*ran.out), (Some(2), ""));
    assert!(ran.err.contains("--yes"), "{}", ran.err);
    fs::write(program.path("db/notes.txt"), "mine").unwrap();
    let ran = program.run_on("destroy --yes --format=jsonl");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["left"], serde_json::json!(["notes.txt"]));
    assert_eq!(report["directory_removed"], false);
    assert_eq!(fs::read(program.path("db/notes.txt")).unwrap(), b"mine");
    assert_eq!(files(&program.path("db"), "sst"), [] as [PathBuf; 0]);
    let ran = program.run_on("destroy --yes");
    assert_eq!((ran.code, &*ran.out), (Some(6), ""));
}

/// Every file of the store used to be removed before the directory was found to be a link.
#[cfg(unix)]
#[test]
fn a_store_behind_a_link_is_not_destroyed() {
    let program = with_many();
    let link = program.path("link");
    std::os::unix::fs::symlink("db", &link).unwrap();
    for name in ["link", "link/", "link/.", "db/..", "db/../link"] {
        let dir = program.path("").join(name);
        let ran = program.run(&format!("destroy --yes --db {}", dir.display()));
        assert_ne!(ran.code, Some(0), "{name}");
        assert_eq!(program.run_on("get key999999").out, "last\n", "{name}: {}", ran.err);
        if name.contains("link") {
            assert!(ran.err.contains("symbolic link to db"), "{name}: {}", ran.err);
        }
    }
    let mut within = program.command("destroy --yes --db .");
    let ran = crate::support::Ran::from(within.current_dir(program.path("db")).output().unwrap());
    assert_eq!(ran.code, Some(6), "{}", ran.err);
    assert_eq!(program.run_on("get key999999").out, "last\n", "{}", ran.err);
    let dir = program.path("db").join(".");
    let ran = program.run(&format!("destroy --yes --db {}/", dir.display()));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    assert!(!program.path("db").exists());
}

#[test]
fn a_locked_store_has_its_own_exit_code() {
    let program = with_many();
    let writer = Db::open(program.path("db"), Options::default()).unwrap();
    for line in ["get key000001", "put a 1", "verify", "destroy --yes", "stats"] {
        let ran = program.run_on(line);
        assert_eq!((ran.code, &*ran.out), (Some(5), ""), "{line}");
        assert!(ran.err.contains("follow it") && ran.err.contains("close it"), "{}", ran.err);
    }
    writer.close().unwrap();
    let reader = Db::open_read_only(program.path("db"), Options::default());
    let reader = reader.unwrap();
    assert_eq!(program.run_on("get key000001").code, Some(0));
    assert_eq!(program.run_on("put a 1").code, Some(5));
    drop(reader);
    assert_eq!(program.run_on("put a 1").code, Some(0));
}

/// The error used to name only the library's option, which a user of the program cannot set.
#[test]
fn a_damaged_log_is_salvaged() {
    let program = with_many();
    assert_eq!(program.run_on("put key999998 later").code, Some(0));
    let log = files(&program.path("db"), "log").into_iter().max().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let key = bytes.windows(9).position(|window| window == b"key999998").unwrap();
    bytes[key] ^= 1;
    fs::write(&log, bytes).unwrap();
    let ran = program.run_on("get key000001");
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    assert!(ran.err.contains("flush --salvage"), "{}", ran.err);
    let ran = program.run_on("flush --salvage");
    assert_eq!((ran.code, &*ran.out), (Some(0), ""), "{}", ran.err);
    assert!(ran.err.starts_with("salvage: dropped "), "{}", ran.err);
    assert_eq!(program.run_on("get key000001").out, "value 1\n");
    assert_eq!(program.run_on("get key999998").code, Some(3));
    let ran = program.run_on("flush --salvage");
    assert_eq!((ran.code, &*ran.err), (Some(0), "salvage: nothing had to be dropped\n"));
}

/// Writes lost in a crash used to be dropped silently.
#[test]
fn writes_lost_in_a_crash_are_reported() {
    let program = Program::new();
    let (dir, copy) = (program.path("live"), program.path("db"));
    let db = Db::open(&dir, Options::default().opening(|o| o.create_if_missing(true))).unwrap();
    db.put("early", "1").unwrap();
    db.put("late", "2").unwrap();
    db.sync().unwrap();
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    drop(db);
    let log = files(&copy, "log").into_iter().max().unwrap();
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() - 3]).unwrap();
    let reported = |err: &str| err.starts_with("left out ") && err.contains(".log: ");
    let ran = program.run_on("get early");
    assert_eq!((ran.code, &*ran.out), (Some(0), "1\n"), "{}", ran.err);
    assert!(reported(&ran.err), "{}", ran.err);
    let ran = program.run_on("put a 1");
    assert!(ran.code == Some(0) && reported(&ran.err), "{}", ran.err);
    assert_eq!(program.run_on("get early").err, "");
}

/// A policy that this program does not know: its filters answer "maybe" to everything.
#[derive(Debug)]
struct Unheard;

impl UserFilterPolicy for Unheard {
    fn name(&self) -> &str {
        "unheard of"
    }

    fn choose(&self, _: &FilterContext) -> FilterChoice {
        FilterChoice::User(Box::new(Self))
    }

    fn open(&self, _: &[u8]) -> Result<Box<dyn UserFilter>, String> {
        Ok(Box::new(Self))
    }
}

impl UserFilterBuilder for Unheard {
    fn add(&mut self, _: &[u8], _: u64) {}

    fn finish(self: Box<Self>) -> Vec<u8> {
        b"anything".to_vec()
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

impl UserFilter for Unheard {
    fn may_contain(&self, _: &[u8], _: u64) -> bool {
        true
    }

    fn expected_fpr(&self) -> f64 {
        1.0
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

#[test]
fn foreign_filters_are_counted_and_are_not_corruption() {
    let program = Program::new();
    let options = Options::default().filtering(|f| f.user_filters(Arc::new(Unheard)));
    let db = Db::open(program.path("db"), options).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let table = files(&program.path("db"), "sst").remove(0).display().to_string();
    for (line, reported) in [
        ("verify".to_owned(), "foreign filters  1"),
        ("verify --format=jsonl".into(), "\"foreign_filters\":1,"),
        (
            "bench --benchmarks=verify --use_existing_db".into(),
            ", 1 filters that this program cannot",
        ),
    ] {
        let ran = program.run_on(&line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
        assert!(ran.out.contains(reported), "{line}: {}", ran.out);
    }
    for (line, reported) in [
        (format!("sst check --format=jsonl {table}"), "\"foreign_filter\":true}"),
        (
            format!("sst info {table}"),
            "it was made by the policy \"unheard of\", which this program does not have",
        ),
    ] {
        let ran = program.run(&line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
        assert!(ran.out.contains(reported), "{line}: {}", ran.out);
    }
    let to = program.path("backups").display().to_string();
    assert_eq!(program.run_on(&format!("backup create --to {to}")).code, Some(0));
    let new = program.path("new").display().to_string();
    let ran = program.run(&format!("backup restore 1 {new} --from {to} --format=jsonl"));
    assert!(ran.out.contains("\"foreign_filters\":1"), "{}{}", ran.out, ran.err);
}

/// The names and bytes of all files of a store.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// A dry run used to open the store for writing, so it recovered it, and was rejected if there was
/// a reader.
#[test]
fn a_dry_run_of_a_rebuild_writes_nothing() {
    let program = with_many();
    let before = contents(&program.path("db"));
    let reader = Db::open_read_only(program.path("db"), Options::default()).unwrap();
    let ran = program.run_on("rebuild-filters --filters=blocked:12 --dry-run");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    assert!(ran.out.contains("blocked:12"), "{}", ran.out);
    let idle = program.run_on("rebuild-filters --level=9 --dry-run");
    assert_eq!(idle.code, Some(0));
    assert!(idle.err.starts_with("nothing to rebuild: "), "{}", idle.err);
    let absent = program.run_on("rebuild-filters --table=4711 --dry-run");
    assert_eq!(absent.code, Some(3));
    assert!(absent.err.contains("no table 4711"), "{}", absent.err);
    assert!(contents(&program.path("db")) == before, "a dry run writes nothing");
    drop(reader);
    assert_eq!(program.run_on("rebuild-filters --table=4711").code, Some(3));
}

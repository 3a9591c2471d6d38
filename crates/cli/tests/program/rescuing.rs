//! `trommel repair`, `verify` and reading with `--degraded`: exit codes, and output.
#![expect(clippy::disallowed_methods, reason = "these tests lose files as an outsider does")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::{Program, Ran, with_store};

/// A store of two tables: the older one, which is lost, held `apple` and `pear`, the newer holds
/// `pear`.
fn hurt() -> Program {
    let program = with_store(&[("apple", "red"), ("pear", "yellow")]);
    assert_eq!(program.run_on("compact").code, Some(0));
    let old = tables(&program.path("db"));
    for line in ["put pear green", "flush"] {
        assert_eq!(program.run_on(line).code, Some(0), "{line}");
    }
    assert_eq!((old.len(), tables(&program.path("db")).len()), (1, 2));
    fs::remove_file(&old[0]).unwrap();
    program
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|other| other == "sst")).collect()
}

/// The names and bytes of all files.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> =
        entries.map(|path| (path.clone(), fs::read(path).unwrap_or_default())).collect();
    all.sort();
    all
}

fn repair(program: &Program, to: &Path, how: &str) -> Ran {
    let mut command = program.command(&format!("repair {how}"));
    Ran::from(command.arg(program.path("db")).arg(to).output().unwrap())
}

fn json(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn a_sound_store_is_repaired_with_exit_code_0() {
    let program = with_store(&[("apple", "red"), ("pear", "green")]);
    let new = program.path("new");
    let ran = repair(&program, &new, "--format=json");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let report = json(&ran);
    assert_eq!(report["schema"], "trommel.repair.v1");
    assert_eq!((&report["complete"], &report["entries"]), (&true.into(), &2.into()));
    assert_eq!(report["damage"], serde_json::json!([]));
    let scan = program.run(&format!("scan --db {}", new.display()));
    assert!(scan.out.contains("apple  red") && scan.out.contains("pear   green"), "{}", scan.out);
}

#[test]
fn a_lossy_repair_ends_with_exit_code_4_and_a_sound_store() {
    let program = hurt();
    let before = contents(&program.path("db"));
    let new = program.path("new");
    let ran = repair(&program, &new, "--format=json");
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    assert!(
        ran.err.contains("not everything could be saved") && ran.err.contains("the new store is")
    );
    let report = json(&ran);
    assert_eq!((&report["complete"], &report["entries"]), (&false.into(), &1.into()));
    assert_eq!((&report["unreadable_entries"], &report["doubtful"]), (&2.into(), &0.into()));
    assert_eq!(report["damage"][0]["remedy"], "restore_or_repair");
    assert_eq!(report["in_doubt"][0]["first_key_in_doubt"], "apple");
    assert_eq!(contents(&program.path("db")), before, "the old store is as it was");
    let verified = program.run(&format!("verify --db {}", new.display()));
    assert_eq!(verified.code, Some(0), "{}", verified.err);
}

#[test]
fn a_dry_run_says_the_same_and_makes_nothing() {
    let program = hurt();
    let new = program.path("new");
    let dry = repair(&program, &new, "--dry-run");
    assert_eq!(dry.code, Some(4));
    assert!(dry.err.contains("nothing was written"), "{}", dry.err);
    assert!(!new.exists());
    assert_eq!(repair(&program, &new, "").out, dry.out);
}

#[test]
fn only_certain_entries_are_kept_on_request() {
    let program = with_store(&[("apple", "red"), ("pear", "yellow")]);
    assert_eq!(program.run_on("compact").code, Some(0));
    let old = tables(&program.path("db"));
    for line in ["delete apple", "put pear green", "flush"] {
        assert_eq!(program.run_on(line).code, Some(0), "{line}");
    }
    let newer: Vec<_> =
        tables(&program.path("db")).into_iter().filter(|path| !old.contains(path)).collect();
    assert!(!newer.is_empty());
    newer.iter().for_each(|path| fs::remove_file(path).unwrap());
    let all = repair(&program, &program.path("all"), "--format=json");
    assert_eq!((all.code, &json(&all)["entries"]), (Some(4), &2.into()));
    assert!(all.err.contains("2 of them doubtful and kept"), "{}", all.err);
    let certain = repair(&program, &program.path("certain"), "--only-certain --format=json");
    assert_eq!((certain.code, &json(&certain)["entries"]), (Some(4), &0.into()));
    assert!(certain.err.contains("2 of them doubtful and left out"), "{}", certain.err);
    let get = program.run(&format!("get apple --db {}", program.path("certain").display()));
    assert_eq!(get.code, Some(3), "a deleted key does not come back: {get:?}");
}

#[test]
fn no_place_that_is_taken_or_in_the_store_is_written_to() {
    let program = hurt();
    let db = program.path("db");
    let before = contents(&db);
    let taken = program.path("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("notes.txt"), "mine").unwrap();
    let link = program.path("link");
    symlink(&db, &link).unwrap();
    let file = program.path("file");
    fs::write(&file, "").unwrap();
    let dangling = program.path("dangling");
    symlink(program.path("nowhere"), &dangling).unwrap();
    for (to, said) in [
        (taken.clone(), "not empty"),
        (db.clone(), "lies in the store"),
        (db.join("sub"), "lies in the store"),
        (db.join("sub/../../db/sub"), ""),
        (link.join("sub"), "lies in the store"),
        (file.clone(), ""),
        (file.join("sub"), ""),
        (program.path("none/new"), ""),
        (dangling.clone(), ""),
    ] {
        let ran = repair(&program, &to, "");
        assert!(ran.code != Some(0) && ran.code != Some(4), "{}: {ran:?}", to.display());
        assert!(ran.err.contains(said) && ran.err.starts_with("error: "), "{}", ran.err);
        assert_eq!(contents(&db), before, "{}", to.display());
    }
    assert_eq!(contents(&taken).len(), 1);
    assert!(!program.path("nowhere").exists() && !program.path("none").exists());
}

#[test]
fn a_store_in_use_or_no_store_is_rejected() {
    let program = Program::new();
    let new = program.path("new");
    assert_eq!(repair(&program, &new, "").code, Some(6), "there is no such directory");
    fs::create_dir(program.path("db")).unwrap();
    fs::write(program.path("db").join("notes.txt"), "mine").unwrap();
    assert_eq!(repair(&program, &new, "").code, Some(6), "it holds other things");
    assert_eq!(program.run_on("verify").code, Some(6));
    assert!(!new.exists());
    let program = with_store(&[("a", "1")]);
    let options = trommel::Options::default();
    let db = trommel::Db::open(program.path("db"), options).unwrap();
    let new = program.path("new");
    assert_eq!(repair(&program, &new, "").code, Some(5), "it is open here");
    assert_eq!(program.run_on("verify").code, Some(5));
    assert!(!new.exists());
    db.close().unwrap();
    assert_eq!(program.run_on("verify").code, Some(0));
}

#[test]
fn verify_lists_damage_as_json_and_writes_nothing() {
    let program = hurt();
    fs::write(program.path("db").join("mine.txt"), "x").unwrap();
    let before = contents(&program.path("db"));
    let ran = program.run_on("verify --format=json");
    assert_eq!((ran.code, &*ran.err), (Some(4), "error: 1 file damaged, in one place\n"));
    let report = json(&ran);
    assert_eq!((&report["damaged_places"], &report["tables"]), (&1.into(), &1.into()));
    assert_eq!(report["damage"][0]["first_key"], "apple");
    assert!(report["foreign_files"][0].as_str().unwrap().ends_with("mine.txt"));
    assert_eq!(contents(&program.path("db")), before);
}

#[test]
fn certain_entries_are_read_around_corruption() {
    let program = hurt();
    assert_eq!(program.run_on("mget apple pear").code, Some(4), "it does not open");
    let pear = program.run_on("mget pear --degraded --format=csv");
    assert_eq!((pear.code, &*pear.out), (Some(0), "key,found,value\npear,true,green\n"));
    assert!(pear.err.contains("the table is missing"), "{}", pear.err);
    let both = program.run_on("mget apple pear --degraded");
    assert_eq!(both.code, Some(4), "a key in doubt is not called missing: {both:?}");
    let scan = program.run_on("scan --degraded --format=csv");
    assert_eq!((scan.code, &*scan.out), (Some(4), "key,value\npear,green\n"));
    assert!(scan.err.contains("in doubt, skipped where not certain: apple to pear"));
    assert_eq!(program.run_on("scan --degraded --from=q --count").code, Some(0));
}

/// Such a dump used to end with exit code 0, without any of the named keyspaces.
#[test]
fn a_dump_without_its_catalog_ends_with_exit_code_4() {
    let program = with_store(&[("apple", "red")]);
    assert_eq!(program.run_on("flush").code, Some(0));
    let old = tables(&program.path("db"));
    for line in ["keyspaces create users", "flush"] {
        assert_eq!(program.run_on(line).code, Some(0), "{line}");
    }
    for table in tables(&program.path("db")).iter().filter(|table| !old.contains(table)) {
        fs::remove_file(table).unwrap();
    }
    let file = program.path("dumped");
    let ran = program.run_on(&format!("dump --degraded --as text {}", file.display()));
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.err.ends_with("the named keyspaces were not dumped\n"), "{ran:?}");
    assert_eq!(fs::read_to_string(file).unwrap(), "apple\tred\n");
}

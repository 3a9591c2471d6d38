//! `backup` and `restore`.

use std::fs;

use crate::support::Program;

/// A program whose store `db` was backed up into `backups`, with one key and then with two.
fn with_backups() -> Program {
    let program = Program::new();
    for (number, key) in [(1, "a"), (2, "b")] {
        assert_eq!(program.run_on(&format!("put --create {key} {key}")).code, Some(0));
        let line = format!("backup create --format=csv --to={}", backups(&program));
        let ran = program.run_on(&line);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}");
        let head = "id,created,store,parent,files,bytes,new_files,new_bytes,checked,mended";
        assert_eq!(ran.out.lines().next(), Some(head));
        assert!(ran.out.lines().nth(1).unwrap().starts_with(&format!("{number},20")));
    }
    program
}

fn backups(program: &Program) -> String {
    program.path("backups").display().to_string()
}

#[test]
fn backups_are_made_listed_verified_restored_and_deleted() {
    let program = with_backups();
    let on = |line: &str| {
        let ran = program.run(&format!("{line} --from={}", backups(&program)));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}");
        ran.out
    };
    let listed: serde_json::Value = serde_json::from_str(&on("backup list --format=json")).unwrap();
    assert_eq!(listed["schema"], "trommel.backup-list.v1");
    let parents = [&listed["backups"][0]["parent"], &listed["backups"][1]["parent"]];
    assert_eq!(parents, [&serde_json::Value::Null, &serde_json::json!(1)]);
    assert!(
        on("backup verify --format=csv").starts_with("backups,whole,files,bytes\n2,\"[1,2]\",7,")
    );
    assert!(on("backup verify latest --format=csv").contains("\n1,[2],5,"));

    for (line, keys) in [("restore 1", "a"), ("backup restore latest", "a b"), ("restore 2", "a b")]
    {
        let dir = program.path(&line.replace(' ', "-"));
        on(&format!("{line} {}", dir.display()));
        let scan = format!("scan --keys-only --format=csv --db={}", dir.display());
        let found = program.run(&scan).out;
        assert_eq!(found.lines().skip(1).collect::<Vec<_>>().join(" "), keys, "{line}");
    }

    assert!(on("backup delete 1 1 --yes --format=csv").contains("\n[1],2,"));
    assert!(on("backup purge --keep=1 --format=csv").contains("\n[],0,0"));
    assert!(on("backup list --format=csv").lines().nth(1).unwrap().starts_with("2,"));
}

#[test]
fn errors_have_their_codes_and_messages() {
    let program = with_backups();
    let place = backups(&program);
    let nowhere = program.path("nowhere").display().to_string();
    let new = program.path("new").display().to_string();
    let db = program.path("db").display().to_string();
    let parent = program.path("").display().to_string();
    for (line, code, word) in [
        (format!("restore 3 {new} --from={place}"), 3, "no backup 3"),
        (format!("backup verify 3 --from={place}"), 3, "no backup 3"),
        (format!("backup delete 3 --yes --from={place}"), 3, "no backup 3"),
        (format!("backup delete 1 3 --yes --from={place}"), 3, "no backup 3"),
        (format!("backup delete latest --from={place}"), 2, "deletes backup 2 of"),
        (format!("restore 1 {db} --from={place}"), 2, "new or empty directory"),
        (format!("restore first {new} --from={place}"), 2, "a number from 1, or latest"),
        (format!("backup purge --keep=0 --from={place}"), 2, "it must be 1 or more"),
        (format!("backup list --from={nowhere}"), 6, "not a backup repository"),
        (format!("backup list --from={db}"), 6, "not a backup repository"),
        (format!("backup create --db={db} --to={db}"), 2, "is inside the directory of the store"),
        (format!("backup create --db={db} --to={db}/x"), 2, "is inside the directory of the store"),
        (format!("backup create --db={db} --to={parent}"), 2, "contains the store"),
        (format!("backup create --db={nowhere} --to={new}"), 6, "is not a store"),
        (format!("backup create --db={db} --to=gs://bucket/x"), 2, "s3://bucket/prefix"),
    ] {
        let ran = program.run(&line);
        assert_eq!((ran.code, &*ran.out), (Some(code), ""), "{line}: {}", ran.err);
        assert!(ran.err.contains(word), "{line}: {}", ran.err);
    }
    if cfg!(not(feature = "object-store")) {
        let ran = program.run("backup list --from=s3://bucket/x");
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains("--features object-store"), "{}", ran.err);
    }
    assert!(!program.path("new").exists() && !program.path("nowhere").exists());
}

#[test]
fn damage_is_named_with_code_4_and_never_restored() {
    let program = with_backups();
    let place = program.path("backups");
    let mut bad = None;
    for entry in fs::read_dir(place.join("blobs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        // The table that only backup 2 needs.
        if path.metadata().unwrap().len() > 300 && bad.is_none() {
            bytes[10] ^= 1;
            fs::write(&path, bytes).unwrap();
            bad = Some(path.display().to_string());
        }
    }
    let bad = bad.unwrap();
    let new = program.path("new");
    for (line, output) in
        [("backup verify".to_owned(), true), (format!("restore 2 {}", new.display()), false)]
    {
        let ran = program.run(&format!("{line} --from={}", place.display()));
        assert_eq!(ran.code, Some(4), "{line}: {}", ran.err);
        assert!(ran.err.contains(&bad) && ran.err.contains("SHA-256"), "{line}: {}", ran.err);
        assert_eq!(ran.out.contains(&bad), output, "{line}: {}", ran.out);
        assert!(!new.exists());
    }
    let line = format!("restore 2 {} --keep-damaged --from={}", new.display(), place.display());
    let ran = program.run(&line);
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    assert!(ran.out.contains(&bad) && ran.err.contains("was kept"), "{}{}", ran.out, ran.err);
    assert!(new.join("CURRENT").exists());
    fs::write(place.join("backups/0000000001.json"), "{}").unwrap();
    let ran = program.run(&format!("backup list --format=jsonl --from={}", place.display()));
    assert_eq!((ran.code, ran.out.lines().count()), (Some(4), 2), "{}", ran.err);
    assert!(ran.err.contains("0000000001.json"), "{}", ran.err);
    let ran = program.run(&format!("backup delete 2 --yes --from={}", place.display()));
    assert_eq!(ran.code, Some(4), "contents are kept, and the reason is said");
    assert!(ran.out.contains("0000000001.json"), "{}", ran.out);
}

/// Flips a bit of a file.
fn flip(path: &std::path::Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn with_extension(dir: &std::path::Path, extension: &str) -> std::path::PathBuf {
    let mut files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|found| found == extension)).unwrap()
}

#[test]
fn a_damaged_store_makes_no_backup() {
    let program = Program::new();
    assert_eq!(program.run_on("put --create a a").code, Some(0));
    assert_eq!(program.run_on("flush").code, Some(0));
    let table = with_extension(&program.path("db"), "sst");
    flip(&table, 20);
    let ran = program.run_on(&format!("backup create --to={}", backups(&program)));
    assert_eq!((ran.code, &*ran.out), (Some(4), ""), "{}", ran.err);
    for word in [&*table.display().to_string(), "no backup was made", "restore the store"] {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
    let ran = program.run(&format!("backup list --format=jsonl --from={}", backups(&program)));
    assert_eq!((ran.code, &*ran.out), (Some(0), ""));
}

#[test]
fn a_rotten_content_is_mended_with_check() {
    let program = with_backups();
    let blobs = fs::read_dir(program.path("backups/blobs")).unwrap();
    let large =
        blobs.map(|entry| entry.unwrap().path()).max_by_key(|p| p.metadata().unwrap().len());
    flip(&large.unwrap(), 10);
    let verify = format!("backup verify --from={}", backups(&program));
    assert_eq!(program.run(&verify).code, Some(4));
    let create = format!("backup create --format=csv --to={}", backups(&program));
    let ran = program.run_on(&create);
    assert!(ran.code == Some(0) && ran.out.ends_with(",0,0\n"), "{}", ran.out);
    assert_eq!(program.run(&verify).code, Some(4), "what is there is trusted");
    let ran = program.run_on(&format!("{create} --check"));
    assert!(ran.code == Some(0) && ran.out.ends_with(",3,1\n"), "{}{}", ran.out, ran.err);
    assert_eq!(program.run(&verify).code, Some(0));
}

#[test]
fn latest_is_of_one_store() {
    let program = with_backups();
    let to = backups(&program);
    let other = program.path("other").display().to_string();
    let new = program.path("new").display().to_string();
    assert_eq!(program.run(&format!("put --create c c --db={other}")).code, Some(0));
    let ran = program.run(&format!("backup create --db={other} --to={to} --format=json"));
    let made: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let store = made["store"].as_str().unwrap();
    for line in [format!("restore latest {new}"), "backup delete latest --yes".into()] {
        let ran = program.run(&format!("{line} --from={to}"));
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {}", ran.err);
        assert!(ran.err.contains(store) && ran.err.contains("--store"), "{}", ran.err);
    }
    let ran = program.run(&format!("restore latest {new} --store=ffff --from={to}"));
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    let ran = program.run(&format!("restore latest {new} --store={store} --from={to}"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(program.run(&format!("get c --db={new}")).code, Some(0));
}

#[test]
fn the_latest_is_deleted_once() {
    let program = with_backups();
    let to = backups(&program);
    let ran = program.run(&format!("backup delete latest latest --yes --format=csv --from={to}"));
    assert!(ran.code == Some(0) && ran.out.contains("\n[2],"), "{}{}", ran.out, ran.err);
    let ran = program.run(&format!("backup list --format=jsonl --from={to}"));
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
}

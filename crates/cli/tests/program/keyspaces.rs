//! `keyspaces`, and `--keyspace` of the commands that read and write.

use crate::support::{Program, with_store};

fn ok(program: &Program, line: &str) -> String {
    let ran = program.run_on(line);
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
    ran.out
}

fn with_keyspaces() -> Program {
    let program = with_store(&[("a", "default")]);
    ok(&program, "keyspaces create users");
    ok(&program, "keyspaces create events --prefix-extractor until:/ --compression none");
    ok(&program, "put --keyspace users a Ada");
    ok(&program, "put --keyspace users b Grace --sync");
    ok(&program, "put --keyspace events 11/29 snow");
    program
}

#[test]
fn keyspaces_are_read_and_written_by_name() {
    let program = with_keyspaces();
    assert_eq!(ok(&program, "get a"), "default\n");
    assert_eq!(ok(&program, "get --keyspace users a"), "Ada\n");
    assert_eq!(ok(&program, "mget --keyspace users a b --format=csv").lines().count(), 3);
    assert_eq!(ok(&program, "scan --count"), "1\n");
    assert_eq!(ok(&program, "scan --keyspace users --count"), "2\n");
    assert_eq!(ok(&program, "scan --keyspace events --prefix 11/ --degraded --count"), "1\n");
    ok(&program, "delete --keyspace users a");
    assert_eq!(program.run_on("get --keyspace users a").code, Some(3));
    ok(&program, "delete-range --keyspace users --all");
    assert_eq!(ok(&program, "scan --keyspace users --count"), "0\n");
    assert_eq!(ok(&program, "scan --count"), "1\n");
    ok(&program, "verify");
    let ran = program.run_on_with("shell", b"put --keyspace users c 3\nscan --keyspace users\n");
    assert_eq!(ran.out, "key  value\nc    3\n", "{}", ran.err);
}

#[test]
fn keyspaces_are_listed_created_and_dropped() {
    let program = with_keyspaces();
    assert_eq!(
        ok(&program, "keyspaces list --format=csv"),
        "name,table_bytes,options\nevents,0,prefix_extractor=until:/ compression=none\nusers,0,\n"
    );
    ok(&program, "flush");
    ok(&program, "keyspaces create users --filters ribbon:8");
    ok(&program, "keyspaces create tags --merge-operator set-union");
    let ran = program.run_on("keyspaces create tags --merge-operator max");
    assert!(ran.code == Some(2) && ran.err.contains("trommel.set_union"), "{ran:?}");
    let listed = ok(&program, "keyspaces list --format=csv");
    assert!(listed.contains("filters=ribbon:8") && !listed.contains("users,0,"), "{listed}");
    assert!(listed.contains("merge_operator=trommel.set_union"), "{listed}");
    let ran = program.run_on("keyspaces drop users");
    assert!(ran.code == Some(2) && ran.err.contains("--yes"), "{ran:?}");
    ok(&program, "keyspaces drop users --yes");
    for line in ["keyspaces drop users --yes", "get --keyspace users a", "put --keyspace users a 1"]
    {
        let ran = program.run_on(line);
        assert_eq!(ran.code, Some(3), "{line}: {ran:?}");
        assert!(ran.err.contains("there is no keyspace \"users\""), "{line}: {ran:?}");
    }
    ok(&program, "put a 1 --ttl 1h");
    ok(&program, "keyspaces create tags --merge-operator set-union --ttl 1h");
    assert!(ok(&program, "keyspaces list").contains("ttl=3600s"));
    let info = ok(&program, "manifest info");
    assert!(info.contains("keyspace operators  yes"), "{info}");
}

#[test]
fn a_keyspace_is_dumped_and_loaded() {
    let program = with_keyspaces();
    let file = program.path("users.dump");
    ok(&program, &format!("dump --keyspace users --as binary {}", file.display()));
    ok(&program, "keyspaces create copy");
    let loaded = ok(&program, &format!("load --keyspace copy {}", file.display()));
    assert_eq!(loaded, "entries  2\n");
    assert_eq!(ok(&program, "get --keyspace copy b"), "Grace\n");
    assert_eq!(ok(&program, "dump --keyspace copy --as text"), "a\tAda\nb\tGrace\n");
}

#[test]
fn a_store_is_dumped_and_loaded_with_all_keyspaces() {
    let program = with_keyspaces();
    ok(&program, "keyspaces create empty --filters ribbon:8");
    let to = program.path("copy");
    for form in ["jsonl", "binary"] {
        let file = program.path(form);
        ok(&program, &format!("dump --as {form} {}", file.display()));
        let whole = std::fs::read(&file).unwrap();
        let load = format!("load --create --db {} {}", to.display(), file.display());
        let ran = program.run(&load);
        assert_eq!((ran.code, &*ran.out), (Some(0), "entries  4\n"), "{}", ran.err);
        let on = |line: &str| program.run(&format!("{line} --db {}", to.display())).out;
        assert_eq!(on("get a"), "default\n");
        assert_eq!(on("get --keyspace users b"), "Grace\n");
        assert_eq!(
            on("keyspaces list --format=csv"),
            "name,table_bytes,options\nempty,0,filters=ribbon:8\n\
             events,0,prefix_extractor=until:/ compression=none\nusers,0,\n"
        );
        let again = program.run(&format!("dump --as jsonl --db {}", to.display())).out;
        assert_eq!(again, ok(&program, "dump --as jsonl"));
        // A damaged one changes nothing.
        std::fs::remove_dir_all(&to).unwrap();
        std::fs::write(&file, &whole[..whole.len() * 2 / 3]).unwrap();
        let ran = program.run(&load);
        assert!(ran.code == Some(4) && !to.exists(), "{ran:?}");
        std::fs::write(&file, &whole).unwrap();
        let ran = program.run_on(&format!("load --keyspace users {}", file.display()));
        assert!(ran.code == Some(2) && ran.err.contains("without --keyspace"), "{ran:?}");
    }
    for line in ["dump --as text", "dump --prefix a"] {
        let ran = program.run_on(line);
        assert!(ran.err.contains("only the default keyspace is dumped"), "{line}: {ran:?}");
    }
    assert!(!ok(&program, "dump --keyspace users").contains("keyspace"));
}

/// Options of a keyspace used to be replaced silently, and errors that could be known before the
/// first entry were found after it.
#[test]
fn a_load_that_is_refused_changes_nothing() {
    let program = with_keyspaces();
    ok(&program, "keyspaces create visits --merge-operator counter --ttl 1h");
    let file = program.path("lines");
    let entry = |key: &str| format!("{{\"key\":\"{key}\",\"value\":\"new\"}}\n");
    let keyspace = |name: &str, options: &str| {
        format!("{{\"keyspace\":\"{name}\",\"options\":{{{options}}}}}\n")
    };
    let before = ok(&program, "dump");
    let long = "k".repeat(65_528);
    for (last, code, what) in [
        (keyspace("visits", ""), 2, "has merge_operator=trommel.counter ttl=3600s, the dump the"),
        (keyspace("users", "\"ttl\":\"60s\""), 2, "the dump ttl=60s (--replace-options"),
        (keyspace("", ""), 1, "must have 1 to 255"),
        (keyspace(&"n".repeat(256), ""), 1, "has 256 bytes"),
        (keyspace("more", "") + &entry(&long), 1, "at most 65527 bytes in a keyspace"),
        (keyspace("more", "\"filters\":\"budget=9/key\""), 6, "no filter budget"),
        (keyspace("fresh", ""), 1, "begins a second time"),
    ] {
        let lines = entry("a") + &keyspace("fresh", "") + &entry("k") + &last;
        std::fs::write(&file, lines).unwrap();
        let ran = program.run_on(&format!("load {}", file.display()));
        assert!(ran.code == Some(code) && ran.err.contains(what), "{what}: {ran:?}");
        assert_eq!(ok(&program, "dump"), before, "{what}");
    }
    let other = "\"merge_operator\":\"trommel.max\"";
    let lines = entry("a") + &keyspace("fresh", "") + &keyspace("visits", other);
    std::fs::write(&file, lines).unwrap();
    let ran = program.run_on(&format!("load --replace-options {}", file.display()));
    assert!(ran.code == Some(2) && ran.err.contains("trommel.counter"), "{ran:?}");
    assert_eq!(ok(&program, "dump"), before);
    std::fs::write(&file, keyspace("users", "\"ttl\":\"60s\"") + &entry("c")).unwrap();
    ok(&program, &format!("load --replace-options {}", file.display()));
    assert!(ok(&program, "keyspaces list").contains("ttl=60s"));
    assert_eq!(ok(&program, "scan --keyspace users --count"), "3\n");
}

#[test]
fn operands_are_merged_into_keys_of_a_keyspace() {
    let program = with_keyspaces();
    let ran = program.run_on("merge --number visits 1");
    assert!(ran.code != Some(0) && ran.err.contains("merge operator"), "{ran:?}");
    assert!(ran.err.contains("--operator counter"), "{ran:?}");
    ok(&program, "keyspaces create best --merge-operator max");
    ok(&program, "merge --keyspace best k 2026-11-29");
    ok(&program, "merge --operator counter --number visits 1 --sync");
    ok(&program, "merge --number visits 18446744073709551615");
    ok(&program, "merge --keyspace users --number visits -2");
    ok(&program, "merge --keyspace users --value-format hex visits 0300000000000000");
    let hex = "get --value-format hex visits";
    assert_eq!(ok(&program, hex), "0000000000000000\n");
    assert_eq!(ok(&program, &format!("{hex} --keyspace users")), "0100000000000000\n");
    for (line, what) in [
        ("merge --number visits 1.5", "no whole number"),
        ("merge --operator max visits 1", "counter"),
        ("merge --operator add visits 1", "invalid value"),
        ("merge visits 1", "operands of 8 bytes, not of 1"),
        ("merge --keyspace best --number k 1", "--number is for a counter"),
        ("merge --keyspace best --operator counter --number k 1", "of its own, trommel.max"),
    ] {
        let ran = program.run_on(line);
        assert!(ran.code != Some(0) && ran.err.contains(what), "{line}: {ran:?}");
    }
    let ran = program.run_on_with("shell", b"merge --number visits 7\n");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ok(&program, hex), "0700000000000000\n");
}

#[test]
fn filters_are_shown_for_each_keyspace() {
    let program = with_keyspaces();
    ok(&program, "keyspaces create weak --filters standard:2");
    let lines: String = (0..2000).map(|number| format!("{number:04}\tvalue\n")).collect();
    for keyspace in ["users", "weak"] {
        let ran = program.run_on_with(&format!("load --keyspace {keyspace} -"), lines.as_bytes());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
    }
    ok(&program, "flush");
    let json: serde_json::Value =
        serde_json::from_str(&ok(&program, "filters --format json")).unwrap();
    let rows = json["keyspaces"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["keyspace"].as_str()).collect();
    assert_eq!(names, [None, Some("events"), Some("users"), Some("weak")]);
    let number = |row: usize, column: &str| rows[row][column].as_f64().unwrap();
    // Those of users are estimated: its table begins with the default keyspace.
    assert!((number(2, "keys") - 2002.0).abs() < 20.0 && number(3, "keys") == 2000.0, "{rows:?}");
    assert!(number(2, "bits_per_key") > 12.0 && number(3, "bits_per_key") < 4.0, "{rows:?}");
    // 25,000 probes of a rate of two in five: ten standard deviations.
    let (measured, expected) = (number(3, "measured_rate"), number(3, "expected_rate"));
    assert!((measured - expected).abs() < 0.032 && expected > 0.3, "{rows:?}");
    assert!(number(2, "measured_rate") < 0.01, "{rows:?}");
    assert!(!ok(&with_store(&[("a", "1")]), "filters --format json").contains("keyspaces"));
}

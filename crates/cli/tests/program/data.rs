//! `get`, `mget`, `put`, `delete`, `delete-range` and `scan`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::support::{Program, Ran, with_store};

#[test]
fn put_values_are_returned_by_get() {
    let program = with_store(&[("a", "1"), ("b", r"two\x00\xff"), ("c", "ä")]);
    let got = |line: &str| {
        let ran = program.run_on(line);
        let word = if ran.code == Some(3) { "error: key not found\n" } else { "" };
        assert_eq!(ran.err, word, "{line}");
        (ran.code, ran.out)
    };
    assert_eq!(got("get a"), (Some(0), "1\n".into()));
    assert_eq!(got("get b"), (Some(0), "two\\x00\\xff\n".into()));
    assert_eq!(got("get b --value-format=hex"), (Some(0), "74776f00ff\n".into()));
    assert_eq!(got("get 63 --key-format=hex"), (Some(0), "ä\n".into()));
    assert_eq!(got("get 0x63 --key-format=hex"), (Some(0), "ä\n".into()));
    assert_eq!(got("get c --raw"), (Some(0), "ä".into()));
    assert_eq!(got("get d"), (Some(3), String::new()));
    assert_eq!(
        got("mget b d --format=csv"),
        (Some(3), "key,found,value\nb,true,two\\x00\\xff\nd,false,\n".into())
    );
    assert_eq!(got("delete a d"), (Some(0), String::new()));
    assert_eq!(got("get a"), (Some(3), String::new()));
}

#[test]
fn a_scan_prints_a_range_either_way() {
    let program = with_store(&[("a", "1"), ("ab", "2"), ("b", "3"), ("c", "4")]);
    for (line, keys) in [
        ("scan", "a ab b c"),
        ("scan --from=ab --to=c", "ab b"),
        ("scan --prefix=a", "a ab"),
        ("scan --reverse", "c b ab a"),
        ("scan --reverse --limit=2 --to=c", "b ab"),
        ("scan --from=x", ""),
        ("scan --from=c --to=a", ""),
    ] {
        let ran = program.run_on(&format!("{line} --keys-only --format=csv"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}");
        let found: Vec<&str> = ran.out.lines().skip(1).collect();
        assert_eq!(found.join(" "), keys, "{line}");
    }
    assert_eq!(program.run_on("scan --count --from=b").out, "2\n");
    assert_eq!(program.run_on("scan --limit 2").out, "key  value\na    1\nab   2\n");
}

#[test]
fn delete_range_deletes_the_keys_of_a_scan_with_its_bounds() {
    let entries = [("a", "1"), ("ab", "2"), ("b", "3"), (r"\xff", "4"), (r"\xff\xff", "5")];
    for (bounds, left) in [
        ("--from=ab --to=b", r"a b \xff \xff\xff"),
        ("--from=ab", "a"),
        ("--to=b --sync", r"b \xff \xff\xff"),
        ("--prefix=a", r"b \xff \xff\xff"),
        (r"--prefix=\xff", "a ab b"),
        ("--prefix=6162 --key-format=hex", r"a b \xff \xff\xff"),
        ("--from=b --to=b", r"a ab b \xff \xff\xff"),
        ("--to=", r"a ab b \xff \xff\xff"),
        ("--all", ""),
    ] {
        let program = with_store(&entries);
        let ran = program.run_on(&format!("delete-range {bounds}"));
        assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""), "{bounds}");
        let ran = program.run_on("scan --keys-only --format=csv");
        let found: Vec<&str> = ran.out.lines().skip(1).collect();
        assert_eq!(found.join(" "), left, "{bounds}");
    }
}

/// An empty variable of a script must not delete everything.
#[test]
fn delete_range_refuses_bounds_that_are_likely_wrong() {
    let program = with_store(&[("a", "1"), ("b", "2")]);
    for (bounds, word) in [
        ("", "--all to confirm"),
        ("--prefix=", "--all to confirm"),
        ("--from=", "--all to confirm"),
        ("--from=b --to=a", "its start b is after its end a"),
        ("--all --prefix=a", "cannot be used with"),
        ("--prefix=a --to=b", "cannot be used with"),
        ("a b", "unexpected argument"),
        ("--from=xy --key-format=hex", "cannot be read as hex"),
    ] {
        for shell in [false, true] {
            let line = format!("delete-range {bounds}");
            let ran = match shell {
                true => program.run_on_with("shell", line.as_bytes()),
                false => program.run_on(&line),
            };
            assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {ran:?}");
            assert!(ran.err.contains(word), "{line}: {ran:?}");
        }
    }
    let long = format!("delete-range --from={}", "k".repeat(65_537));
    let ran = program.run_on(&long);
    assert!(ran.code == Some(2) && ran.err.contains("too long"), "{}", ran.err);
    assert_eq!(program.run_on("scan --count").out, "2\n");
    let ran = program.run_on_with("shell", b"delete-range --prefix=a\nscan --count\n");
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "1\n", ""));
    assert_eq!(Program::new().run_on("delete-range --all").code, Some(6));
}

#[test]
fn keys_are_read_from_standard_input_too() {
    let program = with_store(&[("a", "1"), ("b", "2")]);
    let ran = program.run_on_with("mget - --format=jsonl", b"b\n\na");
    assert_eq!((ran.code, &*ran.err), (Some(3), "error: key not found\n"));
    assert_eq!(
        ran.out,
        "{\"key\":\"b\",\"found\":true,\"value\":\"2\"}\n\
         {\"key\":\"\",\"found\":false,\"value\":null}\n\
         {\"key\":\"a\",\"found\":true,\"value\":\"1\"}\n"
    );
}

#[test]
fn which_store_must_be_said() {
    let program = Program::new();
    let ran = program.run("get a");
    assert_eq!((ran.code, &*ran.out), (Some(2), ""));
    assert!(ran.err.contains("--db DIR") && ran.err.contains("TROMMEL_DB"), "{}", ran.err);
    let ran = program.run_on("get a");
    assert_eq!((ran.code, &*ran.out), (Some(6), ""), "{}", ran.err);
    for line in ["put a 1", "load -"] {
        let ran = program.run_on_with(line, b"a\t1\n");
        assert_eq!((ran.code, &*ran.out), (Some(6), ""), "{}", ran.err);
        assert!(ran.err.contains("give --create to make one"), "{line}: {}", ran.err);
    }
    let ran = program.run_on("bench --use-existing-db --num=10 --benchmarks=readrandom");
    assert_eq!(ran.code, Some(6), "{}", ran.err);
    assert!(ran.err.contains("to create one, leave out --use-existing-db"), "{}", ran.err);
    std::fs::create_dir(program.path("db")).unwrap();
    let ran = program.run_on("put a 1");
    assert!(ran.err.contains("give --create to make one"), "{}", ran.err);
    std::fs::write(program.path("db/mine"), "").unwrap();
    for line in ["put a 1", "put --create a 1", "delete a"] {
        let ran = program.run_on(line);
        assert_eq!(ran.code, Some(6));
        assert!(!ran.err.contains("give --create"), "{line}: {}", ran.err);
    }
    let with_variable = with_store(&[("a", "1")]);
    let mut command = with_variable.command("get a");
    let ran = Ran::from(command.env("TROMMEL_DB", with_variable.path("db")).output().unwrap());
    assert_eq!((ran.code, &*ran.out), (Some(0), "1\n"));
}

/// Each command follows the `ttl` that the store has recorded, whichever process set it.
#[test]
fn entries_expire_for_every_command() {
    let program = with_store(&[("a", "1")]);
    // Its steps are a second long, like a shorter one's.
    assert_eq!(program.run_on("put --ttl=4m b 2").code, Some(0));
    assert_eq!(program.run_on("scan --count").out, "2\n");
    assert_eq!(program.run_on("put --ttl=1s c 3").code, Some(0));
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    assert_eq!(program.run_on("get c").code, Some(3));
    assert_eq!(program.run_on("scan --count").out, "0\n");
    assert_eq!(program.run_on("put --ttl=0 d 4").code, Some(0));
    assert_eq!(program.run_on("get d").out, "4\n");
    let refused = program.run_on("put --ttl=100ms e 5");
    assert!(refused.code != Some(0) && refused.err.contains("it must be 1s"), "{}", refused.err);
}

/// The shell of another process has the store open for writing.
#[test]
fn follow_reads_beside_a_writer() {
    let program = with_store(&[("a", "1")]);
    let mut command = program.command_on("shell");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = command.spawn().unwrap();
    let mut lines = shell.stdin.take().unwrap();
    let mut printed = BufReader::new(shell.stdout.take().unwrap()).lines();
    for value in ["2", "3"] {
        lines
            .write_all(format!("put b {value}\nflush\nput c {value}\nget c\n").as_bytes())
            .unwrap();
        assert_eq!(printed.next().unwrap().unwrap(), value);
        assert_eq!(program.run_on("get b").code, Some(5));
        assert_eq!(program.run_on("get b --follow").out, format!("{value}\n"));
        assert_eq!(program.run_on("get c --follow").out, format!("{value}\n"));
    }
    for line in [
        "mget a b --follow",
        "scan --follow",
        "dump --follow",
        "levels --follow",
        "stats --follow",
        "memory --follow",
        "filters --follow --probe=10",
    ] {
        let ran = program.run_on(line);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}");
        assert!(!ran.out.is_empty(), "{line}");
    }
    drop(lines);
    assert!(shell.wait().unwrap().success());
    assert_eq!(program.run_on("get c --follow").out, "3\n");
    let both = program.run_on("get c --follow --degraded");
    assert!(both.code == Some(2) && both.err.contains("cannot be used with"), "{both:?}");
}

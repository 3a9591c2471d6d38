//! `trommel shell`, from a pipe: its prompt needs a terminal.

use crate::support::{Program, with_store};

#[test]
fn a_script_runs_on_one_open_store() {
    let program = Program::new();
    let script = b"# a comment\n\
        put 'a b' \"1 2\"\n\
        put k \\x00\\xff\n\n\
        \tget 'a b'\n\
        scan --format=jsonl\n\
        delete k\n\
        scan --count\n\
        flush\n\
        levels --format=csv\n\
        exit\n\
        get never\n";
    let ran = program.run_on_with("shell --create", script);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "1 2",
            "{\"key\":\"a b\",\"value\":\"1 2\"}",
            "{\"key\":\"k\",\"value\":\"\\\\x00\\\\xff\"}",
            "1",
        ]
    );
    assert!(lines[5].starts_with("L0,1,"), "{}", ran.out);
    assert_eq!(program.run_on("get k").code, Some(3));
}

#[test]
fn the_first_line_that_fails_ends_a_script() {
    let program = with_store(&[("a", "1")]);
    for (script, code, reported) in [
        ("get a\nget b\nget a\n", 3, "key not found; that was line 2 of the input"),
        ("get a\ngte a\n", 2, "unrecognized subcommand 'gte'"),
        ("get a\nget\n", 2, "required arguments were not provided"),
        ("get a\nput 'a\n", 2, "the line ends inside quotes"),
        ("get a\nput b -\n", 2, "from which its lines are read"),
        ("get a\nget a --db /tmp\n", 2, "leave out --db"),
        ("get a\nfind a --db /tmp\n", 2, "leave out --db"),
        ("get a\nfiles --db /tmp\n", 2, "leave out --db"),
        ("get a\nproperties --db /tmp\n", 2, "leave out --db"),
        ("get a\nmanifest info --db /tmp\n", 2, "leave out --db"),
        ("get a\noptions --db /tmp\n", 2, "leave out --db"),
        ("get a\nget a --follow\n", 2, "leave out --follow"),
        ("get a\noptions --salvage\n", 2, "salvage it before starting the shell"),
        ("get a\nload /no/such/file\n", 1, "/no/such/file"),
        ("get a\nbench\n", 2, "unrecognized subcommand 'bench'"),
    ] {
        let ran = program.run_on_with("shell", script.as_bytes());
        assert_eq!((ran.code, &*ran.out), (Some(code), "1\n"), "{script}: {}", ran.err);
        assert!(
            ran.err.contains(reported) && ran.err.contains("line 2 of"),
            "{script}: {}",
            ran.err
        );
    }
    let ran = program.run_on_with("shell --keep-going", b"get b\nput 'a\nget a\n");
    assert_eq!((ran.code, &*ran.out), (Some(3), "1\n"));
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
}

/// A comment used to be split into words, so an apostrophe in it ended the script.
#[test]
fn comments_may_hold_anything() {
    let program = with_store(&[("a", "1")]);
    let ran = program.run_on_with("shell", b"# it's here\n \t# \"so\nget a\n");
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "1\n", ""));
}

/// `options` used to show the current ones, whatever its flags were.
#[test]
fn options_are_shown_as_a_line_with_these_flags_has_them() {
    let program = with_store(&[("a", "1")]);
    let script = b"options --filters=standard:8 --compression=none --format=csv\n\
        options --format=csv\n";
    for how in ["shell", "shell --read-only"] {
        let ran = program.run_on_with(how, script);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{how}");
        let shown = |name: &str| -> Vec<_> {
            ran.out.lines().filter(|line| line.starts_with(name)).collect()
        };
        assert_eq!(
            shown("filters,"),
            ["filters,standard:8,given", "filters,\"L0=paired:16,L1-=paired:12\",remembered"],
            "{how}"
        );
        assert_eq!(
            shown("compression,"),
            ["compression,none,given", "compression,lz4,remembered"],
            "{how}"
        );
    }
}

#[test]
fn a_shell_that_only_reads_writes_nothing() {
    let program = with_store(&[("a", "1")]);
    let ran = program.run_on_with("shell --read-only", b"get a\nput a 2\n");
    assert_eq!((ran.code, &*ran.out), (Some(2), "1\n"));
    assert!(ran.err.contains("opened read-only"), "{}", ran.err);
    assert_eq!(program.run_on("get a").out, "1\n");
}

#[test]
fn new_filters_hold_for_one_line() {
    let program = with_store(&[("a", "1")]);
    let script = b"compact --filters=standard:8\nfilters --format=csv --probe=0\n\
        options --format=csv\nstats\nhelp\nhelp get\n";
    let ran = program.run_on_with("shell", script);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    assert!(ran.out.contains("\nL1,standard,1,1,8.0,"), "{}", ran.out);
    assert!(ran.out.contains("filters,\"L0=paired:16,L1-=paired:12\""), "{}", ran.out);
    for said in ["\nlookups ", "\ncompactions ", "\n  checkpoint ", "Usage: get [OPTIONS] <KEY>"] {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    assert!(!ran.out.contains("--db"), "{}", ran.out);
}

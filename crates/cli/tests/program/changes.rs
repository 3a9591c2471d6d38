//! `changes`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{Program, Ran};

fn ok(program: &Program, line: &str) -> String {
    let ran = program.run_on(line);
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
    ran.out
}

/// A store with four batches, the second of which is on a keyspace.
fn with_changes() -> Program {
    let program = Program::new();
    ok(&program, "put --create --log-archive-bytes 1M a 1");
    ok(&program, "keyspaces create users");
    ok(&program, "put --keyspace users b 2");
    ok(&program, "flush");
    ok(&program, "delete a");
    ok(&program, "delete-range --from c --to d");
    program
}

#[test]
fn changes_are_printed_in_order() {
    let program = with_changes();
    let lines = "seqno,keyspace,kind,key,value\n1,,put,a,1\n5,users,put,b,2\n6,,delete,a,\n\
                 7,,delete_range,c,d\n";
    assert_eq!(ok(&program, "changes --format=csv"), lines);
    let rest = ok(&program, "changes --format=csv --since 1 --limit 1");
    assert_eq!(rest, "seqno,keyspace,kind,key,value\n5,users,put,b,2\n");
    let json = ok(&program, "changes --since 6 --format jsonl");
    assert_eq!(
        json,
        "{\"seqno\":7,\"keyspace\":null,\"kind\":\"delete_range\",\"key\":\"c\",\"value\":\"d\"}\n"
    );
    assert_eq!(ok(&program, "changes --since 7").lines().count(), 1);
    let ran = program.run_on("changes --since 8");
    assert!(ran.code == Some(2) && ran.err.contains("the newest is 7"), "{ran:?}");
    let ran = program.run_on_with("shell", b"changes --since 6 --format csv\n");
    assert!(ran.out.ends_with("7,,delete_range,c,d\n"), "{ran:?}");
}

#[test]
fn what_is_missing_is_reported() {
    let program = with_changes();
    ok(&program, "put --log-archive-bytes 0 a 2");
    ok(&program, "flush");
    ok(&program, "put --log-archive-bytes 1M a 3");
    let Ran { code, out, err } = program.run_on("changes --format=csv");
    assert_eq!((code, &*out), (Some(0), "seqno,keyspace,kind,key,value\n9,,put,a,3\n"));
    assert!(err.contains("changes before 9 are not in the logs"), "{err}");
    let ran = program.run_on("changes --since 1");
    assert!(ran.code == Some(2) && ran.err.contains("from 9 on"), "{ran:?}");
}

/// While a writer runs, each batch is printed as it is committed.
#[test]
fn changes_are_followed_beside_a_writer() {
    for format in ["csv", "table"] {
        let program = with_changes();
        let line = format!("changes --follow --limit 5 --format={format}");
        let mut child = program.command_on(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let printed: Vec<String> = lines.by_ref().take(5).map(|line| line.unwrap()).collect();
        assert!(printed[4].contains("delete_range"), "{printed:?}");
        ok(&program, "put late 8");
        let late = lines.next().unwrap().unwrap();
        assert!(late.contains("late"), "{late}");
        assert!(child.wait().unwrap().success());
    }
}

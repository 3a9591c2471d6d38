//! `load` and `dump`.

use std::fs;

use crate::support::{Program, Ran, with_store};

const ODD: &[u8] = b"{\"key\":\"\",\"value\":\"of the empty key\"}\n\
    {\"key\":\"\\\\x00\\\\xff\",\"value\":\"\"}\n\
    {\"key\":\"k\\\\t\",\"value\":\"\xc3\xa4\\\\n\"}\n";

fn dump(program: &Program, line: &str) -> Ran {
    let ran = program.run_on(&format!("dump {line}"));
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
    ran
}

#[test]
fn every_form_of_dump_is_loaded_again() {
    let program = Program::new();
    let ran = program.run_on_with("load --create -", ODD);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "entries  3\n", ""));
    let all = dump(&program, "").out;
    assert_eq!(
        all,
        "{\"schema\":\"trommel.dump.v1\",\"key_format\":\"utf8\",\"value_format\":\"utf8\"}\n"
            .to_owned()
            + str::from_utf8(ODD).unwrap()
            + "{\"entries\":3,\"xxh3\":\"303e867f77f6ff5f\"}\n"
    );
    for line in
        ["--as jsonl", "--as jsonl --key-format=hex", "--as text", "--as csv", "--as binary"]
    {
        let (from, to) = (program.path(&line.replace(' ', "_")), program.path("copy"));
        let ran = dump(&program, &format!("{line} {}", from.display()));
        assert_eq!((&*ran.out, &*ran.err), ("", &*format!("3 entries in {}\n", from.display())));
        let csv = if line.ends_with("csv") { "--as csv" } else { "" };
        let load =
            program.run(&format!("load --create {csv} --db {} {}", to.display(), from.display()));
        assert_eq!((load.code, &*load.out), (Some(0), "entries  3\n"), "{}", load.err);
        let copy = program.run(&format!("dump --db {}", to.display()));
        assert_eq!(copy.out, all, "{line}");
        fs::remove_dir_all(to).unwrap();
    }
}

#[test]
fn a_dump_of_a_part_holds_that_part() {
    let program = with_store(&[("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(dump(&program, "--as text --from b").out, "b\t2\nc\t3\n");
    assert_eq!(dump(&program, "--as csv --prefix a").out, "key,value\na,1\n");
    let taken = program.path("taken");
    fs::write(&taken, "mine").unwrap();
    let ran = program.run_on(&format!("dump {}", taken.display()));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("already exists: remove it"), "{}", ran.err);
    assert_eq!(fs::read(taken).unwrap(), b"mine");
}

#[test]
fn a_damaged_dump_changes_nothing() {
    let program = with_store(&[("a", "1"), ("b", "2")]);
    for form in ["binary", "jsonl"] {
        let file = program.path(form);
        dump(&program, &format!("--as {form} {}", file.display()));
        let whole = fs::read(&file).unwrap();
        let mut damaged = vec![whole[..whole.len() - 1 - whole.len() / 3].to_vec()];
        if form == "binary" {
            let mut flipped = whole.clone();
            flipped[70] ^= 1;
            damaged.push(flipped);
        }
        for bytes in damaged {
            fs::write(&file, &bytes).unwrap();
            let to = program.path("copy");
            let ran =
                program.run(&format!("load --create --db {} {}", to.display(), file.display()));
            let codes = if form == "binary" { [4, 4] } else { [1, 4] };
            assert!(codes.map(Some).contains(&ran.code), "{form}: {ran:?}");
            assert_eq!(ran.out, "");
            assert!(!to.exists(), "nothing was to be loaded");
        }
    }
}

#[test]
fn a_damaged_dump_from_a_pipe_says_how_much_is_loaded() {
    let program = Program::new();
    let mut lines = String::new();
    for number in 0..5000 {
        lines += &format!("{number:05}\tvalue {number}\n");
    }
    program.run_on_with("load --create -", lines.as_bytes());
    let file = program.path("dump");
    dump(&program, &format!("--as binary {}", file.display()));
    let mut bytes = fs::read(file).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 4;
    let to = program.path("copy");
    let mut command = program.command("load --create -");
    command.env("TROMMEL_DB", &to);
    let ran = crate::support::feed(command, &bytes);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let loaded: u64 =
        ran.err.split("; ").last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(loaded > 1000 && loaded < 5000, "{}", ran.err);
    let count = program.run(&format!("scan --count --db {}", to.display()));
    assert_eq!(count.out, format!("{loaded}\n"));
}

#[test]
fn a_bad_line_is_named_and_nothing_of_its_file_is_loaded() {
    let program = with_store(&[("a", "1")]);
    let file = program.path("lines");
    fs::write(&file, "b\t2\nc\n").unwrap();
    let ran = program.run_on(&format!("load {}", file.display()));
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    let line =
        format!("error: {}: line 2: there is no tab between key and value\n", file.display());
    assert_eq!(ran.err, line);
    assert_eq!(program.run_on("scan --count").out, "1\n");
    let ran = program.run_on_with("load -", b"b\t2\nc\n");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.ends_with("; 1 entries before that were loaded\n"), "{}", ran.err);
    assert_eq!(program.run_on("scan --count").out, "2\n");
    let ran = program.run_on("load /no/such/file");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("/no/such/file"), "{}", ran.err);
}

#[test]
fn an_empty_file_is_no_dump() {
    let program = Program::new();
    let file = program.path("empty");
    fs::write(&file, "").unwrap();
    for name in [&*file.display().to_string(), "-"] {
        let ran = program.run_on(&format!("load --create {name}"));
        assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{name}");
        assert!(ran.err.contains("is empty"), "{name}: {}", ran.err);
        assert!(!program.path("db").exists());
    }
    let ran = program.run_on(&format!("load --create --as text {}", file.display()));
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "entries  0\n", ""));
}

#[test]
fn table_files_are_written_and_ingested() {
    let program = with_store(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let dump = program.path("all.dump");
    assert_eq!(program.run_on(&format!("dump --as binary {}", dump.display())).code, Some(0));
    let [first, second] = ["1.table", "2.table"].map(|name| program.path(name));
    let ran = program.run(&format!("write-table {} {}", dump.display(), first.display()));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.starts_with("entries  3\n"), "{}", ran.out);
    let text = program.path("more.txt");
    fs::write(&text, "x\t9\ny\t8\n").unwrap();
    let write = format!("write-table --as text {} {}", text.display(), second.display());
    assert_eq!(program.run(&write).code, Some(0));
    let again = program.run(&write);
    assert_ne!(again.code, Some(0), "an existing file is replaced");
    let copy = program.path("copy");
    let ingest = |more: &str| {
        let (copy, first, second) = (copy.display(), first.display(), second.display());
        program.run(&format!("ingest --db {copy} {more} {second} {first}"))
    };
    let ran = ingest("--create");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.starts_with("entries  5\ntables   1\n"), "{}", ran.out);
    let dumped = program.run(&format!("dump --as text --db {}", copy.display())).out;
    assert_eq!(dumped, "a\t1\nb\t2\nc\t3\nx\t9\ny\t8\n");
    program.run(&format!("keyspaces create users --db {}", copy.display()));
    assert_eq!(ingest("--keyspace users").code, Some(0));
    let found = program.run(&format!("get --db {} --keyspace users x", copy.display()));
    assert_eq!(found.out, "9\n");

    let mut bytes = fs::read(&second).unwrap();
    bytes[20] ^= 1;
    fs::write(&second, bytes).unwrap();
    let refused = ingest("");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("2.table"), "{}", refused.err);
    assert_eq!(program.run(&format!("dump --as text --db {}", copy.display())).out, dumped);

    fs::write(&text, "b\t9\na\t8\n").unwrap();
    let third = program.path("3.table");
    let unsorted =
        program.run(&format!("write-table --as text {} {}", text.display(), third.display()));
    assert!(unsorted.err.contains("sort them"), "{}", unsorted.err);
    assert!(!third.exists(), "an unfinished file");
    let named = program.path("named.dump");
    program.run(&format!("dump --as binary --db {} {}", copy.display(), named.display()));
    let several = program.run(&format!("write-table {} {}", named.display(), third.display()));
    assert_eq!(several.code, Some(2), "{several:?}");
    assert!(several.err.contains("--keyspace"), "{}", several.err);
}

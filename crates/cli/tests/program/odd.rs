//! Unusual input: it is accepted, or rejected with a message, and nothing panics.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use crate::support::{Program, Ran, check_snapshot, with_store};

#[test]
fn empty_and_huge_keys_and_values_are_taken() {
    let program = Program::new();
    let put = |key: &str, value: &str| {
        let mut command = program.command_on("put --create");
        Ran::from(command.args(["--", key, value]).output().unwrap())
    };
    assert_eq!(put("", "").code, Some(0));
    assert_eq!(put("--x", "-1").code, Some(0));
    let mut get = program.command_on("get");
    let ran = Ran::from(get.arg("").output().unwrap());
    assert_eq!((ran.code, &*ran.out), (Some(0), "\n"));
    let huge = vec![b'x'; 20 << 20];
    assert_eq!(program.run_on_with("put huge -", &huge).code, Some(0));
    let raw = program.command_on("get huge --raw").output().unwrap();
    assert!(raw.stdout == huge);
    let ran = program.run_on("scan --format=jsonl --value-format=base64");
    assert_eq!(ran.out.lines().count(), 3);
    let ran = put(&"k".repeat(65_536), "");
    assert_eq!((ran.code, ran.out), (Some(2), String::new()));
    assert!(ran.err.contains("65536 bytes is too long"), "{}", ran.err);
}

#[cfg(unix)]
#[test]
fn names_and_keys_need_not_be_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let program = Program::new();
    let odd = OsStr::from_bytes(b"st\xffre");
    let dir = program.path("").join(odd);
    let run = |words: &[&[u8]]| {
        let mut command = program.command("");
        command.arg(OsStr::from_bytes(words[0])).arg("--db").arg(&dir);
        command.args(words[1..].iter().map(|word| OsStr::from_bytes(word)));
        Ran::from(command.output().unwrap())
    };
    assert_eq!(run(&[b"put", b"--create", b"k\xff", b"v\xfe"]).code, Some(0));
    assert_eq!(run(&[b"get", b"k\xff"]).out, "v\\xfe\n");
    assert_eq!(run(&[b"get", b"k\\xff", b"--value-format=hex"]).out, "76fe\n");
    assert_eq!(run(&[b"scan", b"--prefix=k\xff", b"--count"]).out, "1\n");
    let copy = program.path("").join(OsStr::from_bytes(b"c\xffpy"));
    assert_eq!(run(&[b"checkpoint", copy.as_os_str().as_bytes()]).code, Some(0));
    let dump = program.path("").join(OsStr::from_bytes(b"d\xffmp"));
    assert_eq!(run(&[b"dump", dump.as_os_str().as_bytes()]).code, Some(0));
    assert_eq!(run(&[b"load", dump.as_os_str().as_bytes()]).code, Some(0));
    fs::write(dir.join(OsStr::from_bytes(b"\xfe")), "").unwrap();
    assert_eq!(run(&[b"stats"]).code, Some(0));
    let ran = run(&[b"destroy", b"--yes"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains('\u{fffd}'), "{}", ran.out);
    assert_eq!(run(&[b"get", b"k"]).code, Some(6));
}

/// Underscores in keys and values that begin with dashes used to become dashes.
#[test]
fn what_only_looks_like_a_flag_stays_as_it_is() {
    let program = Program::new();
    assert_eq!(program.run_on("put --create k --some_value").code, Some(0));
    assert_eq!(program.run_on("get k").out, "--some_value\n");
    let entries = b"put j --other_value\nput -- --x_y 1\nfind --x_y --format=csv\n\
        scan --prefix --x_y --count\nscan --prefix=--x_y --value-format=hex\n";
    let ran = program.run_on_with("shell", entries);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    assert!(ran.out.contains("\n1\n") && ran.out.ends_with("--x_y  31\n"), "{}", ran.out);
    assert_eq!(program.run_on("get j").out, "--other_value\n");
    for line in [
        "scan --prefix --x_y --keys-only",
        "scan --from --x_x --to --x_z --keys-only",
        "scan --from --x-z --keys-only --limit 1",
    ] {
        assert_eq!(program.run_on(line).out, "key\n--x_y\n", "{line}");
    }
    assert_eq!(program.run_on("find --x_y").code, Some(0));
    let ran = program.run_on("get k --no_such_flag");
    assert!(ran.code == Some(2) && ran.err.contains("'--no_such_flag'"), "{ran:?}");
}

/// A file's name used to be printed to the terminal verbatim.
#[cfg(unix)]
#[test]
fn names_of_files_do_nothing_to_a_terminal() {
    let program = with_store(&[("a", "1")]);
    fs::write(program.path("db").join("x\u{1b}[2J\u{202e}y"), "").unwrap();
    let ran = program.run_on("verify");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains(r"x\x1b[2J\xe2\x80\xaey"), "{}", ran.out);
    assert!(!ran.out.contains(['\u{1b}', '\u{202e}']), "{}", ran.out);
    let ran = program.run("get --db \u{1b}[2J a");
    assert!(ran.code == Some(6) && ran.err.contains(r"\x1b[2J"), "{}", ran.err);
    assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
}

#[test]
fn wrong_words_are_explained() {
    let program = with_store(&[("a", "1")]);
    let mut text = String::new();
    for line in [
        "get",
        "get --key-format=hex xyz",
        "get --key-format=base64 a",
        r"get a\q",
        "get a --format=xml",
        "get a --key-format=utf16",
        "put a --value-format=hex 123 ",
        "put a",
        "scan --limit=many",
        "scan --prefix=a --from=b",
        "scan --count --keys-only",
        "mget",
        "delete",
        "delete-range",
        "delete-range --from=b --to=a",
        "delete-range --all --prefix=a",
        "load",
        "dump --as=xml",
        "stats --watch=0",
        "stats --watch=soon",
        "filters --probe=-1",
        "filters --tables",
        "filters --filters=paired:10",
        "filters --filters=budget=ten",
        "compact --filters=paird:10",
        "checkpoint",
        "destroy",
        "completions tcsh",
        "man nothing",
    ] {
        let of_a_store = !line.starts_with("completions") && !line.starts_with("man");
        let ran = if of_a_store { program.run_on(line) } else { program.run(line) };
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {ran:?}");
        let err = ran.err.replace(&program.path("db").display().to_string(), "DIR");
        text += &format!("$ trommel {line}\n{err}\n");
    }
    check_snapshot("store_usage_errors", &text);
    assert_eq!(program.run_on("get a").out, "1\n");
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_scan_quietly() {
    let program = Program::new();
    let lines: String = (0..100_000).map(|n| format!("key{n:06}\tvalue {n}\n")).collect();
    assert_eq!(program.run_on_with("load --create -", lines.as_bytes()).code, Some(0));
    for line in [
        "scan --format=table",
        "scan --format=json",
        "scan --format=jsonl",
        "scan --format=csv",
        "dump --as=text",
        "dump --as=jsonl",
        "dump --as=csv",
        "dump --as=binary",
    ] {
        let mut child =
            program.command_on(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = Vec::new();
        let mut out = BufReader::with_capacity(1, child.stdout.take().unwrap());
        out.read_until(b'\n', &mut first).unwrap();
        drop(out);
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*err), (Some(0), ""), "{line}");
        assert!(!first.is_empty(), "{line}");
    }
}

#[test]
fn colours_are_only_where_they_are_wanted() {
    let program = with_store(&[("a", "1")]);
    let styled = |arguments: &str, variables: &[(&str, &str)]| {
        let mut command = program.command_on(&format!("scan {arguments}"));
        command.env_remove("NO_COLOR").envs(variables.iter().copied());
        Ran::from(command.output().unwrap()).out.contains('\x1b')
    };
    assert!(!styled("", &[]), "it is not a terminal");
    assert!(styled("--color=always", &[("NO_COLOR", "1")]));
    assert!(styled("", &[("CLICOLOR_FORCE", "1")]));
    assert!(!styled("", &[("CLICOLOR_FORCE", "0")]));
    assert!(!styled("--color=never", &[("CLICOLOR_FORCE", "1")]));
    assert!(!styled("--color=always --format=json", &[]));
}

#[test]
fn completions_and_man_pages_are_made() {
    let program = Program::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = program.run(&format!("completions {shell}"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{shell}");
        assert!(ran.out.contains("checkpoint") && ran.out.contains("key-format"), "{shell}");
    }
    let page = program.run("man scan");
    assert!(page.out.contains(".TH") && page.out.contains("keys\\-only"), "{}", page.out);
    assert!(program.run("man").out.contains("checkpoint"));
    let dir = program.path("man");
    let ran = program.run(&format!("man --dir {}", dir.display()));
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""));
    let mut pages: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for page in ["trommel.1", "trommel-bench.1", "trommel-scan.1", "trommel-shell.1"] {
        assert!(pages.contains(&page.into()), "{page} of {pages:?}");
    }
}

#[test]
fn a_watch_is_ended_by_an_interrupt() {
    let program = with_store(&[("a", "1")]);
    let mut child = program
        .command_on("stats --watch=0.1 --format=jsonl")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    for _ in 0..3 {
        line.clear();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("{\"directory\":"), "{line}");
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*err), (Some(130), "error: interrupted\n"));
}

//! `sst`, `log`, `manifest`, `find`, `properties` and `files`, on stores of an earlier version (the
//! golden files of the format), so that every byte of their output is known.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use trommel::vfs::{DiskVfs, Vfs as _};

use crate::support::{Program, Ran, check_snapshot, with_store};

/// A program with a copy of the golden store `name`, called `db`.
fn beside(name: &str) -> Program {
    let program = Program::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/format/golden").join(name);
    fs::create_dir(program.path("db")).unwrap();
    for entry in fs::read_dir(golden).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), program.path("db").join(entry.file_name())).unwrap();
    }
    program
}

/// Runs the program in the directory of `db`; words of the line may be quoted.
fn run(program: &Program, line: &str) -> Ran {
    let mut command = program.command("");
    let words = line.split('\'').enumerate().flat_map(|(nth, part)| match nth % 2 {
        0 => part.split_whitespace().collect::<Vec<_>>(),
        _ => vec![part],
    });
    command.args(words).current_dir(program.path(""));
    Ran::from(command.output().unwrap())
}

/// The output of each line, and its exit code if not 0.
fn transcript(program: &Program, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let ran = run(program, line);
        text += &format!("$ trommel {line}\n{}{}", ran.out, ran.err);
        match ran.code {
            Some(0) => text.push('\n'),
            code => text += &format!("[exit {}]\n\n", code.unwrap()),
        }
    }
    text
}

#[test]
fn a_table_is_looked_into() {
    let text = transcript(
        &beside("v1-twologs-paired-none"),
        &[
            "sst info db/000008.sst",
            "sst info db/000006.sst db/000015.sst --format=csv",
            "sst check db/000008.sst db/000006.sst",
            "sst scan db/000015.sst",
            "sst scan db/000006.sst --from 'key 003' --to 'key 012' --format jsonl",
            "sst scan db/000015.sst --limit 1 --key-format hex --value-format base64",
            "sst layout db/000008.sst",
        ],
    );
    check_snapshot("sst", &text);
}

#[test]
fn a_compressed_table_is_looked_into() {
    let text = transcript(
        &beside("v1-closed-standard-lz4"),
        &["sst info db/000006.sst", "sst layout db/000006.sst"],
    );
    check_snapshot("sst_lz4", &text);
}

#[test]
fn a_log_is_looked_into() {
    let program = beside("v1-twologs-paired-none");
    let mut text = transcript(
        &program,
        &[
            "log info db/000016.log",
            "log check db/000016.log db/000018.log",
            "log scan db/000018.log --limit 3",
            "log scan db/000018.log --limit 2 --format json",
            "log layout db/000018.log",
        ],
    );
    text += &transcript(
        &beside("v1-torn-standard-none"),
        &["log info db/000016.log", "log check db/000016.log", "log layout db/000016.log"],
    );
    check_snapshot("log", &text);
}

#[test]
fn a_manifest_is_looked_into() {
    let text = transcript(
        &beside("v1-twologs-paired-none"),
        &[
            "manifest info --db db",
            "manifest info db/MANIFEST-000002 --format json",
            "manifest check --db db",
            "manifest scan --db db",
            "manifest history --db db",
            "manifest layout db/MANIFEST-000002",
        ],
    );
    check_snapshot("manifest", &text);
}

#[test]
fn a_key_is_found_in_every_file() {
    let text = transcript(
        &beside("v1-twologs-paired-none"),
        &[
            "find --db db 'key 012'",
            "find --db db 'key 012' --format json",
            "find --db db 'key 050'",
            "find --db db 'no such key'",
        ],
    );
    check_snapshot("find", &text);
}

#[test]
fn a_range_tombstone_is_shown_in_the_log_and_then_in_the_manifest() {
    let program = with_store(&[("a", "1"), ("b", "2"), ("c", "3")]);
    for line in ["flush", "delete-range --from b --to c", "delete-range --from c"] {
        assert_eq!(program.run_on(line).code, Some(0), "{line}");
    }
    let found = |line: &str| {
        let ran = program.run_on(&format!("{line} --format csv"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}");
        ran.out
    };
    let log = program.run(&format!("log scan {} --format csv", program.path("db").display()));
    assert!(log.out.ends_with(",5,delete_range,c,\n"), "{}", log.out);
    let b = found("find b");
    assert!(b.contains(",answered here,2,put,4,"), "{b}");
    assert_eq!(program.run_on("flush").code, Some(0));
    let info = found("manifest info");
    assert!(info.contains(",4,b,c\n") && info.contains(",5,c,\n"), "{info}");
    assert!(found("manifest scan").contains(",add range tombstone,4,,,,b,c\n"));
    let history = found("manifest history");
    assert!(history.lines().last().unwrap().contains(",2,5,"), "{history}");
    for (key, deleted) in [("a", ",put,,"), ("b", ",put,4,")] {
        let places = found(&format!("find {key}"));
        assert!(places.contains(deleted), "{places}");
    }
    assert_eq!(program.run_on("put x 4").code, Some(0));
    assert!(found("find x").contains(",answered here,6,put,,"), "it is newer than the deletion");
}

#[test]
fn a_read_in_vain_is_shown() {
    let program = beside("v1-killed-none-lz4");
    let ran = run(&program, "find --db db 'key 050' --format csv");
    assert_eq!((ran.code, &*ran.err), (Some(3), "error: key not found\n"));
    let rows: Vec<&str> = ran.out.lines().skip(1).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.contains(",,wasted read,")), "{ran:?}");
}

#[test]
fn a_store_is_described_table_by_table() {
    let program = beside("v1-twologs-paired-none");
    fs::write(program.path("db/notes.txt"), "not of a store").unwrap();
    fs::copy(program.path("db/000006.sst"), program.path("db/000003.sst")).unwrap();
    let mut text =
        transcript(&program, &["properties --db db", "properties --db db --format json"]);
    text += &transcript(&program, &["files --db db"]);
    DiskVfs.remove(&program.path("db/000013.sst")).unwrap();
    fs::write(program.path("db/000007.sst"), "short").unwrap();
    text +=
        &transcript(&program, &["files --db db", "properties --db db", "find --db db 'key 036'"]);
    check_snapshot("properties", &text);
}

/// Flips a bit of the byte at `at`.
fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 4;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_flipped_byte_is_reported_with_file_and_offset() {
    let program = beside("v1-twologs-paired-none");
    flip(&program.path("db/000008.sst"), 600);
    flip(&program.path("db/000007.sst"), 1420 - 85);
    flip(&program.path("db/000018.log"), 500);
    let text = transcript(
        &program,
        &[
            "sst check db/000008.sst db/000006.sst db/000007.sst",
            "sst layout db/000008.sst --format csv",
            "sst info db/000008.sst --format csv",
            "sst info db/000007.sst",
            "sst scan db/000008.sst --from 'key 078' --format csv",
            "log check db/000018.log",
            "log info db/000018.log",
            "log scan db/000018.log --limit 3 --format csv",
            "log layout db/000018.log",
            "find --db db 'key 084'",
        ],
    );
    check_snapshot("damaged_files", &text);
    flip(&program.path("db/MANIFEST-000002"), 512);
    for command in ["check", "scan", "history"] {
        let ran = run(&program, &format!("manifest {command} --db db"));
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.err.contains("MANIFEST-000002 is damaged at byte 505: "), "{ran:?}");
    }
    let ran = run(&program, "manifest layout --db db");
    assert!(ran.code == Some(0) && ran.out.contains("     505    332  damaged"), "{ran:?}");
}

#[test]
fn a_file_of_another_kind_is_reported() {
    let program = beside("v1-twologs-paired-none");
    fs::write(program.path("empty"), "").unwrap();
    fs::write(program.path("text"), "Only a text, but longer than a header has to be.\n".repeat(9))
        .unwrap();
    fs::copy(program.path("db/000016.log"), program.path("copied")).unwrap();
    let text = transcript(
        &program,
        &[
            "sst check empty",
            "sst layout text",
            "sst info copied",
            "sst check absent.sst",
            "log info db/000006.sst",
            "log check copied",
            "log layout text",
            "manifest info copied",
            "manifest info --db db/CURRENT",
            "manifest info --db absent",
            "manifest info",
            "find key --db .",
            "files --db .",
            "properties --db .",
            "sst",
            "sst info",
        ],
    );
    check_snapshot("wrong_files", &text);
}

#[test]
fn a_table_cut_to_nothing_is_a_damaged_one() {
    let program = beside("v1-twologs-paired-none");
    fs::write(program.path("db/000008.sst"), "").unwrap();
    fs::write(program.path("db/000016.log"), "some other text, not a log at all").unwrap();
    for line in ["sst check db/000008.sst", "log check db/000016.log"] {
        let ran = run(&program, line);
        assert_eq!(ran.code, Some(4), "{line}: {ran:?}");
    }
}

/// Inspection takes no lock, writes nothing, and does not wait.
#[test]
fn a_store_in_use_is_looked_into_and_left_as_it_is() {
    let program = beside("v1-closed-paired-lz4");
    let contents = || -> Vec<(PathBuf, Vec<u8>)> {
        let paths = fs::read_dir(program.path("db")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = paths.map(|p| (p.clone(), fs::read(p).unwrap())).collect();
        files.sort();
        files
    };
    let before = contents();
    let held = DiskVfs.lock(&program.path("db/LOCK")).unwrap();
    for line in [
        "find --db db 'key 012'",
        "files --db db",
        "properties --db db",
        "manifest check --db db",
        "sst check db/000006.sst",
        "log check db/000015.log",
    ] {
        let ran = run(&program, line);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}: {}", ran.out);
    }
    assert_eq!(contents(), before);
    drop(held);
}

/// In the shell the store is open for writing, and the newest versions are in its log.
#[test]
fn the_shell_looks_into_its_own_store() {
    let program = beside("v1-closed-paired-lz4");
    let mut child = program
        .command_on("shell")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let script = b"put fresh value\nfind fresh --format csv\nmanifest check --format csv\n";
    child.stdin.take().unwrap().write_all(script).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    // The store is older than the recording of options.
    let reported = ran.err.starts_with("note: the store has no record of its options");
    assert!(ran.code == Some(0) && reported && ran.err.lines().count() == 1, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[1].contains(".log,log,,answered here,"), "{}", ran.out);
    assert!(ran.out.contains("MANIFEST-") && ran.out.contains(",true,"), "{}", ran.out);
}

#[test]
fn help_on_files_explains_everything() {
    let program = Program::new();
    let mut text = String::new();
    for command in ["sst", "log", "manifest", "find", "properties", "files"] {
        let ran = program.run(&format!("help {command}"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""));
        text += &format!("$ trommel help {command}\n{}\n", ran.out);
    }
    check_snapshot("help_files", &text);
}

#[test]
fn a_directory_means_the_files_in_it() {
    let program = beside("v1-twologs-paired-none");
    for (line, same) in [
        ("manifest info db", "manifest info --db db"),
        ("manifest layout db", "manifest layout --db db"),
        ("sst check db", "sst check SST"),
        ("log info db", "log info LOG"),
    ] {
        let named = |extension: &str| {
            let listed = fs::read_dir(program.path("db")).unwrap();
            let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names
                .filter(|name| name.ends_with(extension))
                .map(|name| format!("db/{name}"))
                .collect();
            names.sort();
            names.join(" ")
        };
        let same = same.replace("SST", &named(".sst")).replace("LOG", &named(".log"));
        let (ran, expected) = (run(&program, line), run(&program, &same));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}");
        assert_eq!(ran.out, expected.out, "{line}");
    }
    fs::create_dir(program.path("nothing")).unwrap();
    let ran = run(&program, "sst info nothing");
    assert_eq!((ran.code, &*ran.out), (Some(3), ""), "{}", ran.err);
}

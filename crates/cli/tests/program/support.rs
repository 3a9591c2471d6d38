//! Runs the program in a directory of its own, and compares its output.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use trommel_harness::ScratchDir;

/// The program, run in a directory of its own.
pub(crate) struct Program {
    scratch: ScratchDir,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { scratch: ScratchDir::new(&std::env::temp_dir()).unwrap() }
    }

    /// The program with these arguments, split at spaces, and empty standard input.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trommel"));
        command
            .args(line.split_whitespace())
            .env("TMPDIR", self.scratch.path())
            .env_remove("COLUMNS")
            .env_remove("TROMMEL_DB")
            .env_remove("CLICOLOR_FORCE")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, line: &str) -> Ran {
        Ran::from(self.command(line).output().unwrap())
    }

    /// As [`Program::command`], with `--db` and the path of the store `db`.
    pub(crate) fn command_on(&self, line: &str) -> Command {
        let mut command = self.command(line);
        command.arg("--db").arg(self.path("db"));
        command
    }

    /// Runs that to its end.
    pub(crate) fn run_on(&self, line: &str) -> Ran {
        Ran::from(self.command_on(line).output().unwrap())
    }

    /// The same, with these bytes on standard input.
    pub(crate) fn run_on_with(&self, line: &str, input: &[u8]) -> Ran {
        feed(self.command_on(line), input)
    }

    /// The path of `name` in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The files in the directory.
    pub(crate) fn left_over(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.scratch.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs a command to its end, with these bytes on standard input.
pub(crate) fn feed(mut command: Command, input: &[u8]) -> Ran {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that fails early does not read all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    Ran::from(child.wait_with_output().unwrap())
}

/// Compares a text with the one in `tests/snapshots`, or writes it there with `TROMMEL_BLESS=1`.
pub(crate) fn check_snapshot(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name)
        .with_extension("txt");
    if std::env::var_os("TROMMEL_BLESS").is_some() {
        fs::write(&file, text).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let differs = text.lines().zip(kept.lines()).find(|(now, then)| now != then);
    assert_eq!(differs, None, "{} (now, then); see the head of this file", file.display());
    assert_eq!(text.len(), kept.len(), "{} has another length", file.display());
}

/// A program whose store holds the keys that `entries` names.
pub(crate) fn with_store(entries: &[(&str, &str)]) -> Program {
    let program = Program::new();
    for (at, (key, value)) in entries.iter().enumerate() {
        let create = if at == 0 { "--create" } else { "" };
        let ran = program.run_on(&format!("put {create} {key} {value}"));
        assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""), "{key}");
    }
    program
}

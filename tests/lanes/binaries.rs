//! Builds the test binaries with lanes, of this package and of the program, and lists their tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::job::scratch;

/// Binaries without lanes: one checks the source, not the store; two are the engine's, one is of
/// the Raft crate.
const NO_LANES: [&str; 4] = ["tidy", "allocations", "examples", "cluster"];

/// The program's tests that are lanes: `trommel stress` kills real processes.
const OF_THE_PROGRAM: (&str, &str) = ("program", "stressing::");

/// The engine's unit tests: the library that they are built from, and their name here. They are no
/// lanes, but one may be written for a planted bug, and is run for that one.
const UNIT_TESTS: (&str, &str) = ("trommel", "engine");

/// The tests of the Raft crate: its package, their target, and their name here. They are no lanes
/// either.
const RAFT_TESTS: (&str, &str, &str) = ("trommel-raft", "storage", "raft::storage");

/// Tests that are not lanes: processes started by lanes, and replays of a failure. They do nothing
/// unless the environment says so, so a pass means nothing.
const NO_LANE: [&str; 7] = [
    "crash::killed::child",
    "crash::killed_at::child",
    "crash::black_box::watched",
    "crash::opening::opener",
    "model::lean::replay",
    "model::metamorphic::replay",
    "model::sequences::replay",
];

/// Errors are texts.
pub(crate) type Outcome<T> = Result<T, String>;

/// The prefix of the tests of this binary that are lanes, if the binary is not one of this
/// package's, where all are.
pub(crate) fn lanes_of(binary: &str) -> Option<&'static str> {
    let (name, lanes) = OF_THE_PROGRAM;
    (binary == name).then_some(lanes)
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// A built test binary.
#[derive(Debug, Clone)]
pub(crate) struct Binary {
    /// The name of the test target, for example `crash`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// One test of a binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    /// The name of its binary.
    pub(crate) binary: String,
    pub(crate) path: PathBuf,
    /// Its name within the binary, for example `images::one_thread`.
    pub(crate) name: String,
}

impl Test {
    /// Whether it is run only for the bug that it was written for.
    pub(crate) fn is_of_one_bug(&self) -> bool {
        [UNIT_TESTS.1, RAFT_TESTS.2].contains(&&*self.binary)
    }

    /// Its name in documents: `crash::images::one_thread`.
    pub(crate) fn id(&self) -> String {
        format!("{}::{}", self.binary, self.name)
    }
}

/// The build configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build<'a> {
    /// As `cargo test` does.
    Plain,
    /// From the copy with planted bugs that is here, in a target directory of its own.
    Planted(&'a Path),
}

/// Builds the test binaries that hold lanes.
pub(crate) fn build(how: Build<'_>) -> Outcome<Vec<Binary>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--package", "trommel-tests", "--test", "*", "--no-run"]);
    let dir = match how {
        Build::Plain => {
            cargo.args(["--package", "trommel-cli"]).current_dir(root());
            scratch("binaries")?
        }
        Build::Planted(copy) => {
            cargo.args(["--package", UNIT_TESTS.0, "--lib", "--package", RAFT_TESTS.0]);
            cargo.env("CARGO_TARGET_DIR", planted_target()).current_dir(copy);
            scratch("planted-binaries")?
        }
    };
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let built = cargo.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !built.status.success() {
        return Err("the tests do not build: see above".to_owned());
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    let mut binaries: Vec<Binary> = messages.lines().filter_map(binary_in).collect();
    binaries.retain(|binary| !NO_LANES.contains(&&*binary.name));
    if binaries.is_empty() {
        return Err("cargo built no test binary".to_owned());
    }
    binaries.into_iter().map(|binary| set_aside(binary, &dir)).collect()
}

/// A copy of `binary`, so that builds in the meantime do not replace it while it runs.
fn set_aside(binary: Binary, dir: &Path) -> Outcome<Binary> {
    let path = dir.join(&binary.name);
    // Removed first: another runner's copy may be running.
    let _ = std::fs::remove_file(&path);
    let copied = std::fs::copy(&binary.path, &path);
    copied.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Binary { path, ..binary })
}

/// The target directory of binaries with planted bugs, so that they do not replace the others.
pub(crate) fn planted_target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(target.unwrap_or_else(|| "target".into())).join("planted")
}

/// The test binary in a message of cargo.
fn binary_in(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let target = message.get("target")?;
    let (library, unit_tests) = UNIT_TESTS;
    let (_, storage, of_raft) = RAFT_TESTS;
    let name = match (target.get("kind")?.get(0)?.as_str()?, target.get("name")?.as_str()?) {
        ("test", name) if name == storage => of_raft,
        ("test", name) => name,
        ("lib", name) if name == library => unit_tests,
        _ => return None,
    };
    // Null for a library that is built for others.
    let path = message.get("executable")?.as_str()?;
    Some(Binary { name: name.to_owned(), path: path.into() })
}

/// The tests of a binary that are lanes.
pub(crate) fn tests_of(binary: &Binary) -> Outcome<Vec<Test>> {
    let listed = |only: &[&str]| {
        let mut command = Command::new(&binary.path);
        command.args(["--list", "--format", "terse"]).args(only);
        let output = command.current_dir(root().join("tests")).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .map_err(|error| format!("{}: {error}", binary.path.display()))
    };
    let (all, ignored) = (listed(&[])?, listed(&["--ignored"])?);
    let ignored: Vec<&str> = ignored.lines().collect();
    let names = all
        .lines()
        .filter(|line| !ignored.contains(line))
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|name| lanes_of(&binary.name).is_none_or(|lanes| name.starts_with(lanes)));
    let test = |name: &str| Test {
        binary: binary.name.clone(),
        path: binary.path.clone(),
        name: name.to_owned(),
    };
    Ok(names.map(test).filter(|test| !NO_LANE.contains(&&*test.id())).collect())
}

//! A cluster of three processes loses nothing when its leader is killed under load.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The example, which `cargo test` builds next to the tests' own `deps/`.
fn program() -> PathBuf {
    let tests = std::env::current_exe().expect("a test has a program");
    let built = tests.ancestors().nth(2).expect("deps/ lies in a directory").join("examples");
    let program = built.join("cluster").with_extension(std::env::consts::EXE_EXTENSION);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cluster/main.rs");
    let age = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    assert!(
        age(&program) > age(&source),
        "{} is missing or old: run `cargo build --examples -p trommel-raft` (a test that is named \
         with --test does not build it)",
        program.display()
    );
    program
}

#[test]
fn nothing_acknowledged_is_lost_when_leaders_are_killed() {
    let ran = Command::new(program()).args(["--kills", "3"]).output().expect("it runs");
    let output = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{output}{errors}");
    let last = output.lines().last().unwrap_or_default();
    assert!(last.starts_with("3 kills, ") && last.ends_with(" acknowledged, 0 lost"), "{output}");
}

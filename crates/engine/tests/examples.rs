//! Each example prints the output that its head shows.
//!
//! `cargo test` builds the examples with the tests, and this runs them. The output is compared with
//! the `text` block in the head of the source.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources of the examples.
fn sources() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("the examples are there")
        .map(|entry| entry.expect("a directory that can be read").path())
        .collect();
    found.sort();
    found
}

/// The lines of the `text` block in the head of a source.
fn promised(source: &str) -> Option<String> {
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = head.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let block: Vec<&str> = lines.skip_while(|line| *line != "```text").skip(1).collect();
    let end = block.iter().position(|line| *line == "```")?;
    Some(block[..end].iter().map(|line| format!("{line}\n")).collect())
}

/// The program built from an example, in `examples/` next to the tests' own `deps/`.
fn program(source: &Path) -> PathBuf {
    let tests = std::env::current_exe().expect("a test has a program");
    let name = source.file_stem().expect("a source has a name");
    let built = tests.ancestors().nth(2).expect("deps/ lies in a directory").join("examples");
    let program = built.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    let age = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    assert!(
        age(&program) > age(source),
        "{} is missing or old: run `cargo build --examples -p trommel` (a test that is named with \
         --test does not build them)",
        program.display()
    );
    program
}

#[test]
fn each_example_prints_what_its_head_says() {
    let sources = sources();
    assert_eq!(sources.len(), 16, "{sources:?}");
    for source in sources {
        let text = std::fs::read_to_string(&source).expect("a source can be read");
        let promised = promised(&text).unwrap_or_else(|| panic!("{source:?} promises nothing"));
        let tmp = tempfile::tempdir().expect("a temporary directory");
        let ran = Command::new(program(&source)).env("TMPDIR", tmp.path()).output();
        let ran = ran.expect("the example runs");
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && errors.is_empty(), "{source:?}: {errors}");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), promised, "{source:?}");
        let left: Vec<_> = std::fs::read_dir(tmp.path()).expect("it is there").collect();
        assert!(left.is_empty(), "{source:?} left {left:?} behind");
    }
}

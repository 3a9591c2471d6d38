//! Leftovers: notes to oneself, code in comments, files without a module, `unsafe` outside the
//! permitted files, dead links.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::{File, code_of, files, root, words};

/// The files that may contain `unsafe`, each block with its argument.
const FENCED: [&str; 22] = [
    "benches/compare/src/stores/lmdb.rs",
    "crates/filter/src/kernel/avx2.rs",
    "crates/filter/src/kernel/avx512.rs",
    "crates/filter/src/kernel/mod.rs",
    "crates/filter/src/kernel/vector.rs",
    "crates/filter/tests/bounds/allocator.rs",
    "crates/memtable/src/arena.rs",
    "crates/memtable/src/chains.rs",
    "crates/memtable/src/memory_tests.rs",
    "crates/memtable/src/list.rs",
    "crates/memtable/src/order.rs",
    "crates/memtable/src/prefetch.rs",
    "crates/memtable/src/record.rs",
    "crates/memtable/src/skip_list.rs",
    "crates/memtable/src/slot.rs",
    "crates/vfs/src/disk/map.rs",
    "crates/vfs/src/disk/resident.rs",
    "crates/vfs/src/disk/ring.rs",
    "crates/vfs/src/disk/write_back.rs",
    "crates/vfs/src/machine.rs",
    "crates/vfs/src/process.rs",
    "tests/boundary/forks.rs",
];

fn sources() -> impl Iterator<Item = File> {
    files(&["crates", "tests", "benches"], "rs").into_iter()
}

fn report(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn nobody_left_a_note_to_oneself() {
    let mut found = Vec::new();
    for file in sources().filter(|file| !file.path.starts_with("tests/tidy/")) {
        for (number, line) in file.text.lines().enumerate() {
            let notes = ["TODO", "FIXME", "XXX", "HACK"];
            let calls = ["todo!(", "dbg!(", "unimplemented!("];
            let noted = words(line).any(|(_, word)| notes.contains(&word));
            if noted || calls.iter().any(|call| line.contains(call)) {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    report("finish it, or write it down elsewhere", &found);
}

#[test]
fn no_code_lies_in_comments() {
    let mut found = Vec::new();
    for file in sources().filter(|file| !file.path.starts_with("tests/tidy/")) {
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim();
            let Some(comment) = line.strip_prefix("//") else { continue };
            if !comment.starts_with(['/', '!']) && is_code(comment.trim()) {
                found.push(format!("{}:{}: {line}", file.path, number + 1));
            }
        }
    }
    report("delete it: the history keeps it", &found);
}

/// Whether a comment looks like a statement. Prose ends differently.
fn is_code(comment: &str) -> bool {
    let starts = ["let ", "use ", "pub ", "fn ", "if ", "for ", "match ", "return ", "self.", "#["];
    let calls = |(at, _)| comment[..at].ends_with(|c: char| c.is_alphanumeric() || c == '!');
    let acts = comment.contains(" = ") || comment.match_indices('(').any(calls);
    let is_statement = comment.ends_with(';') && acts;
    let is_opening = comment.ends_with('{') && starts.iter().any(|word| comment.starts_with(word));
    let is_attribute = comment.starts_with("#[") && comment.ends_with(']');
    is_statement || is_opening || is_attribute || comment == "}" || comment == "});"
}

#[test]
fn code_and_prose_are_distinguished() {
    for code in ["let a = b;", "call(x);", "if a < b {", "}", "#[test]"] {
        assert!(is_code(code), "{code}");
    }
    for prose in [
        "Reading is for users;",
        "Bounds (Garwood): 0 to 3;",
        "SAFETY: as above.",
        "if it is there",
        "see f(x).",
    ] {
        assert!(!is_code(prose), "{prose}");
    }
}

#[test]
fn every_file_belongs_to_a_module() {
    let sources: Vec<File> = sources().collect();
    let mut reached = BTreeSet::new();
    for file in &sources {
        let parts: Vec<&str> = file.path.split('/').collect();
        let is_root = matches!(
            parts[..],
            ["crates" | "benches", _, "src", "lib.rs" | "main.rs"]
                | ["crates", _, "build.rs"]
                | ["crates" | "benches", _, "tests" | "examples" | "benches", _]
                | ["crates", _, "tests" | "examples" | "benches", _, "main.rs"]
                | ["tests" | "benches", _, "lib.rs" | "main.rs"]
                | ["benches", _]
                | ["tests", "fuzz", "src", "main.rs"]
                | ["tests", "sim", "src", "lib.rs"]
        );
        if is_root {
            reach(&sources, &file.path, &mut reached);
        }
    }
    let lost = sources.iter().filter(|file| !reached.contains(&file.path));
    report("no module names these", &lost.map(|file| file.path.clone()).collect::<Vec<_>>());
}

/// Collects `path` and all files that its `mod` lines lead to.
fn reach(sources: &[File], path: &str, reached: &mut BTreeSet<String>) {
    let Some(file) = sources.iter().find(|file| file.path == path) else { return };
    if !reached.insert(path.to_owned()) {
        return;
    }
    let dir = Path::new(path).parent().unwrap_or(Path::new(""));
    let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    let is_root = matches!(&*stem, "lib" | "main" | "mod")
        || matches!(dir.file_name().and_then(|name| name.to_str()), Some("tests" | "examples"));
    let below = if is_root { dir.to_path_buf() } else { dir.join(&*stem) };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = module_of(line) else { continue };
        let given = number.checked_sub(1).and_then(|before| given_path(lines[before]));
        let candidates = match given {
            Some(given) => vec![dir.join(given)],
            None => vec![below.join(format!("{name}.rs")), below.join(name).join("mod.rs")],
        };
        for candidate in candidates {
            reach(sources, &normal(&candidate), reached);
        }
    }
}

/// The module that `mod name;` declares.
fn module_of(line: &str) -> Option<&str> {
    let name = line.strip_suffix(';')?;
    let (before, name) = name.rsplit_once("mod ").unwrap_or(("no", name));
    let is_item = before.is_empty() || before.starts_with("pub");
    (is_item && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(name)
}

fn given_path(line: &str) -> Option<&str> {
    line.strip_prefix("#[path = \"")?.strip_suffix("\"]")
}

/// A path without `x/..`, with forward slashes.
fn normal(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part.as_os_str().to_string_lossy().as_ref() {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part.to_owned()),
        }
    }
    parts.join("/")
}

#[test]
fn what_is_unsafe_is_fenced() {
    let mut found = Vec::new();
    for file in sources().filter(|file| !FENCED.contains(&&*file.path)) {
        let code = code_of(&file.text);
        let lines = words(&code).filter(|(_, word)| *word == "unsafe").map(|(number, _)| number);
        found.extend(lines.map(|number| format!("{}:{}", file.path, number + 1)));
    }
    report("unsafe outside the fenced files", &found);
    for fenced in FENCED {
        assert!(root().join(fenced).is_file(), "{fenced} is gone: take its fence away too");
    }
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let mut found = Vec::new();
    for file in files(&[".", "docs", "crates", "tests"], "md") {
        let dir = root().join(&file.path);
        let dir = dir.parent().expect("a file has a folder");
        for link in file.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let is_here = !target.is_empty() && !target.contains(':') && !target.contains(' ');
            if is_here && !dir.join(target).exists() {
                found.push(format!("{}: {link}", file.path));
            }
        }
    }
    report("dead links", &found);
}

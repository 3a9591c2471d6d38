//! The permitted dependencies between crates, including dev-dependencies: only crate boundaries are
//! enforced by the compiler.

use crate::source::files;

/// The arrows of docs/architecture.md. All others are forbidden. (`tests` and `benches` may use
/// anything, and the tests of each crate [`FOR_TESTS`].)
const ARROWS: [(&str, &[&str]); 13] = [
    ("base", &[]),
    ("vfs", &[]),
    ("filter", &[]),
    ("memtable", &["trommel-base"]),
    ("tuning", &["trommel-filter"]),
    ("sstable", &["trommel-base", "trommel-filter", "trommel-vfs"]),
    (
        "engine",
        &[
            "trommel-base",
            "trommel-filter",
            "trommel-memtable",
            "trommel-sstable",
            "trommel-tuning",
            "trommel-vfs",
        ],
    ),
    ("harness", &["trommel"]),
    ("lab", &["trommel", "trommel-harness"]),
    ("backup", &["trommel"]),
    ("kvdb", &["trommel"]),
    ("raft", &["trommel"]),
    ("cli", &["trommel", "trommel-backup", "trommel-harness", "trommel-lab"]),
];

/// The crate that others may depend on for their tests only.
const FOR_TESTS: &str = "trommel-sim";

/// Existing arrows that should be removed; this list only gets shorter.
const NOT_YET_GONE: [(&str, &str); 1] = [("cli", "trommel")];

/// The crates of this workspace among a manifest's dependencies.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let named = section.split(['.', '[', ']']).any(|part| part.ends_with("dependencies"));
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        let table = section.trim_matches(['[', ']']).rsplit('.').next().unwrap_or_default();
        for name in [key, table] {
            let is_ours = name == "trommel" || name.starts_with("trommel-");
            let is_for_tests = name == FOR_TESTS && section.contains("dev-dependencies");
            if named && is_ours && !is_for_tests && !found.contains(&name.to_owned()) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn no_crate_knows_what_it_must_not() {
    let manifests = files(&["crates"], "toml");
    let mut seen = 0;
    for manifest in manifests {
        let Some(name) = manifest.path.strip_prefix("crates/") else { continue };
        let Some(name) = name.strip_suffix("/Cargo.toml") else { continue };
        let allowed = ARROWS.iter().find(|(other, _)| *other == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("crate {name} has no arrows yet"));
        for dependency in dependencies(&manifest.text) {
            let stays = NOT_YET_GONE.contains(&(name, &dependency));
            let is_allowed = allowed.contains(&&*dependency) || stays;
            assert!(is_allowed, "{name} must not depend on {dependency}");
        }
        seen += 1;
    }
    assert_eq!(seen, ARROWS.len(), "a crate is gone: take its arrows away too");
}

#[test]
fn dependencies_are_found_however_they_are_written() {
    let manifest = "[package]\nname = \"trommel-x\"\n[dependencies]\ntrommel-base.workspace = true\n\
                    [dev-dependencies]\ntrommel = { path = \"..\" }\ntrommel-sim.workspace = true\n\
                    [target.'cfg(unix)'.dependencies.trommel-vfs]\nversion = \"1\"\n\
                    [features]\ntrommel-not = []\n";
    assert_eq!(dependencies(manifest), ["trommel-base", "trommel", "trommel-vfs"]);
}

//! Public enums of the library that cannot grow: adding a variant to one without
//! `#[non_exhaustive]` breaks each program that matches on it.

use crate::source::{code_of, files};

/// Enums that stay closed, each with its reason.
const CLOSED: [(&str, &str); 8] = [
    ("EntryKind", "a kind of its own is another file format"),
    ("Aim", "of cursors of this project only: not exported by the library"),
    ("Stage", "of cursors of this project only: not exported by the library"),
    ("Toward", "of cursors over one table: not exported by the library"),
    ("FilterRole", "of the table format: not exported by the library"),
    ("FilterState", "of open tables: not exported by the library"),
    ("BlockKind", "of the table format: not exported by the library"),
    ("Wants", "of lookups in one table: not exported by the library"),
];

/// Public enums that are neither `#[non_exhaustive]` nor listed in [`CLOSED`].
fn closed_enums(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut may_grow = false;
    for line in code.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("pub enum ") {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            if !may_grow {
                found.push(name);
            }
        }
        may_grow = line == "#[non_exhaustive]" || may_grow && line.starts_with("#[");
    }
    found
}

#[test]
fn every_public_enum_may_grow_or_says_why_not() {
    let mut seen = 0;
    for folder in [
        "crates/backup/src",
        "crates/base/src",
        "crates/engine/src",
        "crates/filter/src",
        "crates/sstable/src",
        "crates/tuning/src",
        "crates/vfs/src",
    ] {
        for file in files(&[folder], "rs") {
            for name in closed_enums(&code_of(&file.text)) {
                let is_closed = CLOSED.iter().any(|(closed, _)| *closed == name);
                let path = &file.path;
                assert!(is_closed, "{path}: {name} is not #[non_exhaustive]");
                seen += usize::from(is_closed);
            }
        }
    }
    assert_eq!(seen, CLOSED.len(), "an enum is gone, or may grow by now: take it off the list");
}

#[test]
fn an_enum_that_cannot_grow_is_found() {
    let code = "#[derive(Debug)]\n#[non_exhaustive]\n#[repr(u8)]\npub enum Open {}\n\
                #[derive(Debug)]\npub enum Closed<T> {}\npub(crate) enum Own {}\n";
    assert_eq!(closed_enums(code), ["Closed"]);
}

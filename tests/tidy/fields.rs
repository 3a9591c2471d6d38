//! A struct is narrow: what a reader of it must know is in groups that mean something.

use crate::source::{block_end, code_of, files, is_test, without_tests};

/// Most fields of a struct that are visible outside its own module.
const MOST_FIELDS: usize = 12;

#[test]
fn structs_are_narrow() {
    let mut wide = Vec::new();
    for file in files(&["crates"], "rs") {
        if is_test(&file.path) {
            continue;
        }
        for (name, fields) in visible_fields(&without_tests(&code_of(&file.text))) {
            if fields > MOST_FIELDS {
                wide.push(format!("{}: {name} has {fields}", file.path));
            }
        }
    }
    assert!(wide.is_empty(), "above {MOST_FIELDS} visible fields:\n{}", wide.join("\n"));
}

/// Each struct with named fields, and how many of these are visible outside its module.
fn visible_fields(code: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some((before, after)) = line.split_once("struct ") else { continue };
        let column = before.len() - before.trim_start().len();
        let is_item = before.trim().is_empty() || before.trim_start().starts_with("pub");
        let name = after.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if !is_item || name.is_empty() || !after.contains(['{', '<']) {
            continue;
        }
        let Some(end) = block_end(&lines, number, column) else { continue };
        let is_visible = |field: &&&str| {
            let is_own = field.len() - field.trim_start().len() == column + 4;
            is_own && field.trim_start().starts_with("pub") && field.contains(':')
        };
        found.push((name.to_owned(), lines[number + 1..end].iter().filter(is_visible).count()));
    }
    found
}

#[test]
fn visible_fields_are_counted() {
    let code = "\
pub struct A {
    pub one: u64,
    pub(crate) two: Vec<u64>,
    three: u64,
}
struct B<T> {
    pub(super) one: T,
}
struct C(pub u64);
mod inner {
    struct D {
        pub one: u64,
    }
}";
    let counted = visible_fields(code);
    let counted: Vec<(&str, usize)> = counted.iter().map(|(name, n)| (&**name, *n)).collect();
    assert_eq!(counted, [("A", 2), ("B", 1), ("D", 1)]);
}

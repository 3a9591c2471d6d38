//! Every public method that a user meets in the first hour has an example.

use crate::source::files;

/// Names of public functions of `source` whose documentation has no example.
fn without_example(source: &str) -> Vec<String> {
    let (mut found, mut has_example) = (Vec::new(), false);
    for line in source.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            has_example |= doc.trim_start().starts_with("```");
        } else if !line.starts_with("#[") {
            let name = line.strip_prefix("pub fn ").filter(|_| !has_example);
            found.extend(name.and_then(|rest| rest.split(['(', '<']).next()).map(str::to_owned));
            has_example = false;
        }
    }
    found
}

#[test]
fn every_method_of_a_store_has_an_example() {
    let all = files(&["crates/engine/src"], "rs");
    let handle = all.iter().find(|file| file.path.ends_with("src/db.rs")).expect("it is there");
    assert!(handle.text.matches("    pub fn ").count() > 50, "that is not where they are");
    let without = without_example(&handle.text);
    assert!(without.is_empty(), "methods of Db without an example: {without:?}");
}

/// The files with the types that come next after the handle.
const FIRST_HOUR: [&str; 9] = [
    "src/batch.rs",
    "src/batch/conditions.rs",
    "src/batch/merging.rs",
    "src/db/merging.rs",
    "src/iter/range.rs",
    "src/options/choices.rs",
    "src/snapshot.rs",
    "src/transaction/merging.rs",
    "src/transaction/mod.rs",
];

#[test]
fn every_method_of_the_first_hour_has_an_example() {
    let all = files(&["crates/engine/src"], "rs");
    for name in FIRST_HOUR {
        let file = all.iter().find(|file| file.path.ends_with(name)).expect("it is there");
        assert!(file.text.contains("    pub fn "), "{name} has no methods");
        let without = without_example(&file.text);
        assert!(without.is_empty(), "methods in {name} without an example: {without:?}");
    }
}

#[test]
fn a_method_without_an_example_is_found() {
    let source = "/// Says no.\npub fn no() {}\n/// Says yes.\n/// ```\n/// yes();\n/// ```\n#[must_use]\n\
                  pub fn yes() {}\n\npub fn silent<T>() {}\n";
    assert_eq!(without_example(source), ["no", "silent"]);
}

//! The field's words, one name for one thing, and commit subjects that say what was done.
//!
//! The list of type names that occur more than once in a crate may only get shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::source::{code_of, files, root, without_tests};

/// Phrases of this project's own, each with the term that the field uses.
const RETIRED: [(&str, &str); 13] = [
    ("graveyard", "obsolete files"),
    ("in force", "installed, current"),
    ("ask for", "prefetch, request"),
    ("asks for", "prefetches, requests"),
    ("asked for", "prefetched, requested"),
    ("lets through", "false positive"),
    ("but for", "except, unless"),
    ("written over", "overwritten, recycled"),
    ("who works", "worker, background thread"),
    ("is told", "is notified, is returned"),
    ("are told", "are notified, are returned"),
    ("told apart", "distinguished"),
    ("comes upon", "finds, reaches"),
];

/// Types of one crate that share a name.
const SHARED_NAMES: [(&str, &str); 63] = [
    ("crates/backup", "Run"),
    ("crates/cli", "DeleteArgs"),
    ("crates/cli", "Files"),
    ("crates/cli", "FilesArgs"),
    ("crates/cli", "Flag"),
    ("crates/cli", "LimitArgs"),
    ("crates/cli", "PlainArgs"),
    ("crates/cli", "ReportArgs"),
    ("crates/cli", "Sink"),
    ("crates/cli", "StoreArgs"),
    ("crates/cli", "VerifyArgs"),
    ("crates/engine", "Answer"),
    ("crates/engine", "Batch"),
    ("crates/engine", "Bounds"),
    ("crates/engine", "Choice"),
    ("crates/engine", "Direction"),
    ("crates/engine", "Done"),
    ("crates/engine", "Gathered"),
    ("crates/engine", "Group"),
    ("crates/engine", "Head"),
    ("crates/engine", "Held"),
    ("crates/engine", "Job"),
    ("crates/engine", "KeyRange"),
    ("crates/engine", "Manifest"),
    ("crates/engine", "Mark"),
    ("crates/engine", "Operations"),
    ("crates/engine", "Plan"),
    ("crates/engine", "Progress"),
    ("crates/engine", "Recorder"),
    ("crates/engine", "Rule"),
    ("crates/engine", "Run"),
    ("crates/engine", "State"),
    ("crates/engine", "Step"),
    ("crates/engine", "Tables"),
    ("crates/engine", "Target"),
    ("crates/engine", "Task"),
    ("crates/engine", "Turn"),
    ("crates/engine", "Verdict"),
    ("crates/engine", "Watched"),
    ("crates/engine", "Window"),
    ("crates/filter", "Contains"),
    ("crates/filter", "ContainsMany"),
    ("crates/filter", "Counts"),
    ("crates/filter", "Fill"),
    ("crates/harness", "Counts"),
    ("crates/harness", "Head"),
    ("crates/harness", "Outcome"),
    ("crates/harness", "Phase"),
    ("crates/harness", "Plan"),
    ("crates/harness", "Records"),
    ("crates/harness", "Run"),
    ("crates/harness", "State"),
    ("crates/harness", "Verdict"),
    ("crates/harness", "Worker"),
    ("crates/lab", "Cell"),
    ("crates/lab", "Chart"),
    ("crates/lab", "Group"),
    ("crates/lab", "Keys"),
    ("crates/lab", "Part"),
    ("crates/lab", "Plan"),
    ("crates/lab", "Record"),
    ("crates/lab", "Shape"),
    ("crates/sstable", "Entry"),
];

/// Verbs that do not say what a commit does.
const VAGUE_VERBS: [&str; 14] = [
    "let", "lets", "say", "says", "keep", "keeps", "ask", "asks", "measure", "give", "tell",
    "make", "have", "be",
];

/// The first commit whose subject is held to the rule: earlier ones cannot be changed.
const FIRST_HELD_COMMIT: &str = "37fe7d2";

#[test]
fn comments_use_the_terms_of_the_field() {
    let mut found = Vec::new();
    for file in files(&["crates", "tests", "benches"], "rs") {
        if file.path == "tests/tidy/language.rs" {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            if let Some((phrase, term)) = retired_in(comment) {
                found.push(format!("{}:{}: {phrase}: write {term}", file.path, number + 1));
            }
        }
    }
    assert!(found.is_empty(), "retired phrases:\n{}", found.join("\n"));
}

/// The crate, or the folder of the tests and benchmarks.
fn area_of(path: &str) -> String {
    path.split('/').take(2).collect::<Vec<_>>().join("/")
}

fn retired_in(comment: &str) -> Option<(&'static str, &'static str)> {
    let comment = comment.to_lowercase();
    let is_word_at = |at: usize, len: usize| {
        let before = comment[..at].chars().next_back();
        let after = comment[at + len..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    };
    RETIRED.into_iter().find(|(phrase, _)| {
        comment.match_indices(phrase).any(|(at, _)| is_word_at(at, phrase.len()))
    })
}

#[test]
fn retired_phrases_are_found_as_whole_words() {
    assert_eq!(retired_in(" The version in force.").map(|found| found.0), Some("in force"));
    assert_eq!(retired_in(" Reinforced, and shown in forced mode."), None);
}

#[test]
fn type_names_occur_once_in_a_crate() {
    let mut places: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for file in files(&["crates"], "rs") {
        let is_source = file.path.split('/').nth(2) == Some("src");
        if !is_source || is_test_file(&file.path) {
            continue;
        }
        for name in types_of(&without_tests(&code_of(&file.text))) {
            places.entry((area_of(&file.path), name)).or_default().insert(file.path.clone());
        }
    }
    let shared: BTreeSet<(String, String)> =
        places.iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| name.clone()).collect();
    let listed: BTreeSet<(String, String)> =
        SHARED_NAMES.map(|(area, name)| (area.to_owned(), name.to_owned())).into();
    let describe =
        |name: &(String, String)| format!("{} {}: {:?}", name.0, name.1, places.get(name));
    let new: Vec<String> = shared.difference(&listed).map(describe).collect();
    assert!(new.is_empty(), "a type name says what it is, once in a crate:\n{}", new.join("\n"));
    let gone: Vec<String> = listed.difference(&shared).map(describe).collect();
    assert!(gone.is_empty(), "no longer shared, so take it off the list:\n{}", gone.join("\n"));
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part.ends_with("tests.rs"))
}

/// The names of the types and traits that this code defines.
fn types_of(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines() {
        let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub"));
        let is_item = matches!(words.next(), Some("struct" | "enum" | "trait" | "union"));
        if let Some(word) = words.next().filter(|_| is_item) {
            let name = word.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
    }
    names
}

#[test]
fn commit_subjects_begin_with_a_concrete_verb() {
    let range = format!("{FIRST_HELD_COMMIT}..HEAD");
    let args = ["log", "--no-merges", "--format=%h %s", &range];
    let Ok(log) = Command::new("git").args(args).current_dir(root()).output() else { return };
    // A copy without the history, or with a short one, has nothing to check.
    if !log.status.success() {
        return;
    }
    let text = String::from_utf8_lossy(&log.stdout).into_owned();
    let wrong: Vec<&str> = text.lines().filter(|line| !is_good_subject(line)).collect();
    assert!(wrong.is_empty(), "a concrete verb first, under 60 characters:\n{}", wrong.join("\n"));
}

/// Whether the subject after the hash is short and begins with a verb that says what was done.
fn is_good_subject(line: &str) -> bool {
    let subject = line.split_once(' ').map_or("", |(_, subject)| subject);
    let verb = subject.split(' ').next().unwrap_or_default().to_lowercase();
    subject.chars().count() < 60 && !VAGUE_VERBS.contains(&verb.as_str())
}

#[test]
fn vague_subjects_are_found() {
    assert!(is_good_subject("1234567 Fix the fuzzer's path to the golden files"));
    assert!(!is_good_subject("1234567 Let the fuzzer find the golden files"));
    assert!(!is_good_subject(&format!("1234567 Fix {}", "a long subject ".repeat(5))));
}

//! The field's words, one name for one thing, and commit subjects that say what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::source::{code_of, files, root, without_tests, words};

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

/// Words of this project's own that are in no name of the code, each with the field's term. A name
/// is split at underscores and capitals.
const RETIRED_IN_NAMES: [(&str, &str); 8] = [
    ("ask", "query"),
    ("asks", "queries"),
    ("asked", "queried, requested"),
    ("asking", "querying"),
    ("told", "reported, notified"),
    ("stretch", "slice, gap"),
    ("stretches", "slices, gaps"),
    ("graveyard", "obsolete files"),
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

#[test]
fn names_use_the_terms_of_the_field() {
    let mut found = Vec::new();
    for file in files(&["crates", "tests", "benches"], "rs") {
        let code = code_of(&file.text);
        for (number, name) in words(&code) {
            if let Some((word, term)) = retired_in_name(name) {
                found.push(format!("{}:{}: {name}: {word}: {term}", file.path, number + 1));
            }
        }
    }
    assert!(found.is_empty(), "retired words in names:\n{}", found.join("\n"));
}

/// The retired word among the words of a name in either case.
fn retired_in_name(name: &str) -> Option<(&'static str, &'static str)> {
    let mut parts = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            parts.push('_');
        }
        parts.extend(c.to_lowercase());
    }
    let is_retired = |(word, _): &(&str, &str)| parts.split('_').any(|part| part == *word);
    RETIRED_IN_NAMES.into_iter().find(is_retired)
}

#[test]
fn retired_words_are_found_in_names() {
    for name in ["ask", "is_asked", "NotAsked", "ask_many"] {
        assert!(retired_in_name(name).is_some(), "{name}");
    }
    for name in ["mask", "unmasked", "task_of", "NextTask"] {
        assert!(retired_in_name(name).is_none(), "{name}");
    }
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

/// A reader who knows RocksDB has no more terms than these to learn.
const MOST_TERMS: usize = 30;

#[test]
fn the_glossary_is_short() {
    let page = std::fs::read_to_string(root().join("docs/glossary.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| ")).count();
    // The first row is the head.
    assert!((2..=MOST_TERMS + 1).contains(&rows), "{} terms of at most {MOST_TERMS}", rows - 1);
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
    let shared: Vec<String> = places
        .iter()
        .filter(|(_, files)| files.len() > 1)
        .map(|((area, name), files)| format!("{area} {name}: {files:?}"))
        .collect();
    assert!(
        shared.is_empty(),
        "a type name says what it is, once in a crate:\n{}",
        shared.join("\n")
    );
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

//! Every promise of docs/contract.md names its tests, and every test that it names exists.

use std::path::{Path, PathBuf};

use serde_json::Value;
use trommel_tests::planted::{Bug, Catalogue};

use crate::source::root;

/// The required promises: the headline, C1 to C30 and the ten rules.
fn promises() -> Vec<String> {
    let points = (1..=30).map(|number| format!("C{number}"));
    let rules = (1..=10).map(|number| format!("R{number}"));
    std::iter::once("H".to_owned()).chain(points).chain(rules).collect()
}

/// The texts between backticks that name tests.
fn named(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|code| code.contains("::") && is_path(code)).collect()
}

fn is_path(code: &str) -> bool {
    let first = code.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    first && code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c))
}

/// The files that may contain the test, according to its path.
fn files_of(test: &str) -> Vec<PathBuf> {
    let mut parts: Vec<&str> = test.split("::").collect();
    parts.pop();
    let (first, rest) = parts.split_first().expect("a path has two parts");
    let homes = match root().join("tests").join(first).is_dir() {
        true => vec![root().join("tests").join(first)],
        false => ["tests", "src"].map(|dir| root().join("crates").join(first).join(dir)).to_vec(),
    };
    homes.iter().flat_map(|home| modules(home, rest)).collect()
}

/// The files that may contain the module of this path below `home`; its last part may be a module
/// within the file of its parent.
fn modules(home: &Path, parts: &[&str]) -> Vec<PathBuf> {
    let whole = home.join(parts.join("/"));
    let mut found = vec![whole.with_extension("rs"), whole.join("mod.rs"), whole.join("main.rs")];
    match parts.split_last() {
        None => drop(found.remove(0)),
        Some((_, [])) => {}
        Some((last, above)) => {
            let parent = home.join(above.join("/"));
            let parents = [parent.with_extension("rs"), parent.join("mod.rs")];
            let has_module = |file: &PathBuf| {
                let text = std::fs::read_to_string(file).unwrap_or_default();
                text.contains(&format!("mod {last} {{"))
            };
            found.extend(parents.into_iter().filter(has_module));
        }
    }
    found
}

/// Whether `text` has a test of this name: a function under `#[test]`, or a line of a macro that
/// defines such functions.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_function = |at: usize| {
        let begins = lines[at].starts_with(&format!("fn {name}("));
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with('#'));
        begins && above.into_iter().any(|line| *line == "#[test]")
    };
    // `name: …` if the macro is in this file, `name in Place: …` if it is in the parent.
    let is_row = |line: &&str| line.starts_with(&format!("{name}: "));
    let is_scenario = |line: &&str| {
        let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(" in "));
        rest.is_some_and(|rest| rest.contains(": "))
    };
    let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
    (0..lines.len()).any(is_function)
        || (has("$(#[test]") && lines.iter().any(is_row))
        || (has("scenarios! {") && lines.iter().any(is_scenario))
}

fn exists(test: &str) -> bool {
    let name = test.rsplit("::").next().unwrap_or(test);
    let texts = files_of(test).into_iter().filter_map(|file| std::fs::read_to_string(file).ok());
    texts.into_iter().any(|text| has_test(&text, name))
}

fn contract() -> String {
    std::fs::read_to_string(root().join("docs/contract.md")).expect("the contract is there")
}

#[test]
fn every_promise_names_its_tests() {
    let text = contract();
    for promise in promises() {
        let begins = format!("- **{promise}** ");
        let (_, behind) =
            text.split_once(&begins).unwrap_or_else(|| panic!("{promise} is not promised"));
        let end = behind.find("\n- **").into_iter().chain(behind.find("\n\n")).min();
        let sentence = &behind[..end.unwrap_or(behind.len())];
        assert!(!named(sentence).is_empty(), "{promise} names no test");
    }
}

/// The table of historic bugs at the head of tests/model/regressions.rs.
fn history() -> String {
    let file = root().join("tests/model/regressions.rs");
    let text = std::fs::read_to_string(file).expect("the regressions are there");
    text.lines().filter(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_test_that_is_named_is_there() {
    let (contract, history) = (contract(), history());
    let all = [named(&contract), named(&history)];
    assert!(all.iter().all(|named| named.len() > 20), "too few tests are named");
    let gone: Vec<&str> = all.into_iter().flatten().filter(|test| !exists(test)).collect();
    assert!(gone.is_empty(), "no such test:\n{}", gone.join("\n"));
}

#[test]
fn the_table_of_planted_bugs_is_of_those_there_are() {
    let file = root().join("benches/records/planted.json");
    let text = std::fs::read_to_string(file).expect("the record is there");
    let record: Value = serde_json::from_str(&text).expect("it is JSON");
    let bugs = record["bugs"].as_array().expect("a list of bugs");
    let names: Vec<&str> = bugs.iter().filter_map(|bug| bug["bug"].as_str()).collect();
    let catalogue = Catalogue::load(&root()).unwrap_or_else(|what| panic!("{what}"));
    let all: Vec<&str> = catalogue.bugs().iter().map(|bug| &*bug.name).collect();
    let again = "run `cargo run -p trommel-tests --bin lanes -- planted`";
    assert_eq!(names, all, "the table is of other bugs: {again}");
    let stale = |(bug, found): (&Bug, &Value)| {
        let test = found["caught_by"].as_str();
        let holds = test.is_some_and(exists) && found["seen_before"] == *bug.seen;
        (!holds).then(|| format!("{}: {}", bug.name, test.unwrap_or("not found")))
    };
    let stale: Vec<String> = catalogue.bugs().iter().zip(bugs).filter_map(stale).collect();
    assert!(stale.is_empty(), "{again}:\n{}", stale.join("\n"));
}

#[test]
fn tests_are_distinguished_from_what_only_looks_like_one() {
    let text = "#[test]\nfn one() {}\nfn two() {}\n$(#[test]\nthree: 1;";
    assert!(has_test(text, "one") && has_test(text, "three"));
    assert!(!has_test(text, "two") && !has_test(text, "four"));
    let text = "scenarios! {\nfive in Small: fill;\nsix: fill;";
    assert!(has_test(text, "five") && !has_test(text, "six") && !has_test(text, "fill"));
    assert!(exists("tidy::contract::every_promise_names_its_tests"));
    assert!(exists("engine::latencies::tests::the_sample_is_in_step_with_nothing"));
    assert!(!exists("tidy::contract::no_such_promise"));
    assert!(!exists("engine::latencies::nonsense::the_sample_is_in_step_with_nothing"));
    assert_eq!(named("`a::b` and `Durability::Os`, `c`"), ["a::b"]);
}

//! Planted bugs are edits of the sources (`tests/planted`), and the sources know nothing of them.

use trommel_tests::planted::Catalogue;

use crate::source::{files, root};

#[test]
fn every_planted_bug_applies_to_the_sources() {
    let catalogue = Catalogue::load(&root()).unwrap_or_else(|what| panic!("{what}"));
    let planted = catalogue.planted(&root()).unwrap_or_else(|what| panic!("{what}"));
    for bug in catalogue.bugs() {
        let sites = catalogue.sites(bug);
        assert!(!sites.is_empty() && sites.iter().all(|site| planted.contains_key(site)));
    }
}

#[test]
fn no_product_source_mentions_planted_bugs() {
    let mut found = Vec::new();
    for file in files(&[".", "crates"], "toml").into_iter().chain(files(&["crates"], "rs")) {
        for (number, line) in file.text.lines().enumerate() {
            if line.to_lowercase().contains("planted") {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "planted bugs belong in tests/planted:\n{}", found.join("\n"));
}

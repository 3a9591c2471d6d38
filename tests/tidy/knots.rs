//! Cycles between the modules of a crate: within a crate only this count keeps the dependencies
//! between its top-level modules acyclic.
//!
//! 1. A module is a file below `src`, or a directory; only the first component of its path counts.
//!    Tests are left out.
//! 2. It depends on another if its code names it: by a path from `crate` or `super`, or by an item
//!    of it that the root re-exports.
//! 3. The largest set in which each module reaches each other one is the knot of the crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{code_of, files, is_test, without_tests};

/// The largest permitted knot of each crate; 1: none. The numbers only decrease.
const LARGEST: [(&str, usize); 13] = [
    ("backup", 1),
    ("base", 1),
    ("cli", 1),
    ("engine", 1),
    ("filter", 2),
    ("harness", 1),
    ("kvdb", 1),
    ("lab", 1),
    ("memtable", 1),
    ("raft", 1),
    ("sstable", 1),
    ("tuning", 1),
    ("vfs", 1),
];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The top-level modules of a crate, each with those that it names.
fn modules(name: &str) -> Graph {
    let root = format!("crates/{name}/src/");
    let mut sources: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut exports = BTreeMap::new();
    for file in files(&[&root], "rs") {
        let Some(path) = file.path.strip_prefix(&root) else { continue };
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let code = without_tests(&code_of(&file.text));
        if matches!(path, "lib" | "main") {
            exports = re_exports(&code);
        } else if !path.starts_with("bin/") && (!is_test(&file.path) || path == "conformance") {
            sources.insert(path.split('/').map(str::to_owned).collect(), code);
        }
    }
    let tops: BTreeSet<String> = sources.keys().map(|path| path[0].clone()).collect();
    let mut graph: Graph = tops.iter().map(|top| (top.clone(), BTreeSet::new())).collect();
    for (path, code) in &sources {
        for (depth, named) in paths(code) {
            let base = match depth {
                None => &[][..],
                Some(up) => &path[..path.len().saturating_sub(up)],
            };
            // A path within the same top-level module is not a dependency.
            if !base.is_empty() {
                continue;
            }
            let target = if tops.contains(&named) { Some(&named) } else { exports.get(&named) };
            if let Some(target) =
                target.filter(|target| tops.contains(*target) && **target != path[0])
            {
                graph.entry(path[0].clone()).or_default().insert(target.clone());
            }
        }
    }
    graph
}

/// The modules of the names that the root re-exports.
fn re_exports(code: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in code.split(';') {
        let Some((_, tree)) = statement.split_once("pub use ") else { continue };
        let tree = tree.trim().trim_start_matches("crate::").trim_start_matches("self::");
        let names = tree.split(|c: char| !c.is_alphanumeric() && c != '_');
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        for name in names.iter().skip(1) {
            found.insert((*name).to_owned(), names[0].to_owned());
        }
    }
    found
}

/// The first names of all paths from the crate's root (`None`), or from this many modules above.
fn paths(code: &str) -> Vec<(Option<usize>, String)> {
    let mut found = Vec::new();
    for (start, word) in [("crate::", None), ("super::", Some(1))] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut rest = &code[at + start.len()..];
            let mut depth = word;
            while let (Some(up), Some(further)) = (depth, rest.strip_prefix("super::")) {
                (depth, rest) = (Some(up + 1), further);
            }
            found.extend(heads(rest).into_iter().map(|name| (depth, name)));
        }
    }
    found
}

/// The first names of a path, or of a tree of paths in braces.
fn heads(path: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(tree) = path.strip_prefix('{') else { return vec![word(path)] };
    let (mut depth, mut begins, mut found) = (0, true, Vec::new());
    for (at, c) in tree.char_indices() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && !c.is_whitespace() => {
                found.push(word(&tree[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    found
}

/// All modules that `from` reaches.
fn reached<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    seen
}

/// The largest set of modules that all reach each other.
fn knot(graph: &Graph) -> Vec<&str> {
    let reaches: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reached(graph, module))).collect();
    let with = |module: &&str| -> Vec<&str> {
        let reaches_back =
            |other: &&&str| reaches.get(**other).is_some_and(|all| all.contains(module));
        let mutual = reaches[module].iter().filter(reaches_back);
        mutual.copied().collect()
    };
    reaches.keys().map(with).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn knots_only_become_smaller() {
    for (name, largest) in LARGEST {
        let graph = modules(name);
        assert!(!graph.is_empty(), "crate {name} is gone: take its knot away too");
        let knot = knot(&graph);
        let size = knot.len().max(1);
        assert!(size <= largest, "{size} modules of {name} reach each other: {knot:?}");
        assert!(size == largest, "the knot of {name} has {size} modules now: say so here");
    }
}

#[test]
fn modules_are_found_however_they_are_named() {
    let code = "use crate::{a::{b, c}, d};\nuse super::super::e::F;\nlet x = crate::g::h();\n\
                use std::io;\nmycrate::no();";
    let found = paths(code);
    let of = |depth: Option<usize>| -> Vec<&str> {
        found.iter().filter(|(other, _)| *other == depth).map(|(_, name)| name.as_str()).collect()
    };
    assert_eq!(of(None), ["a", "d", "g"]);
    assert_eq!(of(Some(2)), ["e"]);
    let graph: Graph = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]
        .map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])))
        .into_iter()
        .fold(Graph::new(), |mut graph, (from, to)| {
            graph.entry(from).or_default().extend(to);
            graph
        });
    assert_eq!(knot(&graph), ["a", "b", "c"]);
}

//! `docs/unsafe.md` lists every `unsafe`: by file, by item, with its number and its reason.

use std::collections::BTreeMap;

use crate::source::{code_of, files, root, words};

/// File, item, and number of occurrences.
type Sites = BTreeMap<(String, String), usize>;

/// The occurrences of `unsafe` in the sources.
fn in_sources() -> Sites {
    let mut sites = Sites::new();
    for file in files(&["crates", "tests", "benches"], "rs") {
        let code = code_of(&file.text);
        let lines: Vec<&str> = code.lines().collect();
        for (number, _) in words(&code).filter(|(_, word)| *word == "unsafe") {
            *sites.entry((file.path.clone(), item_at(&lines, number))).or_default() += 1;
        }
    }
    sites
}

/// The item of line `number`: itself, if it begins one; else the last function that began before
/// it.
fn item_at(lines: &[&str], number: usize) -> String {
    let line = lines[number];
    let begins = ["impl ", "struct ", "trait "].iter().filter_map(|word| line.find(word));
    if function_of(line).is_none()
        && let Some(at) = begins.min()
    {
        let end = line[at..].find(['{', '(']).map_or(line.len(), |end| at + end);
        return line[at..end].trim().to_owned();
    }
    let name = lines[..=number].iter().rev().find_map(|line| function_of(line));
    name.map_or_else(|| "the file".to_owned(), |name| format!("fn {name}"))
}

/// The name of the function that a line begins.
fn function_of(line: &str) -> Option<&str> {
    let rest = &line[line.find("fn ")? + 3..];
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then_some(&rest[..end])
}

/// The entries of the page, and the rows without a reason.
fn on_page() -> (Sites, Vec<String>) {
    let page = root().join("docs/unsafe.md");
    let text = std::fs::read_to_string(&page).expect("docs/unsafe.md");
    let (mut sites, mut bare) = (Sites::new(), Vec::new());
    let mut file = "";
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            file = heading.trim();
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let cells: Vec<&str> = row.trim_end_matches('|').split(" | ").map(str::trim).collect();
        let [item, times, why] = cells[..] else { panic!("not three cells: {line}") };
        let times = times.parse().unwrap_or_else(|_| panic!("how often? {line}"));
        if why.is_empty() {
            bare.push(line.to_owned());
        }
        sites.insert((file.to_owned(), item.trim_end_matches('`').to_owned()), times);
    }
    (sites, bare)
}

#[test]
fn every_unsafe_is_listed_with_its_argument() {
    let (sources, (page, bare)) = (in_sources(), on_page());
    assert!(bare.is_empty(), "rows without an argument:\n{}", bare.join("\n"));
    let mut wrong = Vec::new();
    for (site, times) in &sources {
        match page.get(site) {
            Some(listed) if listed == times => {}
            Some(listed) => wrong.push(format!("{site:?}: {times} times, listed as {listed}")),
            None => wrong.push(format!("{site:?}: {times} times, and not listed")),
        }
    }
    wrong.extend(
        page.keys()
            .filter(|site| !sources.contains_key(*site))
            .map(|site| format!("{site:?}: listed, and gone")),
    );
    assert!(wrong.is_empty(), "docs/unsafe.md and the sources differ:\n{}", wrong.join("\n"));
    assert!(sources.len() > 20, "the search itself is broken");
}

#[test]
fn an_unsafe_is_given_to_the_item_it_stands_in() {
    let code = "fn a() {\n    unsafe { b() }\n}\nunsafe impl Send for C {}\npub(crate) struct D(unsafe fn());\n";
    let lines: Vec<&str> = code.lines().collect();
    let items: Vec<String> = [1, 3, 4].iter().map(|at| item_at(&lines, *at)).collect();
    assert_eq!(items, ["fn a", "impl Send for C", "struct D"]);
}

//! `docs/format/bench-record.md` names every field of a record, and no other.

use std::collections::BTreeSet;

use serde_json::Value;
use trommel_harness::record::SCHEMA;

use crate::testing;

const PAGE: &str = include_str!("../../../docs/format/bench-record.md");

/// Adds the paths of all values in a JSON object: `a.b`, and `a[].b` for those in a list.
pub(crate) fn paths_of(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    // Their keys are names of options and parts of memory, not fields of the record.
    let is_open = ["settings", "memory"].contains(&at);
    match value {
        Value::Object(fields) if !is_open => {
            for (name, value) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                paths_of(value, &format!("{at}{dot}{name}"), found);
            }
        }
        Value::Array(items) if items.first().is_some_and(Value::is_object) => {
            for item in items {
                paths_of(item, &format!("{at}[]"), found);
            }
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// The code spans in the first cells of a page's tables.
pub(crate) fn named_on(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `"));
    cells.filter_map(|rest| rest.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_page_names_every_field() {
    let mut record = testing::full();
    // `full` has no alarm, because every page drawn from it would show one.
    record.state.filters.iter_mut().flatten().for_each(|filter| filter.alarm = Some("so".into()));
    let record = serde_json::to_value(record).unwrap();
    let mut fields = BTreeSet::new();
    paths_of(&record, "", &mut fields);
    let named = named_on(PAGE);
    let missing: Vec<_> = fields.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&fields).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not there: {missing:?}; no field: {unknown:?}"
    );
    assert!(PAGE.contains(&format!("schema {SCHEMA}")));
}

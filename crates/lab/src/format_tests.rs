//! The pages of docs/format name every field of the records in files, and no other.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use trommel_harness::record::SCHEMA;

use crate::testing;

const PAGE: &str = include_str!("../../../docs/format/bench-record.md");

/// Adds the paths of all values in a JSON object: `a.b`, and `a[].b` for those in a list.
fn paths_of(value: &Value, at: &str, found: &mut BTreeSet<String>) {
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
fn named_on(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `"));
    cells.filter_map(|rest| rest.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

/// Fails unless the page names every field of these records, and no other. Those of the machine
/// are on the page of the bench's records; the others refer to it.
pub(crate) fn check<T: Serialize>(page: &str, schema: u32, records: &[T]) {
    let (mut fields, mut named) = (BTreeSet::new(), named_on(page));
    for record in records {
        paths_of(&serde_json::to_value(record).expect("JSON"), "", &mut fields);
    }
    if named.remove("environment") {
        fields.retain(|field| !field.starts_with("environment."));
    }
    let missing: Vec<_> = fields.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&fields).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not there: {missing:?}; no field: {unknown:?}"
    );
    assert!(page.contains(&format!("schema {schema}")));
}

#[test]
fn the_page_names_every_field() {
    let mut record = testing::full();
    // `full` has no alarm, because every page drawn from it would show one.
    record.state.filters.iter_mut().flatten().for_each(|filter| filter.alarm = Some("so".into()));
    check(PAGE, SCHEMA, &[record]);
}

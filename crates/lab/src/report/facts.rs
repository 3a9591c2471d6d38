//! The parts of a page that are not about a workload: the tree, its filters and memory, the
//! settings, the machine, and the list of all figures.

use indexmap::IndexMap;
use serde_json::Value;
use trommel_harness::machine::Environment;
use trommel_harness::record::{FilterRecord, Record, plain};
use trommel_harness::units;

use super::bars::{key, stack};
use super::charts;
use super::data::Data;
use super::html::{HtmlCell, count, details, digits, escaped, rate, sum, table};
use super::svg::Role;
use super::workloads::card;

/// False-positive rates of each workload that probed absent keys: charts, and a table.
pub(super) fn filters(data: &Data<'_>) -> String {
    let (mut cards, mut rows) = (String::new(), Vec::new());
    for (nth, group) in data.groups.iter().enumerate() {
        let series: Vec<Vec<FilterRecord>> =
            group.records.iter().map(|records| FilterRecord::sum(records)).collect();
        let title = format!("{}: false positives, measured and expected", group.name);
        if let Some(chart) = charts::rates(&format!("f{nth}"), &title, &series) {
            cards += &card(&group.name, "rate of false positives by level", &chart, "");
        }
        for (variant, filters) in series.iter().enumerate() {
            let probed = filters.iter().filter(|filter| filter.counts.probes > 0);
            let store = data.store_cell(variant);
            rows.extend(probed.map(|filter| filter_row(&group.name, store.clone(), filter)));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "Workload",
        "Store",
        "Level",
        "Filter",
        "Measured",
        "95% interval",
        "Expected",
        "Probes",
        "Saved reads",
        "False",
        "True",
        "Bits requested",
        "Bits stored",
        "Memory",
    ];
    if !cards.is_empty() {
        cards = format!("<div class=\"grid\">\n{cards}</div>\n");
    }
    cards + &data.table(&head, rows)
}

/// The state of filter budgets after each workload: a table.
pub(super) fn budgets(data: &Data<'_>) -> String {
    let mut rows = Vec::new();
    for group in &data.groups {
        for (variant, records) in group.records.iter().enumerate() {
            let budget = records.last().and_then(|record| record.state.budget.as_ref());
            rows.extend(budget.map(|budget| {
                vec![
                    HtmlCell::text(&group.name),
                    data.store_cell(variant),
                    HtmlCell::text(&budget.spec),
                    HtmlCell::number(&units::bytes(budget.budget_bytes)),
                    HtmlCell::number(&units::bytes(budget.built_bytes)),
                    HtmlCell::number(&units::bytes(budget.resident_bytes)),
                    HtmlCell::number(&count(budget.dropped_tables)),
                    HtmlCell::number(&count(budget.drifted_tables)),
                    HtmlCell::number(&digits(budget.expected_wasted_reads)),
                    HtmlCell::number(&digits(budget.planned_wasted_reads)),
                ]
            }));
        }
    }
    let head = [
        "Workload",
        "Store",
        "Budget",
        "Allowed",
        "Stored",
        "In memory",
        "Tables dropped",
        "Tables drifted",
        "Wasted reads per lookup",
        "As planned",
    ];
    data.table(&head, rows)
}

fn filter_row(workload: &str, store: HtmlCell, filter: &FilterRecord) -> Vec<HtmlCell> {
    let bits = |bits: Option<f64>| HtmlCell::maybe(bits, |bits| format!("{bits:.2}"));
    vec![
        HtmlCell::text(workload),
        store,
        HtmlCell::text(&format!("L{}", filter.level)),
        HtmlCell::text(&filter.kind),
        HtmlCell::maybe(filter.rates.measured, rate),
        HtmlCell::maybe(filter.rates.interval, |(low, high)| {
            format!("{} – {}", rate(low), rate(high))
        }),
        HtmlCell::maybe(filter.rates.expected, rate),
        HtmlCell::number(&count(filter.counts.probes)),
        HtmlCell::number(&count(filter.counts.negatives)),
        HtmlCell::number(&count(filter.counts.false_positives)),
        HtmlCell::number(&count(filter.counts.true_positives)),
        bits(filter.bits_requested),
        bits(filter.bits_stored),
        HtmlCell::number(&units::bytes(filter.bytes)),
    ]
}

/// Memory by part after each workload: one bar each, and a table.
pub(super) fn memory(data: &Data<'_>) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let mut bars: Vec<(String, &IndexMap<String, u64>)> = Vec::new();
    for group in &data.groups {
        for (records, variant) in group.records.iter().zip(&data.variants) {
            let Some(memory) = records.last().and_then(|record| record.state.memory.as_ref())
            else {
                continue;
            };
            let known = |part: &&String| !parts.contains(&part.as_str());
            let new: Vec<&str> = memory.keys().filter(known).map(String::as_str).collect();
            parts.extend(new);
            let label = match data.variants.len() {
                1 => group.name.clone(),
                _ => format!("{} · {}", group.name, variant.label),
            };
            bars.push((label, memory));
        }
    }
    let total = |memory: &IndexMap<String, u64>| sum(memory.values().copied());
    let longest = bars.iter().map(|(_, memory)| total(memory)).max().unwrap_or(0);
    if longest == 0 {
        return String::new();
    }
    let role = |part: &str| Role::Series(parts.iter().position(|p| *p == part).unwrap_or(0));
    let mut html = key(parts.iter().map(|part| (role(part), *part)));
    html += "<div class=\"card bars wide\">\n";
    for (label, memory) in &bars {
        let pieces: Vec<_> = memory
            .iter()
            .map(|(part, bytes)| {
                (role(part), *bytes as f64, format!("{part}: {}", units::bytes(*bytes)))
            })
            .collect();
        html += &stack(label, &pieces, longest as f64, &units::bytes(total(memory)));
    }
    html += "</div>\n";
    let mut head = vec!["After"];
    head.extend(&parts);
    head.push("all");
    let cells = |(label, memory): &(String, &IndexMap<String, u64>)| {
        let mut row = vec![HtmlCell::text(label)];
        row.extend(
            parts.iter().map(|part| HtmlCell::maybe(memory.get(*part).copied(), units::bytes)),
        );
        row.push(HtmlCell::number(&units::bytes(total(memory))));
        row
    };
    html + &details("Numbers", &table("", &head, &bars.iter().map(cells).collect::<Vec<_>>()))
}

/// The levels of each variant after its last workload.
pub(super) fn levels(data: &Data<'_>) -> String {
    let mut html = String::new();
    for variant in &data.variants {
        let last = variant.records.iter().rev().find(|record| record.state.levels.is_some());
        let Some(levels) = last.and_then(|record| record.state.levels.as_ref()) else { continue };
        let rows: Vec<Vec<HtmlCell>> = levels
            .iter()
            .map(|level| {
                vec![
                    HtmlCell::text(&format!("L{}", level.level)),
                    HtmlCell::number(&count(level.tables)),
                    HtmlCell::number(&units::bytes(level.bytes)),
                    HtmlCell::maybe(level.entries, count),
                    HtmlCell::maybe(level.deletions, count),
                ]
            })
            .collect();
        let head = ["Level", "Tables", "Bytes", "Entries", "Tombstones"];
        html += &format!("<div class=\"card\">{}</div>\n", table(&variant.label, &head, &rows));
    }
    if html.is_empty() { html } else { format!("<div class=\"grid\">\n{html}</div>\n") }
}

/// Settings, or the machine: the values that all variants share, and those that differ.
fn facts(data: &Data<'_>, of: impl Fn(&Record) -> IndexMap<String, String>) -> String {
    let facts: Vec<_> = data.variants.iter().map(|variant| of(variant.records[0])).collect();
    let mut names: Vec<&String> = Vec::new();
    for name in facts.iter().flat_map(IndexMap::keys) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |fact: &IndexMap<String, String>, name: &String| {
        fact.get(name).cloned().unwrap_or_else(|| "–".into())
    };
    let is_shared =
        |name: &&&String| facts.iter().all(|fact| value(fact, name) == value(&facts[0], name));
    let (same, different): (Vec<&&String>, Vec<&&String>) = names.iter().partition(is_shared);
    let mut head = vec![""];
    head.extend(data.variants.iter().map(|variant| variant.label.as_str()));
    let row = |name: &&&String| {
        let mut row = vec![HtmlCell::text(name)];
        row.extend(facts.iter().map(|fact| HtmlCell::text(&value(fact, name))));
        row
    };
    let different = different.iter().map(row).collect::<Vec<_>>();
    let same = same
        .iter()
        .map(|name| vec![HtmlCell::text(name), HtmlCell::text(&value(&facts[0], name))])
        .collect::<Vec<_>>();
    let caption = if different.is_empty() { "" } else { "The same for all" };
    table("What differs", &head, &different) + &table(caption, &["", ""], &same)
}

pub(super) fn settings(data: &Data<'_>) -> String {
    facts(data, |record| {
        let shown = |value: &Value| match plain(value) {
            text if text.is_empty() || value.is_null() => "–".to_owned(),
            text => text,
        };
        let settings = record.settings.iter();
        settings.map(|(name, value)| (name.replace('_', " "), shown(value))).collect()
    })
}

pub(super) fn environment(data: &Data<'_>) -> String {
    facts(data, |record| {
        let store = [
            ("store".to_owned(), format!("{} {}", record.store.name, record.store.version)),
            ("start".to_owned(), record.start.clone()),
        ];
        store.into_iter().chain(environment_facts(&record.environment)).collect()
    })
}

/// The properties of a machine and a build, by name.
pub(super) fn environment_facts(environment: &Environment) -> IndexMap<String, String> {
    let Ok(Value::Object(fields)) = serde_json::to_value(environment) else {
        return IndexMap::new();
    };
    let show = |name: &str, value: &Value| match value {
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Number(bytes) if name == "memory_bytes" => {
            let text = bytes.as_u64().map_or(String::new(), units::bytes);
            format!("{text} ({bytes} bytes)")
        }
        Value::Bool(is) => if *is { "yes" } else { "no" }.into(),
        other => plain(other),
    };
    fields.iter().map(|(name, value)| (name.replace('_', " "), show(name, value))).collect()
}

/// Every figure of every record, by its name in the record; except settings and machine, which have
/// tables of their own, and the encoded histogram.
pub(super) fn everything(data: &Data<'_>) -> String {
    let mut html = String::new();
    for group in &data.groups {
        for (records, variant) in group.records.iter().zip(&data.variants) {
            for record in records {
                let mut rows = Vec::new();
                let value = serde_json::to_value(record).unwrap_or_default();
                collect("", &value, &mut rows);
                let name = format!("{}, repeat {}, {}", group.name, record.repeat, variant.label);
                html += &details(&name, &table("", &["Field", "Value"], &rows));
            }
        }
    }
    html
}

fn collect(at: &str, value: &Value, rows: &mut Vec<Vec<HtmlCell>>) {
    if ["settings", "environment", "latency_ns.hdr"].contains(&at) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                collect(&format!("{at}{dot}{name}"), value, rows);
            }
        }
        Value::Array(items) if items.first().is_some_and(Value::is_object) => {
            for (nth, item) in items.iter().enumerate() {
                collect(&format!("{at}[{nth}]"), item, rows);
            }
        }
        value => rows.push(vec![HtmlCell::text(at), HtmlCell::text(&plain(value))]),
    }
}

/// Warnings about measurements of little value.
pub(super) fn warnings(data: &Data<'_>) -> String {
    let records = || data.variants.iter().flat_map(|variant| &variant.records);
    let words = words_of_warning(
        records().any(|record| record.environment.build.debug_assertions),
        records().any(|record| record.results.interrupted),
    );
    let mut alarms: Vec<String> = Vec::new();
    for record in records() {
        for filter in record.state.filters.iter().flatten() {
            let Some(evidence) = &filter.alarm else { continue };
            alarms.push(format!(
                "More false positives than expected after {}, L{} {}: {evidence}.",
                record.workload, filter.level, filter.kind
            ));
        }
    }
    alarms
        .iter()
        .fold(words, |html, alarm| html + &format!("<p class=\"warning\">{}</p>\n", escaped(alarm)))
}

/// The warning for these two conditions.
pub(super) fn words_of_warning(debug_assertions: bool, interrupted: bool) -> String {
    let mut html = String::new();
    if debug_assertions {
        html += "<p class=\"warning\">A build that checks its assertions was measured. Its times say \
                 nothing about a release build.</p>\n";
    }
    if interrupted {
        html += "<p class=\"warning\">A workload was interrupted before its end.</p>\n";
    }
    html
}

/// A short figure that represents a whole run.
pub(super) fn headline(data: &Data<'_>) -> String {
    let records = || data.variants.iter().flat_map(|variant| &variant.records);
    let operations = sum(records().map(|record| record.results.operations));
    let seconds: f64 = records().map(|record| record.results.wall_seconds).sum();
    let start = records().map(|record| record.start.as_str()).min().unwrap_or_default();
    format!(
        "{} operations in {} seconds, started {}",
        count(operations),
        digits(seconds),
        start.replace('T', " ").replace('Z', " UTC")
    )
}

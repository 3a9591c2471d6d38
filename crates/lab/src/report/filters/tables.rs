//! The tables of the page about filters, and its subtitle.

use trommel_harness::machine::Environment;
use trommel_harness::units;

use crate::filter_bench::record::Record;
use crate::filter_bench::{Access, Cell, Mix};
use crate::report::facts::environment_facts;
use crate::report::html::{Cell as Html, count, details, digits, rate, table};

/// The first columns of every row: the filter, and its number of keys.
fn name(cell: &Cell) -> Vec<Html> {
    let mark = if cell.interrupted { " (interrupted)" } else { "" };
    vec![
        Html::text(&format!("{}{mark}", cell.spec)),
        Html::number(&count(cell.keys_per_filter().round() as u64)),
    ]
}

fn row(cell: &Cell, rest: impl IntoIterator<Item = Html>) -> Vec<Html> {
    name(cell).into_iter().chain(rest).collect()
}

fn folded(head: &[&str], rows: &[Vec<Html>]) -> String {
    details("Numbers", &table("", head, rows))
}

pub(super) fn rates(cells: &[&Cell]) -> String {
    let head = [
        "Filter",
        "Keys",
        "Filters",
        "Bits stored",
        "Probes",
        "Expected",
        "Measured",
        "95% interval",
        "Standard errors off",
        "Best filter",
        "Worst filter",
        "Asked",
    ];
    let rows = cells.iter().filter_map(|cell| {
        let found = cell.rate?;
        let (low, high) = found.interval;
        let rest = [
            Html::number(&count(cell.filters)),
            Html::number(&format!("{:.3}", cell.stored_bits)),
            Html::number(&count(cell.probes.into())),
            Html::number(&rate(found.expected)),
            Html::number(&rate(found.measured)),
            Html::number(&format!("{} – {}", rate(low), rate(high))),
            Html::number(&format!("{:+.2}", found.deviation())),
            Html::number(&rate(found.best)),
            Html::number(&rate(found.worst)),
            Html::number(&count(found.asked)),
        ];
        Some(row(cell, rest))
    });
    folded(&head, &rows.collect::<Vec<_>>())
}

pub(super) fn times(cells: &[&Cell]) -> String {
    let mut html = String::new();
    for mix in Mix::ALL {
        let is_timed = |access: &Access| cells.iter().any(|c| c.net_ns(*access, mix).is_some());
        let accesses: Vec<Access> = Access::ALL.into_iter().filter(is_timed).collect();
        if accesses.is_empty() {
            continue;
        }
        let mut head = vec!["Filter", "Keys", "Filter’s bytes", "All filters", "Code"];
        head.extend(accesses.iter().map(|access| access.name()));
        let cells_of = |cell: &&Cell| {
            let rest = [
                Html::number(&units::bytes(cell.single_bytes)),
                Html::number(&units::bytes(cell.memory_bytes)),
                Html::text(cell.kernel.as_deref().unwrap_or("–")),
            ];
            let net = accesses.iter().map(|access| {
                Html::maybe(cell.net_ns(*access, mix), |nanos| format!("{nanos:.2}"))
            });
            row(cell, rest.into_iter().chain(net))
        };
        html += &table(
            &format!("mostly {}: net ns", mix.name()),
            &head,
            &cells.iter().map(cells_of).collect::<Vec<_>>(),
        );
    }
    details("Numbers", &html)
}

pub(super) fn build(cells: &[&Cell]) -> String {
    let head = ["Filter", "Keys", "Filters", "All filters", "ns a key", "Bytes a key"];
    let rows = cells.iter().map(|cell| {
        let rest = [
            Html::number(&count(cell.filters)),
            Html::number(&units::bytes(cell.memory_bytes)),
            Html::number(&digits(cell.build_ns)),
            Html::number(&digits(cell.build_bytes)),
        ];
        row(cell, rest)
    });
    folded(&head, &rows.collect::<Vec<_>>())
}

pub(super) fn machine(environment: &Environment, cells: &[&Cell]) -> String {
    let mut facts = environment_facts(environment);
    let asked = cells.iter().filter(|cell| cell.huge_pages).count();
    let pages = match asked {
        0 => "not asked for",
        asked if asked == cells.len() => "asked for under filters of 4 MiB and more",
        _ => "asked for in some measurements",
    };
    facts.insert("huge pages".into(), pages.into());
    let row = |(name, value): (&String, &String)| vec![Html::text(name), Html::text(value)];
    table("", &["", ""], &facts.iter().map(row).collect::<Vec<_>>())
}

/// The kinds, and their instruction sets.
pub(super) fn subtitle(records: &[Record]) -> String {
    let mut kinds: Vec<String> = Vec::new();
    for Record { cell, .. } in records {
        let kind = match &cell.kernel {
            Some(kernel) => format!("{} ({kernel})", cell.kind),
            None => cell.kind.clone(),
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.join(", ")
}

pub(super) fn headline(records: &[Record]) -> String {
    let Some(first) = records.first() else { return "Nothing was measured yet.".into() };
    let filters: u64 = records.iter().map(|record| record.cell.filters).sum();
    format!(
        "{} filters in {} measurements, begun {}",
        count(filters),
        count(records.len() as u64),
        first.place.start.replace('T', " ").replace('Z', " UTC")
    )
}

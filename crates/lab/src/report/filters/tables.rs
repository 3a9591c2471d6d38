//! The tables of the page about filters, and its subtitle.

use trommel_harness::machine::Environment;
use trommel_harness::units;

use crate::filter_bench::record::CellRecord;
use crate::filter_bench::{Access, FilterCell, Mix};
use crate::report::facts::environment_facts;
use crate::report::html::{HtmlCell, count, details, digits, rate, table};

/// The first columns of every row: the filter, and its number of keys.
fn name(cell: &FilterCell) -> Vec<HtmlCell> {
    let mark = if cell.interrupted { " (interrupted)" } else { "" };
    vec![
        HtmlCell::text(&format!("{}{mark}", cell.setup.spec)),
        HtmlCell::number(&count(cell.keys_per_filter().round() as u64)),
    ]
}

fn row(cell: &FilterCell, rest: impl IntoIterator<Item = HtmlCell>) -> Vec<HtmlCell> {
    name(cell).into_iter().chain(rest).collect()
}

fn folded(head: &[&str], rows: &[Vec<HtmlCell>]) -> String {
    details("Numbers", &table("", head, rows))
}

pub(super) fn rates(cells: &[&FilterCell]) -> String {
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
            HtmlCell::number(&count(cell.built.filters)),
            HtmlCell::number(&format!("{:.3}", cell.built.stored_bits)),
            HtmlCell::number(&count(cell.built.probes.into())),
            HtmlCell::number(&rate(found.expected)),
            HtmlCell::number(&rate(found.measured)),
            HtmlCell::number(&format!("{} – {}", rate(low), rate(high))),
            HtmlCell::number(&format!("{:+.2}", found.deviation())),
            HtmlCell::number(&rate(found.best)),
            HtmlCell::number(&rate(found.worst)),
            HtmlCell::number(&count(found.asked)),
        ];
        Some(row(cell, rest))
    });
    folded(&head, &rows.collect::<Vec<_>>())
}

pub(super) fn times(cells: &[&FilterCell]) -> String {
    let mut html = String::new();
    for mix in [Mix::Outside, Mix::Inside, Mix::Mixed] {
        let is_timed = |access: &Access| cells.iter().any(|c| c.net_ns(*access, mix).is_some());
        let accesses: Vec<Access> = Access::ALL.into_iter().filter(is_timed).collect();
        if accesses.is_empty() {
            continue;
        }
        let mut head = vec!["Filter", "Keys", "Filter’s bytes", "All filters", "Code"];
        head.extend(accesses.iter().map(|access| access.name()));
        let cells_of = |cell: &&FilterCell| {
            let rest = [
                HtmlCell::number(&units::bytes(cell.built.single_bytes)),
                HtmlCell::number(&units::bytes(cell.built.memory_bytes)),
                HtmlCell::text(cell.setup.kernel.as_deref().unwrap_or("–")),
            ];
            let net = accesses.iter().map(|access| {
                HtmlCell::maybe(cell.net_ns(*access, mix), |nanos| format!("{nanos:.2}"))
            });
            row(cell, rest.into_iter().chain(net))
        };
        html += &table(
            &format!("{}: net ns", mix.name()),
            &head,
            &cells.iter().map(cells_of).collect::<Vec<_>>(),
        );
    }
    details("Numbers", &html)
}

pub(super) fn build(cells: &[&FilterCell]) -> String {
    let head = ["Filter", "Keys", "Filters", "All filters", "ns a key", "Bytes a key"];
    let rows = cells.iter().map(|cell| {
        let rest = [
            HtmlCell::number(&count(cell.built.filters)),
            HtmlCell::number(&units::bytes(cell.built.memory_bytes)),
            HtmlCell::number(&digits(cell.built.build_ns)),
            HtmlCell::number(&cell.built.build_bytes.map_or("-".to_owned(), digits)),
        ];
        row(cell, rest)
    });
    folded(&head, &rows.collect::<Vec<_>>())
}

pub(super) fn machine(environment: &Environment, cells: &[&FilterCell]) -> String {
    let mut facts = environment_facts(environment);
    let asked = cells.iter().filter(|cell| cell.setup.huge_pages).count();
    let pages = match asked {
        0 => "not asked for",
        asked if asked == cells.len() => "asked for under filters of 4 MiB and more",
        _ => "asked for in some measurements",
    };
    facts.insert("huge pages".into(), pages.into());
    let row = |(name, value): (&String, &String)| vec![HtmlCell::text(name), HtmlCell::text(value)];
    table("", &["", ""], &facts.iter().map(row).collect::<Vec<_>>())
}

/// The kinds, and their instruction sets.
pub(super) fn subtitle(records: &[CellRecord]) -> String {
    let mut kinds: Vec<String> = Vec::new();
    for CellRecord { cell, .. } in records {
        let kind = match &cell.setup.kernel {
            Some(kernel) => format!("{} ({kernel})", cell.setup.kind),
            None => cell.setup.kind.clone(),
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.join(", ")
}

pub(super) fn headline(records: &[CellRecord]) -> String {
    let Some(first) = records.first() else { return "Nothing was measured yet.".into() };
    let filters: u64 = records.iter().map(|record| record.cell.built.filters).sum();
    format!(
        "{} filters in {} measurements, begun {}",
        count(filters),
        count(records.len() as u64),
        first.place.start.replace('T', " ").replace('Z', " UTC")
    )
}

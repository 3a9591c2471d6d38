//! The tables and bars of the page about experiments, and its subtitle.

use trommel_harness::machine::Environment;
use trommel_harness::units;

use super::groups::{Group, Groups};
use crate::report::bars::{Bar, bars};
use crate::report::facts::environment_facts;
use crate::report::html::{HtmlCell, count, details, escaped, small, table};
use crate::report::svg::Role;
use crate::tune::{Estimate, LevelRecord, Record};

/// Number of cells in a group from which on their bars are collapsed.
const MANY: usize = 9;
/// Tolerated deviation of a prediction, as a fraction.
const TOLERANCE: f64 = 0.05;

/// Half the width of an interval, as a table cell.
fn half(estimate: &Estimate) -> String {
    format!("± {}", small((estimate.interval.1 - estimate.interval.0) / 2.0))
}

fn size(bytes: f64) -> String {
    units::bytes(bytes.max(0.0).round() as u64)
}

fn number(value: f64) -> HtmlCell {
    HtmlCell::number(&small(value))
}

fn off(share: Option<f64>) -> HtmlCell {
    HtmlCell::maybe(share, |share| format!("{:+.1}%", share * 100.0))
}

/// All cells, one table per group.
pub(super) fn cells(groups: &Groups<'_>) -> String {
    let head = [
        "Filters",
        "Bits a key",
        "Filters’ bytes",
        "Wasted reads",
        "95%",
        "Predicted",
        "Off",
        "µs a lookup",
        "95%",
        "Blocks",
        "Read",
    ];
    let row = |record: &&Record| {
        vec![
            HtmlCell::text(&record.cell.filters),
            HtmlCell::number(&format!("{:.2}", record.bits_per_key())),
            HtmlCell::number(&size(record.filter_bytes)),
            number(record.measured.wasted_reads.mean),
            HtmlCell::number(&half(&record.measured.wasted_reads)),
            number(record.predicted.wasted_reads),
            off(record.off()),
            number(record.measured.micros.mean),
            HtmlCell::number(&half(&record.measured.micros)),
            number(record.measured.blocks),
            number(record.measured.block_reads),
        ]
    };
    let of = |group: &Group<'_>| {
        table(&group.place, &head, &group.records.iter().map(row).collect::<Vec<_>>())
    };
    groups.groups.iter().map(of).collect()
}

/// Every level of every cell.
pub(super) fn levels(groups: &Groups<'_>) -> String {
    let head = [
        "Filters",
        "Level",
        "Runs",
        "Tables",
        "Keys",
        "Data",
        "Built with",
        "Bits a key",
        "Filters’ bytes",
        "Predicted",
        "By theory",
        "Measured",
        "95%",
    ];
    let row = |record: &Record, level: &LevelRecord| {
        vec![
            HtmlCell::text(&record.cell.filters),
            HtmlCell::text(&format!("L{}", level.level)),
            HtmlCell::number(&decimals(level.runs)),
            HtmlCell::number(&decimals(level.tables)),
            HtmlCell::number(&count(level.keys.round() as u64)),
            HtmlCell::number(&size(level.bytes)),
            HtmlCell::text(&level.filters.join(", ")),
            HtmlCell::number(&format!("{:.2}", level.bits_per_key())),
            HtmlCell::number(&size(level.filter_bytes)),
            number(level.predicted),
            number(level.expected),
            number(level.wasted_reads.mean),
            HtmlCell::number(&half(&level.wasted_reads)),
        ]
    };
    let of = |group: &Group<'_>| {
        let rows = group.records.iter();
        let rows = rows.flat_map(|record| record.levels.iter().map(|level| row(record, level)));
        details(&group.place, &table("", &head, &rows.collect::<Vec<_>>()))
    };
    groups.groups.iter().map(of).collect()
}

/// A mean of integers: without decimals if it is one.
fn decimals(mean: f64) -> String {
    if mean.fract() == 0.0 { count(mean as u64) } else { format!("{mean:.2}") }
}

/// The bits of each level, a block of bars for each cell.
pub(super) fn bits(groups: &Groups<'_>) -> String {
    let mut html = String::new();
    for group in &groups.groups {
        let blocks: String = groups
            .by_family(group)
            .iter()
            .flat_map(|(role, records)| records.iter().map(|record| bits_of(*role, record)))
            .collect();
        let grid = format!("<div class=\"grid\">\n{blocks}</div>\n");
        html += &match group.records.len() {
            MANY.. => details(&group.place, &grid),
            _ => format!("<h3>{}</h3>\n{grid}", escaped(&group.place)),
        };
    }
    html
}

fn bits_of(role: Role, record: &Record) -> String {
    let bar = |level: &LevelRecord| Bar {
        label: format!("L{}", level.level),
        role,
        value: level.bits_per_key(),
        words: format!("{:.2}", level.bits_per_key()),
        note: level.filters.first().cloned().unwrap_or_default(),
    };
    let levels: Vec<Bar> = record.levels.iter().map(bar).collect();
    let what = format!("{:.2} bits per key in total", record.bits_per_key());
    bars(&record.cell.filters, &what, &levels)
}

/// A sentence on how many predictions are within the tolerance.
pub(super) fn verdict(records: &[Record]) -> String {
    let shares: Vec<f64> = records.iter().filter_map(Record::off).map(f64::abs).collect();
    let Some(worst) = shares.iter().copied().reduce(f64::max) else { return String::new() };
    let near = shares.iter().filter(|share| **share <= TOLERANCE).count();
    format!(
        "<p>{near} of {} measurements are within 5% of the prediction; the largest deviation is \
         {:.1}%. Above zero, more was wasted than predicted.</p>\n",
        shares.len(),
        worst * 100.0
    )
}

/// The distinct machines and builds.
fn environments(records: &[Record]) -> Vec<&Environment> {
    let mut found: Vec<&Environment> = Vec::new();
    for record in records {
        let is_known = found.iter().any(|known| is_alike(known, &record.environment));
        if !is_known {
            found.push(&record.environment);
        }
    }
    found
}

/// Whether times on both can be compared: they are equal except for the directory.
fn is_alike(a: &Environment, b: &Environment) -> bool {
    let placeless = |environment: &Environment| {
        let mut place = environment.clone();
        place.storage.directory = None;
        place
    };
    placeless(a) == placeless(b)
}

pub(super) fn machines(records: &[Record]) -> String {
    let row = |(name, value): (&String, &String)| vec![HtmlCell::text(name), HtmlCell::text(value)];
    let of = |environment: &&Environment| {
        let facts = environment_facts(environment);
        table("", &["", ""], &facts.iter().map(row).collect::<Vec<_>>())
    };
    environments(records).iter().map(of).collect()
}

/// A warning if the records come from several machines or builds.
pub(super) fn mixture(records: &[Record]) -> String {
    match environments(records).len() {
        0 | 1 => String::new(),
        several => format!(
            "<p class=\"warning\">{several} machines or builds measured. Their times cannot be \
             compared with one another.</p>\n"
        ),
    }
}

/// The families.
pub(super) fn subtitle(groups: &Groups<'_>) -> String {
    groups.families().map(|(_, family)| family).collect::<Vec<_>>().join(" · ")
}

pub(super) fn headline(records: &[Record]) -> String {
    let Some(first) = records.iter().map(|record| record.start.as_str()).min() else {
        return "Nothing has been measured yet.".into();
    };
    let stores = records.iter().map(|r| r.cell.stores).fold(0, u64::saturating_add);
    let lookups = records.iter().map(|r| r.cell.lookups.saturating_mul(r.cell.stores));
    format!(
        "{} cells, {} stores, {} lookups, started {}",
        count(records.len() as u64),
        count(stores),
        count(lookups.fold(0, u64::saturating_add)),
        first.replace('T', " ").replace('Z', " UTC")
    )
}

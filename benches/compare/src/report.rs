//! The report, in Markdown: a section for each number of keys and each study, with its tables, how
//! the best Trommel compares with the fastest rival, and the settings of its stores.
//!
//! Called by `main`. A page for a browser is made from the same records by `trommel report`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trommel_harness::machine::Environment;
use trommel_harness::record::Record;
use trommel_harness::table::Table;
use trommel_harness::units;

use crate::figures::{FLOOR, Figure, Results, SIZES, Spread, TIMES};
use crate::studies::{SETTING, Study};

/// The names of Trommel's set-ups begin with this.
const OURS: &str = "trommel";
/// The names of set-ups without a log end with this.
const NO_LOG: &str = "-nolog";
/// A set-up that writes unlike the rivals: it wins or loses no comparison.
const APART: &str = "trommel-batches";

const ABOUT: &str = "A store is filled at random keys drawn with replacement, settles, is flushed and \
    closed; its files are synced, dropped from the page cache and read in again; it is opened, read \
    at random without a clock, and then measured. Missing keys lie between present ones, and none is \
    looked up twice.";

/// What a section shows besides its results.
struct Sheet {
    title: String,
    about: &'static str,
    tables: &'static [(&'static str, &'static [Figure])],
    /// The tables in which the fastest stores are compared.
    raced: &'static [&'static str],
}

impl Sheet {
    fn of(study: Option<&Study>, num: u64) -> Self {
        match study {
            Some(study) => Self {
                title: study.title.into(),
                about: study.about,
                tables: study.tables,
                raced: study.raced,
            },
            None => Self {
                title: format!("{} keys of 16 + 256 bytes", units::grouped(num)),
                about: ABOUT,
                tables: &[
                    ("Microseconds an operation", &TIMES),
                    ("Files, memory, opening", &SIZES),
                ],
                raced: &["Microseconds an operation"],
            },
        }
    }
}

/// The report on all sections: the main measurement, which has no study, and the studies.
pub(crate) fn report(sections: &[(Option<&'static Study>, Results)]) -> String {
    let mut page = "# Trommel compared with other stores\n\n".to_owned();
    page += &about(sections.iter().flat_map(|(_, results)| results.records()));
    let mut shown = BTreeSet::new();
    for (study, results) in sections {
        for num in results.nums() {
            page += &section(&Sheet::of(*study, num), results, num, &mut shown);
        }
    }
    page += "\n## What is not equal\n\n";
    page += include_str!("unequal.md");
    for line in sections.iter().filter_map(|(study, _)| *study).flat_map(|study| study.unequal) {
        page += &format!("* {line}\n");
    }
    page
}

/// What was measured, when and where.
fn about<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> String {
    let Some(first) = records.clone().next() else { return String::new() };
    let Environment { build, cpu, cores, memory_bytes, kernel, storage, .. } = &first.environment;
    let distinct = |of: fn(&Record) -> Option<&str>| {
        records.clone().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let starts = distinct(|record| Some(&record.start));
    let mut versions = distinct(|record| Some(&record.store.version));
    versions.retain(|version| !version.is_empty());
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".into());
    let lines = [
        ("Measured", format!("{} to {}", starts[0], starts[starts.len() - 1])),
        ("Stores", versions.join("; ")),
        ("Commits", distinct(|record| record.environment.build.commit.as_deref()).join(", ")),
        ("Compiler", build.rustc.clone()),
        ("Processor", format!("{}, {cores} threads", or_unknown(cpu))),
        ("Memory", memory_bytes.map_or_else(|| "not known".into(), units::bytes)),
        ("Kernel", or_unknown(kernel)),
        ("File system", or_unknown(&storage.file_system)),
    ];
    lines.iter().map(|(name, value)| format!("* {name}: {value}\n")).collect()
}

/// A section; `shown` has the rows of settings of those before, which are not repeated.
fn section(
    sheet: &Sheet,
    results: &Results,
    num: u64,
    shown: &mut BTreeSet<[String; 3]>,
) -> String {
    let mut text = format!("\n## {}\n\n{}\n\n", sheet.title, sheet.about);
    for line in troubles(results, num) {
        text += &format!("* **{line}**\n");
    }
    text += &format!(
        "Rounds: {}; of each figure the median, the least and the greatest.\n",
        results.rounds(num)
    );
    if let Some(floor) = results.floor(num) {
        text += &format!("{FLOOR} of 300 bytes, not synced: {} us.\n", spread(floor));
    }
    for (heading, columns) in sheet.tables {
        let table = figures(results, num, columns);
        if table.head.len() > 1 {
            text += &format!("\n{heading}:\n\n{}", table.text());
        }
    }
    text += "\nThe best Trommel compared with the fastest rival:\n\n";
    for (_, columns) in sheet.tables.iter().filter(|(heading, _)| sheet.raced.contains(heading)) {
        text += &races(results, num, columns);
    }
    let rows: Vec<_> =
        settings(results, num).into_iter().filter(|row| shown.insert(row.clone())).collect();
    if !rows.is_empty() {
        let mut table = Table::new(["setting", "value", "stores"], 3);
        rows.into_iter().for_each(|row| table.row(row));
        text += &format!("\nSettings:\n\n{}", table.text());
    }
    text
}

/// What failed, and what stores disagree in.
pub(crate) fn troubles(results: &Results, num: u64) -> Vec<String> {
    let failures = results.failures(num).into_iter();
    let failures = failures.map(|(name, round, why)| format!("{name}, round {round}: {why}"));
    let disagreements = results.disagreements(num).into_iter();
    failures.chain(disagreements.map(|what| format!("stores disagree in {what}"))).collect()
}

/// A number with about three digits.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value < 1.0 => 3,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

fn spread(spread: Spread) -> String {
    let median = number(spread.median);
    match spread.rounds {
        0 | 1 => median,
        _ => format!("{median} ({} to {})", number(spread.least), number(spread.greatest)),
    }
}

/// A row for each store; columns that no store has a figure for are left out.
fn figures(results: &Results, num: u64, figures: &[Figure]) -> Table {
    let names = results.names(num);
    let known: Vec<_> = figures
        .iter()
        .filter(|figure| names.iter().any(|name| results.figure(num, name, figure).is_some()))
        .collect();
    let mut table = Table::new(["store"].into_iter().chain(known.iter().map(|it| it.title)), 1);
    for name in names {
        let cells = known
            .iter()
            .map(|figure| results.figure(num, name, figure).map_or_else(String::new, spread));
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    table
}

/// For each figure, the least of Trommel's set-ups and the least of all others.
fn races(results: &Results, num: u64, figures: &[Figure]) -> String {
    let best = |figure: &Figure, ours: bool| {
        let raced = |name: &&str| {
            name.starts_with(OURS) == ours && !name.ends_with(NO_LOG) && *name != APART
        };
        let names = results.names(num).into_iter().filter(raced);
        let medians =
            names.filter_map(|name| Some((name, results.figure(num, name, figure)?.median)));
        medians.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut text = String::new();
    for figure in figures {
        let (Some((name, ours)), Some((rival, theirs))) = (best(figure, true), best(figure, false))
        else {
            continue;
        };
        text += &format!(
            "* {}: {name} {}, {rival} {}: {} of its time\n",
            figure.title,
            number(ours),
            number(theirs),
            number(ours / theirs)
        );
    }
    text
}

/// A row for each value of a setting: the setting, the value, and the stores that have it.
fn settings(results: &Results, num: u64) -> Vec<[String; 3]> {
    let mut order: Vec<&str> = Vec::new();
    let mut stores: BTreeMap<(usize, String), Vec<&str>> = BTreeMap::new();
    for record in results.of_num(num).filter(|record| record.store.name != FLOOR) {
        for (name, value) in &record.settings {
            if ["num", "error", SETTING].contains(&name.as_str()) {
                continue;
            }
            let at = order.iter().position(|other| other == name).unwrap_or_else(|| {
                order.push(name);
                order.len() - 1
            });
            let value = value.as_str().map_or_else(|| Value::to_string(value), Into::into);
            let having = stores.entry((at, value)).or_default();
            if !having.contains(&record.store.name.as_str()) {
                having.push(&record.store.name);
            }
        }
    }
    let count = results.names(num).len();
    let row = |((at, value), names): ((usize, String), Vec<&str>)| {
        let who = if names.len() == count { "all".to_owned() } else { names.join(", ") };
        [order[at].to_owned(), value, who]
    };
    stores.into_iter().map(row).collect()
}

//! The page of a measurement, in Markdown.

use serde_json::Value;
use trommel_harness::machine::Environment;
use trommel_harness::units;

use crate::figures::Results;
use crate::report::{UNEQUAL, fairness, floor, ratios, reading, sizes, times, troubles, versions};

/// The page.
pub(crate) fn page(results: &Results) -> String {
    let mut page = String::from(INTRODUCTION);
    page += &format!("```sh\n{}\n```\n\n", command(results));
    page += &about(results);
    for num in results.nums() {
        page += &measured(results, num);
    }
    page += "\n## Fairness\n\nOne line for each value of a setting, and who has it.\n\n";
    if let Some(num) = results.nums().first() {
        page += &fairness(results, *num).markdown();
    }
    page += "\n### What is not equal\n\n";
    for line in UNEQUAL {
        page += &format!("* {line}\n");
    }
    page
}

const INTRODUCTION: &str = "\
# Trommel beside other stores

This page is written by the command below; no figure in it is typed. Each store runs in a process
of its own: it is filled at random keys drawn with replacement, settles, writes out what it holds in
memory and is closed; its files are synced, dropped from the page cache and read in again; it is
opened, read at random without a clock (half as many reads as are measured, and one for every three
keys at least), and then measured.
Every value found is checked against its key.

Times are microseconds an operation on one machine in one hour: the ratios between stores are worth
more than the figures. A missing key lies inside the range of keys and is never asked for twice. A
scan counts one operation an entry, a seek reads ten entries, a multi-get looks up a hundred keys
and counts each.

";

/// The command that measures this again.
fn command(results: &Results) -> String {
    let nums: Vec<_> = results.nums().iter().map(u64::to_string).collect();
    let setting = |name: &str| {
        let values = results.records().iter().filter_map(|record| record.settings.get(name));
        values.filter_map(Value::as_u64).max().unwrap_or_default()
    };
    format!(
        "cargo run --release --manifest-path benches/compare/Cargo.toml -- \\\n    --num {} --reads \
         {} --rounds {} --page docs/measurements/baseline.md",
        nums.join(","),
        setting("reads"),
        results.records().iter().map(|record| record.repeat).max().unwrap_or(1),
    )
}

fn about(results: &Results) -> String {
    let Some(first) = results.records().first() else { return String::new() };
    let Environment {
        cpu, cores, memory_bytes, kernel, file_system, rustc, program, commit, ..
    } = &first.environment;
    let mut lines = vec![
        ("Measured", first.start.clone()),
        ("Program", format!("trommel {program}")),
        ("Compiler", rustc.clone()),
        ("Stores", versions(results).join("; ")),
        ("Processor", format!("{}, {cores} threads", cpu.as_deref().unwrap_or("not known"))),
    ];
    if let Some(commit) = commit {
        lines.push(("Commit", commit.clone()));
    }
    if let Some(bytes) = memory_bytes {
        lines.push(("Memory", units::bytes(*bytes)));
    }
    let others = [("Kernel", kernel), ("File system", file_system)];
    lines.extend(others.map(|(name, value)| (name, value.clone().unwrap_or_default())));
    lines.iter().map(|(name, value)| format!("* {name}: {value}\n")).collect()
}

fn measured(results: &Results, num: u64) -> String {
    let mut text = format!("\n## {} keys of 16 + 256 bytes\n\n", units::grouped(num));
    for line in troubles(results, num) {
        text += &format!("* **{line}**\n");
    }
    text += "\nMicroseconds an operation; with several rounds the median, least and greatest.\n\n";
    text += &times(results, num).markdown();
    text += &floor(results, num).map_or_else(String::new, |line| format!("\n{line}\n"));
    text += "\n### The best Trommel beside the fastest rival\n\n";
    for line in reading(results, num) {
        text += &format!("* {line}\n");
    }
    text += "\n### Times of others as multiples of Trommel's\n\nTo the set-up `trommel`; those \
             without a log to `trommel-nolog`. Above 1 Trommel is faster.\n\n";
    text += &ratios(results, num).markdown();
    text += "\n### Files, memory, opening\n\n`runs` are sorted runs that a lookup may have to ask. \
             Write amplification is bytes handed to write calls per byte of keys and values. Peaks \
             are of resident memory.\n\n";
    text + &sizes(results, num).markdown()
}

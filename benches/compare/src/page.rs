//! The page of a measurement, in Markdown.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use trommel_harness::machine::{BuildInfo, Environment, StorageInfo};
use trommel_harness::units;

use trommel_harness::record::Record;

use crate::figures::{Results, TIMES};
use crate::report::{
    BEHIND, Shown, UNEQUAL, caveat, differing, fairness, floor, ratios, reading, sizes, times,
    troubles, versions,
};
use crate::rows::Row;
use crate::sheets;
use crate::stores::ALL;
use crate::studies::Study;
use crate::targets;
use crate::verdict::{Verdict, shortfalls_first};

/// The page.
pub(crate) fn page(results: &Results, studies: &[(Study, Results)]) -> String {
    let all = studies.iter().flat_map(|(_, results)| results.records());
    let all: Vec<_> = results.records().iter().chain(all).collect();
    let mut page = String::from(HEAD);
    if !results.records().is_empty() {
        page += INTRODUCTION;
    }
    page += UNITS;
    page += &format!("```sh\n{}\n```\n\n", commands(results, studies));
    page += &about(&all);
    page += &targets(results, studies);
    for num in results.nums() {
        page += &measured(results, num);
    }
    for (study, results) in studies {
        page += &sheets::markdown(*study, results);
    }
    page += "\n## Fairness\n\nOne line for each value of a setting, and who has it.\n\n";
    let mut shown = Shown::new();
    if let Some(num) = results.nums().first() {
        page += &fairness(results, *num, &mut shown).markdown();
    }
    for (heading, grid) in differing(results, &shown) {
        page += &format!("\n### {heading}\n\n{}", grid.markdown());
    }
    for (study, heading, grid) in sheets::fairness(studies, &mut shown) {
        page += &format!("\n### {}: {heading}\n\n{}", study.sheet().title, grid.markdown());
    }
    page += "\n### What is not equal\n\n";
    for line in UNEQUAL.iter().chain(sheets::unequal(studies)) {
        page += &format!("* {line}\n");
    }
    page
}

/// Targets missed in the main measurement or in any study, first of all.
fn targets(results: &Results, studies: &[(Study, Results)]) -> String {
    let nums = results.nums();
    let is_one = nums.len() == 1;
    let of = |num, verdict: Verdict| if is_one { verdict } else { verdict.of_keys(num) };
    let rows = nums.into_iter().flat_map(|num| {
        targets::verdicts(results, num).into_iter().map(move |verdict| of(num, verdict))
    });
    let studied = studies.iter().flat_map(|(study, results)| sheets::verdicts(*study, results));
    let verdicts = shortfalls_first(rows.chain(studied).collect());
    let short = verdicts.iter().filter(|verdict| !verdict.is_met).count();
    if verdicts.is_empty() {
        return String::new();
    }
    let believed = verdicts.iter().filter(|verdict| verdict.is_of_enough_rounds()).count();
    let all = verdicts.len();
    let of_rounds = match believed == all {
        true => "All are of five rounds or more.".to_owned(),
        false => format!("{believed} are of five rounds or more; the others say of how many."),
    };
    let mut text = format!("\n## Targets not met: {short} of {all}\n\n{of_rounds}\n\n");
    for verdict in &verdicts[..short] {
        text += &format!("* {}\n", verdict.line());
    }
    text += &unmeasured(results);
    text += &behind(results, studies);
    text
}

/// What was not measured.
fn unmeasured(results: &Results) -> String {
    let mut text = String::new();
    for num in results.nums() {
        let missing = targets::unmeasured(results, num);
        if !missing.is_empty() {
            let (num, count) = (units::grouped(num), missing.len());
            text += &format!("* {num} keys, **{count} not measured**: {}\n", missing.join("; "));
        }
        let absent = results.absent(num);
        if !absent.is_empty() {
            let (num, names) = (units::grouped(num), absent.join(", "));
            text += &format!("* {num} keys, measured with another number of them only: {names}\n");
        }
    }
    let here = results.all_names();
    let usual = ALL.iter().filter(|contender| contender.usual).map(|contender| contender.name);
    let left_out: Vec<_> = usual.filter(|name| !here.contains(name)).collect();
    if !here.is_empty() && !left_out.is_empty() {
        text += &format!("* With no number of keys: {}\n", left_out.join(", "));
    }
    text
}

/// Why a rival is ahead in the main measurement, where one is: in seeks.
const SEEKS: &str = "some fifteen cache lines in each of several runs, where a B-tree has one path";

/// Where a rival is ahead of all set-ups of Trommel, with or without a target.
fn behind(results: &Results, studies: &[(Study, Results)]) -> String {
    let nums = results.nums().into_iter();
    let rows = nums.flat_map(|num| {
        let lines = reading(results, num, &TIMES, " us").into_iter();
        lines.map(move |line| (format!("{} keys, {line}", units::grouped(num)), SEEKS))
    });
    let raced = studies.iter().flat_map(|(study, results)| {
        let lines = sheets::races(*study, results).into_iter();
        lines.map(|line| (format!("{}: {line}", study.sheet().title), study.sheet().ahead))
    });
    let is_behind = |(line, _): &(String, &str)| line.ends_with(BEHIND);
    let told = |(line, why): (String, &str)| if why.is_empty() { line } else { line + "; " + why };
    let lines: Vec<_> = rows.chain(raced).filter(is_behind).map(told).collect();
    if lines.is_empty() {
        return String::new();
    }
    let list: String = lines.iter().map(|line| format!("* {line}\n")).collect();
    format!("\n### Where a rival is ahead\n\nMost of these have no target.\n\n{list}")
}

const HEAD: &str = "\
# Trommel beside other stores

This page is written by the commands below; no figure of its tables and verdicts is typed. The reasons that stand
behind a target that is not met are, and come from what [Performance](../performance.md) tells. Each store runs in a
process of its own. Every value found is checked against its key.

";

const INTRODUCTION: &str = "\
In the main measurement a store is filled at random keys drawn with replacement, settles, writes out what it holds in
memory and is closed; its files are synced, dropped from the page cache and read in again; it is
opened, read at random without a clock (half as many reads as are measured, and one for every three
keys at least), and then measured. A missing key lies inside the range of keys and is never asked
for twice. A key is a number below that of the keys, as eight bytes, the first the most significant, and eight
times '0'; a missing one is such a key and eight random bytes more. A scan counts one operation an entry, a seek makes an
iterator and reads ten or a hundred entries, a multi-get looks up a hundred keys and counts each.

";

const UNITS: &str = "\
Times are microseconds an operation on one machine: the ratios between stores that were measured in turns
are worth more than the figures. Verdicts of fewer than five rounds say so. Sections may be of different
days and programs, which each names; what of the machine was set otherwise than by default stands among
the settings (Fairness), and the commit is that in `TROMMEL_COMMIT` when the program was built.

";

/// The commands to repeat the measurement: one for each number of keys, and one for all studies
/// with the same number of rounds. Their concatenated records make the page.
fn commands(results: &Results, studies: &[(Study, Results)]) -> String {
    let mut lines: Vec<_> =
        results.nums().into_iter().map(|num| main_command(results, num)).collect();
    let mut by_rounds = BTreeMap::<_, Vec<_>>::new();
    for (study, results) in studies {
        let of_each = results.nums().into_iter().map(|num| results.rounds(num));
        // If only some of the study's contenders took part, name them.
        let named = sheets::absent(*study, results).first().map(|_| results.all_names());
        let key = (of_each.max().unwrap_or(1), named);
        by_rounds.entry(key).or_default().push((*study, results));
    }
    for ((number, named), studies) in by_rounds {
        let stores =
            named.map_or_else(String::new, |names| format!(" --stores {}", names.join(",")));
        lines.push(format!("{COMMAND}{}{stores}{}", studied(&studies), rounds(number)));
    }
    lines.push(format!("{COMMAND} --from RESULTS --page FILE"));
    lines.join("\n")
}

fn main_command(results: &Results, num: u64) -> String {
    let setting = |name: &str| {
        let values = results.of_num(num).filter_map(|record| record.settings.get(name));
        values.filter_map(Value::as_u64).max().unwrap_or_default()
    };
    let mut words = format!("{COMMAND} --num {num} --reads {}", setting("reads"));
    let measured = |row: &&Row| results.of_num(num).any(|record| record.workload == row.title());
    let rows: Vec<_> = Row::ALL.iter().filter(measured).map(|row| row.name()).collect();
    if rows.len() < Row::ALL.len() {
        words += &format!(" --rows {}", rows.join(","));
    }
    words + &chosen(results, num) + &rounds(results.rounds(num))
}

fn rounds(rounds: usize) -> String {
    format!(" --rounds {rounds} --out DIR")
}

/// The stores on a command line, if they differ from the default ones.
fn chosen(results: &Results, num: u64) -> String {
    let names = results.names(num);
    let usual = ALL.iter().filter(|contender| contender.usual).map(|contender| contender.name);
    match usual.eq(names.iter().copied()) {
        true => String::new(),
        false => format!(" \\\n    --stores {}", names.join(",")),
    }
}

/// The studies on a command line.
fn studied(studies: &[(Study, &Results)]) -> String {
    let mut words = String::new();
    let names: Vec<_> = studies.iter().map(|(study, _)| study.name()).collect();
    if !names.is_empty() {
        words += &format!(" --studies {}", names.join(","));
    }
    for (study, results) in studies {
        for name in study.sheet().sizes {
            let mut values =
                results.records().iter().filter_map(|record| record.settings.get(*name));
            // A value that differs between rounds was not given.
            let given = values.next().filter(|given| values.all(|value| value == *given));
            words += &given.map_or_else(String::new, |given| format!(" --{name} {given}"));
        }
    }
    words
}

const COMMAND: &str = "RUSTFLAGS=\"-C target-cpu=native\" cargo run --release --manifest-path benches/compare/Cargo.toml -- \\\n   ";

fn about(records: &[&Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let Environment { build, cpu, cores, memory_bytes, kernel, storage, .. } = &first.environment;
    let (BuildInfo { rustc, program, .. }, StorageInfo { file_system, .. }) = (build, storage);
    let starts = || records.iter().map(|record| record.start.as_str());
    let (from, to) = (starts().min().unwrap_or_default(), starts().max().unwrap_or_default());
    let mut lines = vec![
        ("Measured", format!("{from} to {to}")),
        ("Program", format!("trommel {program}")),
        ("Compiler", rustc.clone()),
        ("Stores", versions(records).join("; ")),
        ("Processor", format!("{}, {cores} threads", cpu.as_deref().unwrap_or("not known"))),
    ];
    let commits = records.iter().map(|record| record.environment.build.commit.as_deref());
    let commits: BTreeSet<_> = commits.map(|commit| commit.unwrap_or("not recorded")).collect();
    lines.push(("Commits", commits.into_iter().collect::<Vec<_>>().join(", ")));
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
    text += &caveat(results, num).map_or_else(String::new, |line| format!("\n**{line}**\n"));
    text += &format!(
        "\nMicroseconds an operation; of rounds the median, least and greatest. {}\n\n",
        results.rounds_and_runs(num)
    );
    text += &times(results, num).markdown();
    text += &floor(results, num).map_or_else(String::new, |line| format!("\n{line}\n"));
    text += "\n### The best Trommel beside the fastest rival\n\n";
    for line in reading(results, num, &TIMES, " us") {
        text += &format!("* {line}\n");
    }
    text += "\n### Times of others as multiples of Trommel's\n\nTo the set-up `trommel`; those \
             without a log to `trommel-nolog`. Above 1 Trommel is faster.\n\n";
    text += &ratios(results, num).markdown();
    text += "\n### Files, memory, opening\n\n`runs` are sorted runs that a lookup may have to ask. \
             Write amplification is bytes handed to write calls per byte of keys and values (none where \
             a map is written). Peaks are of resident memory.\n\n";
    text += &sizes(results, num).markdown();
    text += "\n### Targets\n\n";
    for verdict in targets::verdicts(results, num) {
        text += &format!("* {}\n", verdict.line());
    }
    text
}

//! The page of a measurement, in Markdown, and the goals in words.
//!
//! A table of figures for each group, and one of ratios: other crates' times and rates as multiples
//! of Trommel's in the same rounds, so that 1 is equal, and less than 1, in bold, means that
//! Trommel is behind.

use std::fmt::Write as _;

use trommel_harness::table::Table;
use trommel_harness::units::{bytes, grouped};

use crate::cell::{Cell, Machine, Results, Spread, median};
use crate::contestant::Contestant;
use crate::goals::{Goal, goals};
use crate::loops::{BATCH, MODES, Mode};
use crate::plan::{Given, RATES};

/// Processors that others may keep busy before times are called worthless.
const QUIET: f64 = 0.05;
/// Number of false positives from which a rate is compared.
const ENOUGH: u64 = 100;

/// The page; `plots` are the words for those who cannot see a drawing, and its file.
pub fn page(results: &Results, plots: &[(&str, String)]) -> String {
    let machine = &results.machine;
    let mut text = introduction(machine);
    text += &about(results);
    text += &verdict(results);
    text += &rates_summary(results);
    for (words, file) in plots {
        let _ = writeln!(
            text,
            "
![{words}]({file})"
        );
    }
    for (keys, group) in results.groups() {
        let cells: Vec<&Cell> = results.of(keys, group).collect();
        let _ = writeln!(text, "\n## {} keys, {group}\n", grouped(keys));
        text += &figures(&cells);
        text += "\nOther crates' as multiples of Trommel's, in the same rounds:\n\n";
        text += &multiples(&cells);
    }
    if let Some(end) = &results.end
        && !end.left_out.is_empty()
    {
        text += "\n## Left out\n\nThere was no time for these:\n\n";
        for group in &end.left_out {
            let _ = writeln!(text, "* {group}");
        }
    }
    text
}

fn introduction(machine: &Machine) -> String {
    let Machine { command, rounds, queries, dependent_queries, keys, .. } = machine;
    let rated = keys.get(2).copied().map_or(String::new(), grouped);
    format!(
        "\
# Filters beside other crates' filters

This page is written by the command below; no figure in it is typed.

```sh
cargo run --release --manifest-path benches/filters/Cargo.toml -- \\
    {command} \\
    --out DIR --page docs/measurements/filters-beside-others.md
```

What is compared is filters, not hash functions: every key is hashed once, before anything is timed,
with XXH3 to 64 bits, and every filter gets that hash through its crate's own entry for hashes
(`insert_hash` and `contains_hash` of fastbloom and of sbbf-rs-safe, which is sbbf-rs with memory of
its own; xorf's filters take numbers, and mix them with a seed). All are built of the same hashes in
the same order and asked the same questions by the same loops, compiled for each.

* Rounds: {rounds}, the contestants in turn, each round with other keys. Figures are medians.
* Times are net of the same loop without a filter. *Independent*: no question waits for an answer,
  {queries} questions a round. *Dependent*: between two questions stands an instruction that waits for
  all before it (`lfence`), and the next key is computed with the last answer; {dependent_queries} questions a
  round. *Batched*: {BATCH} at once by `may_contain_many`; crates without such an entry are asked one
  after the other.
* Build times of Trommel's filters hold what a table needs: the bytes to be stored, with their
  checksum. *Decode* makes a filter to be asked of them. The others are ready when built. fastbloom and
  sbbf-rs must be told the number of keys beforehand; xorf wants all hashes at once, 8 bytes a key
  that the caller holds and that are not counted here. Trommel's builders hold them themselves, and
  that is counted. Builds that take long have fewer rounds.
* *Bytes* are those taken at once at most during a build, the filter among them, by an allocator that
  counts.
* *Rate* is measured until 2,000 false positives or a limit of questions (130 million at {rated} keys, a
  thirtieth of that at others); the number seen stands beside it. One filter's own luck is in it: 3.5%
  at 1,000 keys and 10 bits.
* Filters lie on the pages that the system gives unasked; *huge* ones were asked for huge pages, as the
  store does.

"
    )
}

fn about(results: &Results) -> String {
    let Machine { start, environment, kernels, huge_pages, rivals, .. } = &results.machine;
    let mut lines = vec![
        ("Measured", start.clone()),
        ("Compiler", environment.build.rustc.clone()),
        ("Other crates", rivals.join(", ")),
        (
            "Processor",
            format!(
                "{}, {} threads, {}",
                environment.cpu.as_deref().unwrap_or("not known"),
                environment.cores,
                environment.cpu_flags.join(" ")
            ),
        ),
        ("Kernels of Trommel's filters", kernels.join(", ")),
    ];
    let known = [
        ("Commit", environment.build.commit.clone()),
        ("Memory", environment.memory_bytes.map(bytes)),
        ("System", environment.kernel.clone()),
        ("Huge pages", huge_pages.clone()),
    ];
    lines.extend(known.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "* {name}: {value}");
    }
    if let Some(end) = &results.end {
        let _ = writeln!(text, "* Took: {:.0} s", end.seconds);
        match end.others {
            Some(others) if others > QUIET => {
                let _ = writeln!(
                    text,
                    "* **Measured on a loaded machine: others kept {others:.2} processors busy \
                     meanwhile. The times are not to be relied on.**"
                );
            }
            Some(others) => {
                let _ = writeln!(text, "* Others kept {others:.2} processors busy meanwhile");
            }
            None => {}
        }
    } else {
        text += "* **It was cut off before its end.**\n";
    }
    if results.machine.environment.build.debug_assertions {
        text += "* **Built without optimisation: the times mean nothing.**\n";
    }
    text
}

fn verdict(results: &Results) -> String {
    let mut text = String::from(
        "\n## Speed to meet\n\nRatios of times, round by round; median, least and greatest.\n\n",
    );
    let keys = &results.machine.keys;
    if let [_, small, middle, _, huge] = keys[..] {
        let _ = writeln!(
            text,
            "Out of cache is {} keys, in cache {}; rates are those at {}.\n",
            grouped(huge),
            grouped(small),
            grouped(middle)
        );
    }
    let mut table = Table::new(["what", "of", "goal", "measured", "least", "greatest", "met"], 1);
    for Goal { what, bound, rows } in goals(results) {
        if rows.is_empty() {
            let [empty, not] = ["", "not measured"].map(String::from);
            let bound = bound.to_string();
            table.row([what, empty.clone(), bound, not, empty.clone(), empty.clone(), empty]);
            continue;
        }
        for row in rows {
            let Spread { median, least, greatest } = row.ratio;
            let met = if row.is_met { "yes" } else { "**no**" };
            let figures = [median, least, greatest].map(|value| format!("{value:.2}"));
            let [median, least, greatest] = figures;
            let of = row.of;
            table.row([what.clone(), of, bound.to_string(), median, least, greatest, met.into()]);
        }
    }
    text + &table.markdown()
}

/// The bits per key that each filter took for each rate, and its rate then.
fn rates_summary(results: &Results) -> String {
    let heads: Vec<String> = RATES.iter().map(|rate| format!("1/{:.0}", 1.0 / rate)).collect();
    let mut head = vec!["filter"];
    head.extend(heads.iter().map(String::as_str));
    let mut table = Table::new(head, 1);
    let Some(keys) = results.machine.keys.get(2).copied() else { return String::new() };
    let mut any = false;
    for contestant in Contestant::ALL {
        let name = contestant.to_string();
        let cells = RATES.map(|rate| {
            let group = Given::Rate(rate).to_string();
            let cell = results.of(keys, &group).find(|cell| cell.contestant == name);
            cell.map_or(String::new(), |cell| {
                format!("{:.2} ({})", cell.bits, inverse(cell.rate.measured()))
            })
        });
        if cells.iter().any(|cell| !cell.is_empty()) {
            any = true;
            table.row(std::iter::once(name).chain(cells));
        }
    }
    if !any {
        return String::new();
    }
    format!(
        "\n## Bits per key for a rate\n\nWith {} keys, and the rate then measured.\n\n{}",
        grouped(keys),
        table.markdown()
    )
}

/// A rate as one in a number.
fn inverse(rate: Option<f64>) -> String {
    match rate {
        Some(rate) if rate < 0.01 => format!("1/{}", grouped((1.0 / rate).round() as u64)),
        Some(rate) => format!("1/{:.1}", 1.0 / rate),
        None => "none seen".to_owned(),
    }
}

/// The name of a cell's filter with its kernel and pages.
fn full_name(cell: &Cell) -> String {
    let kernel = cell.kernel.as_ref().map_or(String::new(), |kernel| format!(", {kernel}"));
    let huge = if cell.huge { ", huge" } else { "" };
    format!("{}{kernel}{huge}", cell.contestant)
}

fn figures(cells: &[&Cell]) -> String {
    let mut table = Table::new(
        [
            "filter",
            "bits/key",
            "rate",
            "expected",
            "seen",
            "build, ns/key",
            "decode, ns/key",
            "bytes/key",
            "negative, ns",
            "positive, ns",
            "negative, dependent",
            "positive, dependent",
            "negative, batched",
            "positive, batched",
        ],
        1,
    );
    for cell in cells {
        let number = |value: Option<f64>| value.map_or(String::new(), short);
        let is_first = !cell.build_ns.is_empty();
        let mut row = vec![full_name(cell), format!("{:.2}", cell.bits)];
        if is_first {
            row.extend([
                inverse(cell.rate.measured()),
                inverse(Some(cell.rate.expected)),
                grouped(cell.rate.false_positives),
            ]);
        } else {
            row.extend([String::new(), String::new(), String::new()]);
        }
        row.push(number(median(&cell.build_ns)));
        row.push(number(cell.decode_ns));
        row.push(number(cell.build_bytes));
        row.extend(MODES.map(|mode| number(median(cell.rounds(mode)))));
        table.row(row);
    }
    table.markdown()
}

/// Three digits.
fn short(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn multiples(cells: &[&Cell]) -> String {
    let mut table = Table::new(
        [
            "filter / Trommel's",
            "bits",
            "rate",
            "build",
            "negative",
            "positive",
            "negative, dependent",
            "positive, dependent",
            "negative, batched",
            "positive, batched",
        ],
        1,
    );
    let plain = |cell: &&&Cell| !cell.build_ns.is_empty();
    let ours = ["standard", "blocked", "paired", "ribbon"];
    // Compared with the kind of the same sort, and the default of a store.
    let beside = |rival: &str| match rival {
        "fastbloom" => ["standard", "paired"],
        "sbbf-rs" => ["blocked", "paired"],
        _ => ["paired", "ribbon"],
    };
    let rivals = cells.iter().filter(plain).filter(|cell| !ours.contains(&&*cell.contestant));
    for rival in rivals {
        for name in beside(&rival.contestant) {
            let Some(own) = cells.iter().filter(plain).find(|cell| cell.contestant == name) else {
                continue;
            };
            let mut row = vec![format!("{} / {}", full_name(rival), full_name(own))];
            row.push(format!("{:.2}", rival.bits / own.bits));
            row.push(rate_multiple(rival, own));
            row.push(multiple(&rival.build_ns, &own.build_ns));
            let of = |mode: Mode| multiple(rival.rounds(mode), own.rounds(mode));
            row.extend(MODES.map(of));
            table.row(row);
        }
    }
    table.markdown()
}

fn multiple(above: &[f64], below: &[f64]) -> String {
    Spread::of_ratios(above, below).map_or(String::new(), |spread| marked(spread.median))
}

/// The ratio of two rates: measured, or expected if there are too few false positives.
fn rate_multiple(rival: &Cell, own: &Cell) -> String {
    let seen = |cell: &Cell| cell.rate.false_positives >= ENOUGH;
    let rate = |cell: &Cell| {
        let measured = cell.rate.measured().filter(|_| seen(rival) && seen(own));
        measured.unwrap_or(cell.rate.expected)
    };
    marked(rate(rival) / rate(own))
}

/// Bold if Trommel is behind.
fn marked(ratio: f64) -> String {
    let text = short(ratio);
    if ratio < 1.0 { format!("**{text}**") } else { text }
}

/// The goals in words, with the missed ones repeated at the end.
pub fn goals_text(goals: &[Goal]) -> String {
    let (mut text, mut missed, mut unmeasured) = (String::new(), Vec::new(), Vec::new());
    for Goal { what, bound, rows } in goals {
        let _ = writeln!(text, "{what}: {bound}");
        if rows.is_empty() {
            let _ = writeln!(text, "    not measured");
            unmeasured.push(what);
        }
        for row in rows {
            let Spread { median, least, greatest } = row.ratio;
            let met = if row.is_met { "met" } else { "MISSED" };
            let line = format!("{median:6.2} ({least:.2} to {greatest:.2})  {met}  {}", row.of);
            let _ = writeln!(text, "    {line}");
            if !row.is_met {
                missed.push(format!("{what}, {}: {median:.2}, not {bound}", row.of));
            }
        }
    }
    let _ = writeln!(text, "\nmissed: {}, not measured: {}", missed.len(), unmeasured.len());
    for line in missed {
        let _ = writeln!(text, "  {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_rates_are_fractions() {
        assert_eq!([0.123, 5.0, 12.34, 99.96].map(short), ["0.12", "5.00", "12.3", "100"]);
        assert_eq!(inverse(Some(1.0 / 59_700.0)), "1/59,700");
        assert_eq!(inverse(Some(0.25)), "1/4.0");
        assert_eq!(inverse(None), "none seen");
        assert_eq!(marked(0.5), "**0.50**");
    }
}

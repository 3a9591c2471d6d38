//! The page's parts about workloads: a table of all, bars if there are several variants, and a card
//! with charts for each.

use hdrhistogram::Histogram;
use trommel_harness::record::{Record, Times};
use trommel_harness::units;

use super::bars::{Bar, bars, key};
use super::charts;
use super::data::{Data, WorkloadGroup};
use super::html::{HtmlCell, count, details, digits, escaped, sum, time};
use super::svg::Role;

/// A summary of a workload's repeats.
struct Repeats {
    /// Geometric mean, minimum and maximum of their operations per second.
    speed: (f64, f64, f64),
    times: Option<Times>,
}

impl Repeats {
    fn of(records: &[&Record]) -> Self {
        let speeds: Vec<f64> =
            records.iter().map(|record| record.operations_per_second()).collect();
        let mean = match speeds[..] {
            [one] => one,
            _ => {
                let logs: f64 = speeds.iter().map(|speed| speed.max(1e-9).ln()).sum();
                (logs / speeds.len().max(1) as f64).exp()
            }
        };
        let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = speeds.iter().copied().fold(0.0, f64::max);
        let times = match records {
            [one] => one.results.latency_ns.clone(),
            _ => merged(records).map(|histogram| Times::of(&histogram)),
        };
        Self { speed: (mean, least, most), times }
    }
}

/// The latencies of all repeats in one histogram.
fn merged(records: &[&Record]) -> Option<Histogram<u64>> {
    let mut all: Option<Histogram<u64>> = None;
    for times in records.iter().filter_map(|record| record.results.latency_ns.as_ref()) {
        let one = times.histogram().ok()?;
        match &mut all {
            None => all = Some(one),
            Some(all) => all.add(one).ok()?,
        }
    }
    all
}

/// A table of all workloads, with a row for each variant.
pub(super) fn overview(data: &Data<'_>) -> String {
    let head = [
        "Workload",
        "Store",
        "Repeats",
        "Operations",
        "ops/s",
        "µs/op",
        "MiB/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "Found",
        "CPU s",
    ];
    let mut rows = Vec::new();
    for group in &data.groups {
        for (variant, records) in group.records.iter().enumerate() {
            if !records.is_empty() {
                let mut row = vec![HtmlCell::text(&group.name), data.store_cell(variant)];
                row.extend(cells(records));
                rows.push(row);
            }
        }
    }
    data.table(&head, rows)
}

fn cells(records: &[&Record]) -> Vec<HtmlCell> {
    let repeats = Repeats::of(records);
    let total = |of: fn(&Record) -> u64| sum(records.iter().map(|record| of(record)));
    let seconds: f64 = records.iter().map(|record| record.results.wall_seconds).sum();
    let thread_seconds: f64 = records.iter().map(|record| record.results.thread_seconds).sum();
    let operations = total(|record| record.results.operations);
    let bytes = total(|record| record.results.bytes);
    let times = repeats.times.as_ref();
    let all = |of: fn(&Record) -> Option<u64>| {
        records
            .iter()
            .all(|record| of(record).is_some())
            .then(|| sum(records.iter().filter_map(|record| of(record))))
    };
    let (lookups, found) =
        (all(|record| record.results.lookups), all(|record| record.results.found));
    let cpu: Option<f64> = records
        .iter()
        .map(|record| Some(record.results.user_seconds? + record.results.system_seconds?))
        .sum();
    let mut speed = digits(repeats.speed.0);
    if records.iter().any(|record| record.results.interrupted) {
        speed += " (interrupted)";
    }
    vec![
        HtmlCell::number(&records.len().to_string()),
        HtmlCell::number(&count(operations)),
        HtmlCell::number(&speed),
        HtmlCell::number(&digits(thread_seconds * 1e6 / operations.max(1) as f64)),
        HtmlCell::maybe((bytes > 0).then_some(bytes), |bytes| {
            digits(bytes as f64 / 1_048_576.0 / seconds.max(1e-9))
        }),
        HtmlCell::maybe(times, |times| time(times.p50 as f64)),
        HtmlCell::maybe(times, |times| time(times.p99 as f64)),
        HtmlCell::maybe(times, |times| time(times.p999 as f64)),
        HtmlCell::maybe(times, |times| time(times.max as f64)),
        HtmlCell::maybe(
            found.zip(lookups).filter(|(_, lookups)| *lookups > 0),
            |(found, lookups)| format!("{:.1}%", 100.0 * found as f64 / lookups as f64),
        ),
        HtmlCell::maybe(cpu, |cpu| format!("{cpu:.2}")),
    ]
}

/// Operations per second of all variants, compared for each workload. Empty if there is only one
/// variant.
pub(super) fn side_by_side(data: &Data<'_>) -> String {
    if data.variants.len() < 2 {
        return String::new();
    }
    let mut html = String::from("<div class=\"grid\">\n");
    for group in &data.groups {
        // Single operations are shown by their time.
        let is_once = group.records.iter().flatten().all(|record| record.results.operations <= 1);
        let what = if is_once { "seconds; shorter is better" } else { "" };
        let with_records = group.records.iter().enumerate().filter(|(_, all)| !all.is_empty());
        let all: Vec<Bar> =
            with_records.map(|(variant, records)| bar(data, variant, records, is_once)).collect();
        html += &bars(&group.name, what, &all);
    }
    html + "</div>\n"
}

fn bar(data: &Data<'_>, variant: usize, records: &[&Record], is_once: bool) -> Bar {
    let speed = Repeats::of(records).speed;
    let (mean, least, most) =
        if is_once { (1.0 / speed.0, 1.0 / speed.2, 1.0 / speed.1) } else { speed };
    let note = match records.len() {
        1 => String::new(),
        _ => format!("{} – {}", digits(least), digits(most)),
    };
    Bar {
        label: data.variants[variant].label.clone(),
        role: Role::Series(variant),
        value: mean,
        words: digits(mean),
        note,
    }
}

/// The colour legend of all variants.
pub(super) fn variants_key(data: &Data<'_>) -> String {
    let names = data.variants.iter().enumerate();
    key(names.map(|(nth, variant)| (Role::Series(nth), variant.label.as_str())))
}

/// The charts of each workload that has any: throughput over time, and latency percentiles.
pub(super) fn cards(data: &Data<'_>) -> String {
    let mut html = String::new();
    for (nth, group) in data.groups.iter().enumerate() {
        let histograms: Vec<_> = group.records.iter().map(|records| merged(records)).collect();
        let title = format!("{}: throughput over time", group.name);
        if let Some(chart) = charts::throughput(&format!("s{nth}"), &title, &group.records) {
            let numbers = details("Numbers", &series_table(data, group));
            html += &card(&group.name, "operations a second, over time", &chart, &numbers);
        }
        let title = format!("{}: latency by percentile", group.name);
        if let Some(chart) = charts::latency(&format!("l{nth}"), &title, &histograms) {
            let numbers = details("Numbers", &times_table(data, &histograms));
            html += &card(&group.name, "latency by percentile", &chart, &numbers);
        }
    }
    if html.is_empty() { html } else { format!("<div class=\"grid\">\n{html}</div>\n") }
}

/// A chart under its heading, with `rest` below it.
pub(super) fn card(name: &str, what: &str, chart: &str, rest: &str) -> String {
    format!(
        "<div class=\"card\"><h3>{} <small>{}</small></h3>\n{chart}\n{rest}</div>\n",
        escaped(name),
        escaped(what)
    )
}

fn series_table(data: &Data<'_>, group: &WorkloadGroup<'_>) -> String {
    let mut rows = Vec::new();
    for (variant, records) in group.records.iter().enumerate() {
        for record in records {
            let mut start = 0.0;
            for (end, operations) in &record.results.series {
                rows.push(vec![
                    HtmlCell::number(&record.repeat.to_string()),
                    data.store_cell(variant),
                    HtmlCell::number(&format!("{end:.3}")),
                    HtmlCell::number(&count(*operations)),
                    HtmlCell::number(&count((*operations as f64 / (end - start).max(1e-9)) as u64)),
                ]);
                start = *end;
            }
        }
    }
    data.table(&["Repeat", "Store", "Until, s", "Operations", "ops/s"], rows)
}

fn times_table(data: &Data<'_>, histograms: &[Option<Histogram<u64>>]) -> String {
    let head = [
        "Store", "count", "min", "mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99",
        "max",
    ];
    let rows: Vec<Vec<HtmlCell>> = histograms
        .iter()
        .zip(&data.variants)
        .filter_map(|(histogram, variant)| Some((Times::of(histogram.as_ref()?), variant)))
        .map(|(times, variant)| {
            let nanos = [
                times.min,
                times.p50,
                times.p75,
                times.p90,
                times.p95,
                times.p99,
                times.p999,
                times.p9999,
                times.max,
            ]
            .map(|nanos| HtmlCell::number(&time(nanos as f64)));
            let mut row =
                vec![HtmlCell::text(&variant.label), HtmlCell::number(&count(times.count))];
            row.extend(nanos);
            row.insert(3, HtmlCell::number(&time(times.mean)));
            row
        })
        .collect();
    data.table(&head, rows)
}

/// Bytes of a store's files after its last workload, and bytes written per byte that the user
/// wrote.
pub(super) fn amplification(data: &Data<'_>) -> String {
    let mut rows = Vec::new();
    for group in &data.groups {
        for (variant, records) in group.records.iter().enumerate() {
            for record in records {
                let state = &record.state;
                let (Some(io), amplification) = (&state.io, state.amplification.as_ref()) else {
                    continue;
                };
                let factor = |of: Option<f64>| HtmlCell::maybe(of, digits);
                let bytes = |of: Option<u64>| HtmlCell::maybe(of, units::bytes);
                rows.push(vec![
                    HtmlCell::text(&group.name),
                    data.store_cell(variant),
                    HtmlCell::number(&record.repeat.to_string()),
                    factor(amplification.and_then(|all| all.write)),
                    factor(amplification.and_then(|all| all.space)),
                    factor(amplification.and_then(|all| all.read)),
                    bytes(io.user_bytes),
                    bytes(io.bytes_written),
                    bytes(io.log_bytes),
                    bytes(io.flushes.bytes),
                    bytes(io.compactions.bytes_written),
                    bytes(io.bytes_read),
                    HtmlCell::maybe(io.lookups.block_reads, count),
                    HtmlCell::maybe(io.lookups.cache_hits, count),
                    HtmlCell::maybe(io.stall_seconds, digits),
                ]);
            }
        }
    }
    let head = [
        "Workload",
        "Store",
        "Repeat",
        "Write amp.",
        "Space amp.",
        "Read amp.",
        "User wrote",
        "Files written",
        "Log",
        "Flushes",
        "Compactions",
        "Files read",
        "Blocks read",
        "Cache hits",
        "Stalls, s",
    ];
    data.table(&head, rows)
}

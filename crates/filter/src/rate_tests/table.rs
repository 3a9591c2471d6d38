//! The table of measured rates, `RATES.md`: every kind at every number of bits and keys.
//!
//! `cargo test --release -p trommel-filter --lib all_rates -- --ignored --nocapture`
//!
//! takes about an hour of processor time, on all processors. Results are saved, line by line, in
//! `filter-rates.txt` in the build directory, until the table is complete: an interrupted run
//! resumes, unless the filters' bits have changed since. The table is rewritten after each cell, so
//! that it always holds all results so far.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Measured;
use super::cells::{Cell, Effort, Method, Outcome, filters};
use crate::block::BLOCK_BITS;
use crate::format::HEADER_BYTES;
use crate::kind::FilterKind;
use crate::plan::Plan;
use crate::{FilterSpec, Kernel};

/// In the order of measurement.
const KINDS: [FilterKind; FilterKind::ALL.len()] = [
    FilterKind::Paired,
    FilterKind::Blocked,
    FilterKind::Standard,
    FilterKind::Fuse,
    FilterKind::Ribbon,
];
const BITS: [f64; 9] = [8.0, 10.0, 12.0, 16.0, 20.0, 23.4, 28.0, 32.0, 40.0];
const KEYS: [u64; 9] = [1, 2, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The cells whose rate is a promise of its own: 1/58,000, over two billion queries each.
const PROMISED: (FilterKind, f64, f64, f64) = (FilterKind::Paired, 23.4, 1.0 / 58_000.0, 2e9);

fn is_promised(cell: Cell) -> bool {
    (cell.kind, cell.bits) == (PROMISED.0, PROMISED.1) && cell.keys >= 100_000
}

fn all_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for keys in KEYS {
        for kind in KINDS {
            cells.extend(BITS.map(|bits| Cell { kind, bits, keys }));
        }
    }
    cells
}

fn effort(cell: Cell) -> Effort {
    let least = if is_promised(cell) { 1.02 * PROMISED.3 } else { 1e7 };
    // Queries of the other kinds take several times as long as those of one or two cache lines.
    let most = match cell.kind {
        FilterKind::Blocked | FilterKind::Paired => 1e10,
        FilterKind::Ribbon => 3e8,
        _ => 2.1e9,
    };
    Effort { hits: 2_500.0, least, most }
}

/// The file with the results of an earlier run.
fn results_path() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().and_then(Path::parent).unwrap().join("filter-rates.txt")
}

fn to_line(cell: Cell, outcome: &Outcome) -> String {
    let Outcome { method, filters, queries, expected, measured } = outcome;
    let Measured { mean, error } = measured;
    let spec = cell.spec();
    let keys = cell.keys;
    format!("{spec} {keys} {method:?} {filters} {queries} {expected:e} {mean:e} {error:e}\n")
}

fn from_line(line: &str) -> Option<((String, u64), Outcome)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [spec, keys, method, filters, queries, expected, mean, error] = fields[..] else {
        return None;
    };
    let methods = [Method::Queried, Method::Parts, Method::Bits];
    let outcome = Outcome {
        method: methods.into_iter().find(|known| format!("{known:?}") == method)?,
        filters: filters.parse().ok()?,
        queries: queries.parse().ok()?,
        expected: expected.parse().ok()?,
        measured: Measured { mean: mean.parse().ok()?, error: error.parse().ok()? },
    };
    Some(((spec.to_owned(), keys.parse().ok()?), outcome))
}

#[test]
fn saved_results_are_read_back() {
    let cell = Cell { kind: FilterKind::Paired, bits: 23.4, keys: 10 };
    let measured = Measured { mean: 1.25e-7, error: 3.5e-9 };
    let outcome =
        Outcome { method: Method::Parts, filters: 30, queries: 7, expected: 1e-7, measured };
    let line = to_line(cell, &outcome);
    let (key, read) = from_line(line.trim_end()).unwrap();
    assert_eq!(key, ("paired:23.4".to_owned(), 10));
    assert_eq!(to_line(cell, &read), line);
    assert!(from_line("paired:23.4 10 Parts 30 7 1e-7 1e-7").is_none(), "half a line");
}

/// The first line of the saved results: it distinguishes the measured filters from those of a
/// version that sets other bits.
fn stamp() -> String {
    let mut bits = Vec::new();
    for kind in KINDS {
        let mut builder = FilterSpec::new(kind, 12.0).unwrap().builder();
        (0..5_000_u64).for_each(|key| builder.add_hash(crate::hash(&key.to_le_bytes())));
        bits.extend_from_slice(&builder.finish()[HEADER_BYTES..]);
    }
    format!("filters {:016x}\n", crate::hash(&bits))
}

/// Measures the missing cells, on all processors.
fn measure_all(cells: &[Cell]) -> Vec<Outcome> {
    let path = results_path();
    let saved = fs::read_to_string(&path).unwrap_or_default();
    let stamp = stamp();
    let saved = if saved.starts_with(&stamp) { saved } else { stamp };
    let known: HashMap<_, _> = saved.lines().filter_map(from_line).collect();
    let key = |cell: &Cell| (cell.spec().to_string(), cell.keys);
    let found: Vec<_> = cells.iter().map(|cell| known.get(&key(cell)).copied()).collect();
    let table_at = Path::new(env!("CARGO_MANIFEST_DIR")).join("RATES.md");
    let (found, saved) = (Mutex::new(found), Mutex::new(saved));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
            let place = cells.iter().position(|&other| other == cell).unwrap();
            if found.lock().unwrap()[place].is_some() {
                continue;
            }
            let outcome = cell.measure(effort(cell));
            eprintln!("{}: {outcome:?}, z = {:+.2}", cell.name(), outcome.z());
            let mut saved = saved.lock().unwrap();
            saved.push_str(&to_line(cell, &outcome));
            fs::write(&path, &*saved).unwrap();
            let mut found = found.lock().unwrap();
            found[place] = Some(outcome);
            fs::write(&table_at, table(cells, &found)).unwrap();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap().into_iter().flatten().collect()
}

/// The processor's name, if the system reports it.
fn processor() -> String {
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = about.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

/// A whole number with thousands separators.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const HEAD: &str = "\
# Measured rates of false positives

Written by

```text
cargo test --release -p trommel-filter --lib all_rates -- --ignored --nocapture
```

and not by hand. Each row is a *cell*: a kind, bits per key as requested, and a number of keys.
*Stored* is the bits per key once the filter's size is rounded up to whole cache lines, *k* the number
of probes for that size. *Expected* is the exact sum of the theory for a filter of that size and number
of keys, *measured* the mean over the given number of filters, each built from random keys of its own.
*Error* is the standard error of that mean, from the variance between the filters, and *z* the
deviation from the expected rate in standard errors: it should exceed 2 once in 20 rows and 3 once in
300.

*How* a filter's rate is determined (`src/rate_tests/cells.rs` describes it in full), with a number of
*queries*:

* *queried*: by that many queries for absent keys, at least 2,500 of which are expected to be false
  positives;
* *parts*: the two probe chains of a key (or ranges of a standard filter's probes, or of a ribbon's
  columns) are queried separately, and the filter's rate is the product; the number is that of all
  queries of parts;
* *bits*: a few keys in their cache line, with fewer than one false positive in 10^11 queries: the set
  bits are counted, and the rate is that of ideal probes in these. The actual rate of such a filter is
  the probability that two keys have the same hash, `keys / 2^64`.

";

fn table(cells: &[Cell], found: &[Option<Outcome>]) -> String {
    let mut text = HEAD.to_owned();
    let (kernel, processor) = (Kernel::best(), processor());
    let outcomes: Vec<Outcome> = found.iter().flatten().copied().collect();
    let queried: u64 = outcomes.iter().map(|outcome| outcome.queries).sum();
    let built: u64 = outcomes.iter().map(|outcome| u64::from(outcome.filters)).sum();
    let beyond = |limit| outcomes.iter().filter(|outcome| outcome.z().abs() > limit).count();
    writeln!(
        text,
        "Measured with the {kernel} kernel on {processor}: {} filters, {} queries, {} of {} cells, \
         of which {} are beyond 2 standard errors and {} beyond 3; the mean of z squared is {:.2}.",
        grouped(built),
        grouped(queried),
        outcomes.len(),
        cells.len(),
        beyond(2.0),
        beyond(3.0),
        outcomes.iter().map(|outcome| outcome.z().powi(2)).sum::<f64>() / outcomes.len() as f64,
    )
    .unwrap();
    for kind in KINDS {
        write!(
            text,
            "\n## {kind}\n\n| bits | keys | stored | k | filters | how | queries | expected | \
             measured | error | z |\n|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|\n"
        )
        .unwrap();
        for bits in BITS {
            for (&cell, found) in cells.iter().zip(found) {
                if (cell.kind, cell.bits) == (kind, bits) {
                    text.extend(found.iter().map(|outcome| row(cell, outcome)));
                }
            }
        }
    }
    text
}

fn row(cell: Cell, outcome: &Outcome) -> String {
    let plan = Plan::new(cell.spec(), cell.keys);
    let stored = (plan.blocks * BLOCK_BITS) as f64 / cell.keys as f64;
    let probes = if plan.probes == 0 { "-".to_owned() } else { plan.probes.to_string() };
    let (name, mut rate) =
        (format!("{:?}", outcome.method).to_lowercase(), format!("{:.4e}", outcome.measured.mean));
    if is_promised(cell) {
        rate = format!("{rate} = 1/{}", grouped((1.0 / outcome.measured.mean) as u64));
    }
    format!(
        "| {} | {} | {stored:.2} | {probes} | {} | {name} | {} | {:.4e} | {rate} | {:.2}% | {:+.2} |\n",
        cell.bits,
        grouped(cell.keys),
        grouped(outcome.filters.into()),
        grouped(outcome.queries),
        outcome.expected,
        100.0 * outcome.measured.error / outcome.expected,
        outcome.z(),
    )
}

#[test]
#[ignore = "long: an hour of processor time"]
fn all_rates() {
    let cells = all_cells();
    let outcomes = measure_all(&cells);
    assert_eq!(cells.len(), outcomes.len());
    let (mut squares, mut beyond) = (0.0, 0);
    for (&cell, outcome) in cells.iter().zip(&outcomes) {
        let z = outcome.z();
        let about = format!("{}: {outcome:?}, z = {z:+.2}", cell.name());
        assert!(outcome.measured.error <= 0.05 * outcome.expected, "{about}");
        assert!(outcome.filters >= 30 && outcome.filters == filters(cell), "{about}");
        assert!(z.abs() <= 4.0, "{about}");
        squares += z * z;
        beyond += usize::from(z.abs() > 3.0);
        if is_promised(cell) {
            assert!(outcome.queries as f64 >= PROMISED.3, "{about}");
            assert!(outcome.measured.mean <= PROMISED.2, "{about}");
        }
    }
    // With 30 filters z follows Student's distribution: its square is 29/27 on average.
    let mean = squares / cells.len() as f64;
    assert!((0.7..1.4).contains(&mean), "the mean of z squared is {mean}");
    assert!(beyond <= cells.len() / 50, "{beyond} cells are beyond three standard errors");
    fs::write(results_path(), "").unwrap();
}

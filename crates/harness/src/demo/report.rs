//! The introduction of the demo, and its final table.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::trial::Trial;
use super::{DemoPlan, Tree};
use crate::error::Error;
use crate::measured::Measured;
use crate::table::Table;
use crate::units::{bytes, duration, grouped};

/// Prints the plan, its directory and the disk space that it takes.
pub(super) fn introduce(
    plan: &DemoPlan,
    dir: &Path,
    free: Option<u64>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let keys = grouped(plan.keys.len());
    let source = match &plan.keys_file {
        Some(file) => format!("the {keys} distinct lines of {}", file.display()),
        None => format!("{keys} of {:.0} bytes each", plan.keys.key_bytes()),
    };
    let names: Vec<String> = plan.policies.iter().map(ToString::to_string).collect();
    let threads = match plan.threads {
        1 => "1 thread".into(),
        many => format!("{many} threads"),
    };
    let free = free.map_or(String::new(), |free| format!("; {} are free there", bytes(free)));
    let Tree { write_buffer_bytes, base_level_bytes, table_bytes, cache_bytes, read_mode } =
        plan.tree;
    writeln!(
        out,
        "What filters save: for each of {}, in a fresh store,\n\
         1. write {} values of {} bytes to keys drawn with replacement from {source}\n\
         2. wait until compaction is done (the writer does it, so that all trees come out alike; with the threads\n\
         {:3}of a store's defaults a write takes a fraction of the time: `trommel bench` measures it)\n\
         3. look up {} keys drawn the same way, on {threads}\n\
         4. look up {} absent keys, all distinct, between the stored ones, on {threads}\n\
         Tree:  small, so that there are several levels: write buffer {}, base level {}, tables {},\n\
         {:7}block cache {}, read mode {}, no compression\n\
         Where: {}, removed at the end, also after Ctrl-C\n\
         Disk:  at most about {}, one store at a time{free}\n\
         Seed:  {}",
        names.join(", "),
        grouped(plan.writes),
        plan.values.value_bytes(),
        "",
        grouped(plan.reads),
        grouped(plan.missing),
        bytes(write_buffer_bytes),
        bytes(base_level_bytes),
        bytes(table_bytes),
        "",
        bytes(cache_bytes),
        read_mode,
        dir.display(),
        bytes(plan.disk_bytes()),
        plan.seed
    )?;
    Ok(out.flush()?)
}

/// Estimates how long the remaining trials will take from those that are done, if any.
pub(super) fn left(elapsed: Duration, done: usize, all: usize) -> String {
    match done {
        0 => String::new(),
        _ => {
            let left = elapsed.mul_f64((all - done) as f64 / done as f64);
            format!(", about {} left in total", duration(left))
        }
    }
}

/// A row of the table: its title and how to fill a cell.
type Row = (&'static str, fn(&Trial) -> String);

const ROWS: [Row; 18] = [
    ("**Missing keys**", |_| String::new()),
    ("false positives per lookup, measured", |trial| rate(trial.measured_rate())),
    ("... 95% interval", |trial| {
        let (low, high) = trial.interval();
        format!("{} - {}", rate(low), rate(high))
    }),
    ("... expected in theory", |trial| rate(trial.expected_rate())),
    ("... counted", |trial| grouped(trial.false_positives())),
    ("filters queried per lookup", |trial| format!("{:.2}", trial.probes())),
    ("filters queried per false positive", |trial| trial.one_in().map_or("-".into(), grouped)),
    ("data blocks needed per lookup", |trial| rate(trial.missing.blocks())),
    ("... read from files", |trial| rate(trial.missing.blocks_from_files())),
    ("microseconds per lookup", |trial| micros(&trial.missing.measured)),
    ("**Drawn keys**", |_| String::new()),
    ("found", |trial| match trial.present.measured.found {
        Some((found, lookups)) => format!("{:.1}%", found as f64 * 100.0 / lookups.max(1) as f64),
        None => "-".into(),
    }),
    ("data blocks needed per lookup", |trial| format!("{:.4}", trial.present.blocks())),
    ("... read from files", |trial| format!("{:.4}", trial.present.blocks_from_files())),
    ("microseconds per lookup", |trial| micros(&trial.present.measured)),
    ("**Cost**", |_| String::new()),
    ("filter memory (bits per key stored)", |trial| {
        let kib = trial.filter_bytes() as f64 / 1024.0;
        format!("{kib:.0} KiB ({:.2})", trial.bits_per_key())
    }),
    ("microseconds per write, including flushes and compactions", |trial| micros(&trial.fill)),
];

fn rate(rate: f64) -> String {
    if rate == 0.0 { "0".into() } else { format!("{rate:.2e}") }
}

fn micros(measured: &Measured) -> String {
    format!("{:.3}", measured.micros_per_operation())
}

/// Prints the comparison of all filters.
pub(super) fn compare(plan: &DemoPlan, trials: &[Trial], out: &mut dyn Write) -> Result<(), Error> {
    let names = trials.iter().map(|trial| trial.policy.clone());
    let mut table = Table::new([String::new()].into_iter().chain(names), 1);
    for (title, cell) in ROWS {
        table.row([title.to_owned()].into_iter().chain(trials.iter().map(cell)));
    }
    write!(out, "\n{}", table.text())?;
    if plan.threads > 1 {
        writeln!(out, "\nMicroseconds per lookup are those of each of {} threads.", plan.threads)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_go_follows_from_the_trials_that_are_done() {
        let elapsed = Duration::from_secs(20);
        assert_eq!(left(elapsed, 0, 3), "");
        assert_eq!(left(elapsed, 1, 3), ", about 40.0 s left in total");
        assert_eq!(left(elapsed, 2, 3), ", about 10.0 s left in total");
    }
}

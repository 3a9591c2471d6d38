//! `trommel filter-bench`: benchmarks of filters by themselves.
//!
//! 1. [`args`] turns the flags into a list of measurements; [`specs`] parses lists of filters.
//! 2. Each measurement is a row ([`rows`]).
//! 3. Records are appended to a file, and charts drawn again, after each measurement.

mod args;
mod rows;
mod specs;

use std::io::Write;

use trommel_harness::{Control, Error, Progress, Unit};
use trommel_lab::filter_bench::record::{self, CellRecord, read_lines};
use trommel_lab::filter_bench::{FilterBenchPlan, FilterCell, measure};
use trommel_lab::report::filters;

use crate::commands::records::{self, Appender};
use crate::failure::Failure;
pub(crate) use args::FilterBenchArgs;

pub(crate) const LONG_ABOUT: &str = "\
Builds filters until they fill a given amount of memory, checks that they have no false negatives, \
compares their false-positive rate with the exact theoretical one, and times queries: of one \
filter and of many, in batches, for present and for missing keys. Times are net, of the filter \
alone: the time to generate keys, hash them and choose filters is measured in a dry run and \
subtracted.

There is a row for each filter and number of keys; --plot draws charts. --format=json and csv have \
more columns.

Ends with exit code 7 if filters have more false positives than chance explains.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel filter-bench --filters paired:23.4 --quick
      a few seconds; without --quick some minutes
  trommel filter-bench --filters all:8..32/4 --keys 1M --m-rate-queries=200 --plot charts
      rates against bits per key, all kinds
  trommel filter-bench --filters all:10 --keys 1K,10K,100K,1M,10M,100M --plot charts --json run.jsonl
      times against the filter's size, through the caches to memory
  trommel filter-bench --from run.jsonl --format csv
      the results of an earlier run
  trommel filter-bench --filters paired:10 --kernel scalar --format json";

pub(crate) fn run(
    args: &FilterBenchArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if !args.files.from.is_empty() {
        return show(args, out);
    }
    let plans = args.plans()?;
    for note in args.notes(&plans) {
        control.progress.say(&format!("note: {note}"));
    }
    let mut file = args.files.json.as_deref().map(Appender::open).transpose()?;
    let (place, mut records) = (record::Place::new(), Vec::new());
    draw(args, &records)?;
    let mut verdict = Verdict::default();
    let result = measure_all(args, &plans, control, out, &mut |cell| {
        verdict.hear(&cell);
        let record = CellRecord::new(&place, cell);
        file.iter_mut().try_for_each(|file| file.add(&record))?;
        records.push(record);
        draw(args, &records)
    });
    let judged = if args.switches.allow_bad_rate { Ok(()) } else { verdict.pronounce() };
    // Judge even if the reader of the rows is gone.
    judged.and(result)
}

/// Shows earlier measurements.
fn show(args: &FilterBenchArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut found = Vec::new();
    for file in &args.files.from {
        found.extend(records::read_with(file, read_lines)?);
    }
    let mut output = args.output.begin("filter_bench", out);
    rows::begin(args.output.format, &mut output)?;
    for record in &found {
        rows::write(&record.cell, args.output.format, &mut output)?;
    }
    output.finish()?;
    Ok(draw(args, &found)?)
}

/// Draws the charts of all records, if they are requested.
fn draw(args: &FilterBenchArgs, records: &[CellRecord]) -> Result<(), Error> {
    let Some(dir) = &args.files.plot else { return Ok(()) };
    std::fs::create_dir_all(dir).map_err(|source| Error::Io {
        file: dir.clone(),
        doing: "creating the directory",
        source,
    })?;
    let write = |(name, svg): (&str, String)| {
        records::write(&dir.join(format!("{name}.svg")), svg.as_bytes())
    };
    filters::plots(records).into_iter().try_for_each(write)
}

/// Receives a measurement.
type Keep<'a> = &'a mut dyn FnMut(FilterCell) -> Result<(), Error>;

fn measure_all(
    args: &FilterBenchArgs,
    plans: &[FilterBenchPlan],
    control: Control<'_>,
    out: &mut dyn Write,
    keep: Keep<'_>,
) -> Result<(), Failure> {
    let format = args.output.format;
    let mut output = args.output.begin("filter_bench", out);
    rows::begin(format, &mut output)?;
    let mut result = Ok(());
    for (nth, plan) in plans.iter().enumerate() {
        let place = Place { inner: control.progress, nth: nth + 1, of: plans.len(), plan };
        let control = Control { progress: &place, ..control };
        match measure(plan, control) {
            Ok(cell) => {
                let is_interrupted = cell.interrupted;
                rows::write(&cell, format, &mut output)?;
                keep(cell)?;
                if is_interrupted {
                    result = Err(Error::Interrupted);
                    break;
                }
            }
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    // Complete the document even after an error.
    output.finish()?;
    Ok(result?)
}

/// A progress that shows the number of the current measurement.
struct Place<'a> {
    inner: &'a dyn Progress,
    nth: usize,
    of: usize,
    plan: &'a FilterBenchPlan,
}

impl Progress for Place<'_> {
    fn begin(&self, what: &str, all: u64, unit: Unit) {
        let Self { nth, of, plan, .. } = self;
        self.inner.begin(&format!("{nth}/{of} {} {what}", plan.spec), all, unit);
    }

    fn advance(&self, done: u64) {
        self.inner.advance(done);
    }

    fn end(&self) {
        self.inner.end();
    }

    fn say(&self, what: &str) {
        self.inner.say(what);
    }
}

/// The assessment of the rates.
#[derive(Default)]
struct Verdict {
    complaints: Vec<String>,
}

impl Verdict {
    fn hear(&mut self, cell: &FilterCell) {
        let Some(rate) = cell.rate.filter(trommel_lab::filter_bench::Rate::is_bad) else {
            return;
        };
        self.complaints.push(format!(
            "{} has too many false positives: measured {:.4e}, expected {:.4e}, {:.1} standard \
             errors apart",
            cell.setup.spec,
            rate.measured,
            rate.expected,
            rate.deviation()
        ));
    }

    fn pronounce(self) -> Result<(), Failure> {
        if self.complaints.is_empty() {
            return Ok(());
        }
        Err(Failure::Check(self.complaints.join("\n       ")))
    }
}

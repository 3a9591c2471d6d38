//! `trommel tune report`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use trommel_harness::Control;
use trommel_lab::report::tuning::{page, plots, write_csv};
use trommel_lab::tune::record::read_lines;
use trommel_lab::tune::{Record, merge};

use crate::commands::records::{self, write};
use crate::commands::report::deliver;
use crate::failure::Failure;

pub(crate) const LONG_ABOUT: &str = "\
Makes one HTML page of the results of `trommel tune run`: filter bytes against wasted reads and \
against time, with the filters that no others beat; bits per level; predictions compared with \
measurements; and a table of every level. The page needs no other file, no network and no script, \
and follows the browser's choice of light or dark. --csv writes the same figures for other \
programs, --plot each chart as an SVG file.

Files of several machines are joined. If a cell was measured more than once, the run that was \
started last counts.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel tune report small.jsonl -o small.html
  trommel tune report accuracy.*.jsonl -o accuracy.html --csv accuracy.csv";

#[derive(Debug, Args)]
pub(crate) struct TuneReportArgs {
    /// Files of results; - for standard input
    #[arg(required = true, value_name = "FILE.jsonl")]
    files: Vec<PathBuf>,
    /// Where to write the page [default: standard output]
    #[arg(long, short, value_name = "PAGE.html")]
    output: Option<PathBuf>,
    /// Where to write the figures as comma-separated values
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    /// Write the charts, as SVG files, to DIR
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Title of the page [default: the title of the plan]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

pub(crate) fn run(
    args: &TuneReportArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut all = Vec::new();
    for file in &args.files {
        all.extend(records::read_with(file, read_lines)?);
    }
    let (records, left_out) = merge(all);
    if left_out > 0 {
        control.progress.say(&format!(
            "note: {left_out} results were dropped: the same cells were measured again later"
        ));
    }
    if let Some(file) = &args.csv {
        let mut bytes = Vec::new();
        write_csv(&records, &mut bytes)?;
        write(file, &bytes)?;
    }
    if let Some(dir) = &args.plot {
        std::fs::create_dir_all(dir)
            .map_err(|error| Failure::Other(format!("making {} failed: {error}", dir.display())))?;
        for (name, svg) in plots(&records) {
            write(&dir.join(format!("{name}.svg")), svg.as_bytes())?;
        }
    }
    deliver(&page(&title(args, &records), &records), args.output.as_deref(), out)
}

/// The title of the page: the user's, or the titles of the plans.
fn title(args: &TuneReportArgs, records: &[Record]) -> String {
    let mut titles: Vec<&str> = Vec::new();
    for title in records.iter().filter_map(|record| record.title.as_deref()) {
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let of_plans = if titles.is_empty() { "Trommel experiments".into() } else { titles.join("; ") };
    args.title.clone().unwrap_or(of_plans)
}

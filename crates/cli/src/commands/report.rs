//! `trommel report`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use trommel_lab::report::{Source, page};

use crate::commands::records::{self, write};
use crate::failure::Failure;

pub(crate) const LONG_ABOUT: &str = "\
Makes one HTML page of the records of one or several benchmark runs: throughput over time, latency \
by percentile, measured and expected filter rates, memory, levels, amplification, settings, \
machine. The page needs no other file, no network and no script, and follows the browser's choice \
of light or dark.

Records of different stores or settings are shown side by side. Repeats of a workload are \
combined; if two files have the same workload with the same settings, each file is shown by \
itself.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel bench --json=run.jsonl --histogram
  trommel report run.jsonl -o run.html
  trommel report before.jsonl after.jsonl -o change.html --title='Larger blocks'";

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Files of records (bench --json); - for standard input
    #[arg(required = true, value_name = "FILE.jsonl")]
    files: Vec<PathBuf>,
    /// Where to write the page [default: standard output]
    #[arg(long, short, value_name = "PAGE.html")]
    output: Option<PathBuf>,
    /// What to call it
    #[arg(long, value_name = "TEXT", default_value = "Trommel bench")]
    title: String,
}

pub(crate) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let read = |file: &PathBuf| Ok(Source { name: name_of(file), records: records::read(file)? });
    let sources = args.files.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    deliver(&page(&args.title, &sources), args.output.as_deref(), out)
}

/// Writes a page to a file, or to standard output.
pub(crate) fn deliver(page: &str, file: Option<&Path>, out: &mut dyn Write) -> Result<(), Failure> {
    match file {
        Some(file) => Ok(write(file, page.as_bytes())?),
        None => {
            out.write_all(page.as_bytes())?;
            Ok(out.flush()?)
        }
    }
}

/// The name of a file without its directory and extension.
fn name_of(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

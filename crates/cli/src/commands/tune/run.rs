//! `trommel tune run`.
//!
//! 1. The plan becomes cells, and this shard takes its share of them.
//! 2. Cells with a result in the file are done. A truncated last line, from an earlier run that was
//!    killed, is removed.
//! 3. Each result is appended as one line, in one write, when its cell is done.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use trommel_harness::record::write_line;
use trommel_harness::{Control, Error};
use trommel_lab::tune::record::read_lines;
use trommel_lab::tune::{Cell, Plan, Record, Shard};

use crate::failure::Failure;

pub(crate) const LONG_ABOUT: &str = "\
Measures the cells of a plan: every combination of its filters, budgets, trees, miss fractions, \
key distributions, read modes and cache sizes. A cell's stores are built with fixed seeds in a \
directory of their own, queried, and removed; its result is one line of JSON.

A run can be ended at any time and resumed: cells whose result is in the file are not measured \
again. With --shard each of several machines measures its part; their files are joined by \
concatenation.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel tune run benches/plans/small.toml
  trommel tune run benches/plans/small.toml --list
  trommel tune run benches/plans/accuracy.toml --shard 2/8 -o accuracy.2.jsonl
  trommel tune report accuracy.*.jsonl -o accuracy.html";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// File of results, which is appended to [default: the plan's name with .jsonl, in the current
    /// directory]
    #[arg(long, short, value_name = "FILE.jsonl")]
    output: Option<PathBuf>,
    /// Measure one part of several: 1/8 to 8/8
    #[arg(long, value_name = "NTH/OF", value_parser = parse_shard)]
    shard: Option<Shard>,
    /// Print the cells with their keys, and measure nothing
    #[arg(long)]
    list: bool,
    /// Where to make the directory that holds the stores [default: the temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn parse_shard(text: &str) -> Result<Shard, String> {
    let numbers = text
        .split_once('/')
        .and_then(|(nth, of)| Some(Shard { nth: nth.parse().ok()?, of: of.parse().ok()? }));
    numbers
        .filter(|shard| (1..=shard.of).contains(&shard.nth))
        .ok_or_else(|| "write a shard as 1/8, for the first of eight".to_owned())
}

pub(crate) fn run(
    args: &RunArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let plan = Plan::read(&args.plan)?;
    if plan.repeated > 0 {
        let repeated = plan.repeated;
        control.progress.say(&format!("note: {repeated} cells are in the plan more than once"));
    }
    let cells = args.shard.unwrap_or(Shard::WHOLE).of(&plan.cells);
    if args.list {
        for cell in &cells {
            writeln!(out, "{} {}", cell.key(), cell.name())?;
        }
        return Ok(out.flush()?);
    }
    let file = args.output.clone().unwrap_or_else(|| default_output(&args.plan, args.shard));
    let (done, _held) = earlier(&file, control)?;
    let all = cells.len();
    let missing: Vec<&Cell> =
        cells.into_iter().filter(|cell| !done.contains(&cell.key())).collect();
    let before = all - missing.len();
    let words = format!("{} cells to measure, {before} done before", missing.len());
    control.progress.say(&format!("{words}; results go to {}", file.display()));
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let title = plan.title.clone();
    let mut keep = |record: Record| append(&file, &Record { title: title.clone(), ..record });
    trommel_lab::tune::run(&missing, &parent, control, &mut keep)?;
    Ok(())
}

/// The plan's name, with the shard's number.
fn default_output(plan: &Path, shard: Option<Shard>) -> PathBuf {
    let name = plan.file_stem().unwrap_or_default().to_string_lossy();
    match shard {
        Some(Shard { nth, of }) => format!("{name}.{nth}-of-{of}.jsonl").into(),
        None => format!("{name}.jsonl").into(),
    }
}

/// The keys of the cells with a result in the file, whose last line is completed or removed; and
/// the file, locked against other runs while it is held.
fn earlier(file: &Path, control: Control<'_>) -> Result<(HashSet<String>, File), Failure> {
    let failed = |doing: &str, error: std::io::Error| {
        Failure::Other(format!("{doing} {} failed: {error}", file.display()))
    };
    // This also fails early if results cannot be written.
    let results = opened(file).map_err(|error| failed("writing", error))?;
    // Without support for locks, the user has to take care.
    if file.is_file() && matches!(results.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(Failure::Usage(format!(
            "another run writes to {}: wait for it, or give this one a file of its own with -o",
            file.display()
        )));
    }
    // A pipe or a device holds no results.
    let mut bytes = match file.is_file() {
        true => std::fs::read(file).map_err(|error| failed("reading", error))?,
        false => Vec::new(),
    };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let is_cut = whole < bytes.len();
    if is_cut && bytes[..whole].trim_ascii().is_empty() && bytes.get(whole) != Some(&b'{') {
        return Err(Failure::Usage(format!(
            "{} holds no results of this program: give another file with -o",
            file.display()
        )));
    }
    bytes.truncate(whole);
    let text = String::from_utf8_lossy(&bytes);
    let records = match text.trim() {
        "" => Vec::new(),
        _ => read_lines(&text)
            .map_err(|error| Failure::Other(format!("{}: {error}", file.display())))?,
    };
    // Only if it is a file of results: any other file must not change.
    if is_cut {
        let note = "note: the last line of the results was truncated, and is removed";
        control.progress.say(note);
        results.set_len(whole as u64).map_err(|error| failed("writing", error))?;
    }
    Ok((records.into_iter().map(|record| record.key).collect(), results))
}

/// Opens the file of results for appending; creates it if it does not exist.
#[expect(clippy::disallowed_methods, reason = "it is no store's file")]
fn opened(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(file)
}

fn append(file: &Path, record: &Record) -> Result<(), Error> {
    let mut line = Vec::new();
    write_line(record, &mut line)?;
    opened(file).and_then(|mut results| results.write_all(&line)).map_err(|source| Error::Io {
        file: file.into(),
        doing: "writing",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!(parse_shard("1/1"), Ok(Shard::WHOLE));
        assert_eq!(parse_shard("8/8"), Ok(Shard { nth: 8, of: 8 }));
        for text in ["", "0/8", "9/8", "1", "1/", "/1", "1/0", "-1/2", "a/b", "1/2/3"] {
            assert!(parse_shard(text).is_err(), "{text}");
        }
    }

    #[test]
    fn results_are_named_for_their_plan() {
        let plan = Path::new("benches/plans/small.toml");
        assert_eq!(default_output(plan, None), Path::new("small.jsonl"));
        let shard = Some(Shard { nth: 2, of: 8 });
        assert_eq!(default_output(plan, shard), Path::new("small.2-of-8.jsonl"));
    }
}

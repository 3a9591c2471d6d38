//! Compares Trommel with RocksDB, fjall, redb and LMDB, on equal terms.
//!
//! 1. `args` selects what to measure, out of `stores`: each store in one or more set-ups.
//! 2. `run` measures them one after another, each by a `trial` in a process of its own, which
//!    prints records.
//! 3. `studies` do the same for questions that need stores of their own.
//! 4. `figures` reduces records to numbers, and `report` presents these.
//!
//! Invariants: every store gets the same seeded streams of the harness and the same limits from
//! `settings`; every value read is `checked`; only Trommel's public interface is used.

mod args;
mod checked;
mod figures;
mod process;
mod report;
mod rows;
mod run;
mod settings;
mod stores;
mod studies;
mod trial;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use trommel_harness::record::{Record, read_lines, write_line};
use trommel_harness::{Stop, StoreError};

use crate::args::Args;
use crate::figures::Results;
use crate::run::Plan;
use crate::settings::Settings;

/// Keys and reads of `--quick`.
const QUICK: (u64, u64) = (100_000, 50_000);
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let args = Args::parse();
    let result =
        if args.trial { trial::main().map(|()| ExitCode::SUCCESS) } else { compare(&args) };
    result.unwrap_or_else(|error| {
        note(&format!("trommel-compare: {error}"));
        ExitCode::FAILURE
    })
}

fn compare(args: &Args) -> Result<ExitCode, StoreError> {
    let stop = Stop::new();
    let records = if args.from.is_empty() { measured(args, &stop)? } else { read(args)? };
    let sections = Results::split(records);
    let report = report::report(&sections);
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).map_err(|error| words(dir, &error))?;
        let file = dir.join("report.md");
        fs::write(&file, &report).map_err(|error| words(&file, &error))?;
    }
    if let Err(error) = io::stdout().write_all(report.as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(error.into());
    }
    let is_troubled = sections.iter().any(|(_, results)| {
        results.nums().iter().any(|num| !report::troubles(results, *num).is_empty())
    });
    Ok(match (stop.is_set(), is_troubled) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    })
}

fn measured(args: &Args, stop: &Stop) -> Result<Vec<Record>, StoreError> {
    let setter = stop.clone();
    // The trial is in the same process group and ends by itself; its files are removed.
    ctrlc::set_handler(move || setter.set())?;
    let settings = match (args.rows(), args.quick) {
        (None, _) => Vec::new(),
        (_, true) => vec![Settings::new(QUICK.0, QUICK.1).with_small_tree()],
        (_, false) => args.num.iter().map(|num| Settings::new(*num, args.reads)).collect(),
    };
    let studies = args.studies().into_iter().map(|study| (study, args.contenders_of(study)));
    let plan = Plan {
        settings,
        rounds: args.rounds,
        contenders: args.contenders(),
        rows: args.rows().unwrap_or_default(),
        studies: studies.collect(),
        sizes: args.sizes(),
        parent: args.dir.clone(),
        patience: Duration::from_secs(args.patience),
    };
    let mut file = args.out.as_deref().map(results_file).transpose()?;
    let mut records = Vec::new();
    if cfg!(debug_assertions) {
        note("built without --release: figures mean nothing");
    }
    let mut all = plan.contenders.iter().chain(plan.studies.iter().flat_map(|(_, who)| who));
    if let Some(why) = all.find_map(|contender| contender.crippled()) {
        note(why);
    }
    let mut sink = |record: Record| {
        if let Some(file) = &mut file {
            write_line(&record, file)?;
        }
        records.push(record);
        Ok(())
    };
    run::run(&plan, stop, &mut sink)?;
    Ok(records)
}

/// Prints a line of progress.
fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn results_file(dir: &Path) -> Result<fs::File, StoreError> {
    fs::create_dir_all(dir).map_err(|error| words(dir, &error))?;
    let file = dir.join("results.jsonl");
    #[expect(clippy::disallowed_methods, reason = "a file of results, not of a store")]
    let opened = OpenOptions::new().write(true).create(true).truncate(true).open(&file);
    Ok(opened.map_err(|error| words(&file, &error))?)
}

fn read(args: &Args) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    for file in &args.from {
        let text = fs::read_to_string(file).map_err(|error| words(file, &error))?;
        let read = read_lines(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        records.extend(read);
    }
    Ok(records)
}

fn words(file: &Path, error: &io::Error) -> String {
    format!("{}: {error}", file.display())
}

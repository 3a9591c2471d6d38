//! Compares Trommel with RocksDB, fjall, redb and LMDB, on equal terms.
//!
//! 1. `args` selects what to measure, out of `stores`: each store in one or more set-ups.
//! 2. `run` measures them one after another, each by a `trial` in a process of its own, which
//!    prints records.
//! 3. `figures` reduces records to numbers, `report` and `page` present these.
//! 4. `studies` do the same for questions that need stores of their own, `sheets` present them, and
//!    each `verdict` compares a figure with its target.
//!
//! Invariants: every store gets the same seeded streams of the harness and the same limits from
//! `settings`; every value read is `checked`; only Trommel's public interface is used.

mod args;
mod checked;
mod figures;
mod page;
mod process;
mod report;
mod rows;
mod run;
mod settings;
mod sheets;
mod stores;
mod studies;
mod targets;
mod trial;
mod verdict;

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
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
        let _ = writeln!(io::stderr(), "trommel-compare: {error}");
        ExitCode::FAILURE
    })
}

fn compare(args: &Args) -> Result<ExitCode, StoreError> {
    let stop = Stop::new();
    let records = if args.from.is_empty() { measured(args, &stop)? } else { read(args)? };
    let (results, studies) = Results::split(records);
    let mut text = String::new();
    for num in results.nums() {
        text += &(report::text(&results, num) + "\n");
    }
    for (study, results) in &studies {
        text += &(sheets::text(*study, results) + "\n");
    }
    text += &report::fairness_text(&results, &studies);
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).map_err(|error| words(dir, &error))?;
        let mut files = vec![("tables.txt".to_owned(), text.clone())];
        for num in results.nums() {
            files.push((format!("report-{num}.html"), report::html(&results, num)));
        }
        for (study, results) in &studies {
            files.push((format!("report-{study}.html"), sheets::html(*study, results)));
        }
        for (name, content) in files {
            let file = dir.join(name);
            fs::write(&file, content).map_err(|error| words(&file, &error))?;
        }
    }
    if let Some(file) = &args.page {
        fs::write(file, page::page(&results, &studies)).map_err(|error| words(file, &error))?;
    }
    if let Err(error) = io::stdout().write_all(text.as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(error.into());
    }
    let all = studies.iter().map(|(_, results)| results).chain([&results]);
    let troubled = all.into_iter().any(|results| {
        results.nums().iter().any(|num| !report::troubles(results, *num).is_empty())
    });
    Ok(match (stop.is_set(), troubled) {
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
        limit: args.minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0)),
        patience: Duration::from_secs(args.patience),
    };
    let mut file = match &args.out {
        Some(dir) => Some(results_file(dir)?),
        None => None,
    };
    let mut records = Vec::new();
    if cfg!(debug_assertions) {
        let _ = writeln!(io::stderr(), "built without --release: figures mean nothing");
    }
    let mut all = plan.contenders.iter().chain(plan.studies.iter().flat_map(|(_, who)| who));
    if let Some(why) = all.find_map(|contender| contender.crippled()) {
        let _ = writeln!(io::stderr(), "{why}");
    }
    let is_terminal = io::stderr().is_terminal();
    let mut sink = |record: Record| {
        if is_terminal {
            let micros = record.results.wall_seconds * 1e6 / record.results.operations.max(1) as f64;
            let (store, workload) = (&record.store.name, &record.workload);
            let _ = writeln!(io::stderr(), "  {store:<14} {workload:<18} {micros:12.3} us");
        }
        if let Some(file) = &mut file {
            write_line(&record, file)?;
        }
        records.push(record);
        Ok(())
    };
    let mut say = |line: &str| {
        let _ = writeln!(io::stderr(), "{line}");
    };
    run::run(&plan, stop, &mut sink, &mut say)?;
    Ok(records)
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

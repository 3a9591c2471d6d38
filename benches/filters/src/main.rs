//! Measures Trommel's filters against those of other crates.
//!
//! 1. `args` determines the extent; [`plan::groups`] the order.
//! 2. Each group is measured and its records are written as soon as it is done.
//! 3. The page, the plots and the goals are generated from the records; `--from` regenerates them.

mod args;
mod others;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser;
use trommel_filter::Kernel;
use trommel_filters::cell::{End, Line, Machine, Results, SCHEMA};
use trommel_filters::plan::{self, Clock};
use trommel_filters::{goals, measure, memory, page, plots};
use trommel_harness::machine::Environment;
use trommel_harness::units;

use crate::args::Args;
use crate::others::Others;

/// The versions of the other crates, from this package's lock file.
const LOCK: &str = include_str!("../Cargo.lock");
const RIVALS: [&str; 4] = ["fastbloom", "sbbf-rs", "sbbf-rs-safe", "xorf"];

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "trommel-filters: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let results = match &args.from {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(words(file))?;
            Results::read(&text).map_err(|error| format!("{}: {error}", file.display()))?
        }
        None => measured(args)?,
    };
    let drawings = plots::all(&results);
    if let Some(dir) = &args.out {
        for (name, drawing) in &drawings {
            write(&dir.join(format!("{name}.svg")), drawing)?;
        }
        write(&dir.join("goals.txt"), &page::goals_text(&goals::goals(&results)))?;
    }
    if let Some(file) = &args.page {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let link = |name: &str| format!("{stem}-{name}.svg");
        for (name, drawing) in &drawings {
            write(&file.with_file_name(link(name)), drawing)?;
        }
        let links: Vec<_> = drawings.iter().map(|(name, _)| (*name, link(name))).collect();
        write(file, &page::page(&results, &links))?;
    }
    let text = page::goals_text(&goals::goals(&results));
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn measured(args: &Args) -> Result<Results, String> {
    if cfg!(debug_assertions) {
        say("built without --release: times mean nothing");
    }
    let (extent, keys) = args.extent();
    let machine = Machine {
        schema: SCHEMA,
        start: units::utc(SystemTime::now()),
        environment: Environment::of(None),
        kernels: Kernel::available().map(|kernel| kernel.to_string()).collect(),
        huge_pages: memory::huge_page_setting(),
        keys: keys.to_vec(),
        rounds: extent.rounds,
        queries: extent.queries as u64,
        dependent_queries: extent.dependent as u64,
        command: args.command(),
        rivals: RIVALS.iter().filter_map(|name| version(name)).collect(),
    };
    let mut lines = Lines::begin(args.out.as_deref())?;
    lines.write(&Line::Machine(Box::new(machine.clone())))?;
    let (others, mut clock) = (Others::now(), Clock::new(args.limit()));
    let (mut cells, mut left_out) = (Vec::new(), Vec::new());
    for group in plan::groups(keys) {
        if !clock.has_time_for(group.keys) {
            left_out.push(group.to_string());
            continue;
        }
        let before = clock.elapsed();
        let found = measure::measure(&group, &extent)?;
        clock.note(group.keys, clock.elapsed() - before);
        say(&format!(
            "{:6.1} s  {group}: {:.1} s",
            clock.elapsed().as_secs_f64(),
            (clock.elapsed() - before).as_secs_f64()
        ));
        for cell in &found {
            lines.write(&Line::Cell(Box::new(cell.clone())))?;
        }
        cells.extend(found);
    }
    for group in &left_out {
        say(&format!("left out, no time: {group}"));
    }
    let seconds = clock.elapsed().as_secs_f64();
    let end = End { left_out, seconds, others: others.and_then(Others::since) };
    lines.write(&Line::End(end.clone()))?;
    Ok(Results { machine, cells, end: Some(end) })
}

/// The file of records, if requested.
struct Lines(Option<(std::path::PathBuf, fs::File)>);

impl Lines {
    fn begin(dir: Option<&Path>) -> Result<Self, String> {
        let Some(dir) = dir else { return Ok(Self(None)) };
        fs::create_dir_all(dir).map_err(words(dir))?;
        let path = dir.join("filters.jsonl");
        #[expect(clippy::disallowed_methods, reason = "a file of results, not of a store")]
        let file = fs::File::create(&path).map_err(words(&path))?;
        Ok(Self(Some((path, file))))
    }

    fn write(&mut self, line: &Line) -> Result<(), String> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let text = serde_json::to_string(line).map_err(|error| error.to_string())?;
        writeln!(file, "{text}").map_err(words(path))
    }
}

/// Name and version of a crate.
fn version(name: &str) -> Option<String> {
    let behind = LOCK.split(&format!("name = \"{name}\"\nversion = \"")).nth(1)?;
    Some(format!("{name} {}", behind.split('"').next()?))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(words(file))
}

fn words(file: &Path) -> impl Fn(io::Error) -> String {
    let name = file.display().to_string();
    move |error| format!("{name}: {error}")
}

fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_crates_have_versions() {
        let versions: Vec<String> = RIVALS.iter().filter_map(|name| version(name)).collect();
        assert_eq!(versions.len(), RIVALS.len());
        assert!(versions.iter().all(|text| text.ends_with(|c: char| c.is_ascii_digit())));
    }
}

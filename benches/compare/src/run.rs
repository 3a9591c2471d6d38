//! Measures the contenders one after another.
//!
//! 1. For each number of keys and each round: first the floor of the machine, then every contender,
//!    in another order each round.
//! 2. Each is a trial in a process of its own (this program, executed again), so that its memory is
//!    separate and a failure affects only itself.
//! 3. The output of a trial is recorded and forwarded record by record; its files are removed,
//!    unless the next contender reads them.
//!
//! Invariant: whatever happens, the scratch directory is removed at the end. Called by `main`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use trommel_harness::machine::Environment;
use trommel_harness::record::{Product, Record, Run, read_lines};
use trommel_harness::{Measured, MeasuredTime, ScratchDir, Stop, StoreError};

use crate::figures::{APPEND, FLOOR};
use crate::note;
use crate::process;
use crate::rows::Row;
use crate::settings::Settings;
use crate::stores::Contender;
use crate::studies::{Sizes, Study, tails};
use crate::trial::{FAILED, Spec, WHY, failure, run_of};

/// Disk space for a store, per byte of keys and values.
const DISK_PER_BYTE: u64 = 5;
/// Time between two checks of whether a trial must end.
const POLL: Duration = Duration::from_millis(50);

/// A measurement.
pub(crate) struct Plan {
    pub(crate) settings: Vec<Settings>,
    pub(crate) rounds: u32,
    pub(crate) contenders: Vec<&'static Contender>,
    pub(crate) rows: Vec<&'static Row>,
    /// The studies, each with its contenders.
    pub(crate) studies: Vec<(&'static Study, Vec<&'static Contender>)>,
    pub(crate) sizes: Sizes,
    /// The directory in which the scratch directory is created.
    pub(crate) parent: PathBuf,
    /// Time limit of one trial.
    pub(crate) patience: Duration,
}

/// Receives each record as it is produced.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Record) -> Result<(), StoreError>;

/// Runs all of `plan`, until `stop` is set.
///
/// # Errors
/// If the scratch directory cannot be created or removed, or the sink fails. A failing store is not
/// an error: its record says so.
pub(crate) fn run(plan: &Plan, stop: &Stop, sink: Sink<'_>) -> Result<(), StoreError> {
    let scratch = ScratchDir::new(&plan.parent)?;
    let id = Run::new(Product::default(), [].into_iter().collect(), Environment::default()).id;
    let mut session = Session { id, plan, stop, rate: None, sink };
    for settings in &plan.settings {
        for round in 1..=plan.rounds {
            session.round(&scratch, settings, round)?;
        }
    }
    for (study, contenders) in &plan.studies {
        for round in 1..=plan.rounds {
            session.study(&scratch, study, contenders, round)?;
        }
    }
    Ok(scratch.remove()?)
}

struct Session<'a> {
    /// The id of the run.
    id: String,
    plan: &'a Plan,
    stop: &'a Stop,
    /// Writes per second of paced contenders, once known for the round.
    rate: Option<f64>,
    sink: Sink<'a>,
}

impl Session<'_> {
    fn round(
        &mut self,
        scratch: &ScratchDir,
        settings: &Settings,
        round: u32,
    ) -> Result<(), StoreError> {
        if self.stop.is_set() {
            return Ok(());
        }
        (self.sink)(floor(&self.id, scratch.path(), settings, round)?)?;
        let mut filled: Option<&'static str> = None;
        for contender in in_order(&self.plan.contenders, round) {
            let fill = filled.is_none() || contender.reads_files_of != filled;
            let rows = self.plan.rows.iter().map(|row| row.name.to_owned()).collect();
            let spec = Spec { fill, rows, ..self.spec(scratch, contender, settings, round) };
            let is_done = self.contender(contender, spec, scratch)?;
            filled = if fill { Some(contender.name) } else { filled }.filter(|_| is_done);
        }
        remove(&scratch.path().join("store"))
    }

    /// Runs a study with each contender, starting with another one each round.
    fn study(
        &mut self,
        scratch: &ScratchDir,
        study: &Study,
        contenders: &[&'static Contender],
        round: u32,
    ) -> Result<(), StoreError> {
        let sizes = self.plan.sizes;
        let settings = (study.settings)(&sizes);
        let mut order = contenders.to_vec();
        order.rotate_left((round as usize - 1) % contenders.len().max(1));
        // A machine's peak differs from round to round: each begins with the store that determines
        // it.
        self.rate = None;
        if study.name == tails::STUDY.name && sizes.tails_rate.is_none() {
            order.sort_by_key(|contender| contender.name != tails::CALIBRATES);
        }
        for contender in order {
            let sizes = Sizes { tails_rate: sizes.tails_rate.or(self.rate), ..sizes };
            let study = Some(study.name.to_owned());
            let spec = Spec { study, sizes, ..self.spec(scratch, contender, &settings, round) };
            self.contender(contender, spec, scratch)?;
        }
        remove(&scratch.path().join("store"))
    }

    /// A trial that fills a store of its own.
    fn spec(
        &self,
        scratch: &ScratchDir,
        contender: &Contender,
        settings: &Settings,
        round: u32,
    ) -> Spec {
        Spec {
            id: self.id.clone(),
            contender: contender.name.into(),
            settings: *settings,
            round,
            dir: scratch.path().join("store"),
            fill: true,
            rows: Vec::new(),
            study: None,
            sizes: self.plan.sizes,
            is_killed: false,
            seconds: self.plan.patience.as_secs().max(1),
        }
    }

    /// Runs one contender, unless the measurement is to end; returns whether it finished.
    fn contender(
        &mut self,
        contender: &'static Contender,
        spec: Spec,
        scratch: &ScratchDir,
    ) -> Result<bool, StoreError> {
        if self.stop.is_set() {
            return Ok(false);
        }
        if spec.fill {
            remove(&spec.dir)?;
        }
        let run = run_of(&spec, contender)?;
        let what = spec.study.clone().unwrap_or_else(|| format!("{} keys", spec.settings.num));
        let head = format!("{}, {what}, round {}", contender.name, spec.round);
        let needs = spec.settings.user_bytes() * DISK_PER_BYTE;
        let start = Instant::now();
        let failed = if spec.fill && scratch.free_bytes().is_some_and(|free| free < needs) {
            let why = format!("left out: it may need {needs} bytes of disk");
            (self.sink)(failure(&run, spec.round, why.clone()))?;
            Some(why)
        } else {
            self.trial(&spec, &run)?
        };
        let how = failed.as_deref().unwrap_or("done");
        note(&format!("{head}: {how} after {:.1} s", start.elapsed().as_secs_f64()));
        Ok(failed.is_none())
    }

    /// Runs a trial and forwards its records; returns the reason of its failure, if it failed.
    fn trial(&mut self, spec: &Spec, run: &Run) -> Result<Option<String>, StoreError> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--trial")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let text = serde_json::to_string(spec)? + "\n";
        let (stop, is_over) = (self.stop, AtomicBool::new(false));
        let said = thread::scope(|scope| {
            scope.spawn(|| hold(stdin, &text, || stop.is_set() || is_over.load(Relaxed)));
            let mut sink = |record: Record| {
                if (&*record.store.name, &*record.workload) == (tails::CALIBRATES, tails::PEAK) {
                    self.rate.get_or_insert(record.operations_per_second() * tails::PART);
                }
                (self.sink)(record)
            };
            let said = stdout.map_or(Ok(Said::default()), |stdout| pass_on(stdout, &mut sink));
            is_over.store(true, Relaxed);
            said
        });
        let status = child.wait()?;
        let said = said?;
        if said.failed.is_none() && (said.is_garbled || !status.success()) {
            let why = format!("failed: the process ended with {}", words(status));
            (self.sink)(failure(run, spec.round, why.clone()))?;
            return Ok(Some(why));
        }
        Ok(said.failed)
    }
}

/// Sends a trial its description, and holds its standard input open until `is_over`: the trial ends
/// when that is closed, so it also ends with this process.
fn hold(stdin: Option<ChildStdin>, text: &str, is_over: impl Fn() -> bool) {
    let Some(mut stdin) = stdin else { return };
    // If the trial is already gone, its status says so.
    let _ = stdin.write_all(text.as_bytes());
    while !is_over() {
        thread::sleep(POLL);
    }
}

/// The output of a trial other than records.
#[derive(Default)]
struct Said {
    /// The reason of its failure.
    failed: Option<String>,
    /// Whether some of it was not a record: it was truncated, or a store printed something.
    is_garbled: bool,
}

/// Forwards a trial's output to its end.
fn pass_on(stdout: ChildStdout, sink: Sink<'_>) -> Result<Said, StoreError> {
    let mut said = Said::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let Ok(records) = read_lines(&String::from_utf8_lossy(&line?)) else {
            said.is_garbled = true;
            continue;
        };
        for record in records {
            if record.workload == FAILED {
                said.failed = why_of(&record);
            }
            sink(record)?;
        }
    }
    Ok(said)
}

fn why_of(record: &Record) -> Option<String> {
    record.settings.get(WHY).and_then(|why| why.as_str()).map(Into::into)
}

fn words(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"))
}

/// The contenders in the order of this round: each round starts with another one. A contender that
/// reads another's files stays after it.
fn in_order(contenders: &[&'static Contender], round: u32) -> Vec<&'static Contender> {
    let mut groups: Vec<Vec<&'static Contender>> = Vec::new();
    for contender in contenders {
        match groups.last_mut() {
            Some(group) if contender.reads_files_of == Some(group[0].name) => group.push(contender),
            _ => groups.push(vec![contender]),
        }
    }
    let count = groups.len().max(1);
    groups.rotate_left((round as usize - 1) % count);
    groups.concat()
}

fn floor(id: &str, dir: &Path, settings: &Settings, round: u32) -> Result<Record, StoreError> {
    let start = SystemTime::now();
    let (operations, time) = process::append_time(dir)?;
    let mut run = Run {
        id: id.into(),
        store: Product { name: FLOOR.into(), version: String::new() },
        environment: Environment::of(Some(dir)),
        ..Run::default()
    };
    run.environment.storage.directory = None;
    run.settings.insert("num".into(), settings.num.into());
    let measured =
        Measured { operations, time: MeasuredTime::of_one_thread(time), ..Measured::default() };
    Ok(Record::new(&run, APPEND, round, 1, start, &measured))
}

/// Removes a directory with its contents, if it exists.
pub(crate) fn remove(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{} could not be removed: {error}", dir.display()).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::ALL;

    #[test]
    fn every_contender_begins_a_round_and_follows_the_files_it_reads() {
        let all: Vec<_> = ALL.iter().collect();
        let mut first = Vec::new();
        for round in 1..=11 {
            let order = in_order(&all, round);
            assert_eq!(order.len(), all.len());
            first.push(order[0].name);
            let mut filled = "";
            for contender in order {
                match contender.reads_files_of {
                    Some(base) => assert_eq!(filled, base, "round {round}"),
                    None => filled = contender.name,
                }
            }
        }
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), first.len(), "{first:?}");
        assert_eq!(in_order(&all, 1)[0].name, ALL[0].name);
    }
}

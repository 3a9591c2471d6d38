//! The parent process: starts workers, kills them, and enforces their limits.
//!
//! 1. Each worker ends in one of three ways, drawn before it starts: killed from outside after a
//!    random time, killed by itself at a random call to the disk, or in order. Most of the times
//!    count from the moment it has opened and checked the store, some from its start, so that
//!    recovery is killed too.
//! 2. While the worker runs, the parent reads its lines, checks its limits, and times its silence.
//! 3. An unexpected death is a finding, as is everything that the worker reports.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;
use trommel::FilterPolicy;

use super::draw::Profile;
use super::expected::Expected;
use super::place::{LOG_FILE, Place};
use super::records::RecordSpec;
use super::report::{Finding, Report, StressSetup};
use super::watch::{Limits, disk_bytes, threads_of};
use super::wire::{Line, Task, Tick, WorkerPhase};
use super::worker::exponential;
use crate::control::{Control, Unit};
use crate::error::Error;

/// Time between two checks of a worker.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// Time between two measurements of its resources.
const MEASURE_EVERY: Duration = Duration::from_millis(200);
/// Time between two progress lines.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// A worker that does not reach the call at which it is to die is killed after this multiple of the
/// mean time between kills.
const PATIENCE: f64 = 4.0;
/// Number of the last lines of the workers' standard error to show.
const LAST_LINES: usize = 20;

/// When things happen in a run.
#[derive(Debug, Clone, Copy)]
pub struct StressSchedule {
    /// Duration of the run.
    pub duration: Duration,
    /// Mean time between kills; 0 for none.
    pub kill_every: Duration,
    /// Mean time between opens of the store in one worker.
    pub reopen_every: Duration,
    /// All keys are read after every nth start of a worker, and some keys after the other starts.
    pub whole_check_every: u64,
}

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct StressPlan {
    /// The scale of the run.
    pub profile: Profile,
    /// Number of keys; a continued run uses the earlier one's.
    pub keys: u32,
    /// Minimum and maximum bytes of values.
    pub value_size: (u32, u32),
    /// Number of reading and writing threads.
    pub threads: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// When things happen.
    pub schedule: StressSchedule,
    /// Fraction of the calls to the disk that fail.
    pub faults: f64,
    /// The store's own memory limit, which most opens set.
    pub memory_limit: u64,
    /// The filters of every open; if none, each open draws its own.
    pub filters: Option<FilterPolicy>,
    /// The limits of a worker.
    pub limits: Limits,
}

/// The end of a worker.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    /// Killed after this time, from its start or from the start of its operations.
    Kill { after: Duration, from_start: bool },
    /// Ended in order, after this time of operations.
    InOrder { after: Duration },
}

/// Runs workers in `place` until the time is over, a fault is found, or it is stopped.
///
/// `worker` makes the command that calls [`work`](super::work). Its last two arguments, the
/// directories of the store and of the expected state, are added here.
///
/// # Errors
/// If anything other than the store fails. Faults of the store are in the report.
pub fn stress(
    plan: &StressPlan,
    place: &Place,
    worker: &dyn Fn() -> Command,
    control: Control<'_>,
) -> Result<Report, Error> {
    let start = Instant::now();
    let (min_value, max_value) = plan.value_size;
    let wanted = RecordSpec { keys: plan.keys, min_value, max_value, seed: plan.seed };
    let (_lease, records) = Expected::lease(&place.expected, wanted)?;
    let mut run = StressRun {
        plan,
        place,
        control,
        records,
        rng: Rng::with_seed(plan.seed),
        start,
        reported: start,
        seconds_shown: 0,
        report: Report {
            setup: StressSetup {
                seed: plan.seed,
                profile: plan.profile.name(),
                threads: plan.threads as u64,
                keys: u64::from(records.keys),
                fault_rate: plan.faults,
            },
            ..Report::default()
        },
    };
    control.progress.begin("stress", plan.schedule.duration.as_secs(), Unit::Seconds);
    let ended = run.all(worker);
    control.progress.end();
    ended?;
    let mut report = run.report;
    report.seconds = start.elapsed().as_secs_f64();
    report.interrupted = control.stop.is_set();
    let disk = disk_bytes(&place.store);
    report.space_amplification = disk as f64 / report.live_bytes.max(1) as f64;
    Ok(report)
}

struct StressRun<'a> {
    plan: &'a StressPlan,
    place: &'a Place,
    control: Control<'a>,
    records: RecordSpec,
    rng: Rng,
    start: Instant,
    reported: Instant,
    seconds_shown: u64,
    report: Report,
}

/// A running worker.
struct WorkerProcess {
    child: Child,
    /// Dropping it makes the worker end in order.
    input: Option<ChildStdin>,
    lines: Receiver<Line>,
    tick: Tick,
    heard: Instant,
    running_since: Option<Instant>,
    is_done: bool,
    /// Whether the parent caused its death.
    is_killed: bool,
    die_at: u64,
}

impl StressRun<'_> {
    fn is_over(&self) -> bool {
        self.control.stop.is_set() || self.start.elapsed() >= self.plan.schedule.duration
    }

    fn all(&mut self, worker: &dyn Fn() -> Command) -> Result<(), Error> {
        for nth in 0.. {
            let mean = self.plan.schedule.kill_every.as_secs_f64();
            let draw = self.rng.u8(..16);
            let time = Duration::from_secs_f64(exponential(&mut self.rng, mean.max(0.05)));
            let (ending, die_at) = match draw {
                // The time is unreachable: the end of the run comes first.
                _ if self.plan.schedule.kill_every.is_zero() => {
                    (Ending::InOrder { after: Duration::MAX }, 0)
                }
                0..2 => (Ending::InOrder { after: time }, 0),
                2..8 => {
                    let after = self.plan.schedule.kill_every.mul_f64(PATIENCE);
                    let calls = 20_000_f64.powf(self.rng.f64()) as u64;
                    (Ending::Kill { after, from_start: false }, calls)
                }
                8..10 => (Ending::Kill { after: time / 8, from_start: true }, 0),
                _ => (Ending::Kill { after: time, from_start: false }, 0),
            };
            let task = Task {
                records: self.records,
                profile: self.plan.profile,
                threads: self.plan.threads,
                seed: self.rng.u64(..),
                memory_limit: self.plan.memory_limit,
                filters: self.plan.filters.as_ref().map(ToString::to_string),
                reopen_every: self.plan.schedule.reopen_every.as_secs_f64(),
                faults: self.plan.faults,
                // Once the time is over, only the final check is left.
                die_at: if self.is_over() { 0 } else { die_at },
                check_all: nth % self.plan.schedule.whole_check_every.max(1) == 0,
            };
            let mut worker = self.spawn(worker(), &task)?;
            let watched = self.watch(&mut worker, ending);
            // No process may survive, whatever happened.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
            let finding = watched?;
            self.take_counts(&worker.tick);
            if let Some(finding) = finding {
                self.report.mismatches = u64::from(finding.kind == "mismatch");
                self.report.finding = Some(finding);
                return Ok(());
            }
            if worker.is_done && self.is_over() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn spawn(&mut self, mut command: Command, task: &Task) -> Result<WorkerProcess, Error> {
        let log = self.place.expected.join(LOG_FILE);
        #[expect(clippy::disallowed_methods, reason = "it is no store's file")]
        let opened = OpenOptions::new().create(true).append(true).open(&log);
        let errors = opened.map_err(|error| Error::io(&log, "opening", error))?;
        command.arg(&self.place.store).arg(&self.place.expected);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        // The parent handles signals to its process group.
        command.process_group(0);
        let spawned = command.spawn();
        let mut child = spawned
            .map_err(|error| Error::io(Path::new(command.get_program()), "starting", error))?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // The last line of a killed worker may be truncated.
                    let Ok(line) = serde_json::from_str(&line) else { continue };
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            let mut text =
                serde_json::to_string(task).map_err(|error| Error::Output(error.into()))?;
            text.push('\n');
            // The death of a worker is noticed by the end of its output.
            let _ = input.write_all(text.as_bytes());
        }
        self.report.add("workers", 1);
        Ok(WorkerProcess {
            child,
            input,
            lines,
            tick: Tick { live_bytes: self.report.live_bytes, ..Tick::default() },
            heard: Instant::now(),
            running_since: None,
            is_done: false,
            is_killed: false,
            die_at: task.die_at,
        })
    }

    /// Follows a worker to its end; returns the fault found, if any.
    fn watch(
        &mut self,
        worker: &mut WorkerProcess,
        ending: Ending,
    ) -> Result<Option<Finding>, Error> {
        let born = Instant::now();
        let mut measured = born;
        loop {
            match worker.lines.recv_timeout(CHECK_EVERY) {
                Ok(line) => {
                    if let Some(finding) = worker.hear(line) {
                        return Ok(Some(finding));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = worker.child.wait();
                    let status =
                        status.map_err(|error| Error::io("the worker", "awaiting", error))?;
                    return Ok(self.judge_end(worker, status));
                }
            }
            self.report.live_bytes = worker.tick.live_bytes;
            self.show();
            if let Some(finding) = self.plan.limits.hang(worker.heard.elapsed(), &worker.tick) {
                let threads = threads_of(worker.child.id());
                let what = format!("{}\n{threads}", finding.what);
                return Ok(Some(Finding { what, ..finding }));
            }
            if measured.elapsed() >= MEASURE_EVERY {
                measured = Instant::now();
                let (process, store) = (worker.child.id(), &self.place.store);
                let broken = self.plan.limits.measure(process, store, &mut self.report);
                if broken.is_some() {
                    return Ok(broken);
                }
            }
            if self.is_over() {
                worker.input = None;
            } else if !worker.is_killed && worker.is_due(ending, born) {
                self.end(worker, ending);
            }
        }
    }

    /// Ends a worker in the way drawn for it.
    fn end(&mut self, worker: &mut WorkerProcess, ending: Ending) {
        match ending {
            Ending::InOrder { .. } => worker.input = None,
            Ending::Kill { .. } => {
                let phase = match worker.tick.phase {
                    WorkerPhase::Opening => "kills.while_opening",
                    WorkerPhase::Checking => "kills.while_checking",
                    WorkerPhase::Running => "kills.while_running",
                    WorkerPhase::Closing => "kills.while_closing",
                };
                self.report.add(phase, 1);
                worker.is_killed = true;
                // It may be dead already; the end of its output shows that.
                let _ = worker.child.kill();
            }
        }
    }

    fn judge_end(&mut self, worker: &WorkerProcess, status: ExitStatus) -> Option<Finding> {
        let was_killed = status.signal() == Some(Signal::KILL.as_raw());
        if worker.is_done && status.success() {
            self.report.add("ends_in_order", 1);
            return None;
        }
        if was_killed && (worker.is_killed || worker.die_at > 0) {
            self.report.add("kills", 1);
            self.report.add("kills.at_a_call", u64::from(!worker.is_killed));
            return None;
        }
        let reason =
            if was_killed { "; not by this run: perhaps the system was out of memory" } else { "" };
        let words = last_lines(&self.place.expected.join(LOG_FILE));
        let what = format!("the worker ended with {status}{reason}{words}");
        Some(Finding { kind: "death", what })
    }

    fn take_counts(&mut self, tick: &Tick) {
        for (name, count) in &tick.counts {
            self.report.add(name, *count);
        }
        let longest = tick.longest as f64 / 1e6;
        self.report.longest_operation_seconds = self.report.longest_operation_seconds.max(longest);
        self.report.live_bytes = tick.live_bytes;
    }

    fn show(&mut self) {
        let seconds = self.start.elapsed().as_secs();
        let done = seconds.min(self.plan.schedule.duration.as_secs());
        self.control.progress.advance(done.saturating_sub(self.seconds_shown));
        self.seconds_shown = done;
        if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            self.control.progress.say(&self.report.progress(self.start.elapsed()));
        }
    }
}

impl WorkerProcess {
    fn hear(&mut self, line: Line) -> Option<Finding> {
        self.heard = Instant::now();
        match line {
            Line::Tick(tick) => {
                if tick.phase == WorkerPhase::Running && self.running_since.is_none() {
                    self.running_since = Some(self.heard);
                }
                self.tick = tick;
                None
            }
            Line::Done(tick) => {
                self.tick = tick;
                self.is_done = true;
                None
            }
            Line::Mismatch(what) => Some(Finding { kind: "mismatch", what }),
            Line::Error(what) => Some(Finding { kind: "error", what }),
        }
    }

    fn is_due(&self, ending: Ending, born: Instant) -> bool {
        let (after, since) = match ending {
            Ending::Kill { after, from_start: true } => (after, Some(born)),
            Ending::Kill { after, .. } | Ending::InOrder { after } => (after, self.running_since),
        };
        since.is_some_and(|since| since.elapsed() >= after)
    }
}

/// The last lines of the workers' standard error.
fn last_lines(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
    if last.is_empty() { String::new() } else { format!("; its last output:\n{last}") }
}

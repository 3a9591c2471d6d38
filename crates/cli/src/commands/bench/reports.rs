//! Progress reports of a bench at requested intervals.
//!
//! A filter between the bench and the program's progress display: ten times a second it receives
//! the number of operations done, and forwards it. A line is printed at the first call after the
//! end of an interval.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use trommel_harness::{Progress, Unit};

use super::args::BenchReportArgs;
use crate::failure::Failure;

const HEADER: &str = "secs_elapsed,interval_qps\n";

/// A progress that prints reports, and forwards to another one.
pub(crate) struct Reports<'a> {
    inner: &'a dyn Progress,
    /// Report after this many operations, or seconds.
    every_operations: u64,
    every: Option<Duration>,
    file: Option<ReportFile>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    workload: String,
    /// Time of the earlier workloads.
    earlier: Duration,
    /// The current state of the running workload.
    now: Mark,
    said: Mark,
    filed: Mark,
    text: String,
}

/// A point in time of a workload.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    elapsed: Duration,
    operations: u64,
}

impl Mark {
    fn per_second_since(self, before: Self) -> f64 {
        let seconds = (self.elapsed.saturating_sub(before.elapsed)).as_secs_f64();
        self.operations.saturating_sub(before.operations) as f64 / seconds.max(1e-9)
    }
}

struct ReportFile {
    path: PathBuf,
    every: Duration,
}

impl<'a> Reports<'a> {
    /// The reports that the flags request.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn new(args: &BenchReportArgs, inner: &'a dyn Progress) -> Result<Self, Failure> {
        let seconds = |seconds| (seconds > 0).then(|| Duration::from_secs(seconds));
        let file = seconds(args.report_interval_seconds)
            .map(|every| ReportFile { path: args.report_file.clone(), every });
        if let Some(file) = &file {
            write(&file.path, HEADER).map_err(Failure::Other)?;
        }
        Ok(Self {
            inner,
            every_operations: args.stats_interval,
            every: seconds(args.stats_interval_seconds),
            file,
            state: Mutex::new(State { text: HEADER.into(), ..State::default() }),
        })
    }

    /// Whether an interval is over; as in db_bench, seconds override operations.
    fn is_due(&self, now: Mark, said: Mark) -> bool {
        match self.every {
            Some(every) => now.elapsed >= said.elapsed + every,
            None => {
                self.every_operations > 0
                    && now.operations / self.every_operations
                        > said.operations / self.every_operations
            }
        }
    }

    fn report(&self, state: &mut State, now: Mark) {
        if self.is_due(now, state.said) {
            self.inner.say(&format!(
                "{}: ({},{}) ops and ({:.1},{:.1}) ops/second in ({:.6},{:.6}) seconds",
                state.workload,
                now.operations.saturating_sub(state.said.operations),
                now.operations,
                now.per_second_since(state.said),
                now.per_second_since(Mark::default()),
                now.elapsed.saturating_sub(state.said.elapsed).as_secs_f64(),
                now.elapsed.as_secs_f64()
            ));
            state.said = now;
        }
        let Some(file) = &self.file else { return };
        if now.elapsed >= state.filed.elapsed + file.every {
            let seconds = (state.earlier + now.elapsed).as_secs();
            let rate = now.per_second_since(state.filed);
            state.text += &format!("{seconds},{rate:.0}\n");
            state.filed = now;
            if let Err(what) = write(&file.path, &state.text) {
                self.inner.say(&what);
            }
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text)
        .map_err(|error| format!("writing {} failed: {error}", path.display()))
}

impl Progress for Reports<'_> {
    fn begin(&self, what: &str, all: u64, unit: Unit) {
        {
            let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.workload = what.into();
            state.earlier += state.now.elapsed;
            (state.now, state.said, state.filed) = Default::default();
        }
        self.inner.begin(what, all, unit);
    }

    fn advance(&self, done: u64) {
        self.inner.advance(done);
    }

    fn tick(&self, elapsed: Duration, operations: u64) {
        let now = Mark { elapsed, operations };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = now;
        self.report(&mut state, now);
        drop(state);
        self.inner.tick(elapsed, operations);
    }

    fn end(&self) {
        self.inner.end();
    }

    fn say(&self, what: &str) {
        self.inner.say(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Progress for Heard {
        fn begin(&self, _what: &str, _all: u64, _unit: Unit) {}
        fn advance(&self, _done: u64) {}
        fn end(&self) {}
        fn say(&self, what: &str) {
            self.0.lock().unwrap().push(what.into());
        }
    }

    fn reports(heard: &Heard, operations: u64, seconds: u64) -> Reports<'_> {
        Reports {
            inner: heard,
            every_operations: operations,
            every: (seconds > 0).then(|| Duration::from_secs(seconds)),
            file: None,
            state: Mutex::default(),
        }
    }

    fn tell(reports: &Reports<'_>) {
        for workload in ["fillseq", "readseq"] {
            reports.begin(workload, 100, Unit::Operations);
            for tenth in 1..=25 {
                reports.tick(Duration::from_millis(tenth * 100), tenth * 4);
            }
            reports.end();
        }
    }

    #[test]
    fn a_line_is_said_when_an_interval_is_over() {
        let heard = Heard::default();
        tell(&reports(&heard, 50, 0));
        let lines = heard.0.into_inner().unwrap();
        assert_eq!(
            lines[..2],
            [
                "fillseq: (52,52) ops and (40.0,40.0) ops/second in (1.300000,1.300000) seconds",
                "fillseq: (48,100) ops and (40.0,40.0) ops/second in (1.200000,2.500000) seconds"
            ]
        );
        assert!(lines.len() == 4 && lines[2].starts_with("readseq: (52,52)"), "{lines:?}");
        let heard = Heard::default();
        tell(&reports(&heard, 50, 1));
        let lines = heard.0.into_inner().unwrap();
        assert_eq!(lines.len(), 4, "seconds override operations: {lines:?}");
        assert!(lines[1].ends_with("in (1.000000,2.000000) seconds"));
        let heard = Heard::default();
        tell(&reports(&heard, 0, 0));
        assert!(heard.0.into_inner().unwrap().is_empty());
    }

    #[test]
    fn the_file_goes_on_over_all_workloads() {
        let scratch = trommel_harness::ScratchDir::new(&std::env::temp_dir()).unwrap();
        let path = scratch.path().join("report.csv");
        let heard = Heard::default();
        let mut reports = reports(&heard, 0, 0);
        reports.file = Some(ReportFile { path: path.clone(), every: Duration::from_secs(1) });
        reports.state = Mutex::new(State { text: HEADER.into(), ..State::default() });
        tell(&reports);
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "secs_elapsed,interval_qps\n1,40\n2,40\n3,40\n4,40\n");
    }
}

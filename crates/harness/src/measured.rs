//! The results of one workload, and its line in the style of db_bench.

use std::time::Duration;

use crate::histogram::Latencies;
use crate::machine::CpuSeconds;

/// The kinds of operations that are timed separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "`Kind::name` says it")]
pub enum Kind {
    Read,
    Write,
    Delete,
    Seek,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
    Other,
}

impl Kind {
    const COUNT: usize = Self::Other as usize + 1;

    /// The name in the title of a histogram.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Seek => "seek",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
            Self::Other => "op",
        }
    }
}

/// Number of operations of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally([u64; Kind::COUNT]);

impl Tally {
    /// Operations of this kind.
    #[inline]
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    #[inline]
    pub(crate) fn add(&mut self, kind: Kind, operations: u64) {
        self.0[kind as usize] += operations;
    }
}

/// The time that a workload took.
#[derive(Debug, Clone, Copy, Default)]
pub struct MeasuredTime {
    /// Sum of the time of all threads.
    pub threads: Duration,
    /// From the first thread's start to the last one's end.
    pub wall: Duration,
    /// CPU time of the whole process during the workload, background threads included.
    pub processor: Option<CpuSeconds>,
}

impl MeasuredTime {
    /// The time of one thread.
    pub fn of_one_thread(time: Duration) -> Self {
        Self { threads: time, wall: time, processor: None }
    }
}

/// The results of one workload, of all threads together.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Operations done.
    pub operations: u64,
    /// Keys and values written, or found, in bytes.
    pub bytes: u64,
    /// Keys found and keys looked up, of workloads that look up keys.
    pub found: Option<(u64, u64)>,
    /// The time it took.
    pub time: MeasuredTime,
    /// Latencies of all kinds of operations together, if recorded.
    pub latencies: Option<Latencies>,
    /// Latencies of each kind.
    pub latencies_by_kind: Vec<(Kind, Latencies)>,
    /// Operations by kind.
    pub tally: Tally,
    /// Operations over time: the end of each interval, in seconds since the start, and the number
    /// of operations in it.
    pub series: Vec<(f64, u64)>,
    /// The line's note in place of the keys found, if there is one.
    pub note: Option<String>,
    /// A summary of the background thread's work, if there was one.
    pub beside: Option<String>,
    /// Operations of an open loop that were due before the end but did not start: the requested
    /// rate was not sustained, and the latencies do not include the delay of these operations.
    pub overdue: u64,
    /// Whether the workload was stopped early.
    pub interrupted: bool,
}

impl Measured {
    /// Microseconds per operation, as seen by its thread.
    pub fn micros_per_operation(&self) -> f64 {
        self.time.threads.as_secs_f64() * 1e6 / self.operations.max(1) as f64
    }

    /// Operations per second of all threads together.
    pub fn operations_per_second(&self) -> f64 {
        // If the clock did not advance, the rate must not be infinite.
        self.operations as f64 / self.time.wall.as_secs_f64().max(1e-9)
    }

    /// Adds another thread's results, except the wall time.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.found = match (self.found, other.found) {
            (Some((a, b)), Some((c, d))) => Some((a + c, b + d)),
            (one, other) => one.or(other),
        };
        self.time.threads += other.time.threads;
        for (kind, latencies) in &other.latencies_by_kind {
            match self.latencies_by_kind.iter_mut().find(|(of, _)| of == kind) {
                Some((_, all)) => all.merge(latencies),
                None => self.latencies_by_kind.push((*kind, latencies.clone())),
            }
            match &mut self.latencies {
                Some(all) => all.merge(latencies),
                none => *none = Some(latencies.clone()),
            }
        }
        for (count, other) in self.tally.0.iter_mut().zip(other.tally.0) {
            *count += other;
        }
        self.overdue += other.overdue;
        self.interrupted |= other.interrupted;
    }

    /// The line in the style of db_bench: name, microseconds per operation, operations per second,
    /// seconds, operations, MB/s (of 1,048,576 bytes) if there are bytes, and the keys found or the
    /// workload's own note.
    pub fn line(&self, name: &str) -> String {
        let mut line = format!(
            "{name:<12} : {:11.3} micros/op {} ops/sec {:.3} seconds {} operations;",
            self.micros_per_operation(),
            self.operations_per_second() as u64,
            self.time.wall.as_secs_f64(),
            self.operations
        );
        if self.bytes > 0 {
            let seconds = self.time.wall.as_secs_f64().max(1e-9);
            line += &format!(" {:6.1} MB/s", self.bytes as f64 / 1_048_576.0 / seconds);
        }
        match (&self.note, self.found) {
            (Some(note), _) => line += &format!(" {note}"),
            (None, Some((found, lookups))) => line += &format!(" ({found} of {lookups} found)"),
            (None, None) => {}
        }
        if let Some(beside) = &self.beside {
            line += &format!(" {beside}");
        }
        if self.overdue > 0 {
            line += &format!(" (rate not held: {} operations overdue)", self.overdue);
        }
        if self.interrupted {
            line += " (interrupted)";
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn lines_are_those_of_db_bench() {
        let fill = Measured {
            operations: 1_000_000,
            bytes: 116_000_000,
            time: MeasuredTime::of_one_thread(seconds(5.3687)),
            ..Measured::default()
        };
        assert_eq!(
            fill.line("fillrandom"),
            "fillrandom   :       5.369 micros/op 186264 ops/sec 5.369 seconds \
             1000000 operations;   20.6 MB/s"
        );
        let read = Measured {
            operations: 300_000,
            bytes: 189_640 * 116,
            found: Some((189_640, 300_000)),
            time: MeasuredTime::of_one_thread(seconds(1.50792)),
            ..Measured::default()
        };
        assert_eq!(
            read.line("readrandom"),
            "readrandom   :       5.026 micros/op 198949 ops/sec 1.508 seconds \
             300000 operations;   13.9 MB/s (189640 of 300000 found)"
        );
        let missing = Measured {
            operations: 300_000,
            found: Some((0, 300_000)),
            time: MeasuredTime::of_one_thread(seconds(0.4828)),
            ..Measured::default()
        };
        assert_eq!(
            missing.line("readmissing"),
            "readmissing  :       1.609 micros/op 621375 ops/sec 0.483 seconds \
             300000 operations; (0 of 300000 found)"
        );
    }

    #[test]
    fn threads_add_up() {
        let thread = Measured {
            operations: 1000,
            bytes: 10,
            found: Some((600, 1000)),
            time: MeasuredTime { threads: seconds(1.0), ..MeasuredTime::default() },
            ..Measured::default()
        };
        let mut all = Measured {
            time: MeasuredTime { wall: seconds(1.0), ..MeasuredTime::default() },
            ..Measured::default()
        };
        all.merge(&thread);
        all.merge(&Measured { interrupted: true, ..thread });
        assert_eq!(
            all.line("readrandom"),
            "readrandom   :    1000.000 micros/op 2000 ops/sec 1.000 seconds \
             2000 operations;    0.0 MB/s (1200 of 2000 found) (interrupted)"
        );
    }

    #[test]
    fn nothing_done_in_no_time_has_a_line_too() {
        assert_eq!(
            Measured::default().line("flush"),
            "flush        :       0.000 micros/op 0 ops/sec 0.000 seconds 0 operations;"
        );
    }
}

//! The resources that a worker uses, and their limits.

use std::fs;
use std::path::Path;
use std::time::Duration;

use trommel::vfs::{DiskVfs, Vfs};

use super::report::{Finding, Report};
use super::wire::{Tick, WorkerPhase};
use crate::{machine, units};

/// Time limit of a check of all keys, as a multiple of an operation's.
const CHECKS: u32 = 10;

/// The limits of a worker. 0, or a time of 0, means no limit.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of anonymous memory.
    pub memory: u64,
    /// Number of open file handles.
    pub handles: u64,
    /// Bytes of the store's files per byte of keys and values...
    pub space: f64,
    /// ...if the files exceed this many bytes.
    pub space_free: u64,
    /// Time of one operation. Checks after opening and at the end may take ten times as long.
    pub longest: Duration,
}

impl Limits {
    /// Measures the worker; returns the limit that it exceeds, if any.
    pub(super) fn measure(
        &self,
        process: u32,
        store: &Path,
        report: &mut Report,
    ) -> Option<Finding> {
        let memory = memory_of(process).unwrap_or(0);
        let handles = handles_of(process).unwrap_or(0);
        let disk = disk_bytes(store);
        report.peaks.memory_bytes = report.peaks.memory_bytes.max(memory);
        report.peaks.handles = report.peaks.handles.max(handles);
        report.peaks.disk_bytes = report.peaks.disk_bytes.max(disk);
        let room = self.space_free as f64 + self.space * report.live_bytes as f64;
        if self.memory > 0 && memory > self.memory {
            let (is, may) = (units::bytes(memory), units::bytes(self.memory));
            return finding(
                "memory",
                format!("the worker uses {is} of memory; the limit is {may}"),
            );
        }
        if self.handles > 0 && handles > self.handles {
            let may = self.handles;
            return finding(
                "handles",
                format!("the worker has {handles} handles open; the limit is {may}"),
            );
        }
        if self.space > 0.0 && disk as f64 > room {
            return finding(
                "space",
                format!(
                    "the store takes {} for {} of keys and values; the limit is {}",
                    units::bytes(disk),
                    units::bytes(report.live_bytes),
                    units::bytes(room as u64)
                ),
            );
        }
        None
    }

    /// Reports a hang if the worker has been silent, or in one operation, for too long.
    pub(super) fn hang(&self, silence: Duration, tick: &Tick) -> Option<Finding> {
        let may = match tick.phase {
            WorkerPhase::Running => self.longest,
            _ => self.longest.saturating_mul(CHECKS),
        };
        let (micros, what) = &tick.current;
        let time = Duration::from_micros(*micros);
        if self.longest.is_zero() || (time <= may && silence <= self.longest) {
            return None;
        }
        let what = if silence > self.longest {
            format!("the worker was silent for {}; before that: {what}", units::duration(silence))
        } else {
            format!("{what} has been running for {}", units::duration(time))
        };
        finding("hang", format!("{what} (--longest is {})", units::duration(self.longest)))
    }
}

fn finding(kind: &'static str, what: String) -> Option<Finding> {
    Some(Finding { kind, what })
}

/// Bytes of a process's anonymous memory, if the system reports them.
fn memory_of(process: u32) -> Option<u64> {
    let text = machine::field_of(&format!("/proc/{process}/status"), "RssAnon")?;
    Some(text.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn handles_of(process: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64)
}

/// Bytes of all files in a directory.
pub(super) fn disk_bytes(dir: &Path) -> u64 {
    let entries = DiskVfs.list(dir).unwrap_or_default();
    entries.iter().map(|entry| entry.bytes).sum()
}

/// The state of each thread of a process according to the kernel, to diagnose a hang.
pub(super) fn threads_of(process: u32) -> String {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return String::new() };
    let mut text = String::new();
    for thread in threads.flatten() {
        let word = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let state = word("stat").rsplit_once(')').map_or(String::new(), |(_, rest)| {
            rest.split_whitespace().next().unwrap_or_default().to_owned()
        });
        text += &format!(
            "thread {}: state {state}, waits in {}, system call {}\n",
            word("comm").trim(),
            word("wchan").trim(),
            word("syscall").trim()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        memory: 1 << 40,
        handles: 1 << 20,
        space: 4.0,
        space_free: 100,
        longest: Duration::from_secs(5),
    };

    #[test]
    fn each_exceeded_limit_is_reported() {
        let scratch = crate::ScratchDir::new(&std::env::temp_dir()).unwrap();
        fs::write(scratch.path().join("file"), vec![0; 500]).unwrap();
        let reported = |limits: Limits| {
            let mut report = Report { live_bytes: 100, ..Report::default() };
            let found = limits.measure(std::process::id(), scratch.path(), &mut report);
            (found.map(|finding| finding.kind), report.peaks.disk_bytes)
        };
        assert_eq!(reported(LIMITS), (None, 500));
        assert_eq!(reported(Limits { space: 3.9, ..LIMITS }).0, Some("space"));
        if cfg!(target_os = "linux") {
            assert_eq!(reported(Limits { memory: 1, ..LIMITS }).0, Some("memory"));
            assert_eq!(reported(Limits { handles: 1, ..LIMITS }).0, Some("handles"));
        }
    }

    #[test]
    fn silence_and_long_operations_are_hangs() {
        let tick = |phase, seconds: u64| Tick {
            phase,
            current: (seconds * 1_000_000, "a put".into()),
            ..Tick::default()
        };
        let seconds = Duration::from_secs;
        assert_eq!(LIMITS.hang(seconds(1), &tick(WorkerPhase::Running, 5)), None);
        assert_eq!(LIMITS.hang(seconds(1), &tick(WorkerPhase::Checking, 50)), None);
        let reported = LIMITS.hang(seconds(1), &tick(WorkerPhase::Running, 6)).unwrap();
        assert_eq!(
            (reported.kind, reported.what.contains("a put has been running for 6.0 s")),
            ("hang", true)
        );
        assert!(LIMITS.hang(seconds(6), &tick(WorkerPhase::Running, 0)).is_some());
        let none = Limits { longest: Duration::ZERO, ..LIMITS };
        assert_eq!(none.hang(seconds(600), &tick(WorkerPhase::Running, 600)), None);
    }
}

//! Workloads one after another on one store, with a line about each, as db_bench prints them.
//!
//! 1. The header says how the run is set up, so that it can be repeated.
//! 2. Workloads that want a fresh store get one, unless the store was there before the run: then
//!    they are skipped.
//! 3. When stopped, the line of the workload that was running is still printed, marked as partial.

use std::io::Write;
use std::sync::Arc;

use crate::control::Control;
use crate::error::Error;
use crate::keys::KeySpace;
use crate::map_store::MapStore;
use crate::measure::{Load, measure};
use crate::measured::Measured;
use crate::store::{Level, Opener, Store, StoreError};
use crate::values::Values;
use crate::workload::Workload;

/// What a bench does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// The keys written and asked for.
    pub keys: KeySpace,
    /// The values written.
    pub values: Values,
    /// What share of a value is left when it is compressed; for the header only.
    pub compression_ratio: f64,
    /// Operations of each thread that writes.
    pub writes: u64,
    /// Operations of each thread that reads.
    pub reads: u64,
    /// Threads of each workload.
    pub threads: usize,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// Operations in one write, and keys in one multi-get.
    pub batch: usize,
    /// Entries that a seek reads from its position.
    pub seek_nexts: u64,
    /// Whether to keep and print the time of each operation.
    pub latencies: bool,
    /// Whether the store was there before: it is used as it is, and fills are skipped.
    pub existing: bool,
}

/// Does what the plan says and writes the results to `out`.
///
/// # Errors
/// The first that the store or `out` reports; [`Error::Interrupted`] if stopped.
pub fn bench(
    plan: &Plan,
    opener: &dyn Opener,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let store = opener.open(!plan.existing)?;
    write_header(plan, opener, out)?;
    let mut run = Run { plan, opener, control, out, store, untouched: true };
    let result = run.workloads();
    let closed = control.close(run.store);
    result.and(closed)
}

fn write_header(plan: &Plan, opener: &dyn Opener, out: &mut dyn Write) -> Result<(), Error> {
    let value_bytes = plan.values.value_bytes() as f64;
    let raw_bytes = (plan.keys.key_bytes() + value_bytes) * plan.keys.len() as f64;
    let mut lines = vec![
        (
            "Keys",
            format!("{:.0} bytes each (+ 0 bytes user-defined timestamp)", plan.keys.key_bytes()),
        ),
        (
            "Values",
            format!(
                "{value_bytes:.0} bytes each ({:.0} bytes after compression)",
                value_bytes * plan.compression_ratio
            ),
        ),
        ("Entries", plan.keys.len().to_string()),
        ("RawSize", format!("{:.1} MB (estimated)", raw_bytes / 1_048_576.0)),
        ("Threads", plan.threads.to_string()),
        ("Seed", plan.seed.to_string()),
    ];
    lines.extend(opener.describe());
    for (name, value) in lines {
        writeln!(out, "{:<11} {value}", format!("{name}:"))?;
    }
    writeln!(out, "{}", "-".repeat(48))?;
    Ok(out.flush()?)
}

/// A bench under way.
struct Run<'a> {
    plan: &'a Plan,
    opener: &'a dyn Opener,
    control: Control<'a>,
    out: &'a mut dyn Write,
    store: Arc<dyn Store>,
    /// Whether nothing was done with the store since it was opened fresh.
    untouched: bool,
}

impl Run<'_> {
    fn workloads(&mut self) -> Result<(), Error> {
        for (nth, workload) in self.plan.workloads.iter().enumerate() {
            self.workload(*workload, nth as u64)?;
            self.out.flush()?;
            if self.control.stop.is_set() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    fn workload(&mut self, workload: Workload, nth: u64) -> Result<(), Error> {
        if workload.wants_fresh_store() && !self.make_fresh(workload)? {
            return Ok(());
        }
        self.untouched = false;
        match workload {
            Workload::WaitForCompaction => self.wait(),
            Workload::Flush => self.step(workload, Store::flush),
            Workload::Compact => self.step(workload, Store::compact),
            Workload::Verify => self.verify(),
            Workload::LevelStats => self.print(&level_stats(&self.store.levels())),
            Workload::FilterStats => self.print(&self.store.filter_stats()),
            Workload::Stats => self.print(&self.store.stats()),
            Workload::ResetStats => {
                self.store.reset_stats();
                Ok(())
            }
            _ => self.operations(workload, nth),
        }
    }

    /// Puts an empty store in place, if that is allowed.
    fn make_fresh(&mut self, workload: Workload) -> Result<bool, Error> {
        if self.plan.existing {
            writeln!(self.out, "{workload:<12} : skipped (--use_existing_db is true)")?;
            return Ok(false);
        }
        if !self.untouched {
            // The old store must be closed before its directory can hold another.
            let placeholder: Arc<dyn Store> = Arc::new(MapStore::default());
            self.control.close(std::mem::replace(&mut self.store, placeholder))?;
            self.store = self.opener.open(true)?;
        }
        Ok(true)
    }

    fn operations(&mut self, workload: Workload, nth: u64) -> Result<(), Error> {
        let plan = self.plan;
        let operations = if workload.is_read() { plan.reads } else { plan.writes };
        let load = Load {
            keys: &plan.keys,
            values: &plan.values,
            threads: plan.threads,
            operations,
            seed: plan.seed,
            stream: nth,
            batch: match workload {
                Workload::MultiReadRandom if plan.batch == 1 => 32,
                _ => plan.batch,
            },
            seek_nexts: plan.seek_nexts,
            tail_bytes: 1,
            latencies: plan.latencies,
        };
        self.control.progress.begin(workload.name(), operations * plan.threads as u64);
        let measured = measure(&*self.store, workload, &load, self.control);
        self.control.progress.end();
        self.report(workload, &measured?)
    }

    fn report(&mut self, workload: Workload, measured: &Measured) -> Result<(), Error> {
        writeln!(self.out, "{}", measured.line(workload.name()))?;
        if let Some(latencies) = &measured.latencies {
            writeln!(self.out, "Microseconds per {}:\n{latencies}", workload.operation())?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        workload: Workload,
        task: impl FnOnce(&(dyn Store + 'static)) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), Error> {
        let (done, time) = self.control.call(&self.store, workload.name(), task)?;
        let measured = Measured {
            operations: u64::from(done.is_some()),
            thread_time: time,
            wall_time: time,
            interrupted: done.is_none(),
            ..Measured::default()
        };
        self.report(workload, &measured)
    }

    fn wait(&mut self) -> Result<(), Error> {
        let name = self.opener.name();
        writeln!(self.out, "waitforcompaction({name}): started")?;
        self.out.flush()?;
        let (done, _) = self.control.call(&self.store, "waitforcompaction", Store::settle)?;
        let status = if done.is_some() { "OK" } else { "interrupted" };
        Ok(writeln!(self.out, "waitforcompaction({name}): finished with status ({status})")?)
    }

    fn verify(&mut self) -> Result<(), Error> {
        let (checked, time) = self.control.call(&self.store, "verify", Store::verify)?;
        let seconds = time.as_secs_f64();
        match checked {
            Some(checked) => writeln!(self.out, "verify       : OK, {checked} ({seconds:.3} s)")?,
            None => writeln!(self.out, "verify       : interrupted after {seconds:.3} s")?,
        }
        Ok(())
    }

    fn print(&mut self, text: &str) -> Result<(), Error> {
        Ok(writeln!(self.out, "\n{}", text.trim_end())?)
    }
}

/// db_bench's table of levels; MB are 1,048,576 bytes.
fn level_stats(levels: &[Level]) -> String {
    let mut text = format!("Level Files Size(MB)\n{}\n", "-".repeat(20));
    for level in levels {
        let megabytes = level.bytes as f64 / 1_048_576.0;
        text += &format!("{:3} {:8} {megabytes:8.0}\n", level.level, level.files);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Silent, Stop};
    use crate::map_store::MapOpener;

    fn plan(workloads: &str) -> Plan {
        Plan {
            workloads: workloads.split(',').map(|name| name.parse().unwrap()).collect(),
            keys: KeySpace::integers(1000, 16).unwrap(),
            values: Values::new(100, 0.5, 42),
            compression_ratio: 0.5,
            writes: 1000,
            reads: 500,
            threads: 2,
            seed: 42,
            batch: 1,
            seek_nexts: 10,
            latencies: false,
            existing: false,
        }
    }

    fn output(plan: &Plan, stop: &Stop) -> (String, Result<(), Error>) {
        let mut out = Vec::new();
        let result = bench(plan, &MapOpener, Control { stop, progress: &Silent }, &mut out);
        (String::from_utf8(out).unwrap(), result)
    }

    /// The text with every measured time replaced, so that it can be compared.
    fn without_times(text: &str) -> String {
        text.lines().map(without_time).fold(String::new(), |text, line| text + &line + "\n")
    }

    fn without_time(line: &str) -> String {
        let Some((name, rest)) = line.split_once(" : ") else { return line.into() };
        let Some((_, rest)) = rest.split_once(" seconds ") else { return line.into() };
        let after = rest.split_once(" MB/s").map_or(String::new(), |(_, end)| format!(" B/s{end}"));
        let operations = rest.split_once(';').unwrap().0;
        let end =
            if rest.contains("MB/s") { after } else { rest.split_once(';').unwrap().1.into() };
        format!("{name} : {operations};{end}")
    }

    #[test]
    fn a_run_prints_its_setup_and_a_line_for_each_workload() {
        let plan = plan(
            "fillseq,readseq,fillrandom,overwrite,fillseq,readrandom,readmissing,flush,\
             waitforcompaction,levelstats,resetstats,verify",
        );
        let (text, result) = output(&plan, &Stop::new());
        result.unwrap();
        let verify = text.lines().last().unwrap();
        assert!(verify.starts_with("verify       : OK, 1000 entries in memory ("), "{verify}");
        let expected = "\
Keys:       16 bytes each (+ 0 bytes user-defined timestamp)
Values:     100 bytes each (50 bytes after compression)
Entries:    1000
RawSize:    0.1 MB (estimated)
Threads:    2
Seed:       42
Store:      a map in memory
------------------------------------------------
fillseq      : 2000 operations; B/s
readseq      : 1000 operations; B/s
fillrandom   : 2000 operations; B/s
overwrite    : 2000 operations; B/s
fillseq      : 2000 operations; B/s
readrandom   : 1000 operations; B/s (1000 of 1000 found)
readmissing  : 1000 operations; (0 of 1000 found)
flush        : 1 operations;
waitforcompaction(memory): started
waitforcompaction(memory): finished with status (OK)

Level Files Size(MB)
--------------------
";
        assert_eq!(without_times(text.trim_end().trim_end_matches(verify)), expected);
    }

    #[test]
    fn levels_are_shown_as_db_bench_shows_them() {
        let level = |level, files, megabytes: u64| Level { level, files, bytes: megabytes << 20 };
        assert_eq!(
            level_stats(&[level(0, 2, 8), level(1, 0, 0), level(6, 12345, 123_456)]),
            "Level Files Size(MB)\n--------------------\n  0        2        8\n  \
             1        0        0\n  6    12345   123456\n"
        );
    }

    #[test]
    fn fills_leave_an_existing_store_alone() {
        let mut plan = plan("fillrandom,readrandom");
        plan.existing = true;
        let (text, result) = output(&plan, &Stop::new());
        result.unwrap();
        assert!(text.contains("\nfillrandom   : skipped (--use_existing_db is true)\n"), "{text}");
        assert!(text.contains("(0 of 1000 found)"), "{text}");
    }

    #[test]
    fn histograms_are_printed_on_request() {
        let mut plan = plan("fillseq,readrandom");
        plan.latencies = true;
        let (text, result) = output(&plan, &Stop::new());
        result.unwrap();
        assert!(text.contains("\nMicroseconds per write:\nCount: 2000 Average: "), "{text}");
        assert!(text.contains("\nMicroseconds per read:\nCount: 1000 Average: "), "{text}");
    }

    #[test]
    fn a_stopped_run_says_what_it_had_and_ends() {
        let stop = Stop::new();
        stop.set();
        let (text, result) = output(&plan("fillrandom,readrandom"), &stop);
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        assert!(text.ends_with("0 operations; (interrupted)\n"), "{text}");
    }
}

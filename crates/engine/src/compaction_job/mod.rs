//! Running a planned compaction ([`crate::compaction`]). The planner chose the inputs, [`DropRule`]
//! and [`OlderData`] decide what is dropped, and [`OutputCutter`] where to cut.
//!
//! * [`filtering`]: the compaction filter of the user;
//! * [`kept`]: what becomes of an entry that is kept;
//! * [`share`]: which parts of a compaction idle workers take;
//! * [`slices`]: the slices in which a large compaction is installed.

mod filtering;
mod kept;
pub(crate) mod share;
pub(crate) mod slices;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trommel_base::{Cursor, MAX_SEQNO, compare_keys};
use trommel_sstable::ScanOptions;

use crate::background_trace::Detail;
use crate::compaction::gather::sequences;
use crate::compaction::in_progress::{JobId, JobStep};
use crate::compaction::key_range::{KeyBounds, total_bytes};
use crate::compaction::merge::{DropRule, EntryFate};
use crate::compaction::older::OlderData;
use crate::compaction::plan::{Plan, Reason};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::folding::Kept;
use crate::iter::level::{LevelCursor, ScanTables};
use crate::iter::merge::MergeCursor;
use crate::iter::source::Source;
use crate::latencies::TimedOperation;
use crate::manifest::edit::VersionEdit;
use crate::output::Outputs;
use crate::purpose::{MemtableShare, Purpose};
use crate::read_mode::ReadMode;
use crate::shared_merge::{Entries, MergeSlice, Merged, SharedMerge};
use crate::user_filters::FilterReason;
use crate::version::{TableFile, TableMeta};
use kept::KeptEntries;
use share::{Help, Offer};

/// Read-ahead bytes of a compaction.
struct ReadAhead {
    /// Of all inputs together, unless that would leave each less than the minimum.
    of_all: usize,
    /// Most for one input.
    of_one: usize,
}

/// Least for one input.
const LEAST_READ_AHEAD: usize = 64 << 10;
/// Fits the second-level cache: the system reads farther ahead by itself.
const READ_AHEAD: ReadAhead = ReadAhead { of_all: 1 << 20, of_one: 256 << 10 };
/// Used when only the compaction reads ahead: each read waits for the device.
const DIRECT_READ_AHEAD: ReadAhead = ReadAhead { of_all: 8 << 20, of_one: 1 << 20 };

impl ReadAhead {
    /// Bytes for each of `inputs` inputs.
    fn of_each(&self, inputs: usize) -> usize {
        (self.of_all / inputs.max(1)).clamp(LEAST_READ_AHEAD, self.of_one)
    }
}

/// A compaction polls for shutdown, failed helpers and pending flushes after this many bytes of
/// keys and values, plus an overhead per entry.
const POLL_BYTES: usize = if cfg!(any(test, shuttle)) { 16 << 10 } else { 1 << 20 };
const ENTRY_OVERHEAD: usize = 1 << 10;

/// When a merging thread polls, and when it leaves the compaction to flush a memtable.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Bytes read since the last poll.
    since: usize,
    /// Time spent on memtables.
    away: Duration,
    /// Until when the thread does not flush again.
    merges_until: Option<Instant>,
}

impl Polling {
    /// Whether it may flush again: not before it has merged for as long as the last flush took.
    fn may_leave(&self, now: Instant) -> bool {
        self.merges_until.is_none_or(|until| until <= now)
    }

    fn was_away(&mut self, from: Instant, to: Instant) {
        let away = to.saturating_duration_since(from);
        self.away += away;
        self.merges_until = Some(to + away);
    }
}

/// The state of a compaction that is kept from slice to slice.
#[derive(Debug)]
struct Merging {
    id: JobId,
    /// The purpose of all its tables.
    purpose: Purpose,
    /// Bytes of all inputs.
    input_bytes: u64,
    /// Entries of the inputs above the output level.
    stated_above: u64,
    /// Totals of the installed slices: bytes read and written, and entries read from above.
    read_bytes: u64,
    written_bytes: u64,
    read_above: u64,
    /// The tables written, by number.
    outputs: Vec<u64>,
    is_shared: bool,
    polling: Polling,
}

/// The outcome of a merge, with the parts of helpers.
#[derive(Debug, Default)]
pub(crate) struct MergeOutcome {
    /// All tables, in key order.
    pub(crate) tables: Vec<TableMeta>,
    /// Entries that were read.
    read: Entries,
    /// How often helpers took subranges.
    pub(crate) takings: usize,
    /// The time that helpers took, summed.
    others_time: Duration,
    /// How long the owner waited for helpers.
    waited: Duration,
}

impl Engine {
    /// Runs a plan and installs its outcome, slice by slice.
    pub(crate) fn run_compaction(&self, plan: Plan, id: JobId) -> Result<()> {
        let start = crate::env::now();
        if plan.trivial_move {
            self.install(edit(&plan, true, metas(&plan.upper)), Some(JobStep::Ends(id)), None)?;
            self.statistics.jobs.count_move();
            self.trace_tables("move", start, &plan);
            return Ok(());
        }
        if plan.only_removes() {
            self.install(edit(&plan, true, Vec::new()), Some(JobStep::Ends(id)), None)?;
            crate::events::compacted(
                plan.reason,
                (plan.level, plan.level),
                (0, 0),
                start.elapsed(),
            );
            self.trace_tables("removal", start, &plan);
            return Ok(());
        }
        let (reason, levels) = (plan.reason, (plan.level, plan.output_level));
        let is_in_place = matches!(reason, Reason::Small | Reason::Dead);
        let all =
            |note: fn(&TableFile) -> bool| is_in_place && plan.tables().all(|table| note(table));
        // A table for which one kind of rewrite is futile stays so marked after the other kind.
        let is_small = reason == Reason::Small || all(TableFile::stays_small);
        let is_rid = reason == Reason::Dead || all(TableFile::is_rid_of_dead);
        let before = plan.upper.len();
        let mut merging = self.merging(&plan, id);
        for slice in self.slices(plan)? {
            self.check_merging()?;
            self.run_slice(slice, &mut merging)?;
            // The next slice may need the space.
            self.sweep();
        }
        if is_small && merging.outputs.len() >= before {
            self.mark(&merging.outputs, TableFile::note_stays_small);
        }
        if is_rid {
            self.mark(&merging.outputs, TableFile::note_rid_of_dead);
        }
        self.statistics.jobs.count_compaction(merging.is_shared);
        let bytes = (merging.read_bytes, merging.written_bytes);
        crate::events::compacted(reason, levels, bytes, start.elapsed());
        let details = [
            ("reason", Detail::Text(reason.name())),
            ("from_level", Detail::Number(levels.0 as u64)),
            ("to_level", Detail::Number(levels.1 as u64)),
            ("bytes_read", Detail::Number(bytes.0)),
            ("bytes_written", Detail::Number(bytes.1)),
        ];
        self.statistics.end_work(TimedOperation::Compaction, Some(start), &details);
        Ok(())
    }

    /// Adds a change of tables that reads none to the trace.
    fn trace_tables(&self, name: &str, start: Instant, plan: &Plan) {
        let details = [
            ("from_level", Detail::Number(plan.level as u64)),
            ("to_level", Detail::Number(plan.output_level as u64)),
            ("tables", Detail::Number(plan.tables().count() as u64)),
        ];
        self.statistics.background_trace.add(name, start, &details);
    }

    /// Marks tables that a compaction has written, so that a similar one, which would be futile,
    /// does not follow.
    fn mark(&self, numbers: &[u64], note: impl Fn(&TableFile)) {
        let version = self.version();
        let tables = version.tables().filter(|(_, table)| numbers.contains(&table.number));
        tables.for_each(|(_, table)| note(table));
    }

    /// The state of the compaction of `plan`, with nothing installed yet.
    fn merging(&self, plan: &Plan, id: JobId) -> Merging {
        Merging {
            id,
            purpose: self.purpose(plan),
            input_bytes: plan.input_bytes(),
            stated_above: entries(plan.above()),
            read_bytes: 0,
            written_bytes: 0,
            read_above: 0,
            outputs: Vec::new(),
            is_shared: false,
            polling: Polling::default(),
        }
    }

    /// Merges a slice and installs it.
    fn run_slice(&self, slice: MergeSlice, merging: &mut Merging) -> Result<()> {
        let (start, away) = (crate::env::now(), merging.polling.away);
        let replaced = total_bytes(slice.plan.replaced());
        let merge = SharedMerge::new(slice, merging.purpose.clone(), self.version());
        let mut outputs = self.outputs(&merge);
        let done = self.merge_with_helpers(&merge, &mut merging.polling, &mut outputs)?;
        merging.read_above += done.read.above;
        let is_last = merge.is_last();
        if is_last {
            check_entries(merging.read_above, merging.stated_above)?;
        }
        let written = done.tables.iter().map(|table| table.file_bytes).sum();
        merging.outputs.extend(done.tables.iter().map(|table| table.number));
        let step = if is_last { JobStep::Ends } else { JobStep::GoesOn };
        // Once the store is poisoned, nothing is installed, even if the merge is complete.
        self.access.check_unpoisoned()?;
        self.install(edit(&merge.plan, is_last, done.tables), Some(step(merging.id)), None)?;
        outputs.keep();
        let read = if is_last { merging.input_bytes - merging.read_bytes } else { replaced };
        let not_merging = done.waited + (merging.polling.away - away);
        let time = (start.elapsed() + done.others_time).saturating_sub(not_merging);
        self.statistics.jobs.count_merged(read, written, time);
        merging.read_bytes += read;
        merging.written_bytes += written;
        merging.is_shared |= done.takings > 0;
        Ok(())
    }

    pub(crate) fn outputs(&self, merge: &SharedMerge) -> Outputs<'_> {
        let version = Arc::clone(&merge.version);
        Outputs::new(self, merge.plan.output_level, version, merge.purpose.clone())
    }

    /// Merges all subranges; helpers may take some. All tables written are then in `outputs`,
    /// whatever the outcome.
    pub(crate) fn merge_with_helpers(
        &self,
        merge: &Arc<SharedMerge>,
        polling: &mut Polling,
        outputs: &mut Outputs<'_>,
    ) -> Result<MergeOutcome> {
        let offer = Offer::new(&self.background, merge);
        let own = self.merge(merge, merge.whole(), true, polling, outputs);
        drop(offer);
        let own = own.and_then(|read| Ok((read, outputs.finish()?)));
        let waits = crate::env::now();
        let (others, outcome) = merge.end(own.as_ref().err());
        let mut done = MergeOutcome {
            waited: waits.elapsed(),
            takings: others.len(),
            ..MergeOutcome::default()
        };
        if let Ok((read, tables)) = own {
            done.read = read;
            done.tables = tables;
        }
        for other in others {
            done.read.add(other.read);
            done.others_time += other.time;
            done.tables.extend(other.tables);
            outputs.adopt(other.created);
        }
        outcome?;
        check_entries(done.read.replaced, entries(merge.plan.replaced()))?;
        Ok(done)
    }

    /// Merges these subranges of another worker's compaction.
    pub(crate) fn help(&self, merge: &SharedMerge, subranges: Range<usize>) {
        let start = crate::env::now();
        let mut help = Help { merge, first: subranges.start, outcome: None };
        let mut outputs = self.outputs(merge);
        let mut polling = Polling::default();
        let outcome = self.merge(merge, subranges, false, &mut polling, &mut outputs);
        let level = [("to_level", Detail::Number(merge.plan.output_level as u64))];
        self.statistics.background_trace.add("subcompaction", start, &level);
        help.outcome = Some(outcome.and_then(|read| {
            let tables = outputs.finish()?;
            let time = start.elapsed().saturating_sub(polling.away);
            Ok(Merged { read, time, tables, created: outputs.hand_over() })
        }));
    }

    /// The purpose of the tables that `plan` writes: each gets its share of the inputs' keys.
    pub(crate) fn purpose(&self, plan: &Plan) -> Purpose {
        let keys: u64 = plan.tables().map(|table| table.keys).sum();
        // Tables with filters of their own stand for the outputs that replace them.
        let planned: Vec<_> = plan.tables().filter(|table| !self.has_own_filters(table)).collect();
        let bytes = plan.input_bytes().max(1) as f64;
        let share = (self.options.load().compaction.table_bytes as f64 / bytes).min(1.0);
        let mut inputs: Vec<u64> = plan.tables().map(|table| table.number).collect();
        inputs.sort_unstable();
        Purpose {
            reason: FilterReason::Compaction,
            keys: planned.iter().map(|table| table.keys).sum(),
            deletions: planned.iter().map(|table| table.deletions).sum(),
            own: MemtableShare::default(),
            expected_keys: (keys as f64 * share) as u64,
            inputs,
            span: KeyBounds::hull(plan.tables()),
        }
    }

    /// Merges subranges to their end. The owner also stops before a subrange that a helper has
    /// taken.
    fn merge(
        &self,
        merge: &SharedMerge,
        subranges: Range<usize>,
        is_owner: bool,
        polling: &mut Polling,
        outputs: &mut Outputs<'_>,
    ) -> Result<Entries> {
        let plan = &merge.plan;
        // The snapshots are listed before the inputs are read: a later snapshot sees, of every key,
        // a version that is kept. They are listed after the range tombstones: a later snapshot sees
        // all of these.
        let version = self.version();
        let snapshots = self.snapshots.live();
        let mut rule = DropRule::new(snapshots, &version.ranges);
        outputs.judged_by(&rule);
        let older = OlderData::new(&version, plan);
        let mut kept = KeptEntries::new(self, merge, older, rule.has_snapshots(), outputs);
        let mut folding = self.folding();
        let inputs = self.inputs(plan)?;
        // The deepest input is last.
        let replaced = if plan.replaced().is_empty() { usize::MAX } else { inputs.len() - 1 };
        let mut merged = MergeCursor::new(inputs);
        match merge.start(subranges.start) {
            None => merged.seek_to_first()?,
            Some(key) => merged.seek(key, MAX_SEQNO)?,
        }
        let mut subrange = subranges.start;
        let mut read = Entries::default();
        'entries: while let Some(entry) = merged.entry() {
            while merge.start(subrange + 1).is_some_and(|end| compare_keys(end, entry.key).is_le())
            {
                let goes_on =
                    if is_owner { merge.go_on(subrange) } else { subrange + 1 < subranges.end };
                if !goes_on {
                    break 'entries;
                }
                subrange += 1;
            }
            read.count(merged.current() == replaced);
            polling.since += ENTRY_OVERHEAD + entry.key.len() + entry.value.len();
            if polling.since >= POLL_BYTES {
                self.poll(merge, polling)?;
            }
            let older_exists = || kept.has_older(entry.key);
            let fate = rule.judge(entry.key, entry.seqno, entry.kind, older_exists);
            if folding.concerns(fate) {
                folding.take(entry, fate, &rule, &mut kept)?;
            } else if fate == EntryFate::Keep {
                kept.add(entry, rule.no_snapshot_sees_last(), None)?;
            }
            merged.next()?;
        }
        folding.finish(&mut kept)?;
        Ok(read)
    }

    /// Polls during a compaction. Fails if it must not continue; flushes a waiting memtable if no
    /// worker is free. At least half of the time goes to the compaction, so that callers that wait
    /// for it do not wait until writes end.
    fn poll(&self, merge: &SharedMerge, polling: &mut Polling) -> Result<()> {
        polling.since = 0;
        self.check_merging()?;
        merge.check()?;
        let start = crate::env::now();
        if !polling.may_leave(start) || !self.flush_between() {
            return Ok(());
        }
        polling.was_away(start, crate::env::now());
        Ok(())
    }

    /// An error if nothing more may be merged or installed: the store is closing or poisoned.
    fn check_merging(&self) -> Result<()> {
        if self.background.is_closing() {
            return Err(Error::Closed);
        }
        // Does not check whether the store is closed: until it is shut down, a failed compaction is
        // restarted at once.
        self.access.check_unpoisoned()
    }

    /// The inputs of a plan: the runs of level 0 in as few sequences as possible, each deeper level
    /// as one.
    fn inputs(&self, plan: &Plan) -> Result<Vec<Source>> {
        let deeper = [&plan.through, &plan.lower].into_iter().filter(|tables| !tables.is_empty());
        let upper = match plan.level {
            0 => sequences(&plan.upper),
            _ => vec![plan.upper.clone()],
        };
        let read_ahead = match self.options.load().reads.read_mode {
            ReadMode::Direct => DIRECT_READ_AHEAD,
            _ => READ_AHEAD,
        };
        let read_ahead_bytes = read_ahead.of_each(upper.len() + deeper.clone().count());
        let scan = ScanOptions {
            fill_cache: false,
            read_ahead_bytes,
            check_order: true,
            trust_verified: false,
        };
        let level = |tables: Vec<Arc<TableFile>>| {
            let tables = ScanTables::List(tables);
            Source::Level(LevelCursor::new(tables, Arc::clone(&self.files.tables), scan))
        };
        let mut sources = Vec::with_capacity(upper.len() + 2);
        for tables in upper {
            sources.push(match &*tables {
                [run] if plan.level == 0 => {
                    Source::Table(self.files.tables.reader(run)?.cursor(scan), run.max_seqno)
                }
                _ => level(tables),
            });
        }
        sources.extend(deeper.map(|tables| level(tables.clone())));
        Ok(sources)
    }
}

fn metas(tables: &[Arc<TableFile>]) -> Vec<TableMeta> {
    tables.iter().map(|table| table.meta().clone()).collect()
}

/// Entries of `tables` by their metadata.
fn entries<'a>(tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> u64 {
    tables.into_iter().map(|table| table.entries).sum()
}

/// An error if a compaction did not read all entries: an input that ended early would otherwise be
/// silent data loss.
fn check_entries(read: u64, stated: u64) -> Result<()> {
    if read == stated {
        return Ok(());
    }
    let what = format!("a compaction read {read} entries of tables that hold {stated}");
    Err(Error::internal(what))
}

/// The edit by which `outputs` replace a plan's tables in its output level, and if `is_last` all
/// other inputs too.
pub(crate) fn edit(plan: &Plan, is_last: bool, outputs: Vec<TableMeta>) -> VersionEdit {
    let upper = plan.upper.iter().map(|table| (plan.level as u8, table.number));
    let through = plan.through.iter().map(|table| (plan.output_level as u8 - 1, table.number));
    let lower = plan.lower.iter().map(|table| (plan.output_level as u8, table.number));
    let leaves = |(level, _): &(u8, u64)| is_last || usize::from(*level) == plan.output_level;
    VersionEdit {
        removed: upper.chain(through).chain(lower).filter(leaves).collect(),
        added: outputs.into_iter().map(|table| (plan.output_level as u8, table)).collect(),
        ..VersionEdit::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_time_is_left_for_the_merge() {
        let mut polling = Polling::default();
        let at = |start: Instant, seconds| start + Duration::from_secs(seconds);
        let start = crate::env::now();
        assert!(polling.may_leave(start));
        polling.was_away(at(start, 10), at(start, 30));
        assert!(!polling.may_leave(at(start, 49)) && polling.may_leave(at(start, 50)));
        polling.was_away(at(start, 60), at(start, 61));
        assert!(!polling.may_leave(at(start, 61)) && polling.may_leave(at(start, 62)));
        assert_eq!(polling.away, Duration::from_secs(21));
    }
}

//! Running a compaction that was planned ([`crate::compaction`]). Nothing is decided here: the
//! planner chose what to merge, [`DropRule`] says what to drop, and [`OutputCutter`] where to cut.
//!
//! * [`share`]: which parts of one compaction idle workers take;
//! * [`stretches`]: which part of a large compaction is installed before the rest.

pub(crate) mod share;
pub(crate) mod stretches;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trommel_base::planted::{Bug, planted};

use trommel_base::{Cursor, MAX_SEQNO, compare_keys};
use trommel_sstable::{FilterLabel, ScanOptions};

use crate::compaction::cut::OutputCutter;
use crate::compaction::gather::sequences;
use crate::compaction::in_progress::{JobId, JobStep};
use crate::compaction::key_range::{KeyRange, total_bytes};
use crate::compaction::merge::{DropRule, Verdict};
use crate::compaction::older::OlderData;
use crate::compaction::plan::{Plan, Reason};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::iter::level::{LevelCursor, Tables};
use crate::iter::merge::MergeCursor;
use crate::iter::source::Source;
use crate::manifest::edit::VersionEdit;
use crate::output::Outputs;
use crate::purpose::Purpose;
use crate::read_mode::ReadMode;
use crate::shared_merge::{Entries, Merged, SharedMerge, Stretch};
use crate::user_filters::FilterReason;
use crate::version::{TableFile, TableMeta};
use share::{Help, Offer};

/// Bytes that a merge reads ahead.
struct ReadAhead {
    /// Of all inputs together, if these are not so many that each has the least.
    of_all: usize,
    /// Of one at most.
    of_one: usize,
}

/// Bytes that are read ahead of one input at least.
const LEAST_READ_AHEAD: usize = 64 << 10;
/// What lies in a processor's second cache: the system reads farther ahead by itself.
const READ_AHEAD: ReadAhead = ReadAhead { of_all: 1 << 20, of_one: 256 << 10 };
/// The same where nothing but the merge reads ahead: each read waits for the device.
const DIRECT_READ_AHEAD: ReadAhead = ReadAhead { of_all: 8 << 20, of_one: 1 << 20 };

impl ReadAhead {
    /// Bytes for each of so many inputs.
    fn of_each(&self, inputs: usize) -> usize {
        (self.of_all / inputs.max(1)).clamp(LEAST_READ_AHEAD, self.of_one)
    }
}

/// Bytes of keys and values, and so many more for each entry, after which a merge looks whether the
/// store is being closed, somebody else's part of it has failed, or a memtable waits.
const BETWEEN_LOOKS: usize = if cfg!(any(test, shuttle)) { 16 << 10 } else { 1 << 20 };
const OF_AN_ENTRY: usize = 1 << 10;

/// When a thread that merges looks about, and leaves the merge for a memtable.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// What has been read since it last did.
    since: usize,
    /// How long it was away for memtables.
    away: Duration,
    /// Until when it is not away again.
    merges_until: Option<Instant>,
}

impl Looks {
    /// Whether it may be away again: not before it has merged for as long as it was away.
    fn may_leave(&self, now: Instant) -> bool {
        self.merges_until.is_none_or(|until| until <= now)
    }

    fn was_away(&mut self, from: Instant, to: Instant) {
        let away = to.saturating_duration_since(from);
        self.away += away;
        self.merges_until = Some(to + away);
    }
}

/// What is kept of a merge from stretch to stretch.
#[derive(Debug)]
struct Merging {
    id: JobId,
    /// What is told of all its tables.
    purpose: Purpose,
    /// Bytes of all inputs.
    input_bytes: u64,
    /// Entries of those from levels above the output level.
    stated_above: u64,
    /// What is in force of it: bytes read and written, and entries read from above.
    read_bytes: u64,
    written_bytes: u64,
    read_above: u64,
    /// The tables written, by number.
    outputs: Vec<u64>,
    is_shared: bool,
    looks: Looks,
}

/// What came of a merge that others may have taken part in.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// All tables, in key order.
    pub(crate) tables: Vec<TableMeta>,
    /// Entries that were read.
    read: Entries,
    /// How often others took pieces.
    pub(crate) takings: usize,
    /// How long they took for these, added up.
    others_time: Duration,
    /// How long the owner waited for them.
    waited: Duration,
}

impl Engine {
    /// Runs a plan and installs its outcome, stretch by stretch.
    pub(crate) fn run_compaction(&self, plan: Plan, id: JobId) -> Result<()> {
        let start = crate::env::now();
        if plan.trivial_move {
            self.install(edit(&plan, true, metas(&plan.upper)), Some(JobStep::Ends(id)), None)?;
            self.statistics.jobs.count_move();
            return Ok(());
        }
        let (reason, levels) = (plan.reason, (plan.level, plan.output_level));
        let small = (reason == Reason::Small).then_some(plan.upper.len());
        let mut merging = self.merging(&plan, id);
        for stretch in self.stretches(plan)? {
            self.check_merging()?;
            self.run_stretch(stretch, &mut merging)?;
            // The next one may need the room.
            self.sweep();
        }
        if small.is_some_and(|before| merging.outputs.len() >= before) {
            self.note_in_vain(&merging.outputs);
        }
        self.statistics.jobs.count_compaction(merging.is_shared);
        let bytes = (merging.read_bytes, merging.written_bytes);
        crate::events::compacted(reason, levels, bytes, start.elapsed());
        Ok(())
    }

    /// Notes of small tables that took the place of no more of them, so that they are not merged
    /// again.
    fn note_in_vain(&self, numbers: &[u64]) {
        let version = self.version();
        let tables = version.tables().filter(|(_, table)| numbers.contains(&table.number));
        tables.for_each(|(_, table)| table.note_stays_small());
    }

    /// What is kept of the merge of `plan`, of which nothing is in force.
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
            looks: Looks::default(),
        }
    }

    /// Merges a stretch and puts it in force.
    fn run_stretch(&self, stretch: Stretch, merging: &mut Merging) -> Result<()> {
        let (start, away) = (crate::env::now(), merging.looks.away);
        let replaced = total_bytes(stretch.plan.replaced());
        let merge = SharedMerge::new(stretch, merging.purpose.clone(), self.version());
        let mut outputs = self.outputs(&merge);
        let done = self.merge_with_helpers(&merge, &mut merging.looks, &mut outputs)?;
        merging.read_above += done.read.above;
        let is_last = merge.is_last();
        if is_last {
            check_entries(merging.read_above, merging.stated_above)?;
        }
        let written = done.tables.iter().map(|table| table.file_bytes).sum();
        merging.outputs.extend(done.tables.iter().map(|table| table.number));
        let step = if is_last { JobStep::Ends } else { JobStep::GoesOn };
        // Merged in vain, or not: nothing is written any more.
        self.access.check_unpoisoned()?;
        self.install(edit(&merge.plan, is_last, done.tables), Some(step(merging.id)), None)?;
        outputs.keep();
        let read = if is_last { merging.input_bytes - merging.read_bytes } else { replaced };
        let not_merging = done.waited + (merging.looks.away - away);
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

    /// Merges all pieces, of which others may take some. What they write is among `outputs` then,
    /// whatever the outcome.
    pub(crate) fn merge_with_helpers(
        &self,
        merge: &Arc<SharedMerge>,
        looks: &mut Looks,
        outputs: &mut Outputs<'_>,
    ) -> Result<Done> {
        let offer = Offer::new(&self.background, merge);
        let own = self.merge(merge, merge.whole(), true, looks, outputs);
        drop(offer);
        let own = own.and_then(|read| Ok((read, outputs.finish()?)));
        let waits = crate::env::now();
        let (others, outcome) = merge.end(own.as_ref().err());
        let mut done = Done { waited: waits.elapsed(), takings: others.len(), ..Done::default() };
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

    /// Merges these pieces of another worker's merge.
    pub(crate) fn help(&self, merge: &SharedMerge, pieces: Range<usize>) {
        let start = crate::env::now();
        let mut help = Help { merge, first: pieces.start, outcome: None };
        let mut outputs = self.outputs(merge);
        let mut looks = Looks::default();
        let outcome = self.merge(merge, pieces, false, &mut looks, &mut outputs);
        help.outcome = Some(outcome.and_then(|read| {
            let tables = outputs.finish()?;
            let time = start.elapsed().saturating_sub(looks.away);
            Ok(Merged { read, time, tables, created: outputs.hand_over() })
        }));
    }

    /// What is told of the tables that `plan` writes: each gets its share of the inputs' keys.
    pub(crate) fn purpose(&self, plan: &Plan) -> Purpose {
        let keys: u64 = plan.tables().map(|table| table.keys).sum();
        let bytes = plan.input_bytes().max(1) as f64;
        let share = (self.options.load().table_bytes as f64 / bytes).min(1.0);
        let mut inputs: Vec<u64> = plan.tables().map(|table| table.number).collect();
        inputs.sort_unstable();
        Purpose {
            reason: FilterReason::Compaction,
            keys,
            expected_keys: (keys as f64 * share) as u64,
            inputs,
            span: KeyRange::hull(plan.tables()),
        }
    }

    /// Merges pieces until their end, or until the next one is another's, where the worker is the
    /// owner of the merge.
    fn merge(
        &self,
        merge: &SharedMerge,
        pieces: Range<usize>,
        is_owner: bool,
        looks: &mut Looks,
        outputs: &mut Outputs<'_>,
    ) -> Result<Entries> {
        let plan = &merge.plan;
        // The snapshots are listed before the inputs are read: one taken later sees, of every
        // key, a version that is kept.
        let mut rule = DropRule::new(self.snapshots.live());
        let mut older = OlderData::new(&self.version(), plan);
        let options = self.options.load().compaction();
        let mut cutter = OutputCutter::new(plan.grandparents.clone(), &options, merge.table_bytes);
        let inputs = self.inputs(plan)?;
        // What lies deepest comes last.
        let replaced = if plan.replaced().is_empty() { usize::MAX } else { inputs.len() - 1 };
        let mut merged = MergeCursor::new(inputs);
        let begun = match merge.start(pieces.start) {
            None => merged.seek_to_first(),
            Some(key) => merged.seek(key, MAX_SEQNO),
        };
        match begun {
            Err(_) if planted(Bug::ReadErrorEndsCompaction) => return Ok(Entries::default()),
            begun => begun?,
        }
        let mut piece = pieces.start;
        let mut read = Entries::default();
        while let Some(entry) = merged.entry() {
            while merge.start(piece + 1).is_some_and(|end| compare_keys(end, entry.key).is_le()) {
                let goes_on = if is_owner { merge.go_on(piece) } else { piece + 1 < pieces.end };
                if !goes_on {
                    return Ok(read);
                }
                piece += 1;
            }
            read.count(merged.current() == replaced);
            looks.since += OF_AN_ENTRY + entry.key.len() + entry.value.len();
            if looks.since >= BETWEEN_LOOKS {
                self.look_about(merge, looks)?;
            }
            let older_exists = || {
                !planted(Bug::TombstoneDroppedEarly)
                    && older.may_exist(entry.key, |table| may_hold(table, entry.key))
            };
            if rule.judge(entry.key, entry.seqno, entry.kind, older_exists) == Verdict::Keep {
                let cut = cutter.cut_before(entry.key, outputs.last_key(), outputs.open_bytes());
                if cut {
                    outputs.close_table()?;
                }
                outputs.add(entry)?;
            }
            match merged.next() {
                Err(_) if planted(Bug::ReadErrorEndsCompaction) => return Ok(read),
                moved => moved?,
            }
        }
        Ok(read)
    }

    /// In the middle of a merge: an error if it is not to go on; and a memtable is written out that
    /// waits while no worker is free. Half of the time is left for the merge: whoever waits for it
    /// must not wait for as long as somebody writes.
    fn look_about(&self, merge: &SharedMerge, looks: &mut Looks) -> Result<()> {
        looks.since = 0;
        self.check_merging()?;
        merge.check()?;
        let start = crate::env::now();
        if !looks.may_leave(start) || !self.flush_between() {
            return Ok(());
        }
        looks.was_away(start, crate::env::now());
        Ok(())
    }

    /// An error where no more may be merged or put in force: the store is being closed, or
    /// poisoned.
    fn check_merging(&self) -> Result<()> {
        if self.background.is_closing() {
            return Err(Error::Closed);
        }
        // Not whether the store is closed: until it is shut down a merge that fails is begun again
        // at once.
        self.access.check_unpoisoned()
    }

    /// The inputs of a plan: the runs of level 0 in as few sequences as can be, each deeper level
    /// as one.
    fn inputs(&self, plan: &Plan) -> Result<Vec<Source>> {
        let deeper = [&plan.through, &plan.lower].into_iter().filter(|tables| !tables.is_empty());
        let upper = match plan.level {
            0 => sequences(&plan.upper),
            _ => vec![plan.upper.clone()],
        };
        let read_ahead = match self.options.load().read_mode {
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
            let tables = Tables::List(tables);
            Source::Level(LevelCursor::new(tables, Arc::clone(&self.files.tables), scan))
        };
        let mut sources = Vec::with_capacity(upper.len() + 2);
        for tables in upper {
            sources.push(match &*tables {
                [run] if plan.level == 0 => {
                    Source::Table(self.files.tables.reader(run)?.cursor(scan))
                }
                _ => level(tables),
            });
        }
        sources.extend(deeper.map(|tables| level(tables.clone())));
        Ok(sources)
    }
}

/// Whether `table` may hold `key`, as far as is known without opening it.
fn may_hold(table: &TableFile, key: &[u8]) -> bool {
    let Some(open) = table.open_reader() else { return true };
    let verdict = open.table().filters().ask(key, trommel_filter::hash(key));
    // A user's filter that is wrong costs a lookup its answer; it must not cost a tombstone.
    verdict.maybe || verdict.kind == FilterLabel::User
}

fn metas(tables: &[Arc<TableFile>]) -> Vec<TableMeta> {
    tables.iter().map(|table| table.meta().clone()).collect()
}

/// Entries that are said to be in `tables`.
fn entries<'a>(tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> u64 {
    tables.into_iter().map(|table| table.entries).sum()
}

/// An error if a merge did not read all entries: an input that ended early would otherwise be data
/// lost without a word.
fn check_entries(read: u64, stated: u64) -> Result<()> {
    if read == stated || planted(Bug::ReadErrorEndsCompaction) {
        return Ok(());
    }
    let what = format!("a compaction read {read} entries of tables that hold {stated}");
    Err(Error::internal(what))
}

/// The edit by which `outputs` replace a plan's tables in its output level, and all other inputs
/// too where nothing of the plan is left.
pub(crate) fn edit(plan: &Plan, is_last: bool, outputs: Vec<TableMeta>) -> VersionEdit {
    let upper = plan.upper.iter().map(|table| (plan.level as u8, table.number));
    let through = plan.through.iter().map(|table| (plan.output_level as u8 - 1, table.number));
    let lower = plan.lower.iter().map(|table| (plan.output_level as u8, table.number));
    let leaves = |(level, _): &(u8, u64)| {
        is_last || usize::from(*level) == plan.output_level || planted(Bug::InputsLeaveEarly)
    };
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
        let mut looks = Looks::default();
        let at = |start: Instant, seconds| start + Duration::from_secs(seconds);
        let start = crate::env::now();
        assert!(looks.may_leave(start));
        looks.was_away(at(start, 10), at(start, 30));
        assert!(!looks.may_leave(at(start, 49)) && looks.may_leave(at(start, 50)));
        looks.was_away(at(start, 60), at(start, 61));
        assert!(!looks.may_leave(at(start, 61)) && looks.may_leave(at(start, 62)));
        assert_eq!(looks.away, Duration::from_secs(21));
    }
}

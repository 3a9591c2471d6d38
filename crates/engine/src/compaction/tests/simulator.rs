//! Random trees, random compactions, several at once; every read must give the same answer as
//! before.
//!
//! The tables hold real versions of keys, the compactions really drop and cut, and the model is the
//! list of all writes. After every change of the version, its invariants hold, and every key reads
//! the same at the present and at every live snapshot, found as a reader finds it (the first table
//! with a visible version answers).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use trommel_base::{EntryKind, SeqNo};

use crate::levels::LEVELS;
use crate::ranges::RangeSet;
use crate::version::{TableFile, Version};

use super::super::cut::OutputCutter;
use super::super::in_progress::{InProgress, JobId};
use super::super::merge::{DropRule, EntryFate};
use super::super::older::OlderData;
use super::super::plan::{Plan, Reason, plan};
use super::super::range::{RangeCompaction, RangeStep};
use super::{Rng, install, is_ci, table};
use crate::compaction_job::slices::divide;
use crate::compaction_options::CompactionOptions;
use crate::shared_merge::MergeSlice;

const ENTRY_BYTES: u64 = 10;

/// (key, inverted sequence number) to kind: in the order of entries.
type Entries = BTreeMap<(Vec<u8>, u64), EntryKind>;

/// A compaction with one merged slice that is not installed yet.
struct Running {
    id: JobId,
    slice: MergeSlice,
    outputs: Vec<Arc<TableFile>>,
    /// The remaining slices.
    left: VecDeque<MergeSlice>,
}

/// A requested range compaction.
struct Manual {
    range: RangeCompaction,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    through: SeqNo,
    before: u64,
    /// Whether a compaction was abandoned since it began: then nothing is guaranteed.
    disturbed: bool,
}

struct World {
    rng: Rng,
    options: CompactionOptions,
    keys: usize,
    seqno: SeqNo,
    next_number: u64,
    history: Entries,
    memtable: Entries,
    contents: HashMap<u64, Entries>,
    version: Version,
    busy: InProgress,
    running: Vec<Running>,
    snapshots: Vec<SeqNo>,
    manual: Option<Manual>,
    /// Whether tables were added or removed since the last check.
    changed: bool,
    /// The events that occurred, to know that the simulation covers them.
    seen: BTreeSet<&'static str>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let options = CompactionOptions {
            l0_trigger: 1 + rng.below(4),
            base_level_bytes: 50 + rng.below(200) as u64,
            level_ratio: 2 + rng.below(3) as u64,
            table_bytes: 5 + rng.below(100) as u64,
            ..CompactionOptions::default()
        };
        Self {
            keys: rng.below(60) + [5, 5, 140][rng.below(3)],
            rng,
            options,
            seqno: 0,
            next_number: 1,
            history: Entries::new(),
            memtable: Entries::new(),
            contents: HashMap::new(),
            version: Version::default(),
            busy: InProgress::default(),
            running: Vec::new(),
            snapshots: Vec::new(),
            manual: None,
            changed: false,
            seen: BTreeSet::new(),
        }
    }

    fn write(&mut self) {
        let from = self.rng.below(self.keys);
        let span = [1, 3, self.keys][self.rng.below(3)];
        for _ in 0..1 + self.rng.below(12) {
            let key = format!("{:03}", (from + self.rng.below(span)) % self.keys).into_bytes();
            let kind = if self.rng.below(3) == 0 { EntryKind::Delete } else { EntryKind::Put };
            self.seqno += 1;
            self.history.insert((key.clone(), !self.seqno), kind);
            self.memtable.insert((key, !self.seqno), kind);
        }
    }

    /// Writes `entries` as one table.
    fn build(&mut self, entries: Entries) -> Arc<TableFile> {
        let number = self.next_number;
        self.next_number += 1;
        let (first, last) = (entries.first_key_value().unwrap(), entries.last_key_value().unwrap());
        let bytes = entries.len() as u64 * ENTRY_BYTES;
        let mut meta = table(number, &first.0.0, &last.0.0, bytes);
        meta.entries = entries.len() as u64;
        meta.deletions = entries.values().filter(|kind| **kind == EntryKind::Delete).count() as u64;
        meta.keys = entries.keys().map(|(key, _)| key).collect::<BTreeSet<_>>().len() as u64;
        meta.min_seqno = entries.keys().map(|(_, inverted)| !inverted).min().unwrap();
        meta.max_seqno = entries.keys().map(|(_, inverted)| !inverted).max().unwrap();
        self.contents.insert(number, entries);
        Arc::new(TableFile::new(meta))
    }

    fn flush(&mut self) {
        let mut rule = DropRule::new(self.snapshots.clone(), &RangeSet::default());
        let mut kept = std::mem::take(&mut self.memtable);
        kept.retain(|(key, inverted), kind| {
            rule.judge(key, !*inverted, *kind, || true) == EntryFate::Keep
        });
        if !kept.is_empty() {
            let table = self.build(kept);
            self.version.levels[0].insert(0, table);
            self.changed = true;
        }
    }

    /// The tables that a worker would write for a slice.
    fn merge(&mut self, slice: &MergeSlice) -> Vec<Arc<TableFile>> {
        let MergeSlice { plan, from, to, .. } = slice;
        if plan.trivial_move {
            return plan.upper.clone();
        }
        let mut inputs = Entries::new();
        let is_inside = |key: &[u8]| {
            from.as_deref().is_none_or(|from| *from <= *key)
                && to.as_deref().is_none_or(|to| *key < *to)
        };
        for table in plan.replaced() {
            let all_inside = self.contents[&table.number].keys().all(|(key, _)| is_inside(key));
            assert!(all_inside, "a table leaves that lies in two slices");
        }
        for table in plan.tables() {
            let entries = self.contents[&table.number].iter();
            for (entry, kind) in entries.filter(|((key, _), _)| is_inside(key)) {
                if inputs.insert(entry.clone(), *kind).is_some() {
                    self.seen.insert("one version twice");
                }
            }
        }
        let mut rule = DropRule::new(self.snapshots.clone(), &RangeSet::default());
        let mut older = OlderData::new(&self.version, plan);
        let mut cutter =
            OutputCutter::new(plan.grandparents.clone(), &self.options, slice.table_bytes);
        let by_filter = self.rng.below(2) == 0;
        let mut outputs: Vec<Entries> = vec![Entries::new()];
        for ((key, inverted), kind) in inputs {
            let holds = |t: &TableFile| {
                !by_filter || self.contents[&t.number].keys().any(|(held, _)| *held == key)
            };
            let verdict = rule.judge(&key, !inverted, kind, || older.may_exist(&key, holds));
            if verdict != EntryFate::Keep {
                self.seen.insert(if verdict == EntryFate::Spent { "spent" } else { "hidden" });
                continue;
            }
            let open = outputs.last().unwrap();
            let last_key = open.last_key_value().map(|((key, _), _)| key.clone());
            let bytes = open.len() as u64 * ENTRY_BYTES;
            if cutter.cut_before(&key, last_key.as_deref(), bytes) {
                outputs.push(Entries::new());
            }
            outputs.last_mut().unwrap().insert((key, inverted), kind);
        }
        outputs.retain(|output| !output.is_empty());
        outputs.into_iter().map(|output| self.build(output)).collect()
    }

    fn plan(&self) -> Option<Plan> {
        let oldest = self.snapshots.iter().copied().min().unwrap_or(SeqNo::MAX);
        plan(&self.version, &self.busy, &self.options, oldest)
    }

    fn start(&mut self, plan: Plan) {
        if !plan.through.is_empty() {
            self.seen.insert("through the base level");
        }
        self.seen.insert(match (plan.level, plan.trivial_move) {
            _ if plan.reason == Reason::Small => "small neighbours",
            _ if plan.reason == Reason::Dead => "dead entries",
            (0, true) if plan.upper.len() > 1 => "moves from level 0",
            (0, true) => "move from level 0",
            (0, false) => "merge from level 0",
            (_, true) => "move",
            (level, false) if level == plan.output_level => "rewrite",
            (_, false) => "merge",
        });
        if !self.running.is_empty() {
            self.seen.insert("side by side");
        }
        assert!(plan.output_level > 0, "no merge ends in level 0");
        let id = self.busy.start(&plan).expect("the planner keeps away from running plans");
        let table_bytes = self.options.table_bytes;
        let is_whole = plan.trivial_move || self.rng.below(3) == 0;
        let slices = match is_whole {
            true => vec![MergeSlice::whole(plan, Vec::new())],
            false => divide(plan, &[], 2 * table_bytes, table_bytes),
        };
        self.go_on(id, slices.into());
    }

    /// Merges the next slice of a compaction, without installing it.
    fn go_on(&mut self, id: JobId, mut left: VecDeque<MergeSlice>) {
        let Some(slice) = left.pop_front() else { return self.busy.finish(id) };
        let outputs = self.merge(&slice);
        self.running.push(Running { id, slice, outputs, left });
    }

    /// Installs a slice of a running compaction and continues with the next.
    fn install(&mut self, running: Running) {
        let Running { id, slice, outputs, left } = running;
        if !left.is_empty() {
            self.seen.insert("in slices");
            self.busy.keep(id, outputs.iter().map(|table| table.number));
        }
        self.version = install(&self.version, &slice.plan, left.is_empty(), outputs);
        self.changed = true;
        self.go_on(id, left);
    }

    /// Installs a slice of a running compaction, or sometimes abandons the compaction.
    fn end_one(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.below(self.running.len());
        let running = self.running.swap_remove(at);
        if self.rng.below(20) > 0 {
            return self.install(running);
        }
        if running.slice.from.is_some() {
            self.seen.insert("given up in between");
        }
        if let Some(manual) = &mut self.manual {
            manual.disturbed = true;
        }
        self.busy.finish(running.id);
    }

    fn begin_range(&mut self) {
        let (a, b) = (self.rng.below(self.keys), self.rng.below(self.keys));
        let from = format!("{:03}", a.min(b)).into_bytes();
        let to = (self.rng.below(3) > 0).then(|| format!("{:03}", a.max(b)).into_bytes());
        let (through, before) = (self.seqno, self.next_number);
        self.flush();
        let range = RangeCompaction::new(&from, to.as_deref(), through, before);
        self.manual = Some(Manual { range, from, to, through, before, disturbed: false });
    }

    fn step_range(&mut self) {
        let Some(mut manual) = self.manual.take() else { return self.begin_range() };
        match manual.range.next_step(&self.version, &self.busy, &self.options) {
            RangeStep::Run(plan) => self.start(*plan),
            RangeStep::Wait => {
                assert!(!self.busy.is_empty(), "it waits for nothing");
                self.seen.insert("wait");
            }
            RangeStep::Done => {
                self.seen.insert("range done");
                return self.check_range(&manual);
            }
        }
        self.manual = Some(manual);
    }

    /// Entries written to the range before the request are in the last level, rewritten.
    fn check_range(&self, manual: &Manual) {
        if manual.disturbed {
            return;
        }
        let in_range =
            |key: &Vec<u8>| *key >= manual.from && manual.to.as_ref().is_none_or(|to| key <= to);
        for (level, table) in self.version.tables() {
            for (key, inverted) in self.contents[&table.number].keys().filter(|e| in_range(&e.0)) {
                let is_new = !inverted > manual.through;
                assert!(is_new || level == LEVELS - 1, "{key:?} was left behind in L{level}");
                let is_rewritten = table.number >= manual.before;
                assert!(level < LEVELS - 1 || is_rewritten, "{} was not rewritten", table.number);
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..6 => self.write(),
            6..8 => self.flush(),
            20..24 if self.manual.is_some() => self.step_range(),
            8 => self.snapshots.push(self.seqno),
            9 if !self.snapshots.is_empty() => {
                let at = self.rng.below(self.snapshots.len());
                self.snapshots.swap_remove(at);
            }
            10..14 => {
                if let Some(plan) = self.plan() {
                    self.start(plan);
                }
            }
            14 => self.step_range(),
            15 if self.rng.below(10) == 0 => {
                self.options.base_level_bytes = 20 + self.rng.below(400) as u64;
                self.options.table_bytes = 5 + self.rng.below(100) as u64;
            }
            _ => self.end_one(),
        }
    }

    /// The newest version of `key` in `entries` that `snapshot` sees.
    fn find(entries: &Entries, key: &[u8], snapshot: SeqNo) -> Option<(SeqNo, EntryKind)> {
        let from = (key.to_vec(), !snapshot);
        let (found, kind) = entries.range(from..).next()?;
        (found.0 == key).then_some((!found.1, *kind))
    }

    /// What a reader finds; nothing for a tombstone.
    fn read(&self, key: &[u8], snapshot: SeqNo) -> Option<SeqNo> {
        let in_table = |table: &Arc<TableFile>| {
            let holds = *table.smallest <= *key && *key <= *table.largest;
            holds.then(|| Self::find(&self.contents[&table.number], key, snapshot)).flatten()
        };
        let in_level = |level| self.version.overlapping(level, key, key).first().and_then(in_table);
        let found = Self::find(&self.memtable, key, snapshot)
            .or_else(|| self.version.levels[0].iter().find_map(in_table))
            .or_else(|| (1..LEVELS).find_map(in_level));
        found.filter(|(_, kind)| *kind == EntryKind::Put).map(|(seqno, _)| seqno)
    }

    fn check(&self, when: &str) {
        for level in 1..LEVELS {
            for pair in self.version.levels[level].windows(2) {
                assert!(pair[0].largest < pair[1].smallest, "{when}: L{level} overlaps");
            }
        }
        let mut newest_above: BTreeMap<&[u8], SeqNo> = BTreeMap::new();
        let mut above = BTreeSet::new();
        let moments = || self.snapshots.iter().copied().chain([self.seqno]);
        let seen = |entry| self.history.get(entry).map(|kind| (!entry.1, *kind));
        for (level, table) in self.version.tables() {
            for entry @ (key, inverted) in self.contents[&table.number].keys() {
                let oldest_above = newest_above.entry(key).or_insert(SeqNo::MAX);
                // An entry that an unfinished compaction has installed is also above, or is hidden
                // from all readers by now.
                let holds = !inverted < *oldest_above
                    || above.contains(entry)
                    || !moments()
                        .any(|moment| Self::find(&self.history, key, moment) == seen(entry));
                assert!(holds, "{when}: L{level} holds newer data");
                *oldest_above = (*oldest_above).min(!inverted);
                above.insert(entry);
            }
        }
        for snapshot in moments() {
            for i in 0..self.keys {
                let key = format!("{i:03}").into_bytes();
                let expected = Self::find(&self.history, &key, snapshot);
                let expected = expected.filter(|(_, kind)| *kind == EntryKind::Put);
                let found = self.read(&key, snapshot);
                assert_eq!(found, expected.map(|(seqno, _)| seqno), "{when}: {i} at {snapshot}");
            }
        }
    }

    /// Ends all compactions, settles the tree, compacts all of it: nothing superfluous is left.
    fn wind_up(&mut self, seed: u64) {
        self.manual = None;
        self.snapshots.clear();
        self.flush();
        while !self.running.is_empty() {
            self.end_one();
        }
        let mut steps = 0;
        while let Some(plan) = self.plan() {
            self.start(plan);
            while !self.running.is_empty() {
                self.end_one();
            }
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: it never settles");
        }
        self.check(&format!("seed {seed}, settled"));
        for (level, table) in self.version.tables().filter(|(level, _)| *level > 0) {
            let what = format!("seed {seed}: table {} of level {level}", table.number);
            assert_eq!(table.entries, table.keys, "{what}: a hidden version is left");
            let is_last = level == LEVELS - 1;
            assert!(!is_last || 8 * table.deletions < table.entries.max(1), "{what}: tombstones");
        }
        let mut range = RangeCompaction::new(b"", None, self.seqno, self.next_number);
        while let RangeStep::Run(plan) = range.next_step(&self.version, &self.busy, &self.options) {
            self.start(*plan);
            while !self.running.is_empty() {
                let running = self.running.remove(0);
                self.install(running);
            }
        }
        self.check(&format!("seed {seed}, compacted"));
        for (level, table) in self.version.tables() {
            assert_eq!(level, LEVELS - 1, "seed {seed}");
            assert_eq!(table.deletions, 0, "seed {seed}: a tombstone is left");
            assert_eq!(table.entries, table.keys, "seed {seed}: a hidden version is left");
        }
    }
}

#[test]
fn no_merge_changes_any_answer() {
    let mut seen = BTreeSet::new();
    for seed in 0..if is_ci() { 300 } else { 100 } {
        let mut world = World::new(seed);
        for step in 0..400 {
            world.step();
            if std::mem::take(&mut world.changed) {
                world.check(&format!("seed {seed}, step {step}"));
            }
        }
        world.wind_up(seed);
        seen.extend(world.seen);
    }
    let all = [
        "dead entries",
        "given up in between",
        "hidden",
        "in slices",
        "merge",
        "merge from level 0",
        "move",
        "move from level 0",
        "moves from level 0",
        "one version twice",
        "range done",
        "rewrite",
        "side by side",
        "small neighbours",
        "spent",
        "through the base level",
        "wait",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all, "all that can happen has happened");
}

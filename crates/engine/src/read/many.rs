//! Batched lookups: each table's filter is probed for all of its keys at once, and each block is
//! read once.
//!
//! 1. Keys that the memtables answer are finished. The others are hashed and sorted once; they stay
//!    in order, so the keys of a table are one *span* of them.
//! 2. Each level in turn, newest first, gives its tables with their spans: a run of level 0 all
//!    keys in its range, a table of a deeper level its share. They are taken a few at a time, and
//!    cache lines of their filters are prefetched.
//! 3. Each filter is probed for its whole span. The keys that pass are searched for in the table's
//!    blocks; those of several tables of one sorted run are searched together, so that their reads
//!    overlap. Keys that a run decides are left out from then on.
//!
//! The lists are allocated once per call and reused for each table.

use std::ops::Range;
use std::sync::Arc;

use trommel_base::{EntryKind, SeqNo, Slice, first_word};
use trommel_filter::HashSeed;
use trommel_sstable::{Answers, ReadStats, Request, Verdict, get_many};

use super::probe::{count_reads, is_decided};
use crate::engine::Engine;
use crate::error::Result;
use crate::levels::LEVELS;
use crate::trace::Place;
use crate::version::{Reader, TableFile};
use crate::view::{ReadAt, ReadMoment, View};

/// Tables that are opened, if necessary, and held before the first of them is probed.
///
/// The first few take one of the slots in which a thread pins what it reads without a shared write
/// (eight in `arc-swap`; the view takes another); the others count a reference.
const TOGETHER: usize = 16;

/// Filter cache lines to prefetch. Given a longer span, a filter prefetches this many by itself.
const LINES_AHEAD: usize = 32;

/// The index of a key that is decided.
const DECIDED: usize = usize::MAX;

/// The keys still searched for, and what was found.
struct MultiGet<'a> {
    seqno: SeqNo,
    /// If there are range tombstones, or entries expire.
    moment: Option<&'a ReadMoment<'a>>,
    found: Vec<Option<Slice>>,
    /// Where each key was found, for a trace; empty without one.
    stops: Vec<Place>,
    /// The indexes in `found` of keys whose newest version is a merge operand.
    operands: Vec<usize>,
    /// The keys that no source has answered yet, sorted.
    keys: Vec<&'a [u8]>,
    /// Their hashes.
    hashes: Vec<u64>,
    /// Their indexes in `found`; [`DECIDED`] until they are left out.
    places: Vec<usize>,
    any_decided: bool,
    scratch: Scratch<'a>,
}

/// Buffers reused for each table.
#[derive(Default)]
struct Scratch<'a> {
    /// The answers of a table's filter for its span.
    answers: Answers,
    requests: Vec<Request<'a>>,
    /// What is known of each request.
    requested: Vec<Requested>,
}

/// A key that a table is searched for.
struct Requested {
    /// Its index among the pending keys.
    at: usize,
    /// The filter's verdict.
    verdict: Verdict,
    /// Whether the verdict is of a whole-key filter, not of a prefix filter.
    is_of_keys: bool,
    is_found: bool,
}

/// A table about to be probed, and its span of the pending keys.
struct TableSpan<'a> {
    file: &'a Arc<TableFile>,
    /// Its reader, if it was open.
    reader: Option<Reader>,
    keys: Range<usize>,
}

impl Engine {
    /// The values of `keys`, in their order, as of `at`, or now.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        at: Option<ReadAt<'_>>,
    ) -> Result<Vec<Option<Slice>>> {
        self.access.check_open()?;
        let current;
        let view: &View = match at.and_then(|at| at.view) {
            Some(kept) => kept,
            None => {
                current = self.view.load();
                &current
            }
        };
        let seen = at.map(|at| at.seqno);
        let mut seqno = seen.unwrap_or_else(|| self.snapshots.visible());
        let needs_moment = view.needs_moment(at, &self.snapshots);
        let moment = needs_moment.then(|| view.moment(seen, &self.snapshots));
        if let Some(moment) = &moment {
            seqno = moment.seqno;
        }
        let deleted = |key: &[u8]| moment.as_ref().map_or(0, |moment| moment.covering(key));
        let mut found = vec![None; keys.len()];
        let mut stops =
            vec![Place::Nowhere; if self.statistics.trace.is_on() { keys.len() } else { 0 }];
        let mut places: Vec<usize> = (0..keys.len()).collect();
        let mut operands = Vec::new();
        if view.memtables().any(|logged| !logged.memtable.is_empty()) {
            places.retain(|at| match view.get_in_memory(keys[*at].as_ref(), seqno) {
                Some(entry) => {
                    let is_value =
                        entry.kind == EntryKind::Put && entry.seqno >= deleted(keys[*at].as_ref());
                    found[*at] = is_value.then(|| Slice::from(entry.value));
                    if !is_value && entry.kind == EntryKind::Merge {
                        operands.push(*at);
                    }
                    note_stop(&mut stops, *at, Place::Memory);
                    false
                }
                None => true,
            });
        }
        let in_memory = keys.len() - places.len();
        let mut batch = MultiGet::new(keys, self.files.hash_seed, places, found, seqno);
        batch.moment = moment.as_ref();
        batch.stops = stops;
        batch.operands = operands;
        for level in 0..LEVELS {
            self.search_level(level, &view.version.levels[level], &mut batch)?;
        }
        for at in std::mem::take(&mut batch.operands) {
            batch.found[at] = self.unless_deleted(view, keys[at].as_ref(), &batch)?;
        }
        self.statistics.counters.with(|shard| {
            shard.gets.add(keys.len() as u64);
            shard.found.add(batch.found.iter().flatten().count() as u64);
            shard.memtable_hits.add(in_memory as u64);
        });
        for ((key, stop), value) in keys.iter().zip(&batch.stops).zip(&batch.found) {
            self.traced(view, key.as_ref(), *stop, value.is_some());
        }
        Ok(batch.found)
    }

    /// The value of a key whose newest version is an operand, unless that is deleted.
    #[cold]
    #[inline(never)]
    fn unless_deleted(
        &self,
        view: &View,
        key: &[u8],
        batch: &MultiGet<'_>,
    ) -> Result<Option<Slice>> {
        let covering = batch.moment.map_or(0, |moment| moment.covering(key));
        self.merged_value(view, key, batch.seqno, covering)
    }

    /// Searches the tables of one level.
    fn search_level(
        &self,
        level: usize,
        tables: &[Arc<TableFile>],
        batch: &mut MultiGet<'_>,
    ) -> Result<()> {
        let mut level_tables = LevelTables { tables, is_sorted: level > 0, from: 0 };
        let mut spans = [const { None }; TOGETHER];
        while !batch.keys.is_empty() {
            let (mut taken, mut lines) = (0, 0);
            for span in &mut spans {
                // Runs of level 0 are not probed for keys that earlier runs decide.
                let is_enough = !level_tables.is_sorted && lines >= LINES_AHEAD;
                let next = if is_enough { None } else { level_tables.next(batch) };
                let Some((file, keys)) = next else { break };
                let ahead = LINES_AHEAD.saturating_sub(lines);
                lines += keys.len();
                *span = Some(self.prepare(file, keys, ahead, &batch.hashes));
                taken += 1;
            }
            if taken == 0 {
                break;
            }
            let spans = &mut spans[..taken];
            // A sorted level is iterated by the keys' indexes, which must not shift.
            if level_tables.is_sorted {
                self.probe_run(level, spans, batch)?;
                continue;
            }
            for run in spans.chunks_mut(1) {
                self.probe_run(level, run, batch)?;
            }
            batch.remove_decided();
        }
        batch.remove_decided();
        Ok(())
    }

    /// Prefetches the first filter cache line of each of `keys`, but of at most `ahead`: for that
    /// many the filter prefetches by itself. Opens no table, because it may not be needed.
    #[inline]
    fn prepare<'t>(
        &self,
        file: &'t Arc<TableFile>,
        keys: Range<usize>,
        ahead: usize,
        hashes: &[u64],
    ) -> TableSpan<'t> {
        let reader = self.files.tables.reader_if_open(file);
        if let Some(table) = &reader
            && keys.len() < LINES_AHEAD
        {
            for hash in hashes[keys.clone()].iter().take(ahead) {
                table.filters().prefetch(*hash);
            }
        }
        TableSpan { file, reader, keys }
    }

    /// Searches tables of one sorted run, each for its span of keys.
    fn probe_run(
        &self,
        level: usize,
        run: &mut [Option<TableSpan<'_>>],
        batch: &mut MultiGet<'_>,
    ) -> Result<()> {
        batch.scratch.forget_requests();
        for (nth, span) in run.iter_mut().enumerate() {
            let Some(TableSpan { file, reader, keys }) = span else { break };
            if batch.places[keys.clone()].iter().all(|place| *place == DECIDED) {
                continue;
            }
            let table = match reader.take() {
                Some(table) => table,
                None => self.files.tables.reader(file)?,
            };
            let (pending, hashes) = (&batch.keys[keys.clone()], &batch.hashes[keys.clone()]);
            table.filters().query_many(pending, hashes, &mut batch.scratch.answers);
            let counts_refusals = is_decided(file, false, batch.seqno);
            let table_of_run = TableOfRun { number: nth, table: &table, level, counts_refusals };
            self.take_survivors(&table_of_run, keys.clone(), batch);
            *reader = Some(table);
        }
        match batch.scratch.requests.is_empty() {
            true => Ok(()),
            false => self.search_run(level, run, batch),
        }
    }

    /// Searches the blocks of one sorted run for the keys that passed the filters.
    fn search_run(
        &self,
        level: usize,
        run: &[Option<TableSpan<'_>>],
        batch: &mut MultiGet<'_>,
    ) -> Result<()> {
        let table = |nth: usize| run.get(nth)?.as_ref()?.reader.as_deref().map(|table| &**table);
        let MultiGet { scratch, places, keys, hashes, found, stops, .. } = batch;
        let (any_decided, operands) = (&mut batch.any_decided, &mut batch.operands);
        let (seqno, moment) = (&batch.seqno, &batch.moment);
        let Scratch { requests, requested, .. } = scratch;
        let mut stats = ReadStats::default();
        get_many(table, requests, &mut stats, |nth, answer| {
            let Some(answer) = answer else { return };
            let requested = &mut requested[nth];
            requested.is_found = true;
            let place = std::mem::replace(&mut places[requested.at], DECIDED);
            let is_value = answer.kind == EntryKind::Put
                && answer.seqno >= moment.map_or(0, |moment| moment.covering(keys[requested.at]));
            if !is_value && answer.kind == EntryKind::Merge {
                operands.push(place);
            }
            found[place] = is_value.then_some(answer.value);
            note_stop(stops, place, Place::Level(level as u8));
            *any_decided = true;
        })?;
        let file = |request: &Request<'_>| run[request.table].as_ref().map(|span| span.file);
        self.statistics.counters.with(|shard| {
            count_reads(shard, &stats);
            for (request, Requested { verdict, is_found, .. }) in
                requests.iter().zip(requested.iter())
            {
                if file(request).is_some_and(|file| is_decided(file, *is_found, *seqno)) {
                    let cell = shard.filter(level, verdict.kind);
                    cell.count_maybe(*is_found, verdict.expected);
                }
            }
        });
        for (request, Requested { at, verdict, is_of_keys, is_found }) in
            requests.iter().zip(requested)
        {
            if *is_of_keys
                && !*is_found
                && let Some(file) = file(request)
                && is_decided(file, false, *seqno)
            {
                self.statistics.counters.note_false_positive(
                    level,
                    verdict.kind,
                    hashes[*at],
                    file.number,
                );
            }
        }
        Ok(())
    }

    /// Requests the keys that passed the filter of a table, given by its index in the run, and
    /// counts the negatives. Where no whole-key filter answered, the prefix filter is probed.
    fn take_survivors(&self, table: &TableOfRun<'_>, keys: Range<usize>, batch: &mut MultiGet<'_>) {
        let answers = std::mem::take(&mut batch.scratch.answers);
        for (run, verdict, maybe) in answers.runs() {
            let keys = keys.start + run.start..keys.start + run.end;
            let mut negatives = batch.pending_in(keys.clone());
            for (at, maybe) in keys.zip(maybe) {
                if !maybe || batch.places[at] == DECIDED {
                    continue;
                }
                negatives -= 1;
                if verdict == Verdict::UNFILTERED {
                    self.take_by_prefix(table, at, batch);
                } else {
                    batch.request(table.number, at, verdict, true);
                }
            }
            if negatives > 0 && table.counts_refusals {
                self.count_negatives(table.level, verdict, negatives);
            }
        }
        batch.scratch.answers = answers;
    }

    /// Requests the pending key `at` from a table if it passes the prefix filter.
    fn take_by_prefix(&self, table: &TableOfRun<'_>, at: usize, batch: &mut MultiGet<'_>) {
        let verdict = self.probe_prefix(table.table, batch.keys[at]);
        if verdict.maybe {
            batch.request(table.number, at, verdict, false);
        } else if table.counts_refusals {
            self.count_negatives(table.level, verdict, 1);
        }
    }
}

/// A table that is searched for keys of a batch.
struct TableOfRun<'a> {
    /// Its index in the run.
    number: usize,
    table: &'a Reader,
    level: usize,
    /// See [`is_decided`].
    counts_refusals: bool,
}

impl Scratch<'_> {
    fn forget_requests(&mut self) {
        self.requests.clear();
        self.requested.clear();
    }
}

impl<'a> MultiGet<'a> {
    /// Searches for the keys at `places`, in order.
    fn new<K: AsRef<[u8]>>(
        keys: &'a [K],
        seed: HashSeed,
        mut places: Vec<usize>,
        found: Vec<Option<Slice>>,
        seqno: SeqNo,
    ) -> Self {
        let key = |at: usize| keys[at].as_ref();
        let mut order: Vec<_> = places.iter().map(|at| (first_word(key(*at)), *at)).collect();
        order.sort_unstable_by(|(word, at), (other, other_at)| {
            word.cmp(other).then_with(|| key(*at).cmp(key(*other_at)))
        });
        places.clear();
        places.extend(order.iter().map(|(_, at)| *at));
        let keys: Vec<&[u8]> = places.iter().map(|at| key(*at)).collect();
        let hashes = keys.iter().map(|key| seed.hash(key)).collect();
        let scratch = Scratch::default();
        let stops = Vec::new();
        Self {
            seqno,
            moment: None,
            found,
            stops,
            operands: Vec::new(),
            keys,
            hashes,
            places,
            any_decided: false,
            scratch,
        }
    }

    /// Number of these keys that are not decided.
    fn pending_in(&self, keys: Range<usize>) -> u64 {
        let is_pending = |place: &&usize| **place != DECIDED;
        let count = match self.any_decided {
            true => self.places[keys].iter().filter(is_pending).count(),
            false => keys.len(),
        };
        count as u64
    }

    /// Requests the pending key `at` from a table, given by its index in the run; `is_of_keys` if a
    /// whole-key filter passed it.
    #[inline]
    fn request(&mut self, table: usize, at: usize, verdict: Verdict, is_of_keys: bool) {
        if self.scratch.requests.is_empty() {
            // Reserved for all keys at once: one request is rarely the last.
            self.scratch.requests.reserve(self.keys.len());
            self.scratch.requested.reserve(self.keys.len());
        }
        let (key, hash) = (self.keys[at], self.hashes[at]);
        self.scratch.requests.push(Request { table, key, hash, seqno: self.seqno });
        self.scratch.requested.push(Requested { at, verdict, is_of_keys, is_found: false });
    }

    /// Removes the decided keys from the lists.
    fn remove_decided(&mut self) {
        if !std::mem::take(&mut self.any_decided) {
            return;
        }
        let mut left = 0;
        for at in 0..self.keys.len() {
            if self.places[at] != DECIDED {
                self.keys[left] = self.keys[at];
                self.hashes[left] = self.hashes[at];
                self.places[left] = self.places[at];
                left += 1;
            }
        }
        self.keys.truncate(left);
        self.hashes.truncate(left);
        self.places.truncate(left);
    }
}

/// Records where a key was found, if traced.
#[inline]
fn note_stop(stops: &mut [Place], at: usize, stop: Place) {
    if let Some(known) = stops.get_mut(at) {
        *known = stop;
    }
}

/// Iterates over the tables of a level whose ranges hold pending keys.
struct LevelTables<'a> {
    /// The tables still to come.
    tables: &'a [Arc<TableFile>],
    /// Whether they are one sorted run; otherwise each is a run of its own.
    is_sorted: bool,
    /// In a sorted run, the first key that has not been assigned to a table.
    from: usize,
}

impl<'a> LevelTables<'a> {
    /// The next table and its span of the pending keys.
    fn next(&mut self, batch: &MultiGet<'_>) -> Option<(&'a Arc<TableFile>, Range<usize>)> {
        if self.is_sorted { self.next_of_run(batch) } else { self.next_run(batch) }
    }

    fn next_run(&mut self, batch: &MultiGet<'_>) -> Option<(&'a Arc<TableFile>, Range<usize>)> {
        while let Some((file, rest)) = self.tables.split_first() {
            self.tables = rest;
            let from = batch.keys.partition_point(|key| **key < *file.smallest);
            let to = batch.keys.partition_point(|key| **key <= *file.largest);
            if from < to {
                return Some((file, from..to));
            }
        }
        None
    }

    fn next_of_run(&mut self, batch: &MultiGet<'_>) -> Option<(&'a Arc<TableFile>, Range<usize>)> {
        while let Some(key) = batch.keys.get(self.from) {
            let before = self.tables.partition_point(|file| *file.largest < **key);
            self.tables = &self.tables[before..];
            let file = self.tables.first()?;
            let rest = &batch.keys[self.from..];
            let outside = rest.iter().take_while(|key| ***key < *file.smallest).count();
            let inside = rest[outside..].iter().take_while(|key| ***key <= *file.largest).count();
            let from = self.from + outside;
            self.from = from + inside;
            if inside > 0 {
                return Some((file, from..self.from));
            }
        }
        None
    }
}

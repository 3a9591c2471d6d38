//! Looking up many keys at one moment: each table's filter is asked for all of its keys at once,
//! and each block is read once.
//!
//! 1. What the memtables answer is done with. The other keys are hashed, and sorted once: they stay
//!    in order, so the keys of a table are one *stretch* of them.
//! 2. Each level in turn, newest first, gives its tables with their stretches: a run of level 0 all
//!    keys in its range, a table of a deeper level its share. They are taken a few at a time, and
//!    cache lines of their filters asked for ahead.
//! 3. Of each the filter is asked for the whole stretch; the survivors are looked for in its
//!    blocks, those of several tables of one sorted run together, so that they wait together. Keys
//!    that a run decided are left out from then on.
//!
//! The lists are made once a call and used again for each table.

use std::ops::Range;
use std::sync::Arc;

use trommel_base::{EntryKind, SeqNo, Slice, first_word};
use trommel_sstable::{Answers, ReadStats, Request, Verdict, get_many};

use super::probe::{count_reads, is_decided};
use crate::engine::Engine;
use crate::error::Result;
use crate::levels::LEVELS;
use crate::trace::Place;
use crate::version::{Reader, TableFile};

/// Tables that are opened, if they are not, and held before the first of them is asked.
///
/// The first few take one of the slots in which a thread notes what it reads without a shared write
/// (eight in `arc-swap`; the view takes another), the others count a reference.
const TOGETHER: usize = 16;

/// Cache lines of filters that are asked for ahead. A filter asks for as many by itself where it
/// is given a longer stretch.
const LINES_AHEAD: usize = 32;

/// The place of a key that is decided.
const DECIDED: usize = usize::MAX;

/// Keys still looked for, and what was found.
struct Batch<'a> {
    seqno: SeqNo,
    found: Vec<Option<Slice>>,
    /// Where each was, if it was anywhere: for a trace, and empty without one.
    stops: Vec<Place>,
    /// The keys that no source has answered yet, in order.
    keys: Vec<&'a [u8]>,
    /// Their hashes.
    hashes: Vec<u64>,
    /// Their places in `found`; [`DECIDED`] until they are left out.
    places: Vec<usize>,
    any_decided: bool,
    scratch: Scratch<'a>,
}

/// What is used again for each table.
#[derive(Default)]
struct Scratch<'a> {
    /// What a table's filter says of its stretch.
    said: Answers,
    requests: Vec<Request<'a>>,
    /// What is known of each of them.
    asked: Vec<Asked>,
}

/// A key that a table is searched for.
struct Asked {
    /// Its place among the pending ones.
    at: usize,
    /// What was said of it.
    verdict: Verdict,
    /// Whether a filter of whole keys said it, not one of prefixes.
    is_of_keys: bool,
    is_found: bool,
}

/// A table that is about to be asked, and where its keys are among the pending ones.
struct Stretch<'a> {
    file: &'a Arc<TableFile>,
    /// Its reader, if it was open.
    reader: Option<Reader>,
    keys: Range<usize>,
}

impl Engine {
    /// The values of `keys` at the moment `at`, or now; in the order of `keys`.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        at: Option<SeqNo>,
    ) -> Result<Vec<Option<Slice>>> {
        self.access.check_open()?;
        let view = self.view.load();
        let seqno = at.unwrap_or_else(|| self.snapshots.visible());
        let mut found = vec![None; keys.len()];
        let mut stops =
            vec![Place::Nowhere; if self.statistics.trace.is_on() { keys.len() } else { 0 }];
        let mut places: Vec<usize> = (0..keys.len()).collect();
        if view.memtables().any(|logged| !logged.memtable.is_empty()) {
            places.retain(|at| match view.get_in_memory(keys[*at].as_ref(), seqno) {
                Some(entry) => {
                    found[*at] = (entry.kind == EntryKind::Put).then(|| Slice::from(entry.value));
                    note_stop(&mut stops, *at, Place::Memory);
                    false
                }
                None => true,
            });
        }
        let in_memory = keys.len() - places.len();
        let mut batch = Batch::new(keys, places, found, seqno);
        batch.stops = stops;
        for level in 0..LEVELS {
            self.search_level(level, &view.version.levels[level], &mut batch)?;
        }
        self.statistics.counters.with(|shard| {
            shard.gets.add(keys.len() as u64);
            shard.found.add(batch.found.iter().flatten().count() as u64);
            shard.memtable_hits.add(in_memory as u64);
        });
        for ((key, stop), value) in keys.iter().zip(&batch.stops).zip(&batch.found) {
            self.traced(&view, key.as_ref(), *stop, value.is_some());
        }
        Ok(batch.found)
    }

    /// Asks the tables of one level.
    fn search_level(
        &self,
        level: usize,
        tables: &[Arc<TableFile>],
        batch: &mut Batch<'_>,
    ) -> Result<()> {
        let mut walk = Walk { tables, is_sorted: level > 0, from: 0 };
        let mut stretches = [const { None }; TOGETHER];
        while !batch.keys.is_empty() {
            let (mut taken, mut lines) = (0, 0);
            for stretch in &mut stretches {
                // A run of level 0 is not asked for keys that those before it decide.
                let is_enough = !walk.is_sorted && lines >= LINES_AHEAD;
                let next = if is_enough { None } else { walk.next(batch) };
                let Some((file, keys)) = next else { break };
                let ahead = LINES_AHEAD.saturating_sub(lines);
                lines += keys.len();
                *stretch = Some(self.prepare(file, keys, ahead, &batch.hashes));
                taken += 1;
            }
            if taken == 0 {
                break;
            }
            let stretches = &mut stretches[..taken];
            // A sorted level is walked by the keys' places, which must stay.
            if walk.is_sorted {
                self.probe_run(level, stretches, batch)?;
                continue;
            }
            for run in stretches.chunks_mut(1) {
                self.probe_run(level, run, batch)?;
            }
            batch.leave_decided_out();
        }
        batch.leave_decided_out();
        Ok(())
    }

    /// Asks for what the filter of `file` looks at first for each of `keys`, but for no more than
    /// `ahead` of them: of so many the filter does that as well by itself. Opens nothing: it may
    /// not be needed.
    #[inline]
    fn prepare<'t>(
        &self,
        file: &'t Arc<TableFile>,
        keys: Range<usize>,
        ahead: usize,
        hashes: &[u64],
    ) -> Stretch<'t> {
        let reader = self.files.tables.reader_if_open(file);
        if let Some(table) = &reader
            && keys.len() < LINES_AHEAD
        {
            for hash in hashes[keys.clone()].iter().take(ahead) {
                table.filters().prefetch(*hash);
            }
        }
        Stretch { file, reader, keys }
    }

    /// Asks tables of one sorted run, each for its stretch of keys.
    fn probe_run(
        &self,
        level: usize,
        run: &mut [Option<Stretch<'_>>],
        batch: &mut Batch<'_>,
    ) -> Result<()> {
        batch.scratch.forget_requests();
        for (nth, stretch) in run.iter_mut().enumerate() {
            let Some(Stretch { file, reader, keys }) = stretch else { break };
            if batch.places[keys.clone()].iter().all(|place| *place == DECIDED) {
                continue;
            }
            let table = match reader.take() {
                Some(table) => table,
                None => self.files.tables.reader(file)?,
            };
            let (pending, hashes) = (&batch.keys[keys.clone()], &batch.hashes[keys.clone()]);
            table.filters().ask_many(pending, hashes, &mut batch.scratch.said);
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

    /// Searches the blocks of tables of one sorted run for what their filters left.
    fn search_run(
        &self,
        level: usize,
        run: &[Option<Stretch<'_>>],
        batch: &mut Batch<'_>,
    ) -> Result<()> {
        let table = |nth: usize| run.get(nth)?.as_ref()?.reader.as_deref().map(|table| &**table);
        let Batch { scratch, places, hashes, found, stops, any_decided, seqno, .. } = batch;
        let Scratch { requests, asked, .. } = scratch;
        let mut stats = ReadStats::default();
        get_many(table, requests, &mut stats, |nth, answer| {
            let Some(answer) = answer else { return };
            let asked = &mut asked[nth];
            asked.is_found = true;
            let place = std::mem::replace(&mut places[asked.at], DECIDED);
            found[place] = (answer.kind == EntryKind::Put).then_some(answer.value);
            note_stop(stops, place, Place::Level(level as u8));
            *any_decided = true;
        })?;
        let file = |request: &Request<'_>| run[request.table].as_ref().map(|stretch| stretch.file);
        self.statistics.counters.with(|shard| {
            count_reads(shard, &stats);
            for (request, Asked { verdict, is_found, .. }) in requests.iter().zip(asked.iter()) {
                if file(request).is_some_and(|file| is_decided(file, *is_found, *seqno)) {
                    let cell = shard.filter(level, verdict.kind);
                    cell.count_maybe(*is_found, verdict.expected);
                }
            }
        });
        for (request, Asked { at, verdict, is_of_keys, is_found }) in requests.iter().zip(asked) {
            if *is_of_keys
                && !*is_found
                && let Some(file) = file(request)
                && is_decided(file, false, *seqno)
            {
                self.statistics.counters.note_passed(level, verdict.kind, hashes[*at], file.number);
            }
        }
        Ok(())
    }

    /// Notes which of `keys` a table, given with its place in its run, must be searched for by what
    /// its filter said of them, and counts those that it turned away. Where none of whole keys
    /// could be asked, that of the prefixes is.
    fn take_survivors(&self, table: &TableOfRun<'_>, keys: Range<usize>, batch: &mut Batch<'_>) {
        let said = std::mem::take(&mut batch.scratch.said);
        for (run, verdict, maybe) in said.runs() {
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
        batch.scratch.said = said;
    }

    /// Notes whether a table must be searched for the pending key `at`, by its filter of prefixes.
    fn take_by_prefix(&self, table: &TableOfRun<'_>, at: usize, batch: &mut Batch<'_>) {
        let verdict = self.ask_prefix(table.table, batch.keys[at]);
        if verdict.maybe {
            batch.request(table.number, at, verdict, false);
        } else if table.counts_refusals {
            self.count_negatives(table.level, verdict, 1);
        }
    }
}

/// A table that keys of a batch are looked for in.
struct TableOfRun<'a> {
    /// Its place in the run.
    number: usize,
    table: &'a Reader,
    level: usize,
    /// See [`is_decided`].
    counts_refusals: bool,
}

impl Scratch<'_> {
    fn forget_requests(&mut self) {
        self.requests.clear();
        self.asked.clear();
    }
}

impl<'a> Batch<'a> {
    /// Looks for the keys at `places`, in order.
    fn new<K: AsRef<[u8]>>(
        keys: &'a [K],
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
        let hashes = keys.iter().map(|key| trommel_filter::hash(key)).collect();
        let scratch = Scratch::default();
        let stops = Vec::new();
        Self { seqno, found, stops, keys, hashes, places, any_decided: false, scratch }
    }

    /// How many of these keys are not decided.
    fn pending_in(&self, keys: Range<usize>) -> u64 {
        let is_pending = |place: &&usize| **place != DECIDED;
        let count = match self.any_decided {
            true => self.places[keys].iter().filter(is_pending).count(),
            false => keys.len(),
        };
        count as u64
    }

    /// Notes that a table, by its place in its run, must be searched for the pending key `at`,
    /// and whether a filter of whole keys said so.
    #[inline]
    fn request(&mut self, table: usize, at: usize, verdict: Verdict, is_of_keys: bool) {
        if self.scratch.requests.is_empty() {
            // Room for all at once: most likely one is not the last.
            self.scratch.requests.reserve(self.keys.len());
            self.scratch.asked.reserve(self.keys.len());
        }
        let (key, hash) = (self.keys[at], self.hashes[at]);
        self.scratch.requests.push(Request { table, key, hash, seqno: self.seqno });
        self.scratch.asked.push(Asked { at, verdict, is_of_keys, is_found: false });
    }

    /// Takes the decided keys off the lists.
    fn leave_decided_out(&mut self) {
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

/// Notes where a key was, if anybody wants to know.
#[inline]
fn note_stop(stops: &mut [Place], at: usize, stop: Place) {
    if let Some(known) = stops.get_mut(at) {
        *known = stop;
    }
}

/// The tables of a level that pending keys lie in.
struct Walk<'a> {
    /// Those still to come.
    tables: &'a [Arc<TableFile>],
    /// Whether they are one sorted run; else each is a run of its own.
    is_sorted: bool,
    /// In a sorted run, the first key that has not been given to a table.
    from: usize,
}

impl<'a> Walk<'a> {
    /// The next table, and where its keys are among the pending ones.
    fn next(&mut self, batch: &Batch<'_>) -> Option<(&'a Arc<TableFile>, Range<usize>)> {
        if self.is_sorted { self.next_of_run(batch) } else { self.next_run(batch) }
    }

    fn next_run(&mut self, batch: &Batch<'_>) -> Option<(&'a Arc<TableFile>, Range<usize>)> {
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

    fn next_of_run(&mut self, batch: &Batch<'_>) -> Option<(&'a Arc<TableFile>, Range<usize>)> {
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

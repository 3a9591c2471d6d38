//! Looking up many keys at one moment: each table's filter is asked for all of its keys at once,
//! and each block is read once.

use std::sync::Arc;

use trommel_base::{EntryKind, SeqNo, Slice};
use trommel_sstable::{Found, ReadStats, Request, Verdict};

use super::probe::is_decided;
use crate::engine::Engine;
use crate::error::Result;
use crate::version::{LEVELS, Reader, TableFile, Version};

/// Keys still looked for, and what was found.
struct Batch<'a> {
    keys: Vec<&'a [u8]>,
    hashes: Vec<u64>,
    seqno: SeqNo,
    found: Vec<Option<Slice>>,
    /// Indexes of the keys that no source has answered yet, by key.
    pending: Vec<usize>,
}

impl Engine {
    /// The values of `keys` at the moment `at`, or now; in the order of `keys`.
    pub(crate) fn multi_get(
        &self,
        keys: Vec<&[u8]>,
        at: Option<SeqNo>,
    ) -> Result<Vec<Option<Slice>>> {
        self.check_open()?;
        let view = self.view.load_full();
        let seqno = at.unwrap_or_else(|| self.snapshots.visible());
        let mut batch = Batch {
            hashes: keys.iter().map(|key| trommel_filter::hash(key)).collect(),
            found: vec![None; keys.len()],
            pending: (0..keys.len()).collect(),
            keys,
            seqno,
        };
        let Batch { keys, found, pending, .. } = &mut batch;
        pending.retain(|at| match view.get_in_memory(keys[*at], seqno) {
            Some(entry) => {
                found[*at] = (entry.kind == EntryKind::Put).then(|| Slice::from(entry.value));
                false
            }
            None => true,
        });
        pending.sort_by_key(|at| keys[*at]);
        for table in &view.version.levels[0] {
            let inside = batch.take_pending(table);
            self.probe_many(0, table, inside, &mut batch)?;
        }
        for level in 1..LEVELS {
            for table in batch.tables_of(&view.version, level) {
                let inside = batch.take_pending(&table);
                self.probe_many(level, &table, inside, &mut batch)?;
            }
        }
        self.counters.with(|shard| {
            shard.gets.add(batch.keys.len() as u64);
            shard.found.add(batch.found.iter().flatten().count() as u64);
        });
        Ok(batch.found)
    }

    /// Asks one table for the keys at the indexes `inside`; those it does not answer become
    /// pending again.
    fn probe_many(
        &self,
        level: usize,
        file: &Arc<TableFile>,
        mut inside: Vec<usize>,
        batch: &mut Batch<'_>,
    ) -> Result<()> {
        if inside.is_empty() {
            return Ok(());
        }
        let table = self.tables.reader(file)?;
        let keys: Vec<&[u8]> = inside.iter().map(|at| batch.keys[*at]).collect();
        let hashes: Vec<u64> = inside.iter().map(|at| batch.hashes[*at]).collect();
        let mut answers = vec![true; hashes.len()];
        let verdict = table.filters().ask_many(&keys, &hashes, &mut answers);
        if let Some(verdict) = verdict {
            let asked = inside.len();
            let mut maybe = Vec::with_capacity(asked);
            for (at, answer) in inside.iter().zip(&answers) {
                if *answer { maybe.push(*at) } else { batch.pending.push(*at) }
            }
            self.count_negatives(level, verdict, (asked - maybe.len()) as u64);
            inside = maybe;
        }
        let mut verdicts = vec![verdict.unwrap_or(Verdict::UNFILTERED); inside.len()];
        if verdict.is_none() && table.filters().prefixes_part().is_some() {
            (inside, verdicts) = self.ask_prefixes(level, &table, inside, batch);
        }
        let request = |at: &usize| Request {
            key: batch.keys[*at],
            hash: batch.hashes[*at],
            seqno: batch.seqno,
        };
        let requests: Vec<Request<'_>> = inside.iter().map(request).collect();
        let mut stats = ReadStats::default();
        let answers = table.get_many(&requests, &mut stats)?;
        self.count_reads(&stats);
        for ((at, verdict), answer) in inside.into_iter().zip(verdicts).zip(answers) {
            if is_decided(file, answer.is_some(), batch.seqno) {
                self.count_maybe(level, verdict, answer.is_some());
            }
            batch.settle(at, answer);
        }
        batch.sort_pending();
        Ok(())
    }
}

impl Engine {
    /// Of the keys at the indexes `inside`, those that a table without a filter of whole keys may
    /// hold by its filter of prefixes, with what it said of each; the others become pending again.
    fn ask_prefixes(
        &self,
        level: usize,
        table: &Reader,
        inside: Vec<usize>,
        batch: &mut Batch<'_>,
    ) -> (Vec<usize>, Vec<Verdict>) {
        let mut maybe = (Vec::new(), Vec::new());
        for at in inside {
            let verdict = self.ask_prefix(table, batch.keys[at]);
            if verdict.maybe {
                maybe.0.push(at);
                maybe.1.push(verdict);
            } else {
                self.count_negatives(level, verdict, 1);
                batch.pending.push(at);
            }
        }
        maybe
    }
}

impl Batch<'_> {
    /// The tables of a sorted level whose key ranges hold pending keys.
    fn tables_of(&self, version: &Version, level: usize) -> Vec<Arc<TableFile>> {
        let mut tables: Vec<Arc<TableFile>> = Vec::new();
        for at in &self.pending {
            let key = self.keys[*at];
            if !tables.last().is_some_and(|last| last.may_hold(key)) {
                tables.extend(version.table_for(level, key).cloned());
            }
        }
        tables
    }

    /// Takes the pending keys in the table's range, in key order.
    fn take_pending(&mut self, table: &TableFile) -> Vec<usize> {
        let keys = &self.keys;
        let from = self.pending.partition_point(|at| *keys[*at] < *table.smallest);
        let to = self.pending.partition_point(|at| *keys[*at] <= *table.largest);
        self.pending.drain(from..to.max(from)).collect()
    }

    fn settle(&mut self, at: usize, answer: Option<Found>) {
        match answer {
            Some(found) => {
                self.found[at] = (found.kind == EntryKind::Put).then_some(found.value);
            }
            None => self.pending.push(at),
        }
    }

    fn sort_pending(&mut self) {
        let keys = &self.keys;
        self.pending.sort_by_key(|at| keys[*at]);
    }
}

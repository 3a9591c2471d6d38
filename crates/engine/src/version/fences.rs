//! The bounds of the key ranges of a version's tables, laid out for searching.
//!
//! 1. A *run* is the tables of one level. The common prefix of the first and last keys of all its
//!    tables is stored once; a key without this prefix is in no table.
//! 2. The next eight bytes of each first and last key are a word ([`first_word`]). A lookup
//!    compares the key's word with these, and touches neither tables nor their keys, each of which
//!    would be a cache miss.
//! 3. Equal words are resolved by comparing the whole keys.
//! 4. Each fence also holds the address of the table's filter, so that it can be prefetched before
//!    the table is touched ([`FilterLines`]).
//!
//! Built once per version, when it is installed, and used by every lookup in it.

use std::slice::Iter;
use std::sync::Arc;

use trommel_base::{first_word, key_behind};
use trommel_filter::FilterLines;

use super::{TableFile, Version};

/// The fences of a version's levels.
#[derive(Debug)]
pub(crate) struct Fences {
    /// Level 0.
    newest: Run,
    /// The deeper levels that have tables.
    deeper: Vec<Run>,
}

/// The tables of one level.
#[derive(Debug)]
pub(crate) struct Run {
    prefix: Box<[u8]>,
    /// The words of the tables' last keys, for a search in a sorted run.
    largest: Box<[u64]>,
    fences: Box<[Fence]>,
}

/// A table, and the data that a lookup uses before it touches the table.
#[derive(Debug)]
pub(crate) struct Fence {
    /// The words of its first and last key.
    smallest: u64,
    largest: u64,
    lines: FilterLines,
    pub(crate) file: Arc<TableFile>,
    pub(crate) level: usize,
}

impl Fence {
    /// Prefetches the first lines of the table's filter, once they were [recorded](Self::lines).
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.lines.prefetch(hash);
    }

    /// The filter's address, to be recorded whenever the filter was queried.
    #[inline]
    pub(crate) fn lines(&self) -> &FilterLines {
        &self.lines
    }
}

impl Fences {
    pub(crate) fn of(version: &Version) -> Self {
        let mut runs = (0..).zip(&version.levels).map(|(level, tables)| Run::of(level, tables));
        let newest = runs.next().unwrap_or_else(|| Run::of(0, &[]));
        Self { newest, deeper: runs.filter(|run| !run.fences.is_empty()).collect() }
    }

    /// The sorted runs with tables, upper levels first.
    pub(crate) fn sorted_runs(&self) -> &[Run] {
        &self.deeper
    }

    /// The tables that may hold `key`.
    #[inline]
    pub(crate) fn candidates<'a>(&'a self, key: &'a [u8]) -> Candidates<'a> {
        let word = self.newest.word(key);
        let newest = if word.is_some() { &*self.newest.fences } else { &[] };
        let word = word.unwrap_or_default();
        let (deepest, between) = self.deeper.split_last().unzip();
        let deepest = deepest.and_then(|run: &Run| run.table_for(key));
        let between = between.unwrap_or_default().iter();
        Candidates { key, word, newest: newest.iter(), between, deepest }
    }
}

impl Run {
    fn of(level: usize, tables: &[Arc<TableFile>]) -> Self {
        let mut keys = tables.iter().flat_map(|table| [&*table.smallest, &*table.largest]);
        let first = keys.next().unwrap_or_default();
        let shared = keys.fold(first.len(), |shared, key| {
            let same = first[..shared].iter().zip(key).take_while(|(a, b)| a == b);
            same.count()
        });
        let word = |key: &[u8]| first_word(&key[shared..]);
        let fences = tables.iter().map(|file| Fence {
            smallest: word(&file.smallest),
            largest: word(&file.largest),
            lines: FilterLines::default(),
            file: Arc::clone(file),
            level,
        });
        let fences: Box<[Fence]> = fences.collect();
        let largest = fences.iter().map(|fence| fence.largest).collect();
        Self { prefix: first[..shared].into(), largest, fences }
    }

    /// The word of `key`; `None` if it is outside all tables.
    #[inline]
    fn word(&self, key: &[u8]) -> Option<u64> {
        if self.fences.is_empty() {
            return None;
        }
        key_behind(key, &self.prefix).map(first_word)
    }

    /// For a sorted run: the one table whose key range contains `key`.
    #[inline]
    fn table_for(&self, key: &[u8]) -> Option<&Fence> {
        let word = self.word(key)?;
        let mut at = self.largest.partition_point(|largest| *largest < word);
        if *self.largest.get(at)? == word {
            at += self.tied(at, word, key);
        }
        let fence = self.fences.get(at)?;
        let starts_before = fence.smallest < word || *fence.file.smallest <= *key;
        starts_before.then_some(fence)
    }

    /// The number of tables: at least one for a listed run.
    pub(crate) fn len(&self) -> usize {
        self.fences.len()
    }

    pub(crate) fn level(&self) -> usize {
        self.fences.first().map_or(0, |fence| fence.level)
    }

    #[inline]
    pub(crate) fn table(&self, at: usize) -> Option<&Arc<TableFile>> {
        self.fences.get(at).map(|fence| &fence.file)
    }

    /// For a sorted run: the number of tables that end before `key`.
    pub(crate) fn ending_before(&self, key: &[u8]) -> usize {
        let Some(rest) = key_behind(key, &self.prefix) else {
            return if *key < *self.prefix { 0 } else { self.len() };
        };
        let word = first_word(rest);
        let at = self.largest.partition_point(|largest| *largest < word);
        if self.largest.get(at) == Some(&word) { at + self.tied(at, word, key) } else { at }
    }

    /// For a sorted run: the number of tables that begin before `key`.
    pub(crate) fn beginning_before(&self, key: &[u8]) -> usize {
        let at = self.ending_before(key);
        at + usize::from(self.table(at).is_some_and(|table| *table.smallest < *key))
    }

    /// The number of tables from `at` on that end before `key`, among those whose last key has this
    /// word.
    fn tied(&self, at: usize, word: u64, key: &[u8]) -> usize {
        let tied = self.largest[at..].partition_point(|largest| *largest == word);
        self.fences[at..at + tied].partition_point(|fence| *fence.file.largest < *key)
    }
}

/// The tables that may hold a key, newest first: see [`Fences::candidates`].
pub(crate) struct Candidates<'a> {
    key: &'a [u8],
    /// The key's word in level 0.
    word: u64,
    /// Tables of level 0 not checked yet; none if the key is outside of all.
    newest: Iter<'a, Fence>,
    /// Deeper levels not checked yet, except the last.
    between: Iter<'a, Run>,
    /// The table of the last level, until it has been checked. Most keys are there, and its filter
    /// is the least likely to be cached by the processor, so it is located first.
    deepest: Option<&'a Fence>,
}

impl<'a> Candidates<'a> {
    /// Prefetches the first line of the filter in the last level, if other tables are checked
    /// before it.
    #[inline]
    pub(crate) fn prefetch_deepest(&self, hash: u64) {
        if let Some(fence) = self.deepest
            && !(self.newest.as_slice().is_empty() && self.between.as_slice().is_empty())
        {
            fence.prefetch(hash);
        }
    }

    /// Fills `places` with the next candidates; returns fewer only at the end.
    #[inline(always)]
    pub(crate) fn next<'p>(
        &mut self,
        places: &'p mut [Option<&'a Fence>],
    ) -> &'p [Option<&'a Fence>] {
        let mut count = 0;
        while count < places.len() {
            let found = self.next_of_newest().or_else(|| self.next_of_deeper());
            if found.is_none() {
                break;
            }
            places[count] = found;
            count += 1;
        }
        &places[..count]
    }

    #[inline]
    fn next_of_newest(&mut self) -> Option<&'a Fence> {
        let (word, key) = (self.word, self.key);
        self.newest.find(|fence| match fence.smallest < word && word < fence.largest {
            true => true,
            false => fence.smallest <= word && word <= fence.largest && fence.file.may_hold(key),
        })
    }

    #[inline]
    fn next_of_deeper(&mut self) -> Option<&'a Fence> {
        self.between.find_map(|run| run.table_for(self.key)).or_else(|| self.deepest.take())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FilterMeta, TableMeta};
    use super::*;
    use crate::levels::LEVELS;

    fn table(number: u64, smallest: &[u8], largest: &[u8]) -> Arc<TableFile> {
        Arc::new(TableFile::new(TableMeta {
            number,
            table_id: number,
            file_bytes: 1,
            smallest: smallest.into(),
            largest: largest.into(),
            min_seqno: number,
            max_seqno: number,
            entries: 1,
            deletions: 0,
            keys: 1,
            filters: FilterMeta { bytes: 0, built_for: 0, sidecar: None },
            ranges_applied: 0,
        }))
    }

    /// Keys with this prefix, in order, most of which differ after their first word.
    fn keys(prefix: &[u8]) -> Vec<Vec<u8>> {
        let ends: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"b", b"ba", b"\xff"];
        let middles: [&[u8]; 4] =
            [b"", b"aaaaaaa", b"aaaaaaaa", b"\xff\xff\xff\xff\xff\xff\xff\xff"];
        let all = middles.iter().flat_map(|middle| ends.map(|end| [prefix, middle, end].concat()));
        let mut all: Vec<_> = all.collect();
        all.sort();
        all.dedup();
        all
    }

    /// Tables between these keys: overlapping ranges in level 0, sorted runs in deeper levels.
    fn version_of(keys: &[Vec<u8>], seed: usize) -> Version {
        let mut version = Version::default();
        let mut number = 0;
        for (level, tables) in version.levels.iter_mut().enumerate() {
            // One in five has only a few levels, or none.
            if seed % 5 == 4 && level >= seed / 5 % 4 {
                break;
            }
            let mut at = seed * (level + 3) % 5;
            while at < keys.len() && (seed + level) % 4 != 1 {
                let end = (at + (seed / 7 + at * 5) % 4).min(keys.len() - 1);
                number += 1;
                tables.push(table(number, &keys[at], &keys[end]));
                at = if level == 0 { at + 1 + seed % 3 } else { end + 1 + (seed + at) % 3 };
            }
        }
        version
    }

    fn candidates(fences: &Fences, key: &[u8], at_once: usize) -> Vec<(usize, u64)> {
        let mut candidates = fences.candidates(key);
        let mut all = Vec::new();
        loop {
            let mut places = vec![None; at_once];
            let next = candidates.next(&mut places);
            all.extend(next.iter().flatten().map(|fence| (fence.level, fence.file.number)));
            if next.len() < at_once {
                return all;
            }
        }
    }

    /// Calls `check` with versions of many shapes, each with its seed and with keys inside its
    /// tables, outside them, and at their ends.
    fn with_versions(check: impl Fn(&Version, usize, &[Vec<u8>])) {
        for prefix in [b"".as_slice(), b"k", b"a long prefix"] {
            let keys = keys(prefix);
            let others = [[prefix, b"c"].concat(), b"".to_vec(), b"k".to_vec(), b"z".to_vec()];
            let all = [keys.as_slice(), &others].concat();
            for seed in 0..60 {
                check(&version_of(&keys, seed), seed, &all);
            }
        }
    }

    #[test]
    fn candidates_are_all_tables_whose_range_holds_the_key() {
        with_versions(|version, seed, keys| {
            let fences = Fences::of(version);
            for key in keys {
                let tables = |level| version.overlapping(level, key, key);
                let wanted: Vec<_> = (0..LEVELS)
                    .flat_map(|level| tables(level).into_iter().map(move |t| (level, t.number)))
                    .collect();
                for at_once in [1, 2, 8] {
                    let found = candidates(&fences, key, at_once);
                    assert_eq!(found, wanted, "{key:?}, seed {seed}, {at_once} at once");
                }
            }
        });
    }

    #[test]
    fn scans_begin_at_the_right_table() {
        with_versions(|version, seed, keys| {
            let fences = Fences::of(version);
            for run in fences.sorted_runs() {
                let tables = &version.levels[run.level()];
                assert_eq!(run.len(), tables.len());
                for key in keys {
                    let ending = tables.partition_point(|table| *table.largest < **key);
                    assert_eq!(run.ending_before(key), ending, "{key:?}, seed {seed}");
                    let beginning = tables.partition_point(|table| *table.smallest < **key);
                    assert_eq!(run.beginning_before(key), beginning, "{key:?}, seed {seed}");
                }
            }
        });
    }
}

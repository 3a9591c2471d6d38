//! How many keys lookups still find in a range of keys, estimated without I/O.
//!
//! A filter saves reads for lookups of keys that its table does not have. These are distributed
//! like the live keys: a deleted key is rarely looked up, and a lookup of it ends at the tombstone.
//! A tombstone's key must be in the filter nevertheless, since a lookup that skipped the table
//! would find an older version. So a filter whose keys are mostly deleted is worth fewer bits.
//!
//! 1. Each table counts its keys. A tombstone among them is not alive, and hides a key of an older
//!    table, so it takes two away. Of the rest, the part that range tombstones delete is left out.
//! 2. Level 0 is not counted, as its runs overlap, except for the keys that its tombstones hide.
//! 3. Of a table partly in a range, a fraction counts: interpolated from the bytes of the keys, as
//!    if keys were spread evenly between the table's first and last.
//! 4. At least one in [`MOST_KEYS_FOR_LIVE`] counts as alive: the keys of some tombstones may never
//!    have existed, and then hide nothing.
//!
//! With a rate of `e^(-b ln(2)^2)` at `b` bits, a table with `n` keys and `m` live keys in its
//! range wastes reads in proportion to `m`, and a bit per key costs `n` bits of memory. For equal
//! savings per bit of memory, a filter gets `1 / ln 2 = 1.44` bits less for each halving of `m / n`
//! ([`fewer_bits`]); a ribbon, whose rate is `2^-b`, gets one bit less, and a
//! fuse filter 1.125. A budget arrives at the
//! same by its price ([`budget`](crate::budget)).
//!
//! Called by the budget, [`reach`](crate::reach), [`output`](crate::output) and rebuilds.

use std::sync::Arc;

use trommel_filter::{FilterKind, FilterSpec};

use crate::version::{TableFile, Version};

/// At most this many keys are assumed for one that is alive. If the estimate is wrong, a filter's
/// rate is at most this many times as high.
const MOST_KEYS_FOR_LIVE: f64 = 32.0;

/// The fewest bits per key that a filter is reduced to.
const FEWEST_BITS: f64 = 1.0;

/// The keys of some tables.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct KeyCount {
    all: f64,
    /// Live keys; negative if more keys are hidden than there are.
    net: f64,
}

impl KeyCount {
    /// The count of `keys` keys, including `deletions` tombstones.
    pub(crate) fn new(keys: u64, deletions: u64) -> Self {
        Self { all: keys as f64, net: keys as f64 - 2.0 * deletions as f64 }
    }

    /// The keys of `table`.
    pub(crate) fn of(table: &TableFile) -> Self {
        let deleted = table.deleted_bytes() as f64 / table.file_bytes.max(1) as f64;
        let Self { all, net } = Self::new(table.keys, table.deletions);
        Self { all, net: net * (1.0 - deleted.min(1.0)) }
    }

    /// The keys that `table` of level 0 hides.
    fn hidden_by(table: &TableFile) -> Self {
        Self { all: 0.0, net: -(table.deletions as f64) }
    }

    /// The keys of `self` and `other` together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { all: self.all + other.all, net: self.net + other.net }
    }

    /// A fraction of the keys.
    pub(crate) fn times(self, part: f64) -> Self {
        Self { all: self.all * part, net: self.net * part }
    }

    /// Whether less than half of the keys are alive.
    pub(crate) fn is_mostly_deleted(self) -> bool {
        self.net * 2.0 < self.all
    }

    /// The live keys.
    pub(crate) fn live(self) -> f64 {
        self.net.max(self.all / MOST_KEYS_FOR_LIVE).max(0.0)
    }
}

/// The keys of a version, by position.
pub(crate) struct LiveKeys<'a> {
    runs: Vec<CountedRun<'a>>,
    all: KeyCount,
}

struct CountedRun<'a> {
    tables: &'a [Arc<TableFile>],
    /// Keys of each table.
    each: Vec<KeyCount>,
    /// Keys before each table, and finally all keys.
    before: Vec<KeyCount>,
}

impl<'a> LiveKeys<'a> {
    /// The keys of `version`.
    pub(crate) fn of(version: &'a Version) -> Self {
        let [newest, below @ ..] = &version.levels;
        let below = below.iter().filter(|tables| !tables.is_empty());
        let below = below.map(|tables| CountedRun::new(tables, KeyCount::of));
        let newest = newest.iter().filter(|table| table.deletions > 0).map(std::slice::from_ref);
        let newest = newest.map(|table| CountedRun::new(table, KeyCount::hidden_by));
        let runs: Vec<_> = below.chain(newest).collect();
        let all = runs.iter().filter_map(|run| run.before.last().copied());
        let all = all.fold(KeyCount::default(), KeyCount::plus);
        Self { runs, all }
    }

    /// The keys from `smallest` to `largest`.
    pub(crate) fn within(&self, smallest: &[u8], largest: &[u8]) -> KeyCount {
        let within = |run: &CountedRun<'_>| {
            run.before_key(largest).plus(run.before_key(smallest).times(-1.0))
        };
        self.runs.iter().map(within).fold(KeyCount::default(), KeyCount::plus)
    }

    /// The probability that a lookup falls into the range of `table`.
    pub(crate) fn reach(&self, table: &TableFile) -> f64 {
        self.share(&table.smallest, &table.largest, KeyCount::of(table), KeyCount::default())
    }

    /// The share of live keys from `smallest` to `largest`, the range of a table with `own` keys.
    /// If `added`, the version does not have these keys.
    pub(crate) fn share(
        &self,
        smallest: &[u8],
        largest: &[u8],
        own: KeyCount,
        added: KeyCount,
    ) -> f64 {
        let inside = self.within(smallest, largest).plus(added).live();
        let (all, own) = (self.all.plus(added).live(), own.live());
        let beside = if own > 0.0 { own / (all + own) } else { 0.0 };
        if all > 0.0 { (inside / all).max(beside).min(1.0) } else { 1.0 }
    }
}

impl<'a> CountedRun<'a> {
    fn new(tables: &'a [Arc<TableFile>], count: fn(&TableFile) -> KeyCount) -> Self {
        let each: Vec<KeyCount> = tables.iter().map(|table| count(table)).collect();
        let mut before = vec![KeyCount::default()];
        let mut sum = KeyCount::default();
        for count in &each {
            sum = sum.plus(*count);
            before.push(sum);
        }
        Self { tables, each, before }
    }

    /// Approximate number of its keys that are smaller than `key`.
    fn before_key(&self, key: &[u8]) -> KeyCount {
        let nth = self.tables.partition_point(|table| *table.largest < *key);
        let before = self.before[nth];
        self.tables.get(nth).map_or(before, |table| {
            before.plus(self.each[nth].times(part_before(&table.smallest, &table.largest, key)))
        })
    }
}

/// The fraction of the way from `smallest` to `largest` that is before `key`, by their bytes.
pub(crate) fn part_before(smallest: &[u8], largest: &[u8], key: &[u8]) -> f64 {
    if key <= smallest || largest <= key {
        return if key <= smallest { 0.0 } else { 1.0 };
    }
    // All keys in between share it.
    let alike = smallest.iter().zip(largest).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let tail = key.iter().skip(alike);
        bytes.iter_mut().zip(tail).for_each(|(byte, next)| *byte = *next);
        u64::from_le_bytes(bytes).swap_bytes() as f64
    };
    let (from, to) = (number(smallest), number(largest));
    if from < to { ((number(key) - from) / (to - from)).clamp(0.0, 1.0) } else { 0.5 }
}

/// A table whose filter is to be built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filtered<'a> {
    pub(crate) smallest: &'a [u8],
    pub(crate) largest: &'a [u8],
    pub(crate) keys: u64,
    /// Tombstones among them.
    pub(crate) deletions: u64,
    /// Whether its entries come from a memtable, so that the version does not have them.
    pub(crate) is_flushed: bool,
}

impl<'a> Filtered<'a> {
    /// A table whose filter is to be rebuilt.
    pub(crate) fn of(table: &'a TableFile) -> Self {
        let (smallest, largest) = (&table.smallest, &table.largest);
        Self { smallest, largest, keys: table.keys, deletions: table.deletions, is_flushed: false }
    }
}

/// The filter of whole keys for `table`, a table of `version` or one that a job adds to it, if
/// `spec` is configured.
pub(crate) fn sized_for_live(
    spec: FilterSpec,
    version: &Version,
    table: Filtered<'_>,
) -> FilterSpec {
    // Otherwise at least half of its own keys are alive.
    let is_mostly_deleted = table.deletions.saturating_mul(2) > table.keys;
    if !is_mostly_deleted {
        return spec;
    }
    let mut count = LiveKeys::of(version).within(table.smallest, table.largest);
    if table.is_flushed {
        count = count.plus(KeyCount::new(table.keys, table.deletions));
    }
    fewer_bits(spec, table.keys as f64 / count.net.max(1.0))
}

/// `spec` for a table with this many keys for each live one.
fn fewer_bits(spec: FilterSpec, keys_for_live: f64) -> FilterSpec {
    let halving = match spec.kind() {
        FilterKind::None => return spec,
        FilterKind::Ribbon => 1.0,
        FilterKind::Fuse => 1.125,
        _ => std::f64::consts::LOG2_E,
    };
    // Whole halvings, so that a rebuild changes no filter because of a small change in the tree.
    let halvings = keys_for_live.min(MOST_KEYS_FOR_LIVE).log2().floor();
    let (bits, fewest) = (spec.bits_per_key(), FEWEST_BITS.min(spec.bits_per_key()));
    let fewer = (bits - halving * halvings).max(fewest);
    if halvings > 0.0 { FilterSpec::new(spec.kind(), fewer).unwrap_or(spec) } else { spec }
}

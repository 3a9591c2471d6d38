//! The lookups of a trace, in memory.

use std::ops::Range;
use std::path::Path;

use trommel::trace::{Place, TraceInfo, TraceReader, TracedLookup};
use trommel::vfs::Vfs;
use trommel_harness::{Control, Error, mix, units};

use crate::tune::build::store_error;

/// Maximum number of levels of a tree.
const LEVELS: usize = 7;
/// Maximum number of parts of a replay: each part iterates over all keys of the store.
pub(super) const MOST_PARTS: u64 = 1000;
/// Entries of a trace between two checks of the stop.
const STRIDE: usize = 1 << 16;

/// The contents of a trace, in numbers.
#[derive(Debug, Clone)]
pub(super) struct Survey {
    pub(super) info: TraceInfo,
    pub(super) lookups: u64,
    pub(super) found: u64,
    pub(super) in_memory: u64,
    /// Number of lookups that ended in a table of each level.
    pub(super) ended: [u64; LEVELS],
    pub(super) is_cut_off: bool,
    /// Number of entries, and the bytes of their keys.
    entries: u64,
    key_bytes: u64,
}

impl Survey {
    /// Reads the whole trace.
    pub(super) fn of(vfs: &dyn Vfs, trace: &Path) -> Result<Self, Error> {
        let mut all = Self {
            info: TraceInfo { store_id: 0, sample: 1 },
            lookups: 0,
            found: 0,
            in_memory: 0,
            ended: [0; LEVELS],
            is_cut_off: false,
            entries: 0,
            key_bytes: 0,
        };
        (all.info, all.is_cut_off) = each_lookup(vfs, trace, &mut |lookup| {
            let TracedLookup { key, outcome, times } = lookup;
            all.lookups += times;
            all.found += if outcome.found { times } else { 0 };
            all.entries += 1;
            all.key_bytes += key.len() as u64;
            match outcome.place {
                Place::Memory => all.in_memory += times,
                Place::Level(level) => all.ended[usize::from(level).min(LEVELS - 1)] += times,
                _ => {}
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Of the lookups that reached tables, the fraction that found nothing there.
    pub(super) fn misses(&self) -> f64 {
        let in_tables = self.lookups - self.in_memory;
        let ended: u64 = self.ended.iter().sum();
        (in_tables - ended) as f64 / in_tables.max(1) as f64
    }

    /// Number of parts of at most `memory` bytes each, for a replay with `candidates` candidates.
    ///
    /// # Errors
    /// [`Error::Usage`] if there would be more than [`MOST_PARTS`].
    pub(super) fn parts(&self, memory: u64, candidates: usize) -> Result<u64, Error> {
        let beside = size_of::<Lookup>() + 2 * candidates * size_of::<u32>();
        let bytes = self.entries.saturating_mul(beside as u64).saturating_add(self.key_bytes);
        let parts = bytes.div_ceil(memory.max(1)).max(1);
        if parts > MOST_PARTS {
            let least = bytes.div_ceil(MOST_PARTS).div_ceil(1 << 10);
            let (memory, bytes) = (units::bytes(memory), units::bytes(bytes));
            return Err(Error::Usage(format!(
                "{memory} of memory for lookups that take {bytes} makes {parts} parts, each of \
                 which reads the whole store: give {least}K or more, for at most {MOST_PARTS} parts"
            )));
        }
        Ok(parts)
    }
}

/// Calls `visit` for each lookup of the trace; returns the trace's header, and whether the trace is
/// truncated.
fn each_lookup(
    vfs: &dyn Vfs,
    trace: &Path,
    visit: &mut dyn FnMut(TracedLookup<'_>) -> Result<(), Error>,
) -> Result<(TraceInfo, bool), Error> {
    let mut reader = TraceReader::open(vfs, trace).map_err(store_error)?;
    loop {
        let error = match reader.next_lookup() {
            Ok(Some(lookup)) => {
                visit(lookup)?;
                continue;
            }
            Ok(None) => return Ok((reader.info(), false)),
            Err(error) => error,
        };
        return match reader.is_cut_off() {
            true => Ok((reader.info(), true)),
            false => Err(store_error(error)),
        };
    }
}

/// All lookups of one key.
#[derive(Debug, Clone)]
pub(super) struct Lookup {
    /// Offset of the key in the part's keys.
    start: usize,
    bytes: u32,
    /// Whether a table had the key.
    pub(super) is_over: bool,
    pub(super) hash: u64,
    /// Number of lookups, and how many of them memory did not answer.
    pub(super) times: u64,
    pub(super) in_tables: u64,
}

/// The lookups of some keys, sorted by key.
#[derive(Debug, Default)]
pub(super) struct TracePart {
    keys: Vec<u8>,
    pub(super) lookups: Vec<Lookup>,
}

impl TracePart {
    /// Loads part number `nth` of `parts`.
    pub(super) fn load(
        vfs: &dyn Vfs,
        trace: &Path,
        nth: u64,
        parts: u64,
        control: Control<'_>,
    ) -> Result<Self, Error> {
        let mut part = Self::default();
        let mut seen = 0;
        each_lookup(vfs, trace, &mut |lookup| {
            seen += 1;
            if seen % STRIDE == 0 && control.stop.is_set() {
                return Err(Error::Interrupted);
            }
            part.add(lookup, nth, parts);
            Ok(())
        })?;
        part.merge();
        Ok(part)
    }

    fn add(&mut self, lookup: TracedLookup<'_>, nth: u64, parts: u64) {
        let TracedLookup { key, outcome, times } = lookup;
        let hash = trommel::filter::hash(key);
        if parts > 1 && mix(hash) % parts != nth {
            return;
        }
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let in_tables = if outcome.place == Place::Memory { 0 } else { times };
        let bytes = key.len() as u32;
        self.lookups.push(Lookup { start, bytes, is_over: false, hash, times, in_tables });
    }

    /// Sorts by key, and merges the entries of one key.
    fn merge(&mut self) {
        let Self { keys, lookups } = self;
        let key = |of: &Lookup| &keys[of.start..of.start + of.bytes as usize];
        lookups.sort_unstable_by(|a, b| key(a).cmp(key(b)));
        lookups.dedup_by(|later, first| {
            let are_alike = key(later) == key(first);
            if are_alike {
                first.times += later.times;
                first.in_tables += later.in_tables;
            }
            are_alike
        });
    }

    pub(super) fn key(&self, of: &Lookup) -> &[u8] {
        &self.keys[of.start..of.start + of.bytes as usize]
    }

    /// Of the lookups that reach tables, the fraction whose key is from `smallest` to `largest`.
    pub(super) fn reach(&self, smallest: &[u8], largest: &[u8]) -> f64 {
        let sum = |lookups: &[Lookup]| lookups.iter().map(|one| one.in_tables as f64).sum::<f64>();
        let all = sum(&self.lookups);
        let within = sum(&self.lookups[self.within(smallest, largest)]);
        if all > 0.0 { within / all } else { 0.0 }
    }

    /// The range of the lookups of keys from `smallest` to `largest`, both inclusive.
    pub(super) fn within(&self, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let from = self.lookups.partition_point(|lookup| self.key(lookup) < smallest);
        let to = self.lookups.partition_point(|lookup| self.key(lookup) <= largest);
        from..to.max(from)
    }
}

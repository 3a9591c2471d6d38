//! Measures a group of filters.
//!
//! 1. Each contestant is built, round by round in turn, each round beginning with another one. The
//!    first build is tracked by the allocator. Slow ones are built in fewer rounds.
//! 2. A filter of the first round is kept. Every key that was added must be found in it (a sample
//!    of them, if there are many); it is queried for absent keys until there are enough false
//!    positives.
//! 3. Trommel's are decoded again for each kernel, and onto huge pages if they are large enough.
//! 4. All are queried, round by round in turn: in every mode, each round with other keys. The same
//!    loop without a filter is timed at the beginning of each round and subtracted.

use std::time::{Duration, Instant};

use trommel_filter::Kernel;

use crate::cell::{Cell, Rate};
use crate::contestant::{Built, Contestant, Pages, Ready, decode};
use crate::keys;
use crate::loops::{self, Ask as _, MODES, Mode, Nothing, Pattern, Side, Timed, mode_name};
use crate::memory::{huge_bytes, most_taken};
use crate::plan::Group;

/// Size from which filters are measured on huge pages too: 50 MiB.
pub const LARGE: u64 = 50 << 20;
/// Builds of a contestant, unless one takes too long.
const BUILDS: usize = 5;
/// Maximum number of keys that are checked in each filter.
const CHECKED: usize = 1_000_000;
/// Filters smaller than this are brought into the caches before they are timed.
const CACHED: u64 = 16 << 20;

/// The extent of a measurement.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Rounds of queries, and maximum rounds of builds.
    pub rounds: u32,
    /// Independent or batched queries in a round.
    pub queries: usize,
    /// Dependent queries in a round.
    pub dependent: usize,
    /// Time for the builds of one contestant; one is made in any case, and up to [`BUILDS`] within
    /// this time.
    pub builds: Duration,
    /// Number of false positives at which the rate is known.
    pub false_positives: u64,
    /// Maximum number of queries for the rate; a thirtieth of it for filters of other than `rated`
    /// keys.
    pub rate_cap: u64,
    /// Keys of the filters whose rates are measured precisely.
    pub rated: u64,
    /// Size from which filters are measured on huge pages too.
    pub large: u64,
}

/// A filter to query, with its cell.
struct Entry {
    ready: Ready,
    cell: Cell,
}

/// Measures all filters of `group`.
///
/// # Errors
/// A contestant that cannot be built, or that has a false negative.
pub fn measure(group: &Group, extent: &Extent) -> Result<Vec<Cell>, String> {
    let hashes = keys::present(group.keys);
    let mut entries = Vec::new();
    for built in build_all(group, extent, &hashes)? {
        entries.extend(variants(built, extent, &hashes)?);
    }
    drop(hashes);
    ask_all(&mut entries, group.keys, extent);
    Ok(entries.into_iter().map(|entry| entry.cell).collect())
}

/// A contestant that was built.
struct Kept {
    contestant: Contestant,
    built: Built,
    cell: Cell,
}

/// Builds every contestant of the group in every round, within the time limit.
fn build_all(group: &Group, extent: &Extent, hashes: &[u64]) -> Result<Vec<Kept>, String> {
    let mut kept: Vec<Kept> = Vec::new();
    let mut known_bits = 0.0;
    for (contestant, bits) in group.contestants() {
        let bits = bits.unwrap_or(known_bits);
        let ((time, built), most) = most_taken(|| timed(|| contestant.build(bits, hashes)));
        let built = built?;
        if let (Contestant::Fuse(_), Built::Ready(ready)) = (contestant, &built) {
            known_bits = ready.bits() as f64 / group.keys as f64;
        }
        let cell = Cell {
            group: group.given.to_string(),
            keys: group.keys,
            contestant: contestant.to_string(),
            asked_bits: bits,
            build_ns: vec![per(time, group.keys)],
            build_bytes: Some(most as f64 / group.keys as f64),
            ..Cell::default()
        };
        kept.push(Kept { contestant, built, cell });
    }
    for round in 1..extent.rounds as usize {
        for nth in 0..kept.len() {
            let at = (round + nth) % kept.len();
            let Kept { contestant, cell, .. } = &mut kept[at];
            let spent = cell.build_ns.iter().sum::<f64>() * group.keys as f64 / 1e9;
            let mean = spent / cell.build_ns.len() as f64;
            let limit = extent.builds.as_secs_f64();
            let is_quick = cell.build_ns.len() < BUILDS && mean < limit;
            if is_quick || spent + mean <= limit {
                let (time, built) = timed(|| contestant.build(cell.asked_bits, hashes));
                drop(built?);
                cell.build_ns.push(per(time, group.keys));
            }
        }
    }
    Ok(kept)
}

/// The filters to query for `kept`: one, or one for each kernel and kind of pages.
fn variants(kept: Kept, extent: &Extent, hashes: &[u64]) -> Result<Vec<Entry>, String> {
    let Kept { contestant, built, cell } = kept;
    let bytes = match built {
        Built::Ready(ready) => {
            let mut entry = Entry { ready, cell };
            check(&mut entry, extent, hashes)?;
            return Ok(vec![entry]);
        }
        Built::Stored(bytes) => bytes,
    };
    let pages: &[Pages] = if bytes.len() as u64 >= extent.large {
        &[Pages::Small, Pages::Huge]
    } else {
        &[Pages::Small]
    };
    let kernels: Vec<Kernel> =
        if contestant.has_kernels() { Kernel::available().collect() } else { vec![Kernel::best()] };
    let mut entries: Vec<Entry> = Vec::new();
    for &pages in pages {
        // Plain code is only a baseline.
        let plain = |kernel: &Kernel| pages == Pages::Huge && *kernel == Kernel::Scalar;
        for &kernel in kernels.iter().rev().filter(|kernel| kernels.len() == 1 || !plain(kernel)) {
            let before = huge_bytes();
            let (time, ready) = timed(|| decode(&bytes, kernel, pages));
            let gained = huge_bytes().zip(before).map(|(now, before)| now.saturating_sub(before));
            let mut entry = Entry { ready: ready?, cell: cell.clone() };
            entry.cell.kernel = contestant.has_kernels().then(|| kernel.to_string());
            entry.cell.huge = pages == Pages::Huge;
            entry.cell.huge_bytes = gained;
            entry.cell.decode_ns = Some(per(time, cell.keys));
            match entries.first() {
                None => check(&mut entry, extent, hashes)?,
                // A build is counted once, for any kernel.
                Some(first) => {
                    (entry.cell.bits, entry.cell.rate) = (first.cell.bits, first.cell.rate);
                    entry.cell.build_ns.clear();
                    entry.cell.build_bytes = None;
                }
            }
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Checks keys that were added, and counts false positives.
fn check(entry: &mut Entry, extent: &Extent, hashes: &[u64]) -> Result<(), String> {
    let Entry { ready, cell } = entry;
    let step = hashes.len().div_ceil(CHECKED);
    if let Some(denied) = ready.with(loops::FirstDenied { hashes, step }) {
        return Err(format!("{} denies the hash {denied:016x}, which it holds", cell.contestant));
    }
    cell.bits = ready.bits() as f64 / cell.keys as f64;
    let expected = ready.expected_rate(cell.keys);
    let cap = if cell.keys == extent.rated { extent.rate_cap } else { extent.rate_cap / 30 };
    // If hardly any are expected, more queries show no more.
    let cap = if expected * (cap as f64) < 10.0 { cap / 10 } else { cap };
    let (asked, false_positives) =
        ready.with(loops::Rate { enough: extent.false_positives, cap: cap.max(1024) });
    cell.rate = Rate { asked, false_positives, expected };
    Ok(())
}

/// Times every mode of every filter in every round.
fn ask_all(entries: &mut [Entry], keys: u64, extent: &Extent) {
    for round in 0..extent.rounds as usize {
        let questions = Questions::new(keys, round as u64, extent);
        let dry = questions.time(|timed| timed.ask(&Nothing));
        for nth in 0..entries.len() {
            let at = (round + nth) % entries.len();
            let Entry { ready, cell } = &mut entries[at];
            if ready.bits() / 8 < CACHED {
                let (_, hashes) = &questions.of[0];
                let _ = ready.with(Timed(Pattern::Independent, &hashes[..hashes.len() / 2]));
            }
            let times = questions.time(|timed| ready.with(timed));
            for ((mode, gross), (_, dry)) in times.into_iter().zip(&dry) {
                cell.query_ns.entry(mode_name(mode)).or_default().push(gross - dry);
            }
        }
    }
}

/// The queries of a round: different for each mode, so that none benefits from another one's cache
/// contents.
struct Questions {
    of: Vec<(Mode, Vec<u64>)>,
}

impl Questions {
    fn new(keys: u64, round: u64, extent: &Extent) -> Self {
        let draw = |(nth, (side, pattern)): (usize, Mode)| {
            let part = round * MODES.len() as u64 + nth as u64;
            let count = match pattern {
                Pattern::Dependent => extent.dependent,
                _ => extent.queries,
            };
            let hashes = match side {
                Side::Negative => keys::absent(part, count),
                Side::Positive => keys::drawn(keys, part, count),
            };
            ((side, pattern), hashes)
        };
        Self { of: MODES.into_iter().enumerate().map(draw).collect() }
    }

    /// Nanoseconds per query in each mode.
    fn time(&self, ask: impl Fn(Timed<'_>) -> (Duration, u64)) -> Vec<(Mode, f64)> {
        let time = |(mode, hashes): &(Mode, Vec<u64>)| {
            (*mode, per(ask(Timed(mode.1, hashes)).0, hashes.len() as u64))
        };
        self.of.iter().map(time).collect()
    }
}

/// Nanoseconds per item.
fn per(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e9 / count.max(1) as f64
}

fn timed<T>(make: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let made = make();
    (start.elapsed(), made)
}

//! The targets of the main measurement; for each part, what bounds it and what was tried.

use crate::figures::{Figure, Results, SIZES, Spread, TIMES};
use crate::report::{BATCHES, NO_LOG, OWN_BITS};
use crate::verdict::{OURS, Verdict, beside, shortfalls_first};

/// Set-ups of Trommel: the default one, and others.
#[derive(Clone, Copy)]
enum Ours {
    Cached,
    /// With blocks verified at each read, or once.
    Mapped,
    /// With verified blocks lent directly from the map.
    Trusted,
    Batches,
}

impl Ours {
    fn has(self, name: &str) -> bool {
        match self {
            Self::Cached => name == OURS,
            Self::Mapped => ["trommel-mapped", "trommel-mapped-once"].contains(&name),
            Self::Trusted => name == "trommel-mapped-trusted",
            Self::Batches => name == BATCHES,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cached => ", cached",
            Self::Mapped => ", mapped",
            Self::Trusted => ", mapped and trusted",
            Self::Batches => ", in batches",
        }
    }
}

/// A figure that must be better than a rival's best by a factor.
struct Target {
    figure: &'static str,
    ours: Ours,
    rival: &'static str,
    times: f64,
}

impl Target {
    fn what(&self) -> String {
        format!("{}{}, beside {}", self.figure, self.ours.name(), self.rival)
    }
}

const fn target(figure: &'static str, ours: Ours, rival: &'static str, times: f64) -> Target {
    Target { figure, ours, rival, times }
}

const ROCKS: &str = "rocksdb";
const FJALL: &str = "fjall";
const LMDB: &str = "lmdb";

static TARGETS: [Target; 42] = [
    target("fill", Ours::Cached, ROCKS, 3.0),
    target("fill", Ours::Cached, FJALL, 3.0),
    target("fill", Ours::Cached, LMDB, 2.0),
    target("fill", Ours::Batches, LMDB, 2.0),
    target("fill until idle", Ours::Cached, ROCKS, 2.5),
    target("fill until idle", Ours::Cached, FJALL, 2.5),
    target("read", Ours::Mapped, ROCKS, 3.0),
    target("read", Ours::Cached, ROCKS, 2.5),
    target("read", Ours::Mapped, LMDB, 1.0),
    target("read", Ours::Cached, LMDB, 1.0),
    target("read, 2 threads", Ours::Mapped, ROCKS, 3.0),
    target("read, 2 threads", Ours::Cached, ROCKS, 2.5),
    target("read, 2 threads", Ours::Mapped, LMDB, 1.0),
    target("read, 2 threads", Ours::Cached, LMDB, 1.0),
    target("missing", Ours::Cached, ROCKS, 3.5),
    target("missing", Ours::Mapped, ROCKS, 3.5),
    target("missing", Ours::Cached, FJALL, 1.8),
    target("missing", Ours::Mapped, FJALL, 1.8),
    target("missing, 2 threads", Ours::Cached, ROCKS, 3.5),
    target("missing, 2 threads", Ours::Mapped, ROCKS, 3.5),
    target("missing, 2 threads", Ours::Cached, FJALL, 1.8),
    target("missing, 2 threads", Ours::Mapped, FJALL, 1.8),
    target("scan", Ours::Cached, ROCKS, 6.0),
    target("scan", Ours::Mapped, ROCKS, 6.0),
    target("scan", Ours::Trusted, ROCKS, 6.0),
    target("scan", Ours::Cached, LMDB, 1.0),
    target("scan", Ours::Mapped, LMDB, 1.0),
    target("scan", Ours::Trusted, LMDB, 1.0),
    target("seek+10", Ours::Cached, ROCKS, 1.0),
    target("seek+10", Ours::Mapped, ROCKS, 1.0),
    target("seek+100", Ours::Cached, ROCKS, 1.0),
    target("seek+100", Ours::Mapped, ROCKS, 1.0),
    target("write amplification", Ours::Cached, ROCKS, 1.0),
    target("runs", Ours::Cached, ROCKS, 1.0),
    target("disk, MiB", Ours::Cached, ROCKS, 1.0),
    target("disk at most, MiB", Ours::Cached, ROCKS, 1.0),
    target("peak in fill, MiB", Ours::Cached, ROCKS, 1.0),
    target("own after fill, MiB", Ours::Cached, ROCKS, 1.0),
    target("own after reads, MiB", Ours::Cached, "rocksdb-best", 1.0),
    target("own after reads, MiB", Ours::Mapped, "rocksdb-mmap", 1.0),
    target("multi-get", Ours::Cached, ROCKS, 1.0),
    target("multi-get", Ours::Mapped, ROCKS, 1.0),
];

/// Maximum ratio of the time of a backward scan to that of a forward one.
const REVERSE_TO_SCAN_MAX: f64 = 1.3;

/// What bounds a fill.
const WRITER: &str = "the writer takes a core by itself: for the most part in write(2), whose floor is printed \
    beside the figures, and for the memtable's cache lines, which are asked for before the log is written; the \
    background takes the other core; LMDB has a thousand entries in a transaction, and Trommel beside it one in \
    a write (as many in a batch are a target of their own); \
    space set aside for the log makes write(2) 2 to 3% cheaper, pages made ahead would by a tenth to a fifth, \
    but zeros would then be the end of a log, and a map of the log is ruled out by the contract";
/// What determines how many runs are left, and so their cost.
const LEFT: &str = "how far the last flushes and merges had come, which differs from fill to fill: when the store \
    rests, level 0 has fewer runs than half of the trigger, or such as bring little to a large base level";
/// The cost of a step.
const STEP: &str = "13 ns an entry are the least that its bytes take out of memory; where blocks are verified 7 more are \
    their checksum, out of a map 4 the copy, and out of the cache a block's place and its count of references for \
    every 14 entries; in quick hours, and with no comparison of values, the program's own scans take 41 to 45 where \
    what was verified is trusted, and what the figures here have beyond that is the hour, the comparison, and what \
    nobody has explained; entries are decoded together, the next block is asked for ahead, and the table's cursor \
    whose entry comes first is found without a branch";
/// The cost of a step back.
const STEP_BACK: &str = "in a quiet hour a step back takes 1.2 times as long as one forward (73 to 75 ns beside 61); rounds \
    differ by more than what is missing";
/// The memory of a writer's store.
const MEMTABLES: &str = "a full memtable of 64 MiB, what is filled of the next while that is written out, and some \
    20 MiB of filters, indexes and what two background threads merge and build; a writer that is slower has less \
    of the second; of a memtable that was written out no more is kept than the next still lacks";

/// What bounds each figure, and what was tried.
const BOUNDS: [(&str, &str); 13] = [
    ("fill", WRITER),
    (
        "fill until idle",
        "nearly all of it is the fill, of which the same is true; merges write a seventh to a third less \
         since runs of level 0 go through a base level that could not keep them, and both threads share a \
         merge that is left when the writer is done; lazy leveling was not tried",
    ),
    (
        "read",
        "some ten cache misses, of which the filters', the index's and a block's columns are asked for \
         together, and a value's while its key is compared; a block in the cache costs two of them, \
         one behind the other, its place and its count of references, and a map none, but each of its \
         pages must be found by the processor",
    ),
    (
        "missing",
        "one cache line of a filter for each run that is left, asked for together, that of the last level \
         first: half of the time; with tables that need no locked instruction to be kept open it took no less",
    ),
    ("scan", STEP),
    ("reverse", STEP_BACK),
    (
        "write amplification",
        "one merge of level 0 more or less is about 0.3 of it, and the same merge decides how many runs \
         are left; the log writes 45 bytes a put besides key and value, where RocksDB's writes 23: 0.08 of \
         it; lazy leveling was not tried",
    ),
    ("runs", LEFT),
    ("disk, MiB", LEFT),
    (
        "disk at most, MiB",
        "runs of level 0 lie beside what they were merged into until all of their merge is in force, ten of some 50 MiB \
         for the most part; all else of a merge leaves the disk stretch by stretch, which took 1,480 to 1,561 MiB \
         for five million keys where it had been 1,896 to 1,929; half as much kept to be written over \
         took 4,559 to 4,598 MiB for twenty million keys where it had been 4,802 and 4,934, a quarter as much no less, \
         and what these keep is all being written over when most lies there",
    ),
    ("peak in fill, MiB", MEMTABLES),
    ("own after fill, MiB", MEMTABLES),
    (
        "own after reads, MiB",
        "Trommel holds filters, indexes and what was verified in memory of its own; RocksDB, mapped, is left with less \
         than its filters take, so that it must have them in the map, where the page cache holds them",
    ),
];

/// All targets of the measurement with `num` keys, missed ones first.
pub(crate) fn verdicts(results: &Results, num: u64) -> Vec<Verdict> {
    let mut verdicts: Vec<_> =
        TARGETS.iter().filter_map(|target| verdict(target, results, num)).collect();
    verdicts.extend(reverse(results, num));
    shortfalls_first(verdicts)
}

/// The targets of `num` keys for which a side was not measured.
pub(crate) fn unmeasured(results: &Results, num: u64) -> Vec<String> {
    let missing = TARGETS.iter().filter(|target| verdict(target, results, num).is_none());
    missing.map(Target::what).collect()
}

fn figure(title: &str) -> Option<&'static Figure> {
    TIMES.iter().chain(&SIZES).find(|figure| figure.title == title)
}

fn verdict(target: &Target, results: &Results, num: u64) -> Option<Verdict> {
    let Target { ours, rival, times, .. } = *target;
    let compared = results.only(|name| match name.starts_with(OURS) {
        true => ours.has(name),
        false => name.starts_with(rival) && !name.ends_with(NO_LOG),
    });
    let what = target.what();
    let verdict = beside(&compared, num, &what, figure(target.figure)?, &[rival], times)?;
    Some(verdict.bounded_by(bound(target.figure)))
}

/// What bounds the figure; that of one thread is used for several.
fn bound(title: &str) -> &'static str {
    let of_one = title.split(", 2 threads").next().unwrap_or(title);
    BOUNDS.iter().find(|(figure, _)| *figure == of_one).map_or("", |(_, bound)| bound)
}

fn reverse(results: &Results, num: u64) -> Vec<Verdict> {
    let spread = |name: &str, title| results.figure(num, name, figure(title)?);
    let names = results.names(num).into_iter();
    let ratios = names
        .filter(|name| name.starts_with(OURS) && !name.ends_with(OWN_BITS))
        .filter_map(|name| Some((name, spread(name, "reverse")?, spread(name, "scan")?)));
    let verdict = |(name, reverse, scan): (&str, Spread, Spread)| {
        let (what, ratio) = (format!("reverse beside scan, {name}"), reverse.median / scan.median);
        Verdict::at_most(&what, ratio, REVERSE_TO_SCAN_MAX)
            .bounded_by(bound("reverse"))
            .of_rounds(reverse.rounds.min(scan.rounds))
    };
    ratios.map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::MAPPED_ALIGNED;

    #[test]
    fn targets_and_bounds_are_of_figures_that_there_are() {
        for target in &TARGETS {
            assert!(figure(target.figure).is_some(), "{}", target.figure);
        }
        for (title, _) in &BOUNDS {
            assert!(figure(title).is_some(), "{title}");
        }
        assert!(bound("read, 2 threads").starts_with("some ten") && bound("seek+10").is_empty());
    }

    #[test]
    fn unmeasured_targets_are_listed() {
        let missing = unmeasured(&Results::new(Vec::new()), 1000);
        assert_eq!(missing.len(), TARGETS.len());
        assert_eq!(missing[0], "fill, cached, beside rocksdb");
    }

    #[test]
    fn a_mapped_set_up_is_not_the_cached_one() {
        assert!(Ours::Cached.has("trommel") && !Ours::Cached.has("trommel-mapped"));
        assert!(Ours::Mapped.has("trommel-mapped-once") && !Ours::Mapped.has("trommel"));
        assert!(!Ours::Mapped.has(MAPPED_ALIGNED) && !Ours::Cached.has("trommel-nolog"));
        let trusted = "trommel-mapped-trusted";
        assert!(Ours::Trusted.has(trusted) && !Ours::Mapped.has(trusted));
    }
}

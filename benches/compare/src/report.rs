//! The presentation of results: tables and conclusions.

use std::collections::BTreeMap;

use serde_json::Value;
use trommel_harness::record::Record;
use trommel_harness::table::Table;
use trommel_harness::units;
use trommel_lab::report::{Source, page};

use crate::figures::{FLOOR, Figure, Results, SIZES, Spread, TIMES};
use crate::sheets;
use crate::stores::{ANY_PROCESSOR, COMPILED};
use crate::studies::{STUDY, Study};
use crate::targets;
use crate::trial::{DISK, DISK_PEAK, FAILED, OPEN};

/// Ratios are relative to this set-up.
const REFERENCE: &str = "trommel";
/// The suffix of set-ups without a log, which are compared among themselves.
pub(crate) const NO_LOG: &str = "-nolog";
/// The set-up of Trommel that writes in batches, as transactional stores do.
pub(crate) const BATCHES: &str = "trommel-batches";
/// The suffix of Trommel's set-ups whose filters have more bits than the others'.
pub(crate) const OWN_BITS: &str = "-own";

/// What could not be made equal, for readers of the figures.
pub(crate) const UNEQUAL: [&str; 19] = [
    "LMDB and redb write 1000 entries in a transaction, the trees one at a time, but for trommel-batches. A \
     process that dies loses the transaction it is in; a tree that writes single entries loses nothing.",
    "LMDB without syncs may be damaged when the machine loses power, a tree loses its last writes; \
     redb without durability loses what was written since its last durable commit also when the \
     process dies.",
    "Equal bits a key are equal memory, not equal filters: Trommel's are paired, RocksDB's blocked, \
     fjall's standard ones. LMDB and redb have none.",
    "LMDB has no cache of its own and mapped Trommel uses none: neither gets anything of the others' caches. \
     All files are in the page cache when reading begins, so nobody waits for a device.",
    "redb's files are dropped and read in like the others', but what it kept in its own cache while \
     filling is lost at closing, as it is for all.",
    "Block checksums: the trees verify a block when they do not find it in their cache, mapped \
     Trommel each time it uses one, trommel-mapped-once when a lookup first does and at each scan, trommel-mapped-trusted when either first does, redb and LMDB never, and rocksdb-mmap was told not to.",
    "All trees merge level 0 from four runs on, but Trommel waits for a fifth where four bring less than \
     seven eighths of what the base level may hold, as they do with these write buffers: it writes less, and \
     has one run more to ask meanwhile. While somebody waits for it to rest, as is done behind each fill, it \
     merges from two runs on where they find at most five times their bytes in the base level.",
    "Trommel opens a level above the base level once that would hold twice the size given, which leaves a run \
     less where it would hold little more than that.",
    "Trommel writes new tables over files that nothing needs any more, of which it keeps for that, while it \
     works, up to a quarter of what its tables take, and no more than its default (`spare_file_bytes`); the others \
     remove theirs at once.",
    "fjall's base level, stalls and waiting memtables follow rules of its own; it has no call that \
     waits for its background, so its counts are polled until they are zero for 50 ms, which is a \
     part of its time until idle.",
    "RocksDB sizes its levels from the deepest one up (its default), so its base level moves. Its \
     two background jobs are one that flushes and one that compacts; the two threads of Trommel and \
     fjall do either. While memtables become full Trommel's merge one thing at a time on two cores, as RocksDB's \
     do, until level 0 is three quarters of the way to where writers are slowed, or 8 GiB are due.",
    "lmdb-best, redb-best and rocksdb-mmap read the files that lmdb, redb and rocksdb-best wrote; \
     their fills would be the same. lmdb-writemap is LMDB's best way to write.",
    "Where a store has no multi-get the column is empty. LMDB and redb would do single gets in one \
     transaction.",
    "Memory: pages of mapped files count into the peaks of those who map, while the page cache of \
     those who read with calls does not.",
    "Every store runs with the allocator of the C library. Deployments of RocksDB often bring \
     another.",
    "A fill's value is marked with its key in its place, one put ahead or with all of its batch; what YCSB A \
     to F write is copied and marked right before the write. All of it is for every store alike.",
    "The marks of a value per write, and a comparison of 16 bytes per entry written or read, are the harness's, \
     for every store alike; so are two calls through a table of functions.",
    "Writers are slowed and stopped by pending compaction at each store's default: 32 and 64 GiB with Trommel, 64 and \
     256 with RocksDB.",
    "With two threads a figure is the time on the wall divided by the operations of both.",
];

/// A number with three significant digits.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value < 1.0 => 3,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

fn spread(spread: Spread) -> String {
    let median = number(spread.median);
    if spread.rounds < 2 {
        return median;
    }
    format!("{median} ({} to {})", number(spread.least), number(spread.greatest))
}

/// A row for each contender, a column for each figure that any of them has.
pub(crate) fn figures(results: &Results, num: u64, figures: &[Figure]) -> Table {
    let names = results.names(num);
    let known: Vec<_> = figures
        .iter()
        .filter(|figure| names.iter().any(|name| results.figure(num, name, figure).is_some()))
        .collect();
    let titles = known.iter().map(|figure| figure.title.to_owned());
    let row = |name: &&str| {
        let cells = known
            .iter()
            .map(|figure| results.figure(num, name, figure).map_or_else(String::new, spread));
        std::iter::once((*name).to_owned()).chain(cells).collect()
    };
    Table {
        head: std::iter::once("store".to_owned()).chain(titles).collect(),
        rows: names.iter().map(row).collect(),
        numbers_from: 1,
    }
}

/// Times of operations.
pub(crate) fn times(results: &Results, num: u64) -> Table {
    figures(results, num, &TIMES)
}

/// Everything except times of operations.
pub(crate) fn sizes(results: &Results, num: u64) -> Table {
    figures(results, num, &SIZES)
}

/// The time of each other contender as a multiple of Trommel's.
pub(crate) fn ratios(results: &Results, num: u64) -> Table {
    let mut grid = times(results, num);
    let titles = grid.head.clone();
    for row in &mut grid.rows {
        let name = row[0].clone();
        for (cell, title) in row.iter_mut().zip(&titles).skip(1) {
            let ratio = figure_named(title)
                .and_then(|figure| ratio(results, num, &name, reference_of(&name), figure));
            *cell = ratio.map_or_else(String::new, |ratio| format!("{} x", number(ratio)));
        }
    }
    grid.rows.retain(|row| row[1..].iter().any(|cell| !cell.is_empty()));
    grid
}

fn figure_named(title: &str) -> Option<&'static Figure> {
    TIMES.iter().find(|figure| figure.title == title)
}

fn reference_of(name: &str) -> &'static str {
    if name.ends_with(NO_LOG) { "trommel-nolog" } else { REFERENCE }
}

fn ratio(results: &Results, num: u64, name: &str, reference: &str, figure: &Figure) -> Option<f64> {
    let other = results.figure(num, name, figure)?.median;
    let ours = results.figure(num, reference, figure)?.median;
    (name != reference && ours > 0.0).then(|| other / ours)
}

/// The end of a line of [`reading`] in which a rival is ahead.
pub(crate) const BEHIND: &str = ": behind**";

/// For each of `figures`, which are times, the best Trommel with at most the others' filter bits
/// against the best rival, each in its best set-up.
pub(crate) fn reading(results: &Results, num: u64, figures: &[Figure], unit: &str) -> Vec<String> {
    let best = |figure: &Figure, ours: bool| {
        let names = results.names(num).into_iter();
        let names = names.filter(|name| name.starts_with(REFERENCE) == ours).filter(|name| {
            !name.ends_with(NO_LOG) && !name.ends_with(OWN_BITS) && *name != BATCHES
        });
        names
            .filter_map(|name| Some((name.to_owned(), results.figure(num, name, figure)?.median)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut lines = Vec::new();
    for figure in figures {
        let Some((rival, theirs)) = best(figure, false) else { continue };
        let Some((name, ours)) = best(figure, true) else { continue };
        let verdict = if ours > theirs {
            format!("**{} times as long{BEHIND}", number(ours / theirs))
        } else {
            format!("{} of its time", number(ours / theirs))
        };
        lines.push(format!(
            "{}: {name} {}{unit}, the fastest rival is {rival} with {}{unit}: {verdict}",
            figure.title,
            number(ours),
            number(theirs)
        ));
    }
    lines
}

/// The values of a setting, each with its contenders.
type Values = Vec<(String, Vec<String>)>;

/// Values already shown, by contender and setting.
pub(crate) type Shown = BTreeMap<(String, String), String>;

/// Every setting with its values and their contenders; values in `shown` are left out, the rest is
/// added to it.
pub(crate) fn fairness(results: &Results, num: u64, shown: &mut Shown) -> Table {
    let mut settings: Vec<(String, Values)> = Vec::new();
    for name in results.names(num) {
        for (setting, value) in values_of(results, num, name) {
            let key = (name.to_owned(), setting.clone());
            if shown.insert(key, value.clone()).is_some_and(|before| before == value) {
                continue;
            }
            let at = settings.iter().position(|(other, _)| *other == setting);
            let at = at.unwrap_or_else(|| {
                settings.push((setting.clone(), Vec::new()));
                settings.len() - 1
            });
            let values = &mut settings[at].1;
            match values.iter_mut().find(|(other, _)| *other == value) {
                Some((_, names)) => names.push(name.to_owned()),
                None => values.push((value, vec![name.to_owned()])),
            }
        }
    }
    let count = results.names(num).len();
    let mut rows = Vec::new();
    for (setting, values) in settings {
        for (value, names) in values {
            let who = if names.len() == count { "all".into() } else { names.join(", ") };
            rows.push(vec![setting.clone(), value, who]);
        }
    }
    Table { rows, ..Table::new(["setting", "value", "stores"], 3) }
}

/// For each number of keys after the first, with a heading, the settings that differ from those in
/// `shown`.
pub(crate) fn differing(results: &Results, shown: &Shown) -> Vec<(String, Table)> {
    let nums = results.nums().into_iter().skip(1);
    nums.map(|num| {
        let heading = format!("{} keys: settings that differ", units::grouped(num));
        // These differences are not the baseline for studies.
        (heading, fairness(results, num, &mut shown.clone()))
    })
    .collect()
}

fn is_shown(setting: &str) -> bool {
    !["num", "error", STUDY].contains(&setting)
}

/// The value of each setting of a contender, in the order of the settings; several values are
/// listed, of numbers the least and the greatest.
fn values_of(results: &Results, num: u64, name: &str) -> Vec<(String, String)> {
    let mut settings: Vec<(&str, Vec<&Value>)> = Vec::new();
    for record in results.of_num(num).filter(|record| record.store.name == name) {
        for (setting, value) in record.settings.iter().filter(|(name, _)| is_shown(name)) {
            match settings.iter_mut().find(|(other, _)| other == setting) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => settings.push((setting, vec![value])),
            }
        }
    }
    settings.into_iter().map(|(setting, values)| (setting.to_owned(), joined(&values))).collect()
}

fn joined(values: &[&Value]) -> String {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.as_f64()).collect();
    let text = |value: &&Value| value.as_str().map_or_else(|| value.to_string(), Into::into);
    match numbers {
        Some(numbers) if numbers.len() > 1 => {
            let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{least:.0} to {greatest:.0}")
        }
        _ => values.iter().map(text).collect::<Vec<String>>().join(", or "),
    }
}

/// Contenders that did not finish, and differences between stores.
pub(crate) fn troubles(results: &Results, num: u64) -> Vec<String> {
    let failures = results.failures(num).into_iter();
    let failures = failures.map(|(name, round, why)| format!("{name}, round {round}: {why}"));
    let disagreements = results.disagreements(num).into_iter();
    failures.chain(disagreements.map(|what| format!("stores disagree in {what}"))).collect()
}

/// A caveat about the figures, if RocksDB was not compiled for the processor; older records without
/// that information are of such builds.
pub(crate) fn caveat(results: &Results, num: u64) -> Option<&'static str> {
    let is_portable = |record: &Record| {
        let compiled = record.settings.get(COMPILED).and_then(Value::as_str);
        record.store.name.starts_with("rocksdb")
            && compiled.is_none_or(|it| it.starts_with(ANY_PROCESSOR))
    };
    results.of_num(num).any(is_portable).then_some(
        "In some or all rounds of this section RocksDB was compiled for any processor, without the instructions \
         that its checksums and filters want.",
    )
}

/// The floor of the machine, in words.
pub(crate) fn floor(results: &Results, num: u64) -> Option<String> {
    let floor = spread(results.floor(num)?);
    Some(format!("The floor of the machine, {FLOOR} of 300 bytes without sync: {floor} us."))
}

/// All tables of `num` keys, for a terminal.
pub(crate) fn text(results: &Results, num: u64) -> String {
    let mut text = format!("{} keys; microseconds an operation\n", units::grouped(num));
    text += &times(results, num).text();
    text += &floor(results, num).map_or_else(String::new, |line| line + "\n");
    text +=
        "\nTimes of others as multiples of Trommel's (with a log; without, where both have none)\n";
    text += &ratios(results, num).text();
    text += "\nFiles, memory, opening\n";
    text += &sizes(results, num).text();
    text += "\nThe best Trommel beside the fastest rival\n";
    for line in reading(results, num, &TIMES, " us") {
        text += &format!("- {}\n", line.replace("**", ""));
    }
    text += "\nTargets\n";
    for verdict in targets::verdicts(results, num) {
        text += &format!("- {}\n", verdict.line().replace("**", ""));
    }
    for line in troubles(results, num) {
        text += &format!("! {line}\n");
    }
    text
}

/// All workloads of `num` keys as an HTML page.
pub(crate) fn html(results: &Results, num: u64) -> String {
    // Records that are no workloads have no speed.
    let is_shown = |record: &&Record| ![DISK, DISK_PEAK, OPEN, FAILED].contains(&&*record.workload);
    let records = results.of_num(num).filter(is_shown).cloned().collect();
    let title = format!("Trommel beside other stores: {} keys", units::grouped(num));
    page(&title, &[Source { name: String::new(), records }])
}

/// The fairness block, for a terminal.
pub(crate) fn fairness_text(results: &Results, studies: &[(Study, Results)]) -> String {
    let (mut text, mut shown) = (String::from("Fairness\n"), Shown::new());
    if let Some(num) = results.nums().first() {
        text += &fairness(results, *num, &mut shown).text();
    }
    for (heading, grid) in differing(results, &shown) {
        text += &format!("\n{heading}\n{}", grid.text());
    }
    for (study, heading, grid) in sheets::fairness(studies, &mut shown) {
        text += &format!("\n{}: {heading}\n{}", study.sheet().title, grid.text());
    }
    text += "\nWhat is not equal\n";
    for line in UNEQUAL.iter().chain(sheets::unequal(studies)) {
        text += &format!("- {line}\n");
    }
    text
}

/// The versions of the stores.
pub(crate) fn versions(records: &[&Record]) -> Vec<String> {
    let records = records.iter().filter(|record| !record.store.version.is_empty());
    let versions: BTreeMap<_, ()> = records.map(|record| (&record.store.version, ())).collect();
    versions.into_keys().cloned().collect()
}

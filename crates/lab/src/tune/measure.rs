//! Measures a cell: its stores one after another, and the mean of their results.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use fastrand::Rng;
use trommel::inspect::{self, TableProperties};
use trommel::tuning::{self, Cost, Run, Table, Tree, TuningError, Workload};
use trommel::{Db, FilterPolicy, FilterReport, FilterSpec, Stats};
use trommel_harness::machine::Environment;
use trommel_harness::{Control, Error, mix, units};

use super::build::{self, Keys, store_error};
use super::cell::{Cell, Draw};
use super::counted::Counted;
use super::lookups::{Drawer, query};
use super::record::{Estimate, LevelRecord, LookupCosts, Predicted, Record, SCHEMA};

/// Number of draws from which each level's share of the hits is estimated, if keys are not equally
/// likely.
const SHARE_DRAWS: u64 = 200_000;

/// Builds the cell's stores below `parent`, and measures them.
///
/// # Errors
/// Any error of a store; [`Error::Usage`] if the tree cannot be built; [`Error::Interrupted`].
pub(super) fn measure(
    cell: &Cell,
    parent: &Path,
    environment: &Environment,
    control: Control<'_>,
) -> Result<Record, Error> {
    let (start, clock) = (SystemTime::now(), Instant::now());
    let policy: FilterPolicy = cell.filters.parse().map_err(store_error)?;
    let dir = parent.join("store");
    let mut stores = Vec::new();
    for nth in 0..cell.stores {
        let keys = Keys::new(cell, nth)?;
        let measured = build::build(cell, &policy, &keys, &dir, control)
            .and_then(|()| one(cell, &policy, &keys, nth, &dir, control));
        // Also after a failure: the next store uses the same directory.
        let removed = std::fs::remove_dir_all(&dir);
        stores.push(measured?);
        removed.map_err(|error| Error::io(&dir, "removing", error))?;
    }
    let mean =
        |value: fn(&One) -> f64| stores.iter().map(value).sum::<f64>() / stores.len().max(1) as f64;
    let estimate = |value: fn(&One) -> f64, floor| {
        Estimate::of(&stores.iter().map(value).collect::<Vec<_>>(), floor)
    };
    let lookups = cell.lookups as f64;
    let counted = |per_lookup: f64| (per_lookup / (lookups * stores.len() as f64)).sqrt();
    let wasted = mean(|one| one.levels.values().map(|level| level.wasted).sum());
    Ok(Record {
        title: None,
        schema: SCHEMA,
        key: cell.key(),
        cell: cell.clone(),
        start: units::utc(start),
        seconds: clock.elapsed().as_secs_f64(),
        environment: environment.clone(),
        levels: levels(&stores, &counted),
        filter_bytes: mean(|one| one.filter_bytes as f64),
        keys: mean(|one| one.levels.values().map(|level| level.keys as f64).sum()),
        predicted: Predicted {
            wasted_reads: mean(|one| one.cost.wasted_reads),
            filter_bytes: mean(|one| one.cost.filter_bytes as f64),
            filters_queried: mean(|one| one.cost.filters_queried),
            cache_lines: mean(|one| one.cost.lines),
        },
        measured: LookupCosts {
            reported_per_miss: mean(|one| one.reported_per_miss),
            expected: mean(|one| one.levels.values().map(|level| level.expected).sum()),
            wasted_reads: estimate(
                |one| one.levels.values().map(|level| level.wasted).sum(),
                counted(wasted),
            ),
            micros: estimate(|one| one.micros, 0.0),
            blocks: mean(|one| one.blocks),
            block_reads: mean(|one| one.block_reads),
            file_reads: mean(|one| one.file_reads),
        },
    })
}

/// The results of one store; all counts are per lookup.
struct One {
    cost: Cost,
    reported_per_miss: f64,
    filter_bytes: u64,
    micros: f64,
    blocks: f64,
    block_reads: f64,
    file_reads: f64,
    levels: BTreeMap<usize, OneLevel>,
}

#[derive(Default)]
struct OneLevel {
    runs: u64,
    tables: u64,
    keys: u64,
    bytes: u64,
    filters: Vec<String>,
    filter_bytes: u64,
    predicted: f64,
    expected: f64,
    wasted: f64,
}

/// Reopens the store in `dir`, runs its lookups, and closes it.
fn one(
    cell: &Cell,
    policy: &FilterPolicy,
    keys: &Keys,
    nth: u64,
    dir: &Path,
    control: Control<'_>,
) -> Result<One, Error> {
    let disk = Counted::default();
    let options =
        build::options(cell).opening(|o| o.create_if_missing(false)).filters(policy.clone());
    let options = options.vfs(Arc::new(disk.clone()));
    let db = Db::open(dir, options).map_err(store_error)?;
    let mut rng = Rng::with_seed(mix(cell.seed ^ mix(nth)));
    // This opens all tables.
    let at_rest = db.filter_report();
    query(&db, cell, keys, cell.warmup, &mut rng, control)?;
    db.reset_stats();
    let reads_before = disk.reads();
    let time = query(&db, cell, keys, cell.lookups, &mut rng, control)?;
    let file_reads = disk.reads() - reads_before;
    let (report, stats) = (db.filter_report(), db.stats());
    let tables = inspect::properties(&**db.vfs(), db.dir()).map_err(store_error)?.tables;
    db.close().map_err(store_error)?;
    let one =
        result(cell, &tables, &report, &stats).map_err(|error| Error::Usage(error.to_string()))?;
    check(cell, &one)?;
    let lookups = cell.lookups as f64;
    Ok(One {
        reported_per_miss: at_rest.expected_wasted_reads_per_miss,
        filter_bytes: at_rest.filter_bytes,
        micros: time.as_secs_f64() * 1e6 / lookups,
        file_reads: file_reads as f64 / lookups,
        ..one
    })
}

/// The properties of a store's tables, the model's prediction for them, and the counters of its
/// filters.
fn result(
    cell: &Cell,
    tables: &[TableProperties],
    report: &FilterReport,
    stats: &Stats,
) -> Result<One, TuningError> {
    let lookups = cell.lookups as f64;
    let mut levels: BTreeMap<usize, OneLevel> = BTreeMap::new();
    for row in &report.levels {
        let level = levels.entry(row.level).or_default();
        level.filter_bytes += row.filter_bytes;
        let absent = (row.counts.negatives + row.counts.false_positives) as f64;
        level.wasted += row.counts.false_positives as f64 / lookups;
        level.expected += row.rates.expected.unwrap_or(0.0) * absent / lookups;
    }
    let (mut runs, mut numbers, mut specs) = (Vec::<Run>::new(), Vec::new(), Vec::new());
    for table in tables {
        let (number, meta) = (table.listed.level, &table.listed.meta);
        let level = levels.entry(number).or_default();
        level.tables += 1;
        level.keys += meta.keys;
        level.bytes += meta.file_bytes;
        let spec = spec_of(table);
        let name = spec.to_string();
        if !level.filters.contains(&name) {
            level.filters.push(name);
        }
        // Each table of level 0 is a run of its own; those of any other level form one run.
        if number == 0 || numbers.last() != Some(&number) {
            level.runs += 1;
            // The model identifies levels by run, because hits are counted per run.
            runs.push(Run { level: runs.len(), tables: Vec::new() });
            numbers.push(number);
        }
        let reach = (number_of(&meta.largest) - number_of(&meta.smallest)) / 2_f64.powi(64);
        let alike = Table {
            keys: meta.keys,
            bytes: meta.file_bytes,
            reach: reach.clamp(0.0, 1.0),
            alike: 1,
        };
        if let Some(run) = runs.last_mut() {
            run.tables.push(alike);
        }
        specs.push(spec);
    }
    let tree = Tree::new(runs)?;
    let workload = workload(cell, &tree)?;
    let cost = Cost::of(&tree, &workload, &specs)?;
    let visits = workload.visits(&tree);
    for (((run, table), visits), spec) in tree.tables().zip(visits).zip(&specs) {
        let rate = if table.keys == 0 { 1.0 } else { tuning::rate(*spec, table.keys) };
        levels.entry(numbers[run]).or_default().predicted += visits.in_vain * rate;
    }
    Ok(One {
        cost,
        levels,
        blocks: (stats.lookups.block_reads + stats.lookups.cache_hits) as f64 / lookups,
        block_reads: stats.lookups.block_reads as f64 / lookups,
        reported_per_miss: 0.0,
        filter_bytes: 0,
        micros: 0.0,
        file_reads: 0.0,
    })
}

/// The filter that a table was built with; none if it is unusable.
fn spec_of(table: &TableProperties) -> FilterSpec {
    let filter = table.info.as_ref().ok().map(|info| &info.filter);
    let spec = filter.and_then(|filter| {
        format!("{}:{}", filter.kind.name(), filter.bits_requested).parse::<FilterSpec>().ok()
    });
    spec.unwrap_or(FilterSpec::NONE)
}

/// The number at the start of a key.
fn number_of(key: &[u8]) -> f64 {
    key.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) as f64
}

/// The workload for the model, over runs numbered from the newest. If the newest keys are looked up
/// most, hits follow the distribution, on the assumption that each run is older than the one
/// before: true in filled trees, and nearly true in others.
fn workload(cell: &Cell, tree: &Tree) -> Result<Workload, TuningError> {
    let workload = Workload::new(cell.misses)?;
    if cell.draw != Draw::Latest {
        return Ok(workload);
    }
    let mut newer = 0;
    let ends: Vec<u64> = tree
        .runs()
        .iter()
        .map(|run| {
            newer += run.keys();
            newer
        })
        .collect();
    let mut hits = vec![0.0; ends.len()];
    let mut drawer = Drawer::new(cell.draw, newer.max(1));
    let mut rng = Rng::with_seed(cell.seed);
    for _ in 0..SHARE_DRAWS {
        let age = newer.saturating_sub(1 + drawer.draw(&mut rng));
        let run = ends.partition_point(|end| *end <= age);
        if let Some(hits) = hits.get_mut(run) {
            *hits += 1.0;
        }
    }
    workload.with_hits(&hits)
}

/// Checks that a filled tree has the planned shape.
fn check(cell: &Cell, one: &One) -> Result<(), Error> {
    if cell.tree.grown.is_some() {
        return Ok(());
    }
    let runs = cell.tree.l0.len() as u64;
    let l0 = (runs > 0).then(|| (0, cell.tree.l0.iter().sum::<u64>()));
    let below = (1..).zip(cell.tree.levels.iter().copied());
    let wanted: Vec<(usize, u64)> = l0.into_iter().chain(below).collect();
    let found: Vec<(usize, u64)> =
        one.levels.iter().map(|(level, at)| (*level, at.keys)).filter(|at| at.1 > 0).collect();
    let found_runs = one.levels.get(&0).map_or(0, |level| level.runs);
    if wanted == found && found_runs == runs {
        return Ok(());
    }
    let words = |levels: &[(usize, u64)]| {
        let each: Vec<String> =
            levels.iter().map(|(level, keys)| format!("L{level} {keys}")).collect();
        each.join(", ")
    };
    Err(Error::Usage(format!(
        "the tree should hold {} keys, and holds {}: give it more keys, or levels at most half as \
         large as all those below them",
        words(&wanted),
        words(&found)
    )))
}

/// The levels as means over all stores.
fn levels(stores: &[One], counted: &dyn Fn(f64) -> f64) -> Vec<LevelRecord> {
    let numbers: std::collections::BTreeSet<usize> =
        stores.iter().flat_map(|one| one.levels.keys().copied()).collect();
    let absent = OneLevel::default();
    let of = |number: usize| {
        let each: Vec<&OneLevel> =
            stores.iter().map(|one| one.levels.get(&number).unwrap_or(&absent)).collect();
        let mean = |value: fn(&OneLevel) -> f64| {
            each.iter().map(|level| value(level)).sum::<f64>() / each.len().max(1) as f64
        };
        let wasted: Vec<f64> = each.iter().map(|level| level.wasted).collect();
        let mut filters: Vec<String> = Vec::new();
        for name in each.iter().flat_map(|level| &level.filters) {
            if !filters.contains(name) {
                filters.push(name.clone());
            }
        }
        LevelRecord {
            level: number as u64,
            runs: mean(|level| level.runs as f64),
            tables: mean(|level| level.tables as f64),
            keys: mean(|level| level.keys as f64),
            bytes: mean(|level| level.bytes as f64),
            filters,
            filter_bytes: mean(|level| level.filter_bytes as f64),
            predicted: mean(|level| level.predicted),
            expected: mean(|level| level.expected),
            wasted_reads: Estimate::of(&wasted, counted(mean(|level| level.wasted))),
        }
    };
    numbers.into_iter().map(of).collect()
}

//! A plan: its file, and the cells that it defines.
//!
//! 1. The file is TOML. Unknown fields and values out of bounds are rejected, with file and line.
//! 2. The grid is every combination of its lists, trees outermost and filters innermost. `{budget}`
//!    in a filter is replaced by each budget in turn, and `solved=10/key` by the solver's result
//!    for each tree ([`solved`](super::solved)).
//! 3. Random cells ([`drawn`](super::drawn)) come after the grid. Of equal cells the first is kept.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;
use toml::{Spanned, Value};
use trommel::{FilterPolicy, ReadMode};
use trommel_harness::Error;

use super::cell::{Cell, Draw, read_mode};
use super::drawn::{self, RawDrawn};
use super::shape::{DEEPEST, Grown, Shape};
use super::solved::{self, Budget};
use super::toml_file::{File, Found};

/// The placeholder for a budget in a filter.
const PLACE: &str = "{budget}";
/// Maximum number of cells in a plan.
const MOST_CELLS: usize = 100_000;
/// Maximum number of keys in a run, and of lookups in a store.
pub(super) const MOST: u64 = 1 << 40;
/// Maximum number of runs in level 0.
const MOST_RUNS: u64 = 1000;
const TABLE_BYTES: (u64, u64) = (1 << 10, 1 << 40);

/// A set of cells to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its title.
    pub title: Option<String>,
    /// The distinct cells.
    pub cells: Vec<Cell>,
    /// Number of duplicate cells that were dropped.
    pub repeated: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: Option<Found>,
    seed: Option<Found>,
    stores: Option<Found>,
    lookups: Option<Found>,
    warmup: Option<Found>,
    filters: Option<Vec<Found>>,
    budgets: Option<Vec<Found>>,
    misses: Option<Vec<Found>>,
    distributions: Option<Vec<Found>>,
    read_modes: Option<Vec<Found>>,
    caches: Option<Vec<Found>>,
    #[serde(default)]
    trees: Vec<Spanned<RawTree>>,
    drawn: Option<Spanned<RawDrawn>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTree {
    name: Option<Found>,
    keys: Found,
    ratio: Option<Found>,
    levels: Option<Spanned<Vec<Found>>>,
    l0: Option<Found>,
    write_buffer: Option<Found>,
    base_level: Option<Found>,
    l0_trigger: Option<Found>,
    table_bytes: Option<Found>,
    value_bytes: Option<Found>,
    block_bytes: Option<Found>,
}

/// The settings that all cells of a plan share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared {
    pub(super) seed: u64,
    pub(super) stores: u64,
    pub(super) lookups: u64,
    pub(super) warmup: u64,
}

/// Filters with their budget substituted.
struct Filters<'a> {
    found: &'a Found,
    family: String,
    policy: Policy,
    budget: Option<f64>,
}

enum Policy {
    Given(String),
    /// Solved for each tree.
    Solved(Budget),
}

impl Filters<'_> {
    /// The policy for a tree.
    fn on(&self, file: &File<'_>, tree: &Shape, misses: f64) -> Result<String, Error> {
        let budget = match &self.policy {
            Policy::Given(policy) => return Ok(policy.clone()),
            Policy::Solved(budget) => budget,
        };
        if tree.grown.is_some() {
            let what = format!(
                "`{}` is solved for a tree of known shape, but \"{}\" is a grown tree",
                self.family, tree.name
            );
            return Err(file.fault(self.found.span(), &what));
        }
        solved::policy(tree, misses, budget)
            .map_err(|error| file.fault(self.found.span(), &error.to_string()))
    }
}

impl Plan {
    /// Reads the plan in `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Usage`] with file and line if it is not a plan.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Error::io(path, "reading", error))?;
        Self::parse(path, &text)
    }

    /// Parses `text`, which is from `path`.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let file = File { path, text };
        let raw: Raw = file.parse()?;
        let title = raw.title.as_ref().map(|title| file.text_of("title", title));
        let title = title.transpose()?.map(str::to_owned);
        let shared = shared(&file, &raw)?;
        let mut cells = grid(&file, &raw, shared)?;
        if let Some(drawn) = &raw.drawn {
            cells.extend(drawn::cells(&file, drawn, shared)?);
        }
        let all = cells.len();
        let mut known = HashSet::new();
        cells.retain(|cell| known.insert(cell.key()));
        if cells.is_empty() {
            return Err(file.fault_of_all(
                "there is nothing to measure: give at least one filter and one [[trees]], or [drawn]",
            ));
        }
        Ok(Self { title, repeated: all - cells.len(), cells })
    }
}

fn shared(file: &File<'_>, raw: &Raw) -> Result<Shared, Error> {
    let count = |name: &str, found: &Option<Found>, bounds, default| match found {
        Some(found) => file.count(name, found, bounds),
        None => Ok(default),
    };
    let lookups = count("lookups", &raw.lookups, (1, MOST), 100_000)?;
    Ok(Shared {
        seed: count("seed", &raw.seed, (0, u64::MAX), 42)?,
        stores: count("stores", &raw.stores, (2, 1000), 8)?,
        lookups,
        warmup: count("warmup", &raw.warmup, (0, MOST), lookups / 10)?,
    })
}

/// All combinations.
fn grid(file: &File<'_>, raw: &Raw, shared: Shared) -> Result<Vec<Cell>, Error> {
    let filters = filters(file, raw)?;
    let trees = raw.trees.iter().enumerate();
    let trees =
        trees.map(|(nth, tree)| shape(file, tree, nth)).collect::<Result<Vec<Shape>, Error>>()?;
    let misses = each(&raw.misses, 1.0, |found| file.number("misses", found, (0.0, 1.0)))?;
    let draws = each(&raw.distributions, Draw::Uniform, |found| {
        let names = "uniform, zipfian or latest";
        let text = file.text_of("distributions", found)?;
        text.parse().map_err(|()| file.wrong("distributions", found, names))
    })?;
    let modes = each(&raw.read_modes, "cached".to_owned(), |found| {
        let text = file.text_of("read_modes", found)?;
        let known = read_mode(text).map(|_| text.to_owned());
        known.ok_or_else(|| {
            let [others @ .., last] = ReadMode::ALL.map(|mode| mode.to_string());
            file.wrong("read_modes", found, &format!("{} or {last}", others.join(", ")))
        })
    })?;
    let caches = each(&raw.caches, 8 << 20, |found| file.bytes("caches", found, (0, MOST)))?;
    let places = [trees.len(), misses.len(), draws.len(), modes.len(), caches.len(), filters.len()];
    let all = places.into_iter().fold(1, usize::saturating_mul);
    if all > MOST_CELLS {
        return Err(file.fault_of_all(&format!(
            "the grid has {all} cells, but a plan at most {MOST_CELLS}: split it into several plans"
        )));
    }
    let mut cells = Vec::with_capacity(all);
    for tree in &trees {
        for (misses, draw) in misses.iter().flat_map(|m| draws.iter().map(move |d| (*m, *d))) {
            for (mode, cache) in modes.iter().flat_map(|m| caches.iter().map(move |c| (m, *c))) {
                for filters in &filters {
                    cells.push(Cell {
                        family: filters.family.clone(),
                        filters: filters.on(file, tree, misses)?,
                        budget: filters.budget,
                        tree: tree.clone(),
                        misses,
                        draw,
                        read_mode: mode.clone(),
                        cache_bytes: cache,
                        stores: shared.stores,
                        lookups: shared.lookups,
                        warmup: shared.warmup,
                        seed: shared.seed,
                    });
                }
            }
        }
    }
    Ok(cells)
}

/// The values of a list, or `default` alone if there is no list. An empty list stays empty.
fn each<T>(
    list: &Option<Vec<Found>>,
    default: T,
    read: impl FnMut(&Found) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    match list {
        None => Ok(vec![default]),
        Some(list) => list.iter().map(read).collect(),
    }
}

fn filters<'a>(file: &File<'_>, raw: &'a Raw) -> Result<Vec<Filters<'a>>, Error> {
    let budgets = raw.budgets.as_deref().unwrap_or_default();
    let budgets = budgets
        .iter()
        .map(|found| file.number("budgets", found, (0.0, 1000.0)))
        .collect::<Result<Vec<f64>, Error>>()?;
    let mut all = Vec::new();
    for found in raw.filters.iter().flatten() {
        let family = file.text_of("filters", found)?;
        let mut add = |budget: Option<f64>| {
            let bits = budget.map_or_else(String::new, |bits| bits.to_string());
            let policy = policy(&family.replace(PLACE, &bits));
            let policy = policy.map_err(|what| file.fault(found.span(), &what))?;
            all.push(Filters { found, family: family.into(), policy, budget });
            Ok::<(), Error>(())
        };
        if !family.contains(PLACE) {
            add(None)?;
        } else if budgets.is_empty() {
            let what = format!("{PLACE} stands for each of `budgets`, and there are none");
            return Err(file.fault(found.span(), &what));
        } else {
            budgets.iter().try_for_each(|bits| add(Some(*bits)))?;
        }
    }
    Ok(all)
}

fn policy(text: &str) -> Result<Policy, String> {
    if let Some(budget) = Budget::parse(text) {
        return budget.map(Policy::Solved);
    }
    let policy = text.parse::<FilterPolicy>().map_err(|error| error.to_string())?;
    Ok(Policy::Given(policy.to_string()))
}

/// The tree in a table of the plan.
fn shape(file: &File<'_>, found: &Spanned<RawTree>, nth: usize) -> Result<Shape, Error> {
    let raw = found.get_ref();
    let keys = file.count("keys", &raw.keys, (1, MOST))?;
    let bytes = |name: &str, found: &Option<Found>, bounds, default| match found {
        Some(found) => file.bytes(name, found, bounds),
        None => Ok(default),
    };
    let name = match &raw.name {
        Some(name) => file.text_of("name", name)?.to_owned(),
        None => format!("tree {}", nth + 1),
    };
    let mut shape = Shape {
        name,
        l0: Vec::new(),
        levels: Vec::new(),
        grown: None,
        table_bytes: bytes("table_bytes", &raw.table_bytes, TABLE_BYTES, 1 << 20)?,
        value_bytes: bytes("value_bytes", &raw.value_bytes, (0, 1 << 24), 100)?,
        block_bytes: bytes("block_bytes", &raw.block_bytes, (64, 1 << 20), 4 << 10)?,
    };
    match (&raw.write_buffer, &raw.levels) {
        (Some(buffer), None) => {
            if let Some(l0) = &raw.l0 {
                let what = "`l0` does not apply to a grown tree, which has a `write_buffer`";
                return Err(file.fault(l0.span(), what));
            }
            shape.grown = Some(grown(file, raw, buffer, keys)?);
        }
        (None, Some(levels)) => {
            for (name, extra) in [("base_level", &raw.base_level), ("l0_trigger", &raw.l0_trigger)]
            {
                if let Some(extra) = extra {
                    let what = format!(
                        "`{name}` applies only to a grown tree, which has a \
                                        `write_buffer`"
                    );
                    return Err(file.fault(extra.span(), &what));
                }
            }
            (shape.l0, shape.levels) = filled(file, raw, levels, keys)?;
        }
        _ => {
            let what = "a tree has either `levels`, which are filled, or a `write_buffer`, and is \
                        grown by compactions";
            return Err(file.fault(found.span(), what));
        }
    }
    Ok(shape)
}

fn grown(file: &File<'_>, raw: &RawTree, buffer: &Found, keys: u64) -> Result<Grown, Error> {
    let write_buffer_bytes = file.bytes("write_buffer", buffer, (4 << 10, 4 << 30))?;
    Ok(Grown {
        keys,
        write_buffer_bytes,
        base_level_bytes: match &raw.base_level {
            Some(found) => file.bytes("base_level", found, (1 << 10, 1 << 50))?,
            None => write_buffer_bytes.saturating_mul(4),
        },
        ratio: match &raw.ratio {
            Some(found) => file.count("ratio", found, (2, 100))? as u32,
            None => 10,
        },
        l0_trigger: match &raw.l0_trigger {
            Some(found) => file.count("l0_trigger", found, (1, MOST_RUNS))?,
            None => 4,
        },
    })
}

fn filled(
    file: &File<'_>,
    raw: &RawTree,
    levels: &Spanned<Vec<Found>>,
    full: u64,
) -> Result<(Vec<u64>, Vec<u64>), Error> {
    let found = levels.get_ref();
    if found.len() > DEEPEST {
        let what = format!("there are at most {DEEPEST} levels below level 0");
        return Err(file.fault(levels.span(), &what));
    }
    let share = |name| move |found: &Found| file.number(name, found, (0.0, 1.0));
    let fills = found.iter().map(share("levels")).collect::<Result<Vec<_>, Error>>()?;
    let ratio = match &raw.ratio {
        Some(found) => file.number("ratio", found, (2.0, 100.0))?,
        None => 10.0,
    };
    let l0 = match &raw.l0 {
        None => Vec::new(),
        Some(found) => match found.get_ref() {
            Value::Array(items) => {
                // The items' own lines are not kept: they are few.
                let items = items.iter().map(|item| Found::new(found.span(), item.clone()));
                items.map(|item| share("l0")(&item)).collect::<Result<Vec<_>, Error>>()?
            }
            _ => vec![1.0; file.count("l0", found, (0, MOST_RUNS))? as usize],
        },
    };
    if fills.is_empty() && l0.is_empty() {
        return Err(file.fault(levels.span(), "a tree needs a level, or runs in `l0`"));
    }
    Shape::filled(full, ratio, &fills, &l0).ok_or_else(|| {
        let what = "a level would have fewer than two keys, or a run in level 0 none: give more \
                    keys, or fewer levels";
        file.fault(levels.span(), what)
    })
}

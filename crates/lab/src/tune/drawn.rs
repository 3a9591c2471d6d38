//! Random cells: trees and filters that a seed determines.
//!
//! Each has 1 to 4 levels that are at least half full, 0 to 4 runs in level 0, a ratio from 2 to
//! 12, and for every level a kind and size of filter of its own. Filters have few enough bits that
//! their false positives can be counted.

use fastrand::Rng;
use serde::Deserialize;
use toml::Spanned;
use trommel::FilterKind;
use trommel_harness::Error;

use super::cell::{Cell, Draw};
use super::plan::{MOST, Shared};
use super::shape::Shape;
use super::toml_file::{File, Found};

/// Bits per key of level 0, and of the other levels.
const BITS: (f64, f64) = (3.0, 10.0);
/// Fewest keys in a run; a random tree with fewer is dropped and drawn again.
const FEWEST: u64 = 200;
/// Maximum number of draws until a tree has enough keys in each run.
const ATTEMPTS: usize = 100;

/// The section of a plan for random cells.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDrawn {
    cells: Found,
    keys: Found,
    seed: Option<Found>,
    cache: Option<Found>,
}

/// The random cells that `found` specifies.
///
/// # Errors
/// An invalid value, with file and line.
pub(super) fn cells(
    file: &File<'_>,
    found: &Spanned<RawDrawn>,
    shared: Shared,
) -> Result<Vec<Cell>, Error> {
    let raw = found.get_ref();
    let count = file.count("cells", &raw.cells, (1, 10_000))?;
    let keys = file.count("keys", &raw.keys, (10 * FEWEST, MOST))?;
    let seed = match &raw.seed {
        Some(found) => file.count("seed", found, (0, u64::MAX))?,
        None => shared.seed,
    };
    let cache_bytes = match &raw.cache {
        Some(found) => file.bytes("cache", found, (0, MOST))?,
        None => 8 << 20,
    };
    let mut rng = Rng::with_seed(seed);
    Ok((1..=count)
        .map(|nth| {
            let tree = draw_tree(&mut rng, nth, keys);
            Cell {
                family: "drawn".into(),
                filters: draw_filters(&mut rng, &tree),
                budget: None,
                misses: [1.0, 0.9, 0.5][rng.usize(..3)],
                draw: Draw::Uniform,
                tree,
                read_mode: "cached".into(),
                cache_bytes,
                stores: shared.stores,
                lookups: shared.lookups,
                warmup: shared.warmup,
                seed: shared.seed,
            }
        })
        .collect())
}

fn draw_tree(rng: &mut Rng, nth: u64, keys: u64) -> Shape {
    let runs = (0..ATTEMPTS).find_map(|_| {
        let fills: Vec<f64> = (0..rng.usize(1..=4)).map(|_| part(rng, 0.5, 1.0)).collect();
        let l0: Vec<f64> = (0..rng.usize(0..=4)).map(|_| part(rng, 0.5, 1.0)).collect();
        let ratio = f64::from(rng.u32(2..=12));
        let (l0, levels) = Shape::filled(keys, ratio, &fills, &l0)?;
        let are_enough = l0.iter().chain(&levels).all(|keys| *keys >= FEWEST);
        are_enough.then_some((l0, levels))
    });
    let (l0, levels) = runs.unwrap_or_else(|| (Vec::new(), vec![keys]));
    let table_bytes = 1 << rng.u32(17..=20);
    let name = format!("drawn {nth}");
    Shape { name, l0, levels, grown: None, table_bytes, value_bytes: 100, block_bytes: 4 << 10 }
}

/// A number from `least` to `most`, in steps of a hundredth.
fn part(rng: &mut Rng, least: f64, most: f64) -> f64 {
    ((least + rng.f64() * (most - least)) * 100.0).round() / 100.0
}

fn draw_filters(rng: &mut Rng, tree: &Shape) -> String {
    let mut entry = |level: usize| {
        let kind = FilterKind::ALL[rng.usize(..FilterKind::ALL.len())];
        format!("L{level}={kind}:{}", part(rng, BITS.0, BITS.1))
    };
    let first = usize::from(tree.l0.is_empty());
    let entries: Vec<String> = (first..=tree.levels.len()).map(&mut entry).collect();
    entries.join(",")
}

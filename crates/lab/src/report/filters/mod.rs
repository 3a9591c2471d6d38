//! Charts of filter benchmarks.
//!
//! `charts` draws rates against bits with the theoretical curves, query times against the filter's
//! size with the processor's caches, and the cost of construction. [`plots`] returns each as a
//! self-contained file, with its own colours and legend.
//!
//! A kind has the same colour everywhere. Called by `trommel filter-bench`.

mod charts;

use trommel::FilterKind;

use super::svg::{Role, standalone};
use crate::filter_bench::FilterCell;
use crate::filter_bench::record::CellRecord;
use charts::FilterChart;

/// The kinds, in the order of their colours.
const KINDS: [&str; FilterKind::ALL.len()] = ["paired", "blocked", "standard", "ribbon", "fuse"];

/// The colour of a kind.
fn role(kind: &str) -> Role {
    Role::Series(KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len()))
}

/// The kinds in `records`, each with its colour.
fn kinds(records: &[CellRecord]) -> Vec<(Role, &str)> {
    let is_there = |kind: &&str| records.iter().any(|record| record.cell.setup.kind == *kind);
    KINDS.into_iter().filter(is_there).map(|kind| (role(kind), kind)).collect()
}

fn cells(records: &[CellRecord]) -> Vec<&FilterCell> {
    records.iter().map(|record| &record.cell).collect()
}

/// All charts with data.
fn all_charts(records: &[CellRecord]) -> Vec<FilterChart> {
    let cells = cells(records);
    let caches = records.first().map_or(&[][..], |record| &record.place.caches);
    [charts::rates(&cells)]
        .into_iter()
        .chain(charts::times(&cells, caches))
        .chain(charts::build(&cells))
        .flatten()
        .collect()
}

/// The charts as SVG files, each with its name, for light and dark backgrounds.
pub fn plots(records: &[CellRecord]) -> Vec<(&'static str, String)> {
    let kinds = kinds(records);
    let file =
        |chart: FilterChart| (chart.id, standalone(&chart.title, &chart.what, &kinds, &chart.svg));
    all_charts(records).into_iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter_bench::testing::record;

    fn many() -> Vec<CellRecord> {
        let mut records = Vec::new();
        for kind in KINDS {
            for bits in [8.0, 10.0, 16.0] {
                for keys in [1000, 100_000, 100_000_000] {
                    records.push(record(kind, bits, keys));
                }
            }
        }
        records
    }

    #[test]
    fn charts_are_files_of_their_own() {
        let plots = plots(&many());
        let names: Vec<&str> = plots.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["rates", "absent-keys", "present-keys", "build-time", "build-memory"]);
        for (name, svg) in &plots {
            assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{name}");
            assert!(svg.contains("prefers-color-scheme: dark"), "{name}");
            for kind in KINDS {
                assert!(svg.contains(&format!(">{kind}</text>")), "{name} does not name {kind}");
            }
            assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count(), "{name}");
        }
    }

    #[test]
    fn what_was_measured_lies_on_the_curve_of_theory() {
        let records = [record("paired", 10.0, 10_000_000), record("paired", 16.0, 10_000_000)];
        let svg = &plots(&records)[0].1;
        let numbers = |tag: &str, names: [&str; 2]| -> Vec<(f64, f64)> {
            let tags = svg.split('<').filter(|piece| piece.starts_with(tag));
            let number = |tag: &str, name: &str| {
                let (_, rest) = tag.split_once(&format!(" {name}=\"")).unwrap();
                rest.split('"').next().unwrap().parse::<f64>().unwrap()
            };
            tags.map(|tag| (number(tag, names[0]), number(tag, names[1]))).collect()
        };
        let dots = numbers("circle", ["cx", "cy"]);
        assert_eq!(dots.len(), 2);
        let line = svg.split("<polyline").filter_map(|piece| piece.split_once("points=\""));
        let line = line.map(|(_, rest)| rest.split('"').next().unwrap());
        let line = line.max_by_key(|points| points.len()).unwrap();
        let curve: Vec<(f64, f64)> = line
            .split_whitespace()
            .map(|point| point.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        for (x, y) in dots {
            let after = curve.iter().position(|point| point.0 >= x).unwrap();
            let (left, right) = (curve[after - 1], curve[after]);
            let share = (x - left.0) / (right.0 - left.0);
            let expected = left.1 + share * (right.1 - left.1);
            assert!((y - expected).abs() < 12.0, "a dot at {y}, the curve at {expected}");
        }
    }

    #[test]
    fn one_cell_makes_charts() {
        let mut one = record("ribbon", 8.0, 1000);
        one.cell.rate = None;
        one.cell.timings.clear();
        let plots = plots(&[one]);
        let names: Vec<&str> = plots.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["build-time", "build-memory"]);
    }
}

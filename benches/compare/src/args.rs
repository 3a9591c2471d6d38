//! The command line.

use std::path::PathBuf;

use clap::Parser;
use trommel_harness::units::parse_count;

use crate::rows::Row;
use crate::stores::{ALL, Contender};
use crate::studies::{Sizes, Study};

/// Compares Trommel with RocksDB, fjall, redb and LMDB on equal terms.
///
/// Every store gets the same keys and values in the same order and the same limits, in a process of
/// its own; what cannot be made equal is printed. Tables go to standard output.
#[derive(Debug, Parser)]
#[command(name = "trommel-compare", version, after_help = after_help())]
pub(crate) struct Args {
    /// Keys drawn from, and writes; several numbers mean several runs, one after another
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "5M",
          value_parser = parse_count)]
    pub(crate) num: Vec<u64>,

    /// Reads of each kind
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_count)]
    pub(crate) reads: u64,

    /// Number of rounds, with the stores in another order each time; figures are then medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Stores to measure; `rocksdb*` selects all whose names begin like this
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_stores)]
    pub(crate) stores: Vec<Stores>,

    /// What to measure besides filling, or `all`; all by default
    #[arg(long, value_name = "ROW,...", value_delimiter = ',', value_parser = parse_rows)]
    pub(crate) rows: Vec<Rows>,

    /// Studies to run, each on stores of its own, or `all`; without `--rows` nothing else is run
    /// then
    #[arg(long, value_name = "STUDY,...", value_delimiter = ',', value_parser = parse_studies)]
    pub(crate) studies: Vec<Studies>,

    #[command(flatten)]
    pub(crate) sizes: Sizes,

    /// Everything in a minute or two: 100,000 keys, 50,000 reads, a small tree. Its figures say
    /// nothing about stores of a useful size
    #[arg(long, conflicts_with_all = ["num", "reads"])]
    pub(crate) quick: bool,

    /// Minutes after which no store is started that would take longer; those left out are reported
    #[arg(long, value_name = "N")]
    pub(crate) minutes: Option<f64>,

    /// Seconds after which one store is abandoned
    #[arg(long, value_name = "N", default_value_t = 900)]
    pub(crate) patience: u64,

    /// Where the stores are created, one at a time, and removed
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,

    /// Writes results.jsonl, record by record, and at the end tables.txt and report-NUM.html to
    /// this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Writes a page in Markdown with all results
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Measures nothing, but reads these results instead
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub(crate) from: Vec<PathBuf>,

    /// Runs one trial, which is described on standard input
    #[arg(long, hide = true)]
    pub(crate) trial: bool,
}

/// The stores that one word of `--stores` selects.
#[derive(Debug, Clone)]
pub(crate) struct Stores(Vec<&'static Contender>);

fn parse_stores(text: &str) -> Result<Stores, String> {
    let exact = ALL.iter().find(|contender| contender.name == text);
    let found: Vec<_> = match text.strip_suffix('*') {
        Some(start) => ALL.iter().filter(|contender| contender.name.starts_with(start)).collect(),
        None => exact.into_iter().collect(),
    };
    if found.is_empty() {
        let names: Vec<_> = ALL.iter().map(|contender| contender.name).collect();
        return Err(format!("no store is called that; there are {}", names.join(", ")));
    }
    Ok(Stores(found))
}

/// The rows that one word of `--rows` selects.
#[derive(Debug, Clone)]
pub(crate) struct Rows(Vec<Row>);

fn parse_rows(text: &str) -> Result<Rows, String> {
    Ok(Rows(if text == EVERY { Row::ALL.to_vec() } else { vec![text.parse()?] }))
}

/// The studies that one word of `--studies` selects.
#[derive(Debug, Clone)]
pub(crate) struct Studies(Vec<Study>);

fn parse_studies(text: &str) -> Result<Studies, String> {
    Ok(Studies(if text == EVERY { Study::ALL.to_vec() } else { vec![text.parse()?] }))
}

/// The word for all rows, or all studies.
const EVERY: &str = "all";

fn after_help() -> String {
    let width = ALL.iter().map(|contender| contender.name.len()).max().unwrap_or(0);
    let line =
        |contender: &Contender| format!("  {:width$}  {}\n", contender.name, contender.about);
    let stores: String = ALL.iter().map(line).collect();
    let rows = Row::ALL.map(Row::name).join(", ");
    let studies = Study::ALL.map(Study::name).join(", ");
    format!("Stores:\n{stores}\nRows: {rows}\n\nStudies: {studies}")
}

impl Args {
    /// The requested contenders, in the order of [`ALL`].
    pub(crate) fn contenders(&self) -> Vec<&'static Contender> {
        let asked: Vec<_> =
            self.stores.iter().flat_map(|stores| &stores.0).map(|one| one.name).collect();
        let is_wanted = |contender: &&Contender| {
            if asked.is_empty() { contender.usual } else { asked.contains(&contender.name) }
        };
        ALL.iter().filter(is_wanted).collect()
    }

    /// The contenders of a study: the requested ones, or all of its own.
    pub(crate) fn contenders_of(&self, study: Study) -> Vec<&'static Contender> {
        let asked: Vec<_> =
            self.stores.iter().flat_map(|stores| &stores.0).map(|one| one.name).collect();
        let is_wanted = |contender: &&Contender| {
            study.sheet().stores.contains(&contender.name)
                && (asked.is_empty() || asked.contains(&contender.name))
        };
        ALL.iter().filter(is_wanted).collect()
    }

    /// The requested rows, or all; none if only studies are requested.
    pub(crate) fn rows(&self) -> Option<Vec<Row>> {
        match (self.rows.is_empty(), self.studies.is_empty()) {
            (true, false) => None,
            (true, true) => Some(Row::ALL.to_vec()),
            (false, _) => Some(self.rows.iter().flat_map(|rows| &rows.0).copied().collect()),
        }
    }

    /// The requested studies; all with `--quick`.
    pub(crate) fn studies(&self) -> Vec<Study> {
        if self.quick && self.rows.is_empty() && self.studies.is_empty() {
            return Study::ALL.to_vec();
        }
        let asked: Vec<_> = self.studies.iter().flat_map(|studies| &studies.0).collect();
        Study::ALL.into_iter().filter(|study| asked.contains(&study)).collect()
    }

    /// The sizes of the studies.
    pub(crate) fn sizes(&self) -> Sizes {
        if self.quick { Sizes::quick() } else { self.sizes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &[&str]) -> Vec<&'static str> {
        let args = Args::try_parse_from([&["trommel-compare"], line].concat()).unwrap();
        args.contenders().iter().map(|contender| contender.name).collect()
    }

    #[test]
    fn stores_are_chosen_by_name_or_by_the_start_of_it() {
        assert_eq!(names(&["--stores", "redb,trommel"]), ["trommel", "redb"]);
        assert_eq!(names(&["--stores", "lmdb*"]), ["lmdb", "lmdb-best", "lmdb-writemap"]);
        assert_eq!(names(&[]).len(), ALL.iter().filter(|contender| contender.usual).count());
        let error = Args::try_parse_from(["trommel-compare", "--stores", "sled"]).unwrap_err();
        assert!(error.to_string().contains("there are trommel, rocksdb-best"), "{error}");
    }

    #[test]
    fn rows_and_studies_are_chosen_apart() {
        let chosen = |line: &[&str]| {
            let args = Args::try_parse_from([&["trommel-compare"], line].concat()).unwrap();
            (args.rows().map(|rows| rows.len()), args.studies().len())
        };
        assert_eq!(chosen(&[]), (Some(Row::ALL.len()), 0));
        assert_eq!(chosen(&["--quick"]), (Some(Row::ALL.len()), Study::ALL.len()));
        assert_eq!(chosen(&["--rows", "read,scan"]), (Some(2), 0));
        assert_eq!(chosen(&["--studies", "sync"]), (None, 1));
        assert_eq!(chosen(&["--studies", "sync", "--rows", "all"]), (Some(Row::ALL.len()), 1));
        assert_eq!(chosen(&["--studies", "all"]), (None, Study::ALL.len()));
        assert!(Args::try_parse_from(["trommel-compare", "--studies", "none"]).is_err());
        let args = ["trommel-compare", "--studies", "sync", "--stores", "lmdb*"];
        let args = Args::try_parse_from(args).unwrap();
        let names = args.contenders_of(Study::Sync).into_iter().map(|contender| contender.name);
        assert_eq!(names.collect::<Vec<_>>(), ["lmdb"]);
    }

    #[test]
    fn numbers_have_units() {
        let args = Args::try_parse_from(["trommel-compare", "--num", "5M,10M"]).unwrap();
        assert_eq!((args.num, args.reads), (vec![5_000_000, 10_000_000], 2_000_000));
        assert!(Args::try_parse_from(["trommel-compare", "--num", "many"]).is_err());
        assert!(Args::try_parse_from(["trommel-compare", "--rounds", "0"]).is_err());
    }
}

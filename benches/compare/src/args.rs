//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;
use trommel_harness::units::parse_count;

use crate::rows::{self, Row};
use crate::stores::{self, Contender};
use crate::studies::{self, Sizes, Study};

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
    stores: Vec<Several<Contender>>,

    /// What to measure besides filling, or `all`; all by default
    #[arg(long, value_name = "ROW,...", value_delimiter = ',', value_parser = |text: &str| several(text, rows::ALL.iter()))]
    rows: Vec<Several<Row>>,

    /// Studies to run, each on stores of its own, or `all`; without `--rows` nothing else is run
    /// then
    #[arg(long, value_name = "STUDY,...", value_delimiter = ',', value_parser = |text: &str| several(text, studies::ALL))]
    studies: Vec<Several<Study>>,

    #[command(flatten)]
    pub(crate) sizes: Sizes,

    /// Everything in a minute or two: 100,000 keys, 50,000 reads, a small tree. Its figures say
    /// nothing about stores of a useful size
    #[arg(long, conflicts_with_all = ["num", "reads"])]
    pub(crate) quick: bool,

    /// Seconds after which one store is abandoned
    #[arg(long, value_name = "N", default_value_t = 900)]
    pub(crate) patience: u64,

    /// Where the stores are created, one at a time, and removed
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,

    /// Writes results.jsonl, record by record, and at the end report.md to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Measures nothing, but reads these results instead
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub(crate) from: Vec<PathBuf>,

    /// Runs one trial, which is described on standard input
    #[arg(long, hide = true)]
    pub(crate) trial: bool,
}

/// The rows, studies or stores that one word selects.
#[derive(Debug)]
struct Several<T: 'static>(Vec<&'static T>);

impl<T> Clone for Several<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// All of them, or the one of this name.
fn several<T>(text: &str, all: impl IntoIterator<Item = &'static T>) -> Result<Several<T>, String>
where
    &'static T: FromStr<Err = String>,
{
    Ok(Several(if text == "all" { all.into_iter().collect() } else { vec![text.parse()?] }))
}

/// The store of this name, or those whose names begin with it if it ends with `*`.
fn parse_stores(text: &str) -> Result<Several<Contender>, String> {
    let is_meant = |contender: &&Contender| match text.strip_suffix('*') {
        Some(start) => contender.name.starts_with(start),
        None => contender.name == text,
    };
    let found: Vec<_> = stores::ALL.iter().filter(is_meant).collect();
    if found.is_empty() {
        let names: Vec<_> = stores::ALL.iter().map(|contender| contender.name).collect();
        return Err(format!("no store is called that; there are {}", names.join(", ")));
    }
    Ok(Several(found))
}

fn after_help() -> String {
    let line = |contender: &Contender| format!("  {:23}  {}\n", contender.name, contender.about);
    let stores: String = stores::ALL.iter().map(line).collect();
    let rows = rows::ALL.each_ref().map(|row| row.name).join(", ");
    let studies = studies::ALL.map(|study| study.name).join(", ");
    format!("Stores:\n{stores}\nRows: {rows}\n\nStudies: {studies}")
}

impl Args {
    fn is_chosen(&self, contender: &Contender) -> bool {
        self.stores.iter().flat_map(|stores| &stores.0).any(|one| one.name == contender.name)
    }

    /// The stores of the main measurement.
    pub(crate) fn contenders(&self) -> Vec<&'static Contender> {
        let is_wanted = |contender: &&Contender| match self.stores.is_empty() {
            true => contender.is_usual(),
            false => self.is_chosen(contender),
        };
        stores::ALL.iter().filter(is_wanted).collect()
    }

    /// The stores of a study: of its own, those that are selected, if any are.
    pub(crate) fn contenders_of(&self, study: &Study) -> Vec<&'static Contender> {
        let is_wanted = |contender: &&Contender| {
            let is_chosen = match self.stores.is_empty() {
                true => contender.absent().is_none(),
                false => self.is_chosen(contender),
            };
            study.stores.contains(&contender.name) && is_chosen
        };
        stores::ALL.iter().filter(is_wanted).collect()
    }

    /// The requested rows, or all; none if only studies are requested.
    pub(crate) fn rows(&self) -> Option<Vec<&'static Row>> {
        match (self.rows.is_empty(), self.studies.is_empty()) {
            (true, false) => None,
            (true, true) => Some(rows::ALL.iter().collect()),
            (false, _) => Some(self.rows.iter().flat_map(|rows| &rows.0).copied().collect()),
        }
    }

    /// The requested studies; all with `--quick`.
    pub(crate) fn studies(&self) -> Vec<&'static Study> {
        if self.quick && self.rows.is_empty() && self.studies.is_empty() {
            return studies::ALL.to_vec();
        }
        let is_chosen = |study: &&Study| {
            self.studies.iter().flat_map(|studies| &studies.0).any(|one| one.name == study.name)
        };
        studies::ALL.into_iter().filter(is_chosen).collect()
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
        assert_eq!(
            names(&[]).len(),
            stores::ALL.iter().filter(|contender| contender.is_usual()).count()
        );
        let error = Args::try_parse_from(["trommel-compare", "--stores", "sled"]).unwrap_err();
        assert!(error.to_string().contains("there are trommel, rocksdb-best"), "{error}");
    }

    #[test]
    fn rows_and_studies_are_chosen_apart() {
        let chosen = |line: &[&str]| {
            let args = Args::try_parse_from([&["trommel-compare"], line].concat()).unwrap();
            (args.rows().map(|rows| rows.len()), args.studies().len())
        };
        assert_eq!(chosen(&[]), (Some(rows::ALL.len()), 0));
        assert_eq!(chosen(&["--quick"]), (Some(rows::ALL.len()), studies::ALL.len()));
        assert_eq!(chosen(&["--rows", "read,scan"]), (Some(2), 0));
        assert_eq!(chosen(&["--studies", "sync"]), (None, 1));
        assert_eq!(chosen(&["--studies", "sync", "--rows", "all"]), (Some(rows::ALL.len()), 1));
        assert_eq!(chosen(&["--studies", "all"]), (None, studies::ALL.len()));
        assert!(Args::try_parse_from(["trommel-compare", "--studies", "none"]).is_err());
        let args = ["trommel-compare", "--studies", "sync", "--stores", "lmdb*"];
        let args = Args::try_parse_from(args).unwrap();
        let names =
            args.contenders_of("sync".parse().unwrap()).into_iter().map(|contender| contender.name);
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

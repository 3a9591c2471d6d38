//! The command line.

use std::path::PathBuf;

use clap::Parser;
use trommel_harness::units::parse_count;

use crate::rows::Row;
use crate::stores::{ALL, Contender};

/// Measures Trommel beside RocksDB, fjall, redb and LMDB on equal terms.
///
/// Every store gets the same keys and values in the same order and the same limits, in a process
/// of its own; what cannot be made equal is printed. Tables go to standard output.
#[derive(Debug, Parser)]
#[command(name = "trommel-compare", version, after_help = after_help())]
pub(crate) struct Args {
    /// Keys drawn from, and writes; several runs, one after the other, for several numbers
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "5M",
          value_parser = parse_count)]
    pub(crate) num: Vec<u64>,

    /// Reads of each kind
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_count)]
    pub(crate) reads: u64,

    /// Times that everything is done, with the stores in another order each time; figures are then
    /// medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Stores to measure; `rocksdb*` stands for all whose names begin so
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_stores)]
    pub(crate) stores: Vec<Stores>,

    /// What to measure besides filling
    #[arg(long, value_name = "ROW,...", value_delimiter = ',')]
    pub(crate) rows: Vec<Row>,

    /// A look at all of it in less than a minute: 100,000 keys, 50,000 reads, a small tree. Its
    /// figures say nothing about stores of a useful size
    #[arg(long, conflicts_with_all = ["num", "reads"])]
    pub(crate) quick: bool,

    /// Minutes after which no store is begun any more that would take longer; those left out are
    /// reported as such
    #[arg(long, value_name = "N")]
    pub(crate) minutes: Option<f64>,

    /// Seconds after which one store is given up
    #[arg(long, value_name = "N", default_value_t = 900)]
    pub(crate) patience: u64,

    /// Where the stores are made, one at a time; they are removed
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,

    /// Writes results.jsonl, record by record as they come, and at the end tables.txt and
    /// report-NUM.html to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Writes a page in Markdown with all that is known
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Measures nothing, but reads such results instead
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub(crate) from: Vec<PathBuf>,

    /// Does one trial, which is described on standard input
    #[arg(long, hide = true)]
    pub(crate) trial: bool,
}

/// What one word of `--stores` stands for.
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

fn after_help() -> String {
    let width = ALL.iter().map(|contender| contender.name.len()).max().unwrap_or(0);
    let line =
        |contender: &Contender| format!("  {:width$}  {}\n", contender.name, contender.about);
    let stores: String = ALL.iter().map(line).collect();
    format!("Stores:\n{stores}\nRows: {}", Row::ALL.map(Row::name).join(", "))
}

impl Args {
    /// The contenders asked for, in the order of [`ALL`].
    pub(crate) fn contenders(&self) -> Vec<&'static Contender> {
        let asked: Vec<_> =
            self.stores.iter().flat_map(|stores| &stores.0).map(|one| one.name).collect();
        let is_wanted = |contender: &&Contender| {
            if asked.is_empty() { contender.usual } else { asked.contains(&contender.name) }
        };
        ALL.iter().filter(is_wanted).collect()
    }

    /// The rows asked for, or all.
    pub(crate) fn rows(&self) -> Vec<Row> {
        if self.rows.is_empty() { Row::ALL.to_vec() } else { self.rows.clone() }
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
    fn numbers_have_units() {
        let args = Args::try_parse_from(["trommel-compare", "--num", "5M,10M"]).unwrap();
        assert_eq!((args.num, args.reads), (vec![5_000_000, 10_000_000], 2_000_000));
        assert!(Args::try_parse_from(["trommel-compare", "--num", "many"]).is_err());
        assert!(Args::try_parse_from(["trommel-compare", "--rounds", "0"]).is_err());
    }
}

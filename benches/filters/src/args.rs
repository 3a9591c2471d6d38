//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use trommel_filters::measure::{Extent, LARGE};
use trommel_harness::units::parse_count;

/// Keys of `--quick`: so few that everything takes seconds.
const QUICK: [u64; 5] = [300, 1000, 4000, 6000, 12_000];

/// Compares Trommel's filters with fastbloom, sbbf-rs and xorf, and measures their own speed
/// ratios.
///
/// All get the same hashes and the same queries. The goals and whether they are met go to standard
/// output, everything else to files.
#[derive(Debug, Parser)]
#[command(name = "trommel-filters", version)]
pub(crate) struct Args {
    /// Five increasing numbers of keys; the second is "in cache", the last "out of cache"
    #[arg(long, value_name = "N,N,N,N,N", value_parser = parse_keys,
          default_value = "1K,100K,1M,10M,50M")]
    keys: Keys,

    /// Rounds; the contestants take turns in each
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Queries of each kind in each round
    #[arg(long, value_name = "N", default_value = "500K", value_parser = parse_count)]
    queries: u64,

    /// Leave out what would end later, and report it
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,

    /// Few keys and few queries: shows everything in seconds, with meaningless times
    #[arg(long)]
    quick: bool,

    /// Directory for the records (filters.jsonl), the plots and the goals
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Write the page in Markdown, with its plots next to it
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Measure nothing: regenerate everything from these records
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
}

/// Numbers of keys: tiny, small, middle, large, huge.
#[derive(Debug, Clone, Copy)]
struct Keys([u64; 5]);

fn parse_keys(text: &str) -> Result<Keys, String> {
    let parse = |part| parse_count(part).map_err(|error| error.to_string());
    let keys = text.split(',').map(parse).collect::<Result<Vec<u64>, String>>()?;
    let keys = <[u64; 5]>::try_from(keys);
    let keys = keys.map_err(|keys| format!("give five numbers, not {}", keys.len()))?;
    if keys[0] < 2 || !keys.is_sorted_by(|a, b| a < b) {
        return Err("give growing numbers, the first at least 2".to_owned());
    }
    Ok(Keys(keys))
}

impl Args {
    /// The extent of the measurement, and its numbers of keys.
    pub(crate) fn extent(&self) -> (Extent, [u64; 5]) {
        let Keys(keys) = self.keys;
        let queries = (self.queries as usize).clamp(1, 1 << 30);
        let extent = Extent {
            rounds: self.rounds,
            queries,
            dependent: queries.div_ceil(4),
            builds: Duration::from_secs(3),
            false_positives: 2000,
            rate_cap: 130_000_000,
            rated: keys[2],
            large: LARGE,
        };
        if self.quick {
            let quick =
                Extent { rounds: 2, queries: 2000, dependent: 500, rate_cap: 600_000, ..extent };
            return (Extent { large: 8192, rated: QUICK[2], ..quick }, QUICK);
        }
        (extent, keys)
    }

    /// The time after which nothing is started.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let minutes = self.minutes?;
        Duration::try_from_secs_f64(minutes.max(0.0) * 60.0).ok()
    }

    /// The command line that repeats the measurement.
    pub(crate) fn command(&self) -> String {
        let mut text = String::new();
        if self.quick {
            text += " --quick";
        } else {
            let keys: Vec<_> = self.keys.0.iter().map(u64::to_string).collect();
            text += &format!(
                " --keys {} --rounds {} --queries {}",
                keys.join(","),
                self.rounds,
                self.queries
            );
        }
        if let Some(minutes) = self.minutes {
            text += &format!(" --minutes {minutes}");
        }
        text.trim_start().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_keys_are_five() {
        let parse = |line: &[&str]| Args::try_parse_from([&["trommel-filters"], line].concat());
        let args = parse(&["--keys", "1K,2K,4K,20K,30K"]).unwrap();
        assert_eq!(args.extent().1, [1000, 2000, 4000, 20_000, 30_000]);
        assert_eq!(parse(&[]).unwrap().extent().1[4], 50_000_000);
        assert!(parse(&["--rounds", "0"]).is_err());
        let error = parse(&["--keys", "1K,2K"]).unwrap_err().to_string();
        assert!(error.contains("give five numbers, not 2"), "{error}");
        assert!(parse(&["--keys", "1K,2K,4K,30K,20K"]).is_err());
        assert_eq!(
            parse(&["--quick", "--minutes", "1.5"]).unwrap().command(),
            "--quick --minutes 1.5"
        );
    }
}

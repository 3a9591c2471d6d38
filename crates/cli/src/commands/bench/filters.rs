//! Which filters a bench builds, however that is written.
//!
//! `--filters` is this program's own way. `--filter_uri` and `--bloom_bits` are Speedb's and
//! RocksDB's: a filter without bits gets those of `--bloom_bits`, or 10; bits without a filter are
//! those of RocksDB's blocked one; 0 is none; a negative number is the default.

use clap::Args;
use trommel::FilterPolicy;

use crate::failure::Failure;

/// Bits a key of `--filter_uri`, where nothing says how many.
const DEFAULT_BITS: f64 = 10.0;

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Filters by level [default: the store's own]
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["filter_uri", "bloom_bits"])]
    pub(crate) filters: Option<FilterPolicy>,
    /// A filter as Speedb names it: speedb.PairedBloomFilter:23.4; without bits those of
    /// --bloom-bits, or 10
    #[arg(long, value_name = "NAME[:BITS]")]
    pub(crate) filter_uri: Option<String>,
    /// Bits a key, of RocksDB's blocked filter or of --filter-uri; 0: none, -1: the default
    #[arg(long, value_name = "BITS", allow_negative_numbers = true)]
    pub(crate) bloom_bits: Option<f64>,
}

impl FilterArgs {
    /// The filters asked for, without those of the last level if `spare_last`.
    pub(crate) fn policy(&self, spare_last: bool) -> Result<FilterPolicy, Failure> {
        let policy = self.by_level()?;
        if spare_last { parse(&format!("{policy},last=none")) } else { Ok(policy) }
    }

    fn by_level(&self) -> Result<FilterPolicy, Failure> {
        if let Some(policy) = &self.filters {
            return Ok(policy.clone());
        }
        let bits = self.bloom_bits.filter(|bits| *bits >= 0.0);
        let Some(uri) = &self.filter_uri else {
            return match bits {
                None => Ok(FilterPolicy::default()),
                Some(0.0) => parse("none"),
                Some(bits) => parse(&format!("rocksdb.BloomFilter:{bits}")),
            };
        };
        // RocksDB's form has a third part, of which only one value was ever current.
        let uri = uri.strip_suffix(":false").unwrap_or(uri);
        match (uri.contains([':', '=']) || uri == "none", bits) {
            (true, None) => parse(uri),
            (true, Some(_)) => Err(Failure::Usage(format!(
                "--filter-uri={uri} has its bits: leave --bloom-bits out, or the bits"
            ))),
            (false, Some(0.0)) => parse("none"),
            (false, bits) => parse(&format!("{uri}:{}", bits.unwrap_or(DEFAULT_BITS))),
        }
    }
}

fn parse(text: &str) -> Result<FilterPolicy, Failure> {
    text.parse().map_err(|error: trommel::Error| Failure::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(uri: &str, bits: Option<f64>) -> Result<String, String> {
        let filter_uri = (!uri.is_empty()).then(|| uri.to_owned());
        let args = FilterArgs { filters: None, filter_uri, bloom_bits: bits };
        args.policy(false).map(|policy| policy.to_string()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn filters_are_understood_as_speedb_and_rocksdb_write_them() {
        let default = FilterPolicy::default().to_string();
        for (uri, bits, expected) in [
            ("speedb.PairedBloomFilter", Some(23.4), "paired:23.4"),
            ("speedb.PairedBloomFilter:23.2", None, "paired:23.2"),
            ("speedb.PairedBloomFilter:23.2", Some(-1.0), "paired:23.2"),
            ("speedb.PairedBloomFilter", None, "paired:10"),
            ("rocksdb.BloomFilter:10:false", None, "blocked:10"),
            ("speedb.PairedBloomFilter", Some(0.0), "none"),
            ("", Some(10.0), "blocked:10"),
            ("", Some(12.5), "blocked:12.5"),
            ("", Some(0.0), "none"),
            ("", Some(-1.0), &default),
            ("", None, &default),
            ("none", None, "none"),
            ("L0=paired:20,L1-=blocked:10", None, "L0=paired:20,L1-=blocked:10"),
        ] {
            assert_eq!(policy(uri, bits).as_deref(), Ok(expected), "{uri} {bits:?}");
        }
        let error = policy("speedb.pairedBloomFilter", Some(10.0)).unwrap_err();
        assert!(error.contains("speedb.PairedBloomFilter"), "{error}");
        assert!(policy("bloom:10", Some(12.0)).unwrap_err().contains("leave --bloom-bits out"));
        assert_eq!(policy("ribbon", Some(12.0)).as_deref(), Ok("ribbon:12"));
    }

    #[test]
    fn the_last_level_can_be_spared() {
        let args = FilterArgs { filters: None, filter_uri: None, bloom_bits: Some(10.0) };
        assert_eq!(args.policy(true).unwrap().to_string(), "blocked:10,last=none");
    }
}

//! The filters of a bench, in each of their notations.
//!
//! `--filters` is this program's own notation. `--filter_uri` and `--bloom_bits` are Speedb's and
//! RocksDB's: a filter without bits gets those of `--bloom_bits`, and is rejected without these, as
//! in Speedb; bits without a filter are for RocksDB's blocked filter; 0 is none; a negative number
//! is the default.

use clap::Args;
use trommel::FilterPolicy;
use trommel_harness::units::parse_decimal;

use crate::failure::Failure;

#[derive(Debug, Default, Args)]
pub(crate) struct FilterArgs {
    /// Filters by level [default: the store's own]
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["filter_uri", "bloom_bits"])]
    pub(crate) filters: Option<FilterPolicy>,
    /// A filter by its Speedb or RocksDB name: speedb.PairedBloomFilter:23.4, ribbonfilter:10:1;
    /// without bits, those of --bloom-bits apply
    #[arg(long, value_name = "NAME[:BITS]")]
    pub(crate) filter_uri: Option<String>,
    /// Bits per key, of RocksDB's blocked filter or of --filter-uri; 0: no filter, -1: the default
    #[arg(long, value_name = "BITS", allow_negative_numbers = true, value_parser = parse_decimal)]
    pub(crate) bloom_bits: Option<f64>,
}

impl FilterArgs {
    /// Whether any filters are requested; otherwise the store's own apply.
    pub(crate) fn are_given(&self) -> bool {
        let has_bits = self.bloom_bits.is_some_and(|bits| bits >= 0.0);
        self.filters.is_some() || self.filter_uri.is_some() || has_bits
    }

    /// The requested filters.
    pub(crate) fn policy(&self) -> Result<FilterPolicy, Failure> {
        if let Some(policy) = &self.filters {
            return Ok(policy.clone());
        }
        if self.bloom_bits.is_some_and(f64::is_nan) {
            return Err(Failure::Usage("--bloom-bits=nan is not a number of bits".into()));
        }
        let bits = self.bloom_bits.filter(|bits| *bits >= 0.0);
        let Some(uri) = &self.filter_uri else {
            return match bits {
                None => Ok(FilterPolicy::default()),
                Some(0.0) => parse("none"),
                Some(bits) => parse(&format!("rocksdb.BloomFilter:{bits}")),
            };
        };
        match (uri.contains([':', '=']) || uri == "none", bits) {
            (true, None) => parse(uri),
            (true, Some(_)) => Err(Failure::Usage(format!(
                "--filter-uri={uri} already has bits: leave out either these or --bloom-bits"
            ))),
            (false, Some(0.0)) => parse("none"),
            (false, Some(bits)) => parse(&format!("{uri}:{bits}")),
            // Speedb rejects it too; the message is that for any other filter.
            (false, None) => parse(uri),
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
        let args = FilterArgs { filter_uri, bloom_bits: bits, ..FilterArgs::default() };
        args.policy().map(|policy| policy.to_string()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn filters_are_understood_as_speedb_and_rocksdb_write_them() {
        let default = FilterPolicy::default().to_string();
        for (uri, bits, expected) in [
            ("speedb.PairedBloomFilter", Some(23.4), "paired:23.4"),
            ("speedb.PairedBloomFilter:23.2", None, "paired:23.2"),
            ("speedb.PairedBloomFilter:23.2", Some(-1.0), "paired:23.2"),
            ("ribbonfilter:10:1", None, "L0=blocked:10,L1-=ribbon:fpr=9.66e-3"),
            ("rocksdb.BloomFilter:10:false", None, "blocked:10"),
            ("budget=10/key", None, "budget=10/key"),
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
        // Speedb rejects it, and so does --filters.
        assert!(
            policy("speedb.PairedBloomFilter", None)
                .unwrap_err()
                .contains("needs a number of bits")
        );
        assert!(policy("bloom:10", Some(12.0)).unwrap_err().contains("already has bits"));
        assert_eq!(policy("ribbon", Some(12.0)).as_deref(), Ok("ribbon:12"));
    }
}

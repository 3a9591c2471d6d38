//! What was measured of one kind of filter.

use serde::{Deserialize, Serialize};

use super::{Access, Mix, Pattern, Rate};

/// What a pattern cost, in nanoseconds a query.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// What was done.
    #[serde(flatten)]
    pub pattern: Pattern,
    /// All of it.
    pub gross_ns: f64,
    /// Without asking the filter.
    pub dry_ns: f64,
}

impl Timing {
    /// The filter's own cost; none where it is lost in the noise, and would not be above 0.
    pub fn net_ns(&self) -> Option<f64> {
        let net = self.gross_ns - self.dry_ns;
        (net > 0.0).then_some(net)
    }
}

/// What was measured of one kind of filter at one size.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// The filter, as a spec.
    pub spec: String,
    /// Its kind.
    pub kind: String,
    /// Bits per key asked for.
    pub bits: f64,
    /// Keys of a filter asked for, on average.
    pub average_keys: u64,
    /// Instructions the filters were asked with, if the kind has a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether huge pages were asked for under filters that are large enough. Not so in records
    /// that are too old to tell.
    #[serde(default)]
    pub huge_pages: bool,
    /// Bytes of a key, on average.
    pub key_bytes: u64,
    /// Keys asked of one filter at once, in the batched patterns.
    pub batch: u64,
    /// Queries of each pattern.
    pub queries: u64,
    /// Whether hashing the key counts as the filter's cost.
    pub net_includes_hashing: bool,
    /// What decided all keys and the order of queries.
    pub seed: u64,
    /// Filters built.
    pub filters: u64,
    /// Their keys, all together.
    pub keys: u64,
    /// Their bytes in memory, all together.
    pub memory_bytes: u64,
    /// Bytes in memory of the first filter: the one that is asked alone.
    pub single_bytes: u64,
    /// Bits per key as stored, without headers.
    pub stored_bits: f64,
    /// Bits that a positive answer looks at, in the first filter.
    pub probes: u32,
    /// Nanoseconds a key to build, hashing included.
    pub build_ns: f64,
    /// Bytes a key that building takes at its worst moment, beyond the finished filter
    /// ([`peak_bytes`](trommel::filter::FilterBuilder::peak_bytes) less its bytes).
    /// None in records that are too old to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_bytes: Option<f64>,
    /// How often they err. None if that was interrupted before it could be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// What they cost to ask.
    pub timings: Vec<Timing>,
    /// Whether it was stopped before its end.
    #[serde(default)]
    pub interrupted: bool,
}

impl Cell {
    /// Bits per key that the measured rate is worth: no filter can do with less. None without a
    /// false positive.
    pub fn best_possible_bits(&self) -> Option<f64> {
        self.rate.filter(|rate| rate.false_positives > 0).map(|rate| -rate.measured.log2())
    }

    /// Net nanoseconds a query of a pattern, if it was timed and is above the noise.
    pub fn net_ns(&self, access: Access, mix: Mix) -> Option<f64> {
        let pattern = Pattern { access, mix };
        self.timings.iter().find(|timing| timing.pattern == pattern).and_then(Timing::net_ns)
    }

    /// Keys of a filter, on average.
    pub fn keys_per_filter(&self) -> f64 {
        self.keys as f64 / self.filters.max(1) as f64
    }
}

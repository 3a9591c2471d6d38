//! A family of metrics, in no particular form: see [`families`](crate::families).

use std::time::Duration;

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// Metrics of one name.
#[derive(Debug)]
pub(crate) struct Family {
    /// Without the `trommel_` that all begin with.
    pub(crate) name: &'static str,
    pub(crate) kind: FamilyKind,
    pub(crate) help: String,
    pub(crate) samples: Vec<MetricSample>,
}

/// A number of a family.
#[derive(Debug)]
pub(crate) struct MetricSample {
    /// What follows the name of the family.
    pub(crate) suffix: &'static str,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Figure,
}

/// A value of a metric.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    Count(u64),
    Real(f64),
    Time(Duration),
}

impl Figure {
    /// The value as a float, times in seconds.
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Real(real) => real,
            Self::Time(time) => time.as_secs_f64(),
        }
    }
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Figure {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<Duration> for Figure {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

//! What the benchmarks with criterion share.

use std::time::Duration;

use criterion::Criterion;

/// Few samples, so that `cargo bench` takes minutes: each benchmark is measured for `seconds`.
pub fn short(seconds: u64) -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(seconds))
}

//! Back-pressure: how fast writes may go while flushes and compactions lag.
//!
//! Each kind of backlog is a mark between 0 (slowing starts) and 1 (writes stop). The highest mark
//! sets the rate, which falls geometrically from the fastest to the slowest slowed rate. Some mark
//! in between matches whatever compactions can keep up with, so writers settle at that speed
//! instead of running into the stop and out again.
//!
//! Called by the write path: each write checks whether anything lags.

use crate::compaction_options::CompactionOptions;

/// The work waiting to be flushed and compacted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Backlog {
    /// Runs in level 0.
    pub(crate) l0_runs: usize,
    /// Bytes of compaction debt ([`debt`](super::shape::debt)).
    pub(crate) debt: u64,
    /// Memtables waiting to be flushed.
    pub(crate) frozen_memtables: usize,
    /// How full the active memtable is, 0 to 1.
    pub(crate) active_fill: f64,
}

/// Which backlog sets the pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Runs in level 0.
    Level0,
    /// Compaction debt.
    Debt,
    /// Memtables waiting to be flushed.
    Memtables,
}

impl Cause {
    /// Its name in metrics and traces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Level0 => "level-0",
            Self::Debt => "debt",
            Self::Memtables => "memtables",
        }
    }
}

/// What writers must do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pressure {
    /// Nothing.
    None,
    /// Write at no more than this rate, all writers together.
    Delay {
        /// Bytes per second; at least 1.
        rate: u64,
        /// Why.
        cause: Cause,
    },
    /// Wait until the backlog is smaller.
    Stop(Cause),
}

/// Writers are not slowed below this many memtables: one being flushed, and the next half full.
/// With a small maximum they would otherwise be slowed while nothing lags.
const SLOW_MEMTABLES_MIN: f64 = 1.5;

/// The pressure for `backlog`.
pub(crate) fn pressure(backlog: &Backlog, options: &CompactionOptions) -> Pressure {
    if is_idle(backlog, options) {
        return Pressure::None;
    }
    let slow_memtables = (options.max_frozen_memtables as f64 - 1.0).max(SLOW_MEMTABLES_MIN);
    let memtables = backlog.frozen_memtables as f64 + backlog.active_fill.clamp(0.0, 1.0);
    let marks = [
        (
            Cause::Memtables,
            mark(memtables, slow_memtables, options.max_frozen_memtables as f64 + 1.0),
        ),
        (
            Cause::Level0,
            mark(backlog.l0_runs as f64, options.slow_runs as f64, options.stop_runs as f64),
        ),
        (
            Cause::Debt,
            mark(
                backlog.debt as f64,
                options.slow_debt_bytes as f64,
                options.stop_debt_bytes as f64,
            ),
        ),
    ];
    let [first, rest @ ..] = marks;
    let (cause, mark) = rest.into_iter().fold(first, |a, b| if b.1 > a.1 { b } else { a });
    if mark >= 1.0 {
        return Pressure::Stop(cause);
    }
    if mark <= 0.0 {
        return Pressure::None;
    }
    let fastest = options.fastest_slowed_rate.max(1) as f64;
    let slowest = (options.slowest_rate.max(1) as f64).min(fastest);
    let rate = fastest * (slowest / fastest).powf(mark);
    Pressure::Delay { rate: (rate as u64).max(1), cause }
}

/// Whether no mark is above 0, whatever the fill of the active memtable. True for most writes, each
/// of which checks it.
#[inline]
pub(crate) fn is_idle(backlog: &Backlog, options: &CompactionOptions) -> bool {
    (backlog.frozen_memtables == 0 || backlog.frozen_memtables + 2 <= options.max_frozen_memtables)
        && backlog.l0_runs <= options.slow_runs
        && backlog.l0_runs < options.stop_runs
        && backlog.debt <= options.slow_debt_bytes
        && backlog.debt < options.stop_debt_bytes
}

/// The position of `amount` between `slow` (0) and `stop` (1).
fn mark(amount: f64, slow: f64, stop: f64) -> f64 {
    if amount >= stop {
        return 1.0;
    }
    (amount - slow) / (stop - slow).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Backlog = Backlog { l0_runs: 0, debt: 0, frozen_memtables: 0, active_fill: 0.0 };

    fn rate(backlog: &Backlog, options: &CompactionOptions) -> f64 {
        match pressure(backlog, options) {
            Pressure::None => f64::INFINITY,
            Pressure::Delay { rate, .. } => rate as f64,
            Pressure::Stop(_) => 0.0,
        }
    }

    #[test]
    fn pressure_starts_and_stops_at_its_marks() {
        let options = CompactionOptions::default();
        let at = |l0_runs| pressure(&Backlog { l0_runs, ..IDLE }, &options);
        assert_eq!(at(12), Pressure::None);
        assert!(matches!(at(13), Pressure::Delay { cause: Cause::Level0, .. }));
        assert!(matches!(at(23), Pressure::Delay { cause: Cause::Level0, .. }));
        assert_eq!(at(24), Pressure::Stop(Cause::Level0));
        assert_eq!(at(1000), Pressure::Stop(Cause::Level0));
        let debt = |debt| pressure(&Backlog { debt, ..IDLE }, &options);
        assert_eq!(debt(32 << 30), Pressure::None);
        assert!(matches!(debt(33 << 30), Pressure::Delay { cause: Cause::Debt, .. }));
        assert_eq!(debt(64 << 30), Pressure::Stop(Cause::Debt));
        assert_eq!(debt(u64::MAX), Pressure::Stop(Cause::Debt));
        let memtables = |frozen_memtables, active_fill| {
            pressure(&Backlog { frozen_memtables, active_fill, ..IDLE }, &options)
        };
        assert_eq!(memtables(2, 1.0), Pressure::None);
        assert!(matches!(memtables(3, 0.5), Pressure::Delay { cause: Cause::Memtables, .. }));
        assert!(matches!(memtables(4, 0.9), Pressure::Delay { cause: Cause::Memtables, .. }));
        assert_eq!(memtables(4, 1.0), Pressure::Stop(Cause::Memtables));
        assert_eq!(memtables(5, 0.0), Pressure::Stop(Cause::Memtables));
    }

    #[test]
    fn writers_are_not_slowed_while_nothing_waits() {
        for (most, slow) in [(1, (1, 0.6)), (2, (1, 0.6)), (3, (2, 0.1)), (4, (3, 0.1))] {
            let options =
                CompactionOptions { max_frozen_memtables: most, ..CompactionOptions::default() };
            let at = |(frozen_memtables, active_fill)| {
                pressure(&Backlog { frozen_memtables, active_fill, ..IDLE }, &options)
            };
            assert_eq!(at((0, 1.0)), Pressure::None, "of {most}");
            assert_eq!(at((1, 0.4)), Pressure::None, "of {most}");
            assert!(matches!(at(slow), Pressure::Delay { .. }), "of {most}");
            assert_eq!(at((most, 1.0)), Pressure::Stop(Cause::Memtables), "of {most}");
        }
    }

    #[test]
    fn the_rate_falls_without_jumps() {
        let options = CompactionOptions::default();
        let steps = (1..1000).map(|i| {
            let debt = options.slow_debt_bytes
                + (options.stop_debt_bytes - options.slow_debt_bytes) / 1000 * i;
            rate(&Backlog { debt, ..IDLE }, &options)
        });
        let rates: Vec<f64> = steps.collect();
        assert!(rates[0] > 0.99 * options.fastest_slowed_rate as f64);
        assert!(rates[998] < 1.01 * options.slowest_rate as f64);
        for pair in rates.windows(2) {
            assert!(pair[1] <= pair[0] && pair[1] >= 0.99 * pair[0], "{pair:?}");
        }
    }

    #[test]
    fn senseless_options_do_no_harm() {
        let options = CompactionOptions {
            slow_runs: 9,
            stop_runs: 9,
            fastest_slowed_rate: 0,
            slowest_rate: 10,
            max_frozen_memtables: 0,
            ..CompactionOptions::default()
        };
        assert_eq!(pressure(&Backlog { l0_runs: 8, ..IDLE }, &options), Pressure::None);
        assert_eq!(
            pressure(&Backlog { l0_runs: 9, ..IDLE }, &options),
            Pressure::Stop(Cause::Level0)
        );
    }
}

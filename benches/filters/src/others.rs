//! The load of other processes: with much of it, times are worth little.

use std::fs;
use std::time::Instant;

use trommel_harness::machine::CpuSeconds;

/// A snapshot of the machine's counters.
pub(crate) struct Others {
    at: Instant,
    own: CpuSeconds,
    busy: f64,
}

impl Others {
    /// The current counters, if known.
    pub(crate) fn now() -> Option<Self> {
        let busy = busy(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Self { at: Instant::now(), own: CpuSeconds::now()?, busy })
    }

    /// Processors that other processes kept busy since then, on average.
    pub(crate) fn since(self) -> Option<f64> {
        let now = Self::now()?;
        let own = now.own.since(self.own);
        let others = now.busy - self.busy - own.user - own.system;
        Some((others / (now.at - self.at).as_secs_f64().max(0.1)).max(0.0))
    }
}

/// Busy seconds of all processors in total, including those that another virtual machine took.
fn busy(stat: &str) -> Option<f64> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut sum = 0.0;
    for nth in 0..8 {
        let hundredths: f64 = fields.next()?.parse().ok()?;
        // Idle time and waits for a device are not busy.
        sum += if nth == 3 || nth == 4 { 0.0 } else { hundredths };
    }
    Some(sum / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_idle_time_out() {
        assert_eq!(busy("cpu  100 0 200 999 999 10 20 70 0 0\ncpu0 1"), Some(4.0));
        assert_eq!(busy("cpu  1 2"), None);
        if cfg!(target_os = "linux") {
            assert!(Others::now().and_then(Others::since).is_some());
        }
    }
}

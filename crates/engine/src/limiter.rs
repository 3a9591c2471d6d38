//! A rate limit that all background jobs share.

use std::time::{Duration, Instant};

use trommel_vfs::WriteFile;

use crate::engine::Engine;
use crate::env;
use crate::sync::{Mutex, lock};

/// Longest time that one append is held up, so that a limit that is raised or lifted is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// When the bytes granted so far will have been written at the granted rate.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    due: Mutex<Option<Instant>>,
}

impl Limiter {
    /// Books `bytes` at `bytes_per_second`; returns how long the caller is to wait.
    fn book(&self, bytes: u64, bytes_per_second: u64, now: Instant) -> Duration {
        let cost = Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64);
        let mut due = lock(&self.due);
        let start = due.unwrap_or(now).max(now);
        *due = Some(start + cost.min(LONGEST_WAIT));
        (start - now).min(LONGEST_WAIT)
    }

    /// Waits until `bytes` more may be written.
    fn wait_for(&self, bytes: u64, bytes_per_second: Option<u64>) {
        let Some(rate) = bytes_per_second else { return };
        let wait = self.book(bytes, rate, env::now());
        if wait > Duration::ZERO {
            env::sleep(wait);
        }
    }
}

/// Bytes written to a limited file in one go, so that a limit is kept evenly: an eighth of a
/// second's worth, within these bounds.
const SMALLEST_PIECE: u64 = 512;
const LARGEST_PIECE: u64 = 64 << 10;

/// A file whose appends keep to the engine's limit, whatever that is at the time.
#[derive(Debug)]
pub(crate) struct LimitedFile {
    file: Box<dyn WriteFile>,
    engine: std::sync::Weak<Engine>,
}

impl LimitedFile {
    pub(crate) fn new(file: Box<dyn WriteFile>, engine: std::sync::Weak<Engine>) -> Self {
        Self { file, engine }
    }
}

impl WriteFile for LimitedFile {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(engine) = self.engine.upgrade() else { return self.file.append(bytes) };
        if engine.options.load().background_bytes_per_second.is_none() {
            return self.file.append(bytes);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let limit = engine.options.load().background_bytes_per_second;
            let rate = limit.filter(|_| !engine.background.is_closing());
            let largest =
                rate.map_or(u64::MAX, |rate| (rate / 8).clamp(SMALLEST_PIECE, LARGEST_PIECE));
            let (piece, behind) = rest.split_at(largest.min(rest.len() as u64) as usize);
            engine.limiter.wait_for(piece.len() as u64, rate);
            self.file.append(piece)?;
            rest = behind;
        }
        Ok(())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.file.sync()
    }

    fn start_write_back(&mut self) {
        self.file.start_write_back();
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_one_rate() {
        let limiter = Limiter::default();
        let now = env::now();
        assert_eq!(limiter.book(1000, 10_000, now), Duration::ZERO, "the first is free");
        assert_eq!(limiter.book(1000, 10_000, now), Duration::from_millis(100));
        assert_eq!(limiter.book(1000, 10_000, now), Duration::from_millis(200));
        let later = now + Duration::from_secs(5);
        assert_eq!(limiter.book(1000, 10_000, later), Duration::ZERO, "idle time is not saved up");
    }
}

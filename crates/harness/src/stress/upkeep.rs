//! Maintenance operations on a store, at random times while other threads read and write.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use trommel::{Db, Options, RebuildOptions};

use super::check::{Checked, Frame, Trouble, scan};
use super::counts::Activity;
use super::worker::{Shared, exponential};
use crate::error::Error;

/// Mean seconds between two operations.
const EVERY: f64 = 0.1;

/// The maintenance thread.
pub(super) struct Upkeep<'a> {
    shared: &'a Shared,
    db: &'a Db,
    rng: Rng,
}

type Act<'a> = fn(&mut Upkeep<'a>) -> Checked;

impl<'a> Upkeep<'a> {
    const ACTS: [(&'static str, Act<'a>); 11] = [
        ("flush", |own| Ok(own.db.flush()?)),
        ("sync", |own| Ok(own.db.sync()?)),
        ("compact_range", Self::compact_range),
        ("set_options", Self::set_options),
        ("set_filters", |own| Ok(own.db.set_filters(own.shared.draw.filters(&mut own.rng))?)),
        ("rebuild_filters", Self::rebuild_filters),
        ("checkpoint", Self::checkpoint),
        ("verify", |own| Ok(own.db.verify().map(drop)?)),
        ("reports", Self::reports),
        ("pause_compaction", Self::pause),
        ("compact_all", Self::compact_all),
    ];

    pub(super) fn new(shared: &'a Shared, db: &'a Db, rng: Rng) -> Self {
        Self { shared, db, rng }
    }

    /// Runs one operation after another, with pauses, until the store is to be closed.
    pub(super) fn serve(&mut self, activity: &Activity) {
        while self.waited() {
            let (what, act) = Self::ACTS[self.rng.usize(..Self::ACTS.len())];
            let done = activity.work(what, || act(self));
            if self.shared.tolerate(done).is_some() {
                self.shared.counts.add(what, 1);
            }
        }
    }

    /// Pauses; returns false if the store is to be closed.
    fn waited(&mut self) -> bool {
        let pause = Duration::from_secs_f64(exponential(&mut self.rng, EVERY));
        let end = Instant::now() + pause;
        while Instant::now() < end && !self.shared.is_closing.load(Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        !self.shared.is_closing.load(Relaxed)
    }

    fn compact_range(&mut self) -> Checked {
        let records = &self.shared.expected.records;
        let (one, other) = (self.rng.u32(..records.keys), self.rng.u32(..records.keys));
        // At most a tenth of the keys.
        let end = other.clamp(one, one.saturating_add(records.keys / 10));
        Ok(self.db.compact_range(records.key(one)..=records.key(end))?)
    }

    fn compact_all(&mut self) -> Checked {
        // It rewrites everything, so only rarely.
        if self.rng.u8(..5) == 0 { Ok(self.db.compact_all()?) } else { Ok(self.db.sync()?) }
    }

    fn set_options(&mut self) -> Checked {
        let rng = &mut self.rng;
        Ok(self.db.set_options(|options| self.shared.draw.change(rng, options))?)
    }

    fn rebuild_filters(&mut self) -> Checked {
        self.db.set_filters(self.shared.draw.filters(&mut self.rng))?;
        Ok(self.db.rebuild_filters(&RebuildOptions::default()).map(drop)?)
    }

    fn reports(&mut self) -> Checked {
        let stats = self.db.stats();
        if stats.levels.iter().any(|level| level.deletions > level.entries) {
            return Err(Trouble::WrongAnswer(format!(
                "stats are inconsistent: {:?}",
                stats.levels
            )));
        }
        let _ = self.db.filter_report();
        self.check_budget()
    }

    /// With a filter budget, filters in memory never exceed it, whatever other threads do.
    fn check_budget(&mut self) -> Checked {
        let memory = self.db.stats().memory;
        match memory.filter_budget {
            None => Ok(()),
            Some(most) if memory.held_filters <= most => {
                self.shared.counts.add("budget_checks", 1);
                Ok(())
            }
            Some(_) => Err(Trouble::WrongAnswer(format!(
                "filters in memory exceed their limit: {memory:?}"
            ))),
        }
    }

    fn pause(&mut self) -> Checked {
        self.db.pause_compaction()?;
        thread::sleep(Duration::from_millis(self.rng.u64(..30)));
        self.db.resume_compaction();
        Ok(())
    }

    /// Makes a checkpoint, opens it as a store, and checks it.
    fn checkpoint(&mut self) -> Checked {
        let dir = self.shared.checkpoints.join(format!("{:016x}", self.rng.u64(..)));
        let made = self.make_and_check(&dir);
        // A fault may have left a partial directory.
        remove_dir(&dir)?;
        made
    }

    fn make_and_check(&mut self, dir: &Path) -> Checked {
        let (shared, expected) = (self.shared, &self.shared.expected);
        let parent = &shared.checkpoints;
        fs::create_dir_all(parent)
            .map_err(|error| Error::io(parent, "creating directory", error))?;
        let frame = Frame::open(expected, 0..expected.records.keys);
        self.db.checkpoint(dir)?;
        let options = Options::default().reads(|r| r.cache_bytes(1 << 20).max_open_files(64));
        let db = match self.rng.bool() {
            true => Db::open_read_only(dir, options)?,
            false => Db::open(dir, options)?,
        };
        scan(&db, expected, &frame, self.rng.bool(), "checkpoint")?;
        db.verify()?;
        db.close()?;
        shared.counts.add("checkpoints_checked", 1);
        Ok(())
    }
}

/// Removes a directory, if it exists.
pub(super) fn remove_dir(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(dir, "removing", error))
        }
        _ => Ok(()),
    }
}

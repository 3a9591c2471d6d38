//! Runs the lookups of a cell.
//!
//! A lookup misses with the cell's probability. Its key is the key of a record drawn from the
//! cell's distribution, or its missing counterpart with eight random bytes at the end: that is next
//! to the key, so that every run is queried, and is never the same twice. Every result is checked.
//! (The harness's own workloads either hit or miss with all lookups.)

use std::time::{Duration, Instant};

use fastrand::Rng;
use trommel::Db;
use trommel_harness::{Control, Error, Latest, ScrambledZipfian};

use super::build::{Keys, STRIDE, store_error};
use super::cell::{Cell, Draw};

/// Draws records from a distribution.
pub(super) enum Drawer {
    Uniform(u64),
    Zipfian(ScrambledZipfian, u64),
    Latest(Latest, u64),
}

impl Drawer {
    /// Draws among `records` records, at least one.
    pub(super) fn new(draw: Draw, records: u64) -> Self {
        match draw {
            Draw::Uniform => Self::Uniform(records),
            Draw::Zipfian => Self::Zipfian(ScrambledZipfian::new(records), records),
            Draw::Latest => Self::Latest(Latest::new(records), records),
        }
    }

    pub(super) fn draw(&mut self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform(records) => rng.u64(..*records),
            Self::Zipfian(zipfian, records) => zipfian.draw(*records, rng),
            Self::Latest(latest, records) => latest.draw(*records, rng),
        }
    }
}

/// Does `lookups` lookups, and returns their total time.
///
/// # Errors
/// Any error of the store; [`Error::Store`] for a wrong result; [`Error::Interrupted`] if stopped.
pub(super) fn query(
    db: &Db,
    cell: &Cell,
    keys: &Keys,
    lookups: u64,
    rng: &mut Rng,
    control: Control<'_>,
) -> Result<Duration, Error> {
    let mut drawer = Drawer::new(cell.draw, keys.len());
    let mut maker = keys.space().maker();
    let start = Instant::now();
    for nth in 1..=lookups {
        let number = keys.number(drawer.draw(rng));
        let is_missing = rng.f64() < cell.misses;
        let key = match is_missing {
            true => maker.missing(number, &rng.u64(..).to_le_bytes()),
            false => maker.key(number),
        };
        if db.contains_key(key).map_err(store_error)? == is_missing {
            let what = if is_missing { "found an absent key" } else { "lost a key" };
            return Err(Error::Store(format!("the store {what}: number {number}").into()));
        }
        if nth % STRIDE == 0 {
            control.progress.advance(STRIDE);
            if control.stop.is_set() {
                return Err(Error::Interrupted);
            }
        }
    }
    Ok(start.elapsed())
}

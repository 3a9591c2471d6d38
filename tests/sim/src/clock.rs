//! A wall clock that a test moves.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trommel_vfs::{Layer, Vfs, WriteFile};

/// A wall clock, shared by its clones.
#[derive(Debug, Clone)]
pub struct WallClock(Arc<AtomicU64>);

impl Default for WallClock {
    /// Some day in 2033.
    fn default() -> Self {
        Self::at(2_000_000_000_000)
    }
}

impl WallClock {
    /// A clock that shows this time, in milliseconds since 1970.
    pub fn at(millis: u64) -> Self {
        Self(Arc::new(AtomicU64::new(millis)))
    }

    /// Milliseconds since 1970.
    pub fn millis(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Moves the clock backward.
    pub fn turn_back(&self, by: Duration) {
        self.0.fetch_sub(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// The file system `below` with this clock.
    pub fn over(&self, below: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        Arc::new(Clocked { below, clock: self.clone() })
    }
}

/// A file system with another clock.
#[derive(Debug)]
struct Clocked {
    below: Arc<dyn Vfs>,
    clock: WallClock,
}

impl Layer for Clocked {
    fn below(&self) -> &dyn Vfs {
        &*self.below
    }

    fn writes_over(&self) -> bool {
        self.below.writes_over()
    }

    fn create_over(&self, old: &Path, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.below.create_over(old, path)
    }

    fn unix_millis(&self) -> u64 {
        self.clock.millis()
    }
}

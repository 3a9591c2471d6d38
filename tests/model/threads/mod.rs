//! What writers and readers on real threads may see of each other, while tiny buffers keep flushes
//! and compactions running.
//!
//! * [`moments`]: every read sees one point in time, and none goes back in time.
//! * [`commits`]: writers that compete for one key, and writers that share a sync.
//! * [`linearizable`], checked by [`generations`]: keys with one writer each, read by all.
//! * [`contended`], checked by [`orders`]: keys that all threads write, with conditions.
//! * [`bank`]: money moved in batches; its sum is always the same.
//! * [`closing`]: closing a store that others use.
//! * [`open_tables`]: far more tables than may be open at once.

mod bank;
mod closing;
mod commits;
mod contended;
mod generations;
mod linearizable;
mod moments;
mod open_tables;
mod orders;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use trommel::Options;
use trommel::vfs::Vfs;
use trommel_sim::MemoryVfs;

/// Time limit of a test, exceeded only by a hang.
const PATIENCE: Duration = Duration::from_secs(200);

/// Runs `test` in a thread of its own; panics if it does not return.
pub(crate) fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        let result = test();
        let _ = done.send(());
        result
    });
    match outcome.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("still running after {PATIENCE:?}: it hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Runs a test of this seed with the time limit; a failure names the seed. The seed determines the
/// actions of threads, not their timing, so that a failure may need several runs to reproduce.
fn seeded<T: Send + 'static>(seed: u64, test: impl FnOnce() -> T + Send + 'static) -> T {
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_time(test)));
    run.unwrap_or_else(|_| {
        panic!("failed with seed {seed}: TROMMEL_FIRST_SEED={seed} begins there")
    })
}

pub(crate) fn memory() -> Arc<dyn Vfs> {
    Arc::new(MemoryVfs::new())
}

/// Buffers so small that a few hundred writes reach several levels.
pub(crate) fn tiny(vfs: Arc<dyn Vfs>) -> Options {
    Options::default()
        .vfs(vfs)
        .writes(|w| w.write_buffer_bytes(12 << 10))
        .reads(|r| r.block_bytes(256).cache_bytes(16 << 10))
        .compaction(|c| {
            c.table_bytes(8 << 10)
                .base_level_bytes(24 << 10)
                .level_ratio(3)
                .l0_trigger(2)
                .l0_slowdown(6)
                .l0_stop(10)
        })
        .filters("L0=paired:12,L1=blocked:8,L2-=standard:6".parse().expect("a policy"))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("values begin with a number"))
}

/// A number as a value, followed by some bytes to fill memtables.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + number as usize % 90, 0x5a);
    value
}

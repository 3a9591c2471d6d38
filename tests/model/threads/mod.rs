//! What writers and readers on real threads may see of each other, while tiny buffers keep flushes
//! and compactions running under them.

mod closing;
mod commits;
mod moments;
mod open_tables;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use trommel::Options;
use trommel::vfs::{MemoryVfs, Vfs};

/// Longer than this no test takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(150);

/// Runs `test` in a thread of its own; fails where it does not come back.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match outcome.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("still running after {PATIENCE:?}: it hangs"),
        _ => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn memory() -> Arc<dyn Vfs> {
    Arc::new(MemoryVfs::new())
}

/// Buffers so small that a few hundred writes reach several levels.
fn tiny(vfs: Arc<dyn Vfs>) -> Options {
    Options::default()
        .vfs(vfs)
        .write_buffer_bytes(12 << 10)
        .block_bytes(256)
        .table_bytes(8 << 10)
        .base_level_bytes(24 << 10)
        .level_ratio(3)
        .l0_trigger(2)
        .l0_slowdown(6)
        .l0_stop(10)
        .cache_bytes(16 << 10)
        .filters("L0=paired:12,L1=blocked:8,L2-=standard:6".parse().expect("a policy"))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("values begin with a number"))
}

/// A number as a value, with some bytes behind it that fill memtables.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + number as usize % 90, 0x5a);
    value
}

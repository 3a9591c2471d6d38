//! Reading files that their owner may change meanwhile.

use std::time::Duration;

use crate::env;
use crate::error::{Error, Result};

/// Attempts before a missing file or corruption is an error.
const ATTEMPTS: u32 = 10;
/// The pause after the first of them; each later one is twice as long, half a second in all.
const FIRST_PAUSE: Duration = Duration::from_micros(500);

/// Runs `attempt` until it succeeds, or fails for a reason that the owner of the store cannot have
/// caused. Also returns the number of failed attempts.
pub(crate) fn retried<T>(mut attempt: impl FnMut() -> Result<T>) -> (u32, Result<T>) {
    for failed in 0..ATTEMPTS {
        match attempt() {
            Err(error) if may_pass(&error) => env::sleep(FIRST_PAUSE * 2_u32.pow(failed)),
            outcome => return (failed, outcome),
        }
    }
    (ATTEMPTS, attempt())
}

/// Whether the error may come from changes that the owner of the store makes meanwhile.
fn may_pass(error: &Error) -> bool {
    use std::io::ErrorKind::{NotFound, UnexpectedEof};
    match error {
        Error::Corruption(_) => true,
        Error::Io { source, .. } => matches!(source.kind(), NotFound | UnexpectedEof),
        _ => false,
    }
}

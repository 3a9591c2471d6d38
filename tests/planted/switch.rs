//! Chooses the planted bug at run time. Only the copy of the sources that holds planted bugs has
//! this module, as `trommel_base::planted`; the environment variable `TROMMEL_PLANTED` names the
//! one bug that is active.

use std::sync::OnceLock;
use std::time::Duration;

/// Whether `bug` is the active one.
#[inline]
pub fn is(bug: &str) -> bool {
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("TROMMEL_PLANTED").ok()).as_deref() == Some(bug)
}

/// Returns `value` a little later, so that other threads come between: widens a planted race.
pub fn delayed<T>(value: T) -> T {
    std::thread::sleep(Duration::from_micros(100));
    value
}

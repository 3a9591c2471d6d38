//! Exit codes.
//!
//! 0 done; 1 an error; 2 wrong usage; 4 a file of the store is damaged; 5 the store is open
//! elsewhere; 6 the directory is no store, or one of a newer version; 130 interrupted. (3 is kept
//! for "key not found", 7 for "check failed".)

use std::io;

use trommel_harness::Error;

pub(crate) const OK: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const CORRUPTION: u8 = 4;
const LOCKED: u8 = 5;
const NOT_A_STORE: u8 = 6;
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code that tells a script what `error` is.
pub(crate) fn code(error: &Error) -> u8 {
    match error {
        // Whoever reads the output has seen enough: `trommel bench | head`.
        Error::Output(source) if source.kind() == io::ErrorKind::BrokenPipe => OK,
        Error::Usage(_) => USAGE,
        Error::Interrupted => INTERRUPTED,
        Error::Store(source) => source.downcast_ref().map_or(FAILED, store_code),
        _ => FAILED,
    }
}

fn store_code(error: &trommel::Error) -> u8 {
    match error {
        trommel::Error::Corruption(_) => CORRUPTION,
        trommel::Error::Locked { .. } => LOCKED,
        trommel::Error::NotAStore { .. } | trommel::Error::Unsupported { .. } => NOT_A_STORE,
        trommel::Error::InvalidOption { .. } => USAGE,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code() {
        let store = |error: trommel::Error| Error::Store(error.into());
        let (dir, what) = (std::path::PathBuf::from("d"), String::new());
        for (error, expected) in [
            (Error::Output(io::ErrorKind::BrokenPipe.into()), 0),
            (Error::Output(io::ErrorKind::StorageFull.into()), 1),
            (Error::Usage(what.clone()), 2),
            (Error::Interrupted, 130),
            (store(trommel::Error::Locked { dir: dir.clone() }), 5),
            (store(trommel::Error::NotAStore { dir: dir.clone(), what: what.clone() }), 6),
            (store(trommel::Error::Unsupported { file: dir.clone(), what: what.clone() }), 6),
            (store(trommel::Error::InvalidOption { what }), 2),
            (Error::Store("of another store".into()), 1),
        ] {
            assert_eq!(code(&error), expected, "{error:?}");
        }
    }
}

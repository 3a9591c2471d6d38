//! A record for tests.

use super::{Record, read_lines};

/// A record with every part present.
pub(super) fn full() -> Record {
    read_lines(include_str!("full.jsonl")).expect("a record").remove(0)
}

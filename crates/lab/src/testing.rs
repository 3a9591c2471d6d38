//! A bench's record for tests.

use trommel_harness::record::{Record, read_lines};

/// A record in which every part is there.
pub(crate) fn full() -> Record {
    let records = read_lines(include_str!("../../harness/src/record/full.jsonl"));
    records.expect("a record").remove(0)
}

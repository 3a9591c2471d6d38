//! The background thread of a workload, which runs while the others are measured.

use super::worker::Worker;
use crate::error::StoreError;
use crate::measured::Kind;
use crate::store::Direction;
use crate::workload::Workload;

/// Whether the workload has a background thread.
pub(super) fn has_one(workload: Workload) -> bool {
    matches!(
        workload,
        Workload::ReadWhileWriting
            | Workload::ReadWhileScanning
            | Workload::SeekRandomWhileWriting
            | Workload::SeekRandomWhileDeleting
    )
}

/// Runs until all measured threads are done.
pub(super) fn run(worker: &mut Worker<'_>, workload: Workload) -> Result<(), StoreError> {
    if workload == Workload::ReadWhileScanning {
        return scan(worker);
    }
    while worker.next_in_background() {
        let index = worker.draw();
        if workload == Workload::SeekRandomWhileDeleting {
            worker.delete(index)?;
            worker.count(Kind::Delete, 1);
        } else {
            worker.put(index)?;
            worker.count(Kind::Write, 1);
        }
    }
    Ok(())
}

fn scan(worker: &mut Worker<'_>) -> Result<(), StoreError> {
    let store = worker.store;
    while worker.next_in_background() {
        store.scan(None, Direction::Forward, &mut |_, _| {
            worker.count(Kind::Read, 1);
            worker.next_in_background()
        })?;
    }
    Ok(())
}

/// A summary of its operations, for the workload's line.
pub(super) fn note(worker: &Worker<'_>, workload: Workload) -> String {
    match workload {
        Workload::ReadWhileScanning => {
            format!("(background: {} entries scanned)", worker.tally.of(Kind::Read))
        }
        Workload::SeekRandomWhileDeleting => {
            format!("(background: {} deletes)", worker.tally.of(Kind::Delete))
        }
        _ => format!("(background: {} writes)", worker.tally.of(Kind::Write)),
    }
}

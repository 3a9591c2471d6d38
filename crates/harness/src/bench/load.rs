//! The load of each workload of a plan.

use super::Plan;
use crate::measure::{Load, Records, WorkloadOptions};
use crate::values::Values;
use crate::workload::{LoopCount, Workload};

/// Keys in one write of `fillbatch`.
const FILL_BATCH: usize = 1000;
/// Default number of keys in one call of `multireadrandom`.
const MULTI_READ_BATCH: usize = 32;
/// Bytes in a value of `fill100K`.
const LARGE_VALUE_BYTES: usize = 100_000;

/// The values of a workload that does not write those of the plan.
pub(super) fn own_values(plan: &Plan, workload: Workload) -> Option<Values> {
    (workload == Workload::Fill100K)
        .then(|| Values::new(LARGE_VALUE_BYTES, plan.values.compression_ratio(), plan.seed))
}

/// How often `open` opens the store.
pub(super) fn opens(plan: &Plan) -> u64 {
    (plan.keys.len() / 10_000).max(1)
}

/// The load of the plan's run number `nth`, a run of `workload`.
pub(super) fn of<'a>(
    plan: &'a Plan,
    workload: Workload,
    own_values: Option<&'a Values>,
    records: &'a Records,
    nth: u64,
) -> Load<'a> {
    let values = own_values.unwrap_or(&plan.values);
    let key_bytes = plan.keys.key_bytes();
    let entry_bytes = key_bytes + values.value_bytes() as f64;
    let write_rate = |bytes: f64| plan.rates.write_bytes.map(|rate| rate / bytes.max(1.0));
    let thousandth = |count: u64| (count / 1000).max(1);
    let operations = match workload.counts() {
        LoopCount::Writes if are_shared(workload) => {
            plan.operations.writes.div_ceil(plan.threads as u64)
        }
        LoopCount::Writes => plan.operations.writes,
        LoopCount::ThousandthOfWrites => thousandth(plan.operations.writes),
        LoopCount::Reads => plan.operations.reads,
        LoopCount::Deletes => plan.operations.deletes,
        LoopCount::Both => plan.operations.both,
        LoopCount::Opens | LoopCount::Once => 1,
    };
    let is_scan = matches!(workload, Workload::ReadSeq | Workload::ReadReverse);
    let duration = plan.duration.filter(|_| !has_an_end(workload));
    let batch = match workload {
        Workload::FillBatch => FILL_BATCH,
        Workload::MultiReadRandom if plan.options.batch == 1 => MULTI_READ_BATCH,
        _ => plan.options.batch,
    };
    Load {
        threads: plan.threads,
        operations: if duration.is_some() && !is_scan { u64::MAX } else { operations },
        range: match workload {
            Workload::FillSync | Workload::Fill100K => thousandth(plan.keys.len()),
            Workload::ReadHot => plan.keys.len().div_ceil(100),
            _ => plan.keys.len(),
        },
        duration,
        rate: plan.rates.all.or(match workload.counts() {
            LoopCount::Writes | LoopCount::ThousandthOfWrites => write_rate(entry_bytes),
            LoopCount::Deletes => write_rate(key_bytes),
            LoopCount::Reads => plan.rates.read,
            LoopCount::Both if !workload.is_mixed() => plan.rates.read,
            _ => None,
        }),
        seed: plan.seed,
        stream: nth,
        beside_rate: write_rate(entry_bytes),
        records: Some(records),
        options: WorkloadOptions { batch, ..plan.options },
        ..Load::new(&plan.keys, values)
    }
}

/// Expected number of operations of all threads together, for the progress display; 0 if unknown.
pub(super) fn expected(load: &Load<'_>, workload: Workload) -> u64 {
    match (load.operations, are_shared(workload)) {
        (u64::MAX, _) => 0,
        (_, true) => load.range,
        (operations, false) => operations.saturating_mul(load.threads as u64),
    }
}

/// Whether the threads share the operations, instead of each doing all.
fn are_shared(workload: Workload) -> bool {
    matches!(workload, Workload::FillUniqueRandom | Workload::YcsbLoad)
}

/// Whether the workload covers all keys exactly once, so that a duration does not end it.
fn has_an_end(workload: Workload) -> bool {
    are_shared(workload)
        || matches!(workload, Workload::FillSeq | Workload::FillBatch | Workload::DeleteSeq)
}

//! The loops that mix reads and writes, and the notes on their lines.

use super::worker::Worker;
use crate::error::StoreError;
use crate::measured::{Kind, Measured};
use crate::workload::Workload;

impl Worker<'_> {
    pub(super) fn run_mixed(&mut self, workload: Workload) -> Result<(), StoreError> {
        match workload {
            Workload::ReadRandomWriteRandom => self.read_and_write(),
            Workload::UpdateRandom => self.update(),
            Workload::MergeRandom => self.merge(),
            Workload::GetThenPut => self.get_then_put(),
            _ => self.run_ycsb(workload),
        }
    }

    /// Of each hundred operations the first ones read and the rest write, as in db_bench.
    fn read_and_write(&mut self) -> Result<(), StoreError> {
        while self.next() {
            let index = self.draw();
            if self.done % 100 < self.load.options.read_percent {
                self.get(index, None)?;
                self.count(Kind::Read, 1);
            } else {
                self.put(index)?;
                self.count(Kind::Write, 1);
            }
        }
        Ok(())
    }

    /// Each operation is a get and a put of the same key.
    fn update(&mut self) -> Result<(), StoreError> {
        while self.next() {
            let index = self.draw();
            self.get(index, None)?;
            self.put(index)?;
            self.count(Kind::Update, 1);
        }
        Ok(())
    }

    /// Each operation is a merge, which reads nothing.
    fn merge(&mut self) -> Result<(), StoreError> {
        while self.next() {
            let index = self.draw();
            let operand = self.value();
            let key = self.keys.key(index);
            self.bytes += (key.len() + operand.len()) as u64;
            self.store.merge(key, operand)?;
            self.count(Kind::Write, 1);
        }
        Ok(())
    }

    /// The workload of a caller that must not write a key twice: it looks up the key, and puts it
    /// if it is absent. Keys of the space hit if they are stored; the others are missing
    /// counterparts with a long random tail, so that no two are the same.
    fn get_then_put(&mut self) -> Result<(), StoreError> {
        while self.next() {
            let index = self.draw();
            let is_hit = self.rng.f64() < self.load.options.hit_rate;
            let tail = self.rng.u64(..).to_le_bytes();
            let missing = (!is_hit).then_some(&tail[..]);
            if self.get(index, missing)? {
                self.count(Kind::Read, 1);
                continue;
            }
            let value = self.value();
            let key = match missing {
                None => self.keys.key(index),
                Some(tail) => self.keys.missing(index, tail),
            };
            self.bytes += (key.len() + value.len()) as u64;
            self.store.put(key, value)?;
            self.count(Kind::Insert, 1);
        }
        Ok(())
    }
}

/// The note on the line of a workload of several operations, in place of the keys found.
pub(super) fn note(workload: Workload, measured: &Measured) -> Option<String> {
    let of = |kind| measured.tally.of(kind);
    let (found, lookups) = measured.found.unwrap_or_default();
    match workload {
        Workload::ReadRandomWriteRandom => Some(format!(
            "( reads:{} writes:{} total:{} found:{found})",
            of(Kind::Read),
            of(Kind::Write),
            measured.operations
        )),
        Workload::UpdateRandom => Some(format!("( updates:{} found:{found})", of(Kind::Update))),
        Workload::GetThenPut => {
            Some(format!("( gets:{lookups} found:{found} puts:{})", of(Kind::Insert)))
        }
        _ if workload.is_ycsb() => {
            let counts: String = [
                ("reads", Kind::Read),
                ("updates", Kind::Update),
                ("inserts", Kind::Insert),
                ("scans", Kind::Scan),
                ("read-modify-writes", Kind::ReadModifyWrite),
            ]
            .into_iter()
            .filter(|(_, kind)| of(*kind) > 0)
            .map(|(name, kind)| format!("{name}:{} ", of(kind)))
            .collect();
            Some(format!("( {counts}found:{found} of {lookups})"))
        }
        _ => None,
    }
}

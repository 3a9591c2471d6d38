//! The simplest ordered store: a map behind a lock. It measures the overhead of the harness itself.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, StoreError};
use crate::record::Product;
use crate::store::{Direction, Opener, Operation, Store, Visit};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store in memory.
#[derive(Debug, Default)]
pub struct MapStore {
    map: RwLock<Map>,
}

impl MapStore {
    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_lock(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MapStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.write_lock().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        let mut map = self.write_lock();
        for operation in operations {
            match *operation {
                Operation::Put { key, value } => map.insert(key.to_vec(), value.to_vec()),
                Operation::Delete { key } => map.remove(key),
            };
        }
        Ok(())
    }

    fn write_durably(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.write(operations)
    }

    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.write_lock().remove(key);
        Ok(())
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.write_lock().retain(|key, _| !(from..to).contains(&&**key));
        Ok(())
    }

    /// Keeps the larger of the value and the operand, in the order of bytes.
    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<(), StoreError> {
        let mut map = self.write_lock();
        let value = map.entry(key.to_vec()).or_default();
        if value.as_slice() < operand {
            operand.clone_into(value);
        }
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        Ok(self.read().get(key).map(|value| found(value)).is_some())
    }

    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let map = self.read();
        let start = start.map_or(Bound::Unbounded, Bound::Included);
        let mut goes_on = |(key, value): (&Vec<u8>, &Vec<u8>)| visit(key, value);
        match direction {
            Direction::Forward => map.range::<[u8], _>((start, Bound::Unbounded)).all(&mut goes_on),
            Direction::Backward => {
                map.range::<[u8], _>((Bound::Unbounded, start)).rev().all(&mut goes_on)
            }
        };
        Ok(())
    }

    fn verify(&self) -> Result<String, StoreError> {
        Ok(format!("{} entries in memory", self.read().len()))
    }

    fn close(self: Arc<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Opens [`MapStore`]s, and retains the last one so that it can be reopened.
#[derive(Debug, Default)]
pub struct MapOpener {
    last: Mutex<Option<Arc<MapStore>>>,
}

impl Opener for MapOpener {
    fn open(&self, fresh: bool) -> Result<Arc<dyn Store>, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if fresh {
            *last = None;
        }
        let store = last.get_or_insert_default();
        Ok(Arc::<MapStore>::clone(store))
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        vec![("Store", "a map in memory".into())]
    }

    fn name(&self) -> String {
        "memory".into()
    }

    fn product(&self) -> Product {
        Product { name: "map".into(), version: env!("CARGO_PKG_VERSION").into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_a_store() {
        crate::conformance::check(Arc::new(MapStore::default()));
    }

    #[test]
    fn a_merge_keeps_the_larger_value() {
        let store = MapStore::default();
        for (operand, expected) in [(b"b", b"b"), (b"a", b"b"), (b"c", b"c")] {
            store.merge(b"k", operand).unwrap();
            assert!(store.get(b"k", &mut |value| assert_eq!(value, expected)).unwrap());
        }
    }
}

//! A store whose values identify their keys.
//!
//! 1. Both ends of each value are overwritten by a number derived from its key.
//! 2. Every value that a store returns must have the right length and both numbers; a key that was
//!    never written must not be found; a scan must be in order.
//!
//! A fill has its values stamped in place: those of a batch all before the first is read. For
//! single puts the next value is stamped before the previous one is put: reading a value right
//! after its stamps were written stalls the processor for all earlier writes, some 50 ns of a put
//! in any store. Other writes are stamped in a copy.
//!
//! So no figure comes from a wrong answer, and every store touches the memory of the values it
//! returns, even if it only points at them. The cost, two stamps of a value per write (or a copy of
//! it) and some nanoseconds per write and read, is the same for all.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use trommel_harness::record::State;
use trommel_harness::{Direction, Level, Lookups, Mark, Operation, Store, StoreError, Visit};

const STAMP_BYTES: usize = 8;

thread_local! {
    static VALUES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A store with checks.
pub(crate) struct Checked {
    store: Arc<dyn Store>,
    key_bytes: usize,
    value_bytes: usize,
}

impl Checked {
    /// Wraps `store`, whose keys and values all have these sizes; a value has at least 16 bytes.
    pub(crate) fn new(store: Arc<dyn Store>, key_bytes: usize, value_bytes: usize) -> Self {
        assert!(value_bytes >= 2 * STAMP_BYTES, "a value has room for two stamps");
        Self { store, key_bytes, value_bytes }
    }

    #[inline]
    fn is_right(&self, key: &[u8], value: &[u8]) -> bool {
        let stamp = stamp(key);
        key.len() == self.key_bytes
            && value.len() == self.value_bytes
            && value.starts_with(&stamp)
            && value.ends_with(&stamp)
    }

    /// Whether every value in these operations is stamped.
    fn are_right(&self, operations: &[Operation<'_>]) -> bool {
        operations.iter().all(|operation| match *operation {
            Operation::Put { key, value } => self.is_right(key, value),
            Operation::Delete { .. } => true,
        })
    }

    /// Calls `write` with stamped `operations`: the given ones, if they are.
    fn write_stamped(
        &self,
        operations: &[Operation<'_>],
        write: impl FnOnce(&[Operation<'_>]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.are_right(operations) { write(operations) } else { with_stamped(operations, write) }
    }
}

/// The order of a key relative to the one before it in a scan in this direction.
fn direction_of(direction: Direction) -> Ordering {
    match direction {
        Direction::Forward => Ordering::Greater,
        Direction::Backward => Ordering::Less,
    }
}

#[inline]
fn stamp(key: &[u8]) -> [u8; STAMP_BYTES] {
    let mut head = [0; STAMP_BYTES];
    let len = key.len().min(STAMP_BYTES);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_le_bytes(head).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1).to_le_bytes()
}

/// Stamps both ends of `value`.
#[inline]
fn put_stamps(key: &[u8], value: &mut [u8]) {
    let stamp = stamp(key);
    let last = value.len() - STAMP_BYTES;
    value[..STAMP_BYTES].copy_from_slice(&stamp);
    value[last..].copy_from_slice(&stamp);
}

/// Appends `value` with both ends stamped.
#[inline]
fn push_stamped(values: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let start = values.len();
    values.extend_from_slice(value);
    put_stamps(key, &mut values[start..]);
}

/// Calls `write` with `operations` in which the values are replaced by stamped copies.
fn with_stamped(
    operations: &[Operation<'_>],
    write: impl FnOnce(&[Operation<'_>]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    VALUES.with_borrow_mut(|stamped| {
        stamped.clear();
        for operation in operations {
            if let Operation::Put { key, value } = *operation {
                push_stamped(stamped, key, value);
            }
        }
        let mut rest = stamped.as_slice();
        let mut checked = Vec::with_capacity(operations.len());
        for operation in operations {
            checked.push(match *operation {
                Operation::Put { key, value } => {
                    let (value, behind) = rest.split_at(value.len());
                    rest = behind;
                    Operation::Put { key, value }
                }
                delete => delete,
            });
        }
        write(&checked)
    })
}

fn wrong(key: &[u8]) -> StoreError {
    format!("wrong answer: key {key:02x?} has a value that was not written for it").into()
}

impl Store for Checked {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if self.is_right(key, value) {
            return self.store.put(key, value);
        }
        VALUES.with_borrow_mut(|stamped| {
            stamped.clear();
            push_stamped(stamped, key, value);
            self.store.put(key, stamped)
        })
    }

    fn mark(&self) -> Option<Mark> {
        Some(put_stamps)
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.write_stamped(operations, |stamped| self.store.write(stamped))
    }

    fn write_durably(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.write_stamped(operations, |stamped| self.store.write_durably(stamped))
    }

    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.store.delete(key)
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        self.store.delete_range(from, to)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        let mut right = true;
        let hit = self.store.get(key, &mut |value| {
            right &= self.is_right(key, value);
            found(value);
        })?;
        if right { Ok(hit) } else { Err(wrong(key)) }
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        let mut bad = None;
        self.store.multi_get(keys, &mut |at, value| {
            if !self.is_right(keys[at], value) {
                bad = Some(at);
            }
            found(at, value);
        })?;
        bad.map_or(Ok(()), |at| Err(wrong(keys[at])))
    }

    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut bad = None;
        let mut last = Vec::with_capacity(self.key_bytes);
        // Keys of 16 bytes are compared as numbers, so that the check takes little of the measured
        // time.
        let mut last_words = None;
        self.store.scan(start, direction, &mut |key, value| {
            let words = <[u8; 16]>::try_from(key).ok().map(u128::from_be_bytes);
            let order = match last_words.zip(words) {
                Some((last, words)) => words.cmp(&last),
                None if last.is_empty() => direction_of(direction),
                None => key.cmp(last.as_slice()),
            };
            let in_order = order == direction_of(direction);
            if !in_order || !self.is_right(key, value) {
                bad = Some(key.to_vec());
                return false;
            }
            last_words = words;
            if words.is_none() {
                last.clear();
                last.extend_from_slice(key);
            }
            visit(key, value)
        })?;
        bad.map_or(Ok(()), |key| Err(wrong(&key)))
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.store.flush()
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.store.settle()
    }

    fn compact(&self) -> Result<(), StoreError> {
        self.store.compact()
    }

    fn verify(&self) -> Result<String, StoreError> {
        self.store.verify()
    }

    fn checkpoint(&self, dir: &Path) -> Result<(), StoreError> {
        self.store.checkpoint(dir)
    }

    fn close(self: Arc<Self>) -> Result<(), StoreError> {
        match Arc::into_inner(self) {
            Some(checked) => checked.store.close(),
            None => Ok(()),
        }
    }

    fn lookups(&self) -> Lookups {
        self.store.lookups()
    }

    fn levels(&self) -> Vec<Level> {
        self.store.levels()
    }

    fn state(&self) -> State {
        self.store.state()
    }
}

#[cfg(test)]
mod tests {
    use trommel_harness::MapStore;

    use super::*;

    const KEY: &[u8] = b"0123456789abcdef";
    const OTHER: &[u8] = b"1123456789abcdef";

    fn checked() -> (Arc<MapStore>, Checked) {
        let map = Arc::new(MapStore::default());
        (map.clone(), Checked::new(map, 16, 32))
    }

    #[test]
    fn checked_values_are_those_that_were_stamped() {
        let (map, store) = checked();
        let mark = store.mark().unwrap();
        let mut values = [[7; 32]; 2];
        mark(KEY, &mut values[0]);
        mark(OTHER, &mut values[1]);
        assert!(store.is_right(KEY, &values[0]) && !store.is_right(OTHER, &values[0]));
        let put = |key, value: usize| Operation::Put { key, value: &values[value] };
        assert!(store.are_right(&[put(KEY, 0), Operation::Delete { key: OTHER }, put(OTHER, 1)]));
        assert!(!store.are_right(&[put(KEY, 0), put(OTHER, 0)]));
        // If one of them is not stamped, the written values are.
        store.write(&[put(KEY, 0), put(OTHER, 0)]).unwrap();
        for (key, value) in [(KEY, values[0]), (OTHER, values[1])] {
            assert!(map.get(key, &mut |found| assert_eq!(found, value)).unwrap());
        }
    }

    #[test]
    fn right_answers_pass() {
        let (_, store) = checked();
        store.put(KEY, &[7; 32]).unwrap();
        let put = |key| Operation::Put { key, value: &[8; 32] };
        let batch = [put(OTHER), Operation::Delete { key: KEY }, put(KEY)];
        store.write(&batch).unwrap();
        assert!(store.get(KEY, &mut |value| assert_eq!(value[8..24], [8; 16])).unwrap());
        assert!(!store.get(b"0123456789abcdef0", &mut |_| {}).unwrap());
        store.multi_get(&[KEY, OTHER], &mut |_, _| {}).unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut entries = 0;
            store
                .scan(None, direction, &mut |_, _| {
                    entries += 1;
                    true
                })
                .unwrap();
            assert_eq!(entries, 2);
        }
    }

    #[test]
    fn wrong_answers_are_errors() {
        let (map, store) = checked();
        store.put(KEY, &[7; 32]).unwrap();
        let mut value = Vec::new();
        map.get(KEY, &mut |found| value = found.to_vec()).unwrap();
        let refused = |changed: &[u8], key: &[u8]| {
            map.put(key, changed).unwrap();
            assert!(store.get(key, &mut |_| {}).is_err());
            assert!(store.multi_get(&[key], &mut |_, _| {}).is_err());
            assert!(store.scan(Some(key), Direction::Forward, &mut |_, _| true).is_err());
        };
        refused(&value, OTHER);
        refused(&value[..31], KEY);
        refused(&[&value[..31], b"x"].concat(), KEY);
        refused(&[b"x", &value[1..]].concat(), KEY);
        map.put(KEY, &value).unwrap();
        refused(&value, b"0123456789abcdef0");
    }
}

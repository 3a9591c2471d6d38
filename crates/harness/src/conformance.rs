//! The conformance suite of [`Store`], run on every implementation, including those in other
//! packages: a figure counts only if its store did the work.

use std::sync::Arc;

use crate::store::{Direction, Lookups, Operation, Store};

const WORKS: &str = "a store on a machine that works";

fn value_of(store: &dyn Store, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    let found = store.get(key, &mut |bytes| value = Some(bytes.to_vec())).expect(WORKS);
    assert_eq!(found, value.is_some(), "get calls back exactly if it found the key");
    value
}

fn keys_of(store: &dyn Store, start: Option<&[u8]>, direction: Direction) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let visit = &mut |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        true
    };
    store.scan(start, direction, visit).expect(WORKS);
    keys
}

/// Checks `store`, which must be empty, and closes it.
///
/// # Panics
/// If the store breaks a promise, or fails.
pub fn check(store: Arc<dyn Store>) {
    store.put(b"b", b"2").expect(WORKS);
    store.put(b"d", b"4").expect(WORKS);
    let batch = [
        Operation::Put { key: b"a", value: b"1" },
        Operation::Put { key: b"c", value: b"x" },
        Operation::Put { key: b"c", value: b"3" },
        Operation::Delete { key: b"d" },
    ];
    store.write(&batch).expect(WORKS);
    for round in 0..2 {
        assert_eq!(value_of(&*store, b"c").expect("c is stored"), b"3", "round {round}");
        assert_eq!(value_of(&*store, b"d"), None);
        assert_eq!(value_of(&*store, b"bb"), None);
        let mut found = Vec::new();
        let keys: [&[u8]; 4] = [b"d", b"a", b"zz", b"b"];
        store.multi_get(&keys, &mut |at, value| found.push((at, value.to_vec()))).expect(WORKS);
        found.sort();
        assert_eq!(found, [(1, b"1".to_vec()), (3, b"2".to_vec())]);
        assert_eq!(keys_of(&*store, None, Direction::Forward), [b"a", b"b", b"c"]);
        assert_eq!(keys_of(&*store, None, Direction::Backward), [b"c", b"b", b"a"]);
        assert_eq!(keys_of(&*store, Some(b"bb"), Direction::Forward), [b"c"]);
        assert_eq!(keys_of(&*store, Some(b"b"), Direction::Forward), [b"b", b"c"]);
        assert_eq!(keys_of(&*store, Some(b"b"), Direction::Backward), [b"b", b"a"]);
        let mut visits = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            visits += 1;
            visits < 2
        };
        store.scan(None, Direction::Forward, visit).expect(WORKS);
        assert_eq!(visits, 2, "a scan ends when the visitor says so");
        store.flush().expect(WORKS);
        store.settle().expect(WORKS);
    }
    store.make_iterator().expect(WORKS);
    store.delete(b"a").expect(WORKS);
    store.compact().expect(WORKS);
    assert_eq!(keys_of(&*store, None, Direction::Forward), [b"b", b"c"]);
    for key in [b"a", b"c", b"d", b"e"] {
        store.put(key, b"5").expect(WORKS);
    }
    for round in 0..2 {
        store.delete_range(b"b", b"d").expect(WORKS);
        assert_eq!(value_of(&*store, b"c"), None, "round {round}");
        assert_eq!(keys_of(&*store, None, Direction::Forward), [b"a", b"d", b"e"]);
        assert_eq!(keys_of(&*store, Some(b"c"), Direction::Backward), [b"a"]);
        store.put(b"b", b"6").expect(WORKS);
        assert_eq!(value_of(&*store, b"b").expect("b was written since"), b"6");
        store.flush().expect(WORKS);
        store.settle().expect(WORKS);
    }
    store.delete_range(b"x", b"z").expect(WORKS);
    assert_eq!(keys_of(&*store, None, Direction::Forward), [b"a", b"b", b"d", b"e"]);
    assert!(!store.verify().expect(WORKS).contains('\n'));
    store.reset_stats();
    assert_eq!(store.lookups(), Lookups::default());
    store.close().expect(WORKS);
}

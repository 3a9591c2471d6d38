//! kvdb's shared tests, and what they leave out.

use std::io::ErrorKind;
use std::sync::Arc;

use kvdb::{IoStatsKind, KeyValueDB};
use kvdb_shared_tests as shared;
use trommel::{Db, Options};
use trommel_kvdb::Columns;
use trommel_sim::MemoryVfs;

fn open_on(vfs: &MemoryVfs, count: u32) -> Columns {
    let db = Db::open("db", Options::default().vfs(Arc::new(vfs.clone()))).expect("it opens");
    Columns::open(&db, count).expect("columns open")
}

fn open(count: u32) -> Columns {
    open_on(&MemoryVfs::new(), count)
}

#[test]
fn the_shared_tests_pass() {
    shared::test_put_and_get(&open(1)).unwrap();
    shared::test_delete_and_get(&open(1)).unwrap();
    shared::test_get_fails_with_non_existing_column(&open(1)).unwrap();
    shared::test_write_clears_buffered_ops(&open(1)).unwrap();
    shared::test_iter(&open(1)).unwrap();
    shared::test_iter_with_prefix(&open(1)).unwrap();
    shared::test_io_stats(&open(shared::IO_STATS_NUM_COLUMNS)).unwrap();
    shared::test_delete_prefix(&open(shared::DELETE_PREFIX_NUM_COLUMNS)).unwrap();
    shared::test_complex(&open(1)).unwrap();
}

#[test]
fn a_missing_column_is_an_error_that_writes_nothing() {
    let columns = open(2);
    let mut transaction = columns.transaction();
    transaction.put(0, b"key", b"value");
    transaction.put(2, b"key", b"value");
    let error = columns.write(transaction).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(columns.get(0, b"key").unwrap(), None);
    assert!(columns.iter(2).next().unwrap().is_err());
    assert!(columns.has_prefix(2, b"").is_err());
}

#[test]
fn columns_are_apart_and_stay() {
    let vfs = MemoryVfs::new();
    let columns = open_on(&vfs, 3);
    let mut transaction = columns.transaction();
    for column in 0..3 {
        transaction.put(column, b"key", format!("value {column}").as_bytes());
    }
    transaction.delete_prefix(1, b"");
    columns.write(transaction).unwrap();
    drop(columns);
    // Fewer columns, then all of them.
    assert!(open_on(&vfs, 1).get(0, b"key").unwrap().is_some());
    let columns = open_on(&vfs, 3);
    let values: Vec<_> = (0..3).map(|column| columns.get(column, b"key").unwrap()).collect();
    assert_eq!(values, [Some(b"value 0".to_vec()), None, Some(b"value 2".to_vec())]);
}

#[test]
fn operations_of_a_transaction_apply_in_order() {
    let columns = open(1);
    let mut transaction = columns.transaction();
    transaction.put(0, b"ab", b"1");
    transaction.delete_prefix(0, b"a");
    transaction.put(0, b"ac", b"2");
    columns.write(transaction).unwrap();
    let keys: Vec<_> = columns.iter(0).map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(keys, [b"ac"]);
    assert_eq!(columns.get_by_prefix(0, b"a").unwrap().unwrap(), b"2");
}

/// An iterator shows the store as of when it was created.
#[test]
fn an_iterator_sees_no_later_write() {
    let columns = open(1);
    let put = |key: &[u8]| {
        let mut transaction = columns.transaction();
        transaction.put(0, key, b"value");
        columns.write(transaction).unwrap();
    };
    put(b"a");
    let entries = columns.iter(0);
    put(b"b");
    assert_eq!(entries.count(), 1);
}

#[test]
fn reads_of_every_kind_are_counted() {
    let columns = open(1);
    let mut transaction = columns.transaction();
    transaction.put(0, b"key", b"value");
    columns.write(transaction).unwrap();
    columns.get(0, b"key").unwrap();
    columns.get_by_prefix(0, b"k").unwrap();
    assert!(columns.has_key(0, b"key").unwrap());
    let stats = columns.io_stats(IoStatsKind::Overall);
    assert_eq!((stats.reads, stats.bytes_read), (3, 8 + 6 + 3));
    assert_eq!((stats.transactions, stats.writes, stats.bytes_written), (1, 1, 8));
}

/// Queries of several threads share what has changed among them.
#[test]
fn changes_since_the_previous_query_are_counted_once() {
    let columns = open(1);
    let reads: u64 = std::thread::scope(|scope| {
        let query = || {
            let read = |_| {
                columns.get(0, b"key").unwrap();
                columns.io_stats(IoStatsKind::SincePrevious).reads
            };
            (0..20_000).map(read).sum::<u64>()
        };
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(query)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(reads, columns.io_stats(IoStatsKind::Overall).reads);
}

//! Inputs that are too large are rejected before a byte is written, in every call, and leave the
//! store unaffected.
//!
//! The values are pages of zeros that are never touched: a size is checked before a byte is copied.

use std::sync::Arc;

use trommel::{
    Db, Error, ErrorKind, MAX_BATCH_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Options, Result,
    WriteBatch, WriteOptions,
};
use trommel_sim::{OpKind, SimDisk};

/// A value of the largest size no longer fits in a batch with this many bytes.
const TOO_MUCH_BESIDE: usize = MAX_BATCH_BYTES - MAX_VALUE_BYTES;

struct Stage {
    disk: SimDisk,
    db: Db,
}

impl Stage {
    fn new() -> Self {
        let disk = SimDisk::new();
        let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
        let db = Db::open("/db", options).unwrap();
        db.put("k", "before").unwrap();
        Self { disk, db }
    }

    /// The error of the call. Neither the call nor the error changes anything, on disk or for
    /// readers, and valid input is accepted afterwards.
    fn refused<T>(&self, way: &str, call: impl FnOnce(&Db) -> Result<T>) -> Error {
        let appends = |disk: &SimDisk| disk.calls(OpKind::Append);
        let before = (self.disk.hash(), self.disk.used_bytes(), appends(&self.disk));
        let seqno = self.db.stats().last_seqno;
        let Err(error) = call(&self.db) else { panic!("{way}: it was taken") };
        assert_eq!(error.kind(), ErrorKind::Usage, "{way}: {error}");
        let after = (self.disk.hash(), self.disk.used_bytes(), appends(&self.disk));
        assert_eq!(after, before, "{way}: something was written");
        assert_eq!(self.db.stats().last_seqno, seqno, "{way}: something was numbered");
        assert_eq!(self.db.get("k").unwrap().as_deref(), Some(&b"before"[..]), "{way}");
        assert_eq!(self.db.iter().count(), 1, "{way}: something can be seen");
        self.db.put("k", "before").unwrap();
        error
    }

    /// The store as the next process opens it.
    fn reopened(self) {
        let Self { disk, db } = self;
        drop(db);
        let options = Options::default().vfs(Arc::new(disk)).background_threads(0);
        let db = Db::open("/db", options).unwrap();
        assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"before"[..]));
        assert_eq!(db.iter().count(), 1);
    }
}

/// A batch that `fill` extends, between two valid operations.
fn batch(fill: impl FnOnce(&mut WriteBatch) -> &mut WriteBatch) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put("k", "half of a batch");
    fill(&mut batch);
    batch.put("k", "the other half");
    batch
}

#[test]
fn a_value_that_is_too_long_is_refused_before_a_byte_is_written() {
    let stage = Stage::new();
    let huge = vec![0; MAX_VALUE_BYTES + 1];
    let in_batch = batch(|batch| batch.put("huge", &huge));
    for (way, error) in [
        ("put", stage.refused("put", |db| db.put("k", &huge))),
        ("put_with", stage.refused("put_with", |db| db.put_with("k", &huge, WriteOptions::sync()))),
        ("batch", stage.refused("batch", |db| db.write(in_batch))),
        ("insert", stage.refused("insert", |db| db.insert_if_absent("new", &huge))),
        ("cas", stage.refused("cas", |db| db.compare_and_set("k", Some(b"before"), Some(&huge)))),
    ] {
        let is_reported = matches!(error, Error::ValueTooLong { bytes } if bytes == huge.len());
        assert!(is_reported, "{way}: {error:?}");
    }
    stage.reopened();
}

#[test]
fn a_key_that_is_too_long_is_refused_before_a_byte_is_written() {
    let stage = Stage::new();
    let long = vec![b'k'; MAX_KEY_BYTES + 1];
    let with_put = batch(|batch| batch.put(&long, "v"));
    let with_delete = batch(|batch| batch.delete(&long));
    for (way, error) in [
        ("put", stage.refused("put", |db| db.put(&long, "v"))),
        ("delete", stage.refused("delete", |db| db.delete(&long))),
        ("batch, put", stage.refused("batch, put", |db| db.write(with_put))),
        ("batch, delete", stage.refused("batch, delete", |db| db.write(with_delete))),
        ("insert", stage.refused("insert", |db| db.insert_if_absent(&long, "v"))),
        ("cas", stage.refused("cas", |db| db.compare_and_set(&long, None, Some(b"v")))),
    ] {
        let is_reported = matches!(error, Error::KeyTooLong { bytes } if bytes == long.len());
        assert!(is_reported, "{way}: {error:?}");
    }
    stage.reopened();
}

/// Only the length of the last value is checked, so that the batch uses little memory.
#[test]
fn a_batch_that_is_too_large_is_refused_before_a_byte_is_written() {
    let stage = Stage::new();
    let huge = vec![0; MAX_VALUE_BYTES];
    let too_large = batch(|batch| batch.put("some", vec![7; TOO_MUCH_BESIDE]).put("huge", &huge));
    let error = stage.refused("batch", |db| db.write(too_large.clone()));
    let is_reported = |error: &Error| match error {
        Error::BatchTooLarge { bytes, limit } => *bytes > *limit && *limit == MAX_BATCH_BYTES,
        _ => false,
    };
    assert!(is_reported(&error), "{error:?}");
    let durably = |db: &Db| db.write_with(too_large, WriteOptions::sync());
    assert!(is_reported(&stage.refused("a synced batch", durably)));
    stage.reopened();
}

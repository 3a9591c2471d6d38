//! A store that a scenario fills, and its expected contents.

use std::path::Path;

use trommel::{Db, Error, ErrorKind, Options, Result};

use crate::stage::counted;

/// Keys are written in another order than their own, so that tables overlap and there is work for
/// compactions.
pub(crate) fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// Incompressible values.
pub(crate) fn value(number: u64) -> Vec<u8> {
    let mut word = number;
    let mut value = Vec::with_capacity(1008);
    while value.len() < 1000 {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend((word ^ word >> 29).to_le_bytes());
    }
    value
}

/// Buffers of some KiB.
pub(crate) fn tiny() -> Options {
    Options::default()
        .writes(|w| w.write_buffer_bytes(64 << 10))
        .compaction(|c| c.table_bytes(128 << 10).base_level_bytes(256 << 10).level_ratio(4))
        .reads(|r| r.cache_bytes(1 << 20))
}

/// The acknowledged entries, from number 0 on, and whether one more write was attempted.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) written: u64,
    pub(crate) attempted: u64,
}

impl Known {
    /// Writes until an error, or until `most` entries are written; returns the error.
    pub(crate) fn fill(&mut self, db: &Db, most: u64) -> Option<Error> {
        let before = self.written;
        let mut refused = None;
        while self.written < most && refused.is_none() {
            self.attempted = self.written + 1;
            match db.put(key(self.written), value(self.written)) {
                Ok(_) => self.written += 1,
                Err(error) => refused = Some(error),
            }
        }
        counted("writes.acknowledged", self.written - before);
        refused.inspect(refusal)
    }

    /// Checks that everything acknowledged is present, and nothing else except, perhaps, the one
    /// write that failed.
    pub(crate) fn check(&self, db: &Db) {
        for number in 0..self.written {
            let found = db.get(key(number)).unwrap_or_else(|error| panic!("{number}: {error}"));
            assert!(found.as_deref() == Some(&value(number)[..]), "entry {number} of {self:?}");
        }
        let (mut entries, mut backward) = (0, 0);
        for entry in db.iter() {
            entry.unwrap_or_else(|error| panic!("after {entries} entries: {error}"));
            entries += 1;
        }
        for entry in db.iter().rev() {
            entry.unwrap_or_else(|error| panic!("after {backward} entries backward: {error}"));
            backward += 1;
        }
        assert_eq!(entries, backward);
        assert!((self.written..=self.attempted).contains(&entries), "{entries} of {self:?}");
        counted("entries.compared", entries);
    }

    /// Opens the store with `options`, checks its contents, writes more, and repeats.
    pub(crate) fn check_again(&mut self, dir: &Path, options: Options) {
        let db = Db::open(dir, options.clone()).unwrap_or_else(|error| panic!("{error}"));
        self.check(&db);
        db.verify().unwrap_or_else(|error| panic!("{error}"));
        // The attempted write is certain from now on.
        db.put(key(self.written), value(self.written)).unwrap();
        self.written += 1;
        let more = self.written + 200;
        assert!(self.fill(&db, more).is_none(), "there is room again");
        db.compact_all().unwrap_or_else(|error| panic!("{error}"));
        self.check(&db);
        db.close().unwrap();
        let db = Db::open(dir, options).unwrap();
        self.check(&db);
        db.close().unwrap();
        counted("stores.opened_again", 2);
    }
}

/// Checks an error of a limit: it says what to do, and blames neither the caller nor the data.
pub(crate) fn refusal(error: &Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Retry | ErrorKind::Reopen),
        "{error} ({:?})",
        error.kind()
    );
    assert!(error.to_string().len() > 10, "{error}");
    println!("\nrefused: {error}");
    counted("refusals", 1);
}

/// Checks that an operation succeeded, or failed because of a limit; returns whether it succeeded.
pub(crate) fn tried<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().err().inspect(|error| refusal(error)).is_none()
}

//! For tests: a store whose filters have far more false positives than they announce.

use std::sync::Arc;

use trommel::{
    Db, FilterChoice, FilterContext, Options, UserFilter, UserFilterBuilder, UserFilterPolicy,
};
use trommel_sim::MemoryVfs;

/// Number of distinct absent keys looked up in the store.
pub(crate) const LOOKUPS: u64 = 500;

/// A store of one table in level 0, after lookups of [`LOOKUPS`] absent keys.
pub(crate) fn store() -> Db {
    let options = Options::default().vfs(Arc::new(MemoryVfs::new())).background_threads(0);
    let db = Db::open("db", options.filtering(|f| f.user_filters(Arc::new(Open)))).unwrap();
    (0..=LOOKUPS).for_each(|number| {
        db.put(format!("{number:04}"), "value").unwrap();
    });
    db.flush().unwrap();
    for number in 0..LOOKUPS {
        assert_eq!(db.get(format!("{number:04} is absent")).unwrap(), None);
    }
    db
}

/// Filters that answer "maybe" to everything, and announce a false-positive rate of 1%.
#[derive(Debug)]
struct Open;

impl UserFilterPolicy for Open {
    fn name(&self) -> &str {
        "open"
    }

    fn choose(&self, _: &FilterContext) -> FilterChoice {
        FilterChoice::User(Box::new(Self))
    }

    fn open(&self, _: &[u8]) -> Result<Box<dyn UserFilter>, String> {
        Ok(Box::new(Self))
    }
}

impl UserFilterBuilder for Open {
    fn add(&mut self, _: &[u8], _: u64) {}

    fn finish(self: Box<Self>) -> Vec<u8> {
        vec![0]
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

impl UserFilter for Open {
    fn may_contain(&self, _: &[u8], _: u64) -> bool {
        true
    }

    fn expected_fpr(&self) -> f64 {
        0.01
    }

    fn memory_bytes(&self) -> usize {
        1
    }
}
